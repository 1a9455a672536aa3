"""What is translated of HTML, and what stays byte for byte."""

import pytest

from flaxformer_mt.markup import document, segments
from flaxformer_mt.markup.document import MarkupError
from flaxformer_mt.markup.html import read_html
from tests.markup.pretended import pretended


def texts(text: str) -> list[str]:
    return [segment.text for segment in read_html(text).segments]


PAGE = """<!DOCTYPE html>
<HTML lang='en'><head><meta charset=utf-8><title>My &amp; page</title>
<style>b {}</style><script>if (a<b) "text"</script>
<!-- no text --></head><BODY class=x >
  <h1>  Read
    this </h1>
<ul><li>one<li><b>two</b></ul><p>three<br>four<hr/>
<pre> as  it
is </pre></BODY></HTML>
"""


def test_text_in_blocks_is_translated_and_all_else_stays():
    expected = PAGE
    for before, after in [
        ("My &amp; page", "PAGE &amp; MY"),
        ("Read\n    this", "THIS READ"),
        ("one", "ONE"),
        ("two", "TWO"),
        ("three<br>four", "FOUR THREE<br>"),
    ]:
        expected = expected.replace(before, after)
    assert pretended(read_html(PAGE)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the <b>old</b> dog", "DOG <b>OLD</b> THE"),
        ("the <b>old</b> dog.", "DOG. <b>OLD</b> THE"),
        ("<p>a <A HREF='x'>b c</A > d", "<p>D <A HREF='x'>C B</A > A"),
        ("<b>a <i>b</i></b> c", "C <b><i>B</i> A</b>"),
        ("a<br>b", "B A<br>"),
        ("see <img src=x> it", "IT SEE <img src=x>"),
        ("<b>all of it</b>", "<b>IT OF ALL</b>"),
        (" <b> a </b> ", " <b> A </b> "),
        ("a <b></b> c", "C A <b></b>"),
        ("a <!-- c --> b", "B A <!-- c -->"),
        ("un<b>able</b> b", "B <b>UNABLE</b>"),
        ("H<sub>2</sub>O is", "IS H<sub>2</sub>O"),
        ("a (<b>b</b>) c", "C (<b>B</b>) A"),
    ],
)
def test_inline_elements_go_with_their_words(text, expected):
    assert pretended(read_html(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a &lt;b&gt; &amp; c", "C &amp; &lt;B&gt; A"),
        ("&Auml;rger &#228; &copy 1", "1 © Ä ÄRGER"),
        ("1 < 2", "2 &lt; 1"),
        ("a&nbsp;b", "B A"),
        ("&nbsp;a b&nbsp;", "&nbsp;B A&nbsp;"),
        ("a &unknown; b", "B &amp;UNKNOWN; A"),
    ],
)
def test_entities_are_read_and_written_only_as_needed(text, expected):
    assert pretended(read_html(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "A<br>B <i>C<br>D</i> E",
        "A<br> B <br>C<br> <br>D<br/><br/>E",
        "<b>A</b><br><b>C</b>",
        "A <img> B<img>C<wbr>D<img> E <b></b>F<!-- g -->",
        "A<br><img>B <b>C</b>",
    ],
)
def test_white_space_beside_points_stays(text):
    assert pretended(read_html(text), backwards=False) == text


def test_a_line_break_parts_words():
    assert texts("one<br>two") == ["one two"]
    assert pretended(read_html("a<br>b c")) == "C B A<br>"


def test_hard_spaces_stay_between_the_same_words():
    out = pretended(read_html("it is 10&nbsp;km or 5&#160;m away"), backwards=False)
    assert out == "IT IS 10&nbsp;KM OR 5&#160;M AWAY"


@pytest.mark.parametrize(
    "text",
    [
        "<code>a b</code>",
        "<kbd>a</kbd> <samp>b</samp>",
        "<pre>a <b>b</b></pre>",
        "<textarea><b>a</textarea>",
        "<script>a = '<p>b'</script>",
        "<script>a",
        "<p translate=no>a b</p>",
        "<div class='x notranslate y'><p>a <b>b</b></div>",
        "<svg><title>a</title><text>b</text></svg>",
        "<!-- a b -->",
        "<!-- a",
        "<a href='a b",
        "<p>&nbsp;</p> | » 🙂 <br>",
        "<p>&nbsp |</p>",  # browsers know it without a semicolon
        "<p>&lt!-- |</p>",
        "<p>&lt!-- ;</p>",
        "<iframe><p>a b</iframe>",
        "",
    ],
)
def test_what_is_not_translated_stays(text):
    assert texts(text) == []
    assert pretended(read_html(text)) == text


def test_kept_inline_elements_are_points_with_their_text():
    out = pretended(read_html("run <code>ls -l <b>x</b></code> now"))
    assert out == "NOW RUN <code>ls -l <b>x</b></code>"
    assert texts("run <code>ls</code> now") == ["run now"]


def test_translation_can_be_allowed_again_inside():
    assert texts("<div translate=no>a <p translate=yes>b</p> c</div> d") == ["b", "d"]


def test_attributes_for_people_are_translated():
    text = (
        "<img alt='a cat' src='a b'> <input placeholder=name value=x> <p title=\"a &quot;b&quot;\">"
        '<meta name="Description" content="a b"><meta name=author content="a b"><b aria-label=\'it'
        "&#39;s'></b><img alt>"
    )
    assert texts(text) == ["a cat", "name", 'a "b"', "a b", "it's"]
    out = pretended(read_html(text))
    assert "<img alt='CAT A' src='a b'> <input placeholder=\"NAME\" value=x>" in out
    assert '<p title="&quot;B&quot; A"><meta name="Description" content="B A"><meta name=a' in out
    assert out.endswith("<b aria-label='IT&#39;S'></b><img alt>")


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("see ?a=1&copy=2", "see ?a=1&copy=2"),
        ("see &copyright", "see &copyright"),
        ("see &copy;=2", "see ©=2"),
        ("see &copy now", "see © now"),
        ("see &#65&#x42;", "see AB"),
        ("see &nothing; &amp;", "see &nothing; &"),
    ],
)
def test_entities_in_attributes_are_read_as_in_browsers(value, meaning):
    (segment,) = read_html(f'<a title="{value}"></a>').segments
    assert segment.text == meaning


def test_attributes_inside_of_a_text_are_translated():
    assert pretended(read_html('a <img alt="x y"> b')) == 'B A <img alt="Y X">'


def test_links_of_a_menu_are_texts_of_their_own():
    assert texts("<nav><a>Home</a> | <a>About <b>us</b></a></nav>") == ["Home", "About us"]
    assert texts("<p><a>Home</a> and <a>About us</a>") == ["Home and About us"]
    assert texts("<p><b>One</b> <b>text</b>") == ["One text"]


@pytest.mark.parametrize(
    ("source", "tags"),
    [
        ("<p>one <b>two <i>three</b> four</i> five", "<p> <b> <i> </b> </i>"),
        ("one <b>two</i> three <i>four</b> five", "<b> </i> <i> </b>"),
    ],
)
def test_tags_that_do_not_match_stay_in_order(source, tags):
    out = pretended(read_html(source))
    places = [out.index(tag) for tag in tags.split()]
    assert places == sorted(places)


def test_elements_without_end_tag_end_where_browsers_end_them():
    assert texts("<p class=notranslate>a<p>b<ul><li translate=no>c<li>d</ul>") == ["b", "d"]


@pytest.mark.parametrize("depth", [segments.DEEPEST, segments.DEEPEST + 1])
def test_very_deep_elements_stay_in_order(depth):
    (segment,) = read_html("a " + "<b>" * depth + "b" + "</b>" * depth).segments
    assert segment.in_order == (depth > segments.DEEPEST)
    out = pretended(read_html("<i>a " + "<b>" * depth + "b" + "</b>" * depth + "</i>"))
    assert out.count("<b>") == out.count("</b>") == depth
    assert out.startswith("<i>") and out.index("<b>") < out.index("</b>") < out.index("</i>")


def test_size_is_bounded(monkeypatch):
    monkeypatch.setattr("flaxformer_mt.markup.html.LARGEST", 3)
    with pytest.raises(MarkupError, match="^4 characters; a document has at most 3$"):
        read_html("abcd")
    assert document.LARGEST == 10_000_000


@pytest.mark.parametrize("digits", ["0" * 5000 + "65", "1" * 5000, "0" * 5000])
def test_entities_of_any_number_of_digits_are_read(digits):
    character = "A" if digits.endswith("65") else "\ufffd"
    assert texts(f"<p title='x&#{digits};'>y &#{digits}; z") == [
        f"x{character}",
        f"y {character} z",
    ]


def test_the_first_name_of_a_page_says_whether_its_content_is_a_description():
    assert texts("<meta name=description name=x content=one>") == ["one"]
    assert texts("<meta name=x name=description content=one>") == []
