"""What of Markdown is translated, and how it is written again."""

import pytest

pytest.importorskip("mdit_py_plugins", reason="the extra [markdown] is not installed")

from flaxformer_mt.markup.document import MarkupError, Unescaped
from flaxformer_mt.markup.markdown import read_markdown
from flaxformer_mt.markup.markdown_inline import make_parser
from flaxformer_mt.markup.markdown_writing import Delimiter, MarkdownWriter
from flaxformer_mt.markup.placing import AlignedSentence, placed
from tests.markup.pretended import pretended


def texts(source, **options):
    return [segment.text for segment in read_markdown(source, **options).segments]


def saying(source, *translations):
    """The document with these translations, word by word."""
    document = read_markdown(source)
    contents = [
        placed(segment, text, [AlignedSentence(segment.text, text)])
        for segment, text in zip(document.segments, translations, strict=True)
    ]
    return document.joined(contents)


@pytest.mark.parametrize(
    ("source", "translated"),
    [
        ("# The *dog* ##", "# *DOG* THE ##"),
        ("The dog\n=====\n", "DOG THE\n=====\n"),
        ("a __b__ _c_ ~~d~~", "~~D~~ _C_ __B__ A"),
        ("> a\n> *b\n> c*\n\nd", "> *C B* A\n\nD"),
        ("- one two\n  three\n- [x] four\n", "- THREE TWO ONE\n- [x] FOUR\n"),
        ("> [!NOTE]\n> one two", "> [!NOTE]\n> TWO ONE"),
        ("| a b | c \\| d |\n|---|:-:|\n|e|f g", "| B A | D \\| C |\n|---|:-:|\n|E|G F"),
        ('[one two](a.md "three four") five', 'FIVE [TWO ONE](a.md "FOUR THREE")'),
        ("![one two](a.png 'b c')", "![TWO ONE](a.png 'C B')"),
        ("[one]\n\n[one]: a.md 'Two'", "[ONE][one]\n\n[one]: a.md 'Two'"),
        ("[a][] ![a]\n\n[a]: b", "[A][a] ![A][a]\n\n[a]: b"),
        ("one `two` three  \nfour", "FOUR THREE  \nONE `two`"),
        ("one[^1] two\n\n[^1]: three\n    four\n", "TWO ONE[^1]\n\n[^1]: FOUR THREE\n"),
        ("a <b>c d</b> <code>e</code>", "<b>D C</b> A <code>e</code>"),
        ("<p title='a b'>\nc <i>d</i>\n</p>\n", "<p title='B A'>\n<i>D</i> C\n</p>\n"),
        ("> <p>a\n> b</p>\n> c", "> <p>B A</p>\n> C"),
        ("see https://a.b/c_d now", "NOW SEE https://a.b/c_d"),
        ("a&nbsp;b &amp; \\*c", "\\*C & B A"),
        ("a^[b c] d", "D A^[C B]"),
        ("a  \r\n*b*\r\n", "*B*  \r\nA\r\n"),
    ],
)
def test_markup_goes_with_its_words(source, translated):
    assert pretended(read_markdown(source)) == translated


@pytest.mark.parametrize(
    "source",
    [
        "---\ntitle: One\n---\n",
        "```python\nprint('one')\n```\n",
        "    code here\n",
        "[ref]: http://a.b 'Title'\n",
        "***\n\n`only code`\n\n<!-- a comment -->\n",
        "<https://a.example>\n",
        "<pre>\none two\n</pre>\n",
        "<div translate=no>\n\none **two**\n\n</div>\n",
        "\0\r\n\t\r\n",
        "",
    ],
)
def test_what_is_not_text_stays(source):
    assert texts(source) == []
    assert pretended(read_markdown(source)) == source


def test_elements_are_kept_by_name():
    assert texts("one <x-y>two</x-y> three", keep=["x-y"]) == ["one three"]


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("# no heading", "\\# no heading"),
        ("1. no item", "1\\. no item"),
        ("- no item", "\\- no item"),
        ("+ no item", "\\+ no item"),
        ("> no quote", "\\> no quote"),
        ("---", "\\---"),
        ("*a* `b` [c](d) <e> ~~f~~", "\\*a\\* \\`b\\` \\[c\\](d) \\<e> \\~\\~f\\~\\~"),
        ("snake_case 3 * 4 < 5 AT&T C#", "snake_case 3 * 4 < 5 AT&T C#"),
        ("&amp; \\", "\\&amp; \\\\"),
        ("_a_\nb", "\\_a\\_ b"),
    ],
)
def test_a_translation_is_only_text(said, written):
    assert saying("word", said) == written


def test_a_closed_heading_and_a_cell_stay_whole():
    assert saying("# a", "C #") == "# C \\#"
    assert saying("a\n---", "C |") == "C &#124;\n---"
    assert saying("|a|b|\n|-|-|", "x | y", "z\\") == "|x \\| y|z\\\\ |\n|-|-|"
    assert saying('[a](b "c")', 'd "e" \\', "f") == '[f](b "d \\"e\\" \\\\")'


def test_emphasis_stays_beside_letters():
    """Between letters, "_" means nothing, nor does "*" beside punctuation."""
    document = read_markdown("a _b_ c")
    (segment,) = document.segments
    links = [(0, 0), (1, 1), (2, 2)]
    sentence = AlignedSentence("a b c", "甲 乙 丙", links=links)
    assert document.joined([placed(segment, "甲 乙 丙", [sentence])]) == "甲 _乙_ 丙"
    segment = read_markdown("x *(a)* y").segments[0]
    begin, end = Delimiter("*", "em", is_end=False), Delimiter("*", "em", is_end=True)
    raw = (Unescaped("x"), begin, Unescaped("(a)"), end, Unescaped("y"))
    assert MarkdownWriter(make_parser(), {})(segment, raw) == ("&#120;*(a)*&#121;",)


def test_a_document_that_is_too_large_is_refused():
    with pytest.raises(MarkupError, match="a document has at most"):
        read_markdown("a" * 10_000_001)


def test_very_deep_emphasis_stays_in_order():
    deep = "".join(f"{sign}a " for sign in ("*", "_") * 60)
    deep += "b" + "".join(f" c{sign}" for sign in ("_", "*") * 60)
    assert pretended(read_markdown(deep)).count("<em>") == 120


def test_a_break_beside_a_line_end_leaves_no_empty_line():
    written = pretended(read_markdown("one  \ntwo\nx@y.z\n\nlast"))
    assert "\n\n" not in written.removesuffix("\n\nLAST") and "x@y.z" in written


@pytest.mark.parametrize(
    ("source", "translated"),
    [
        ("# \xa0one two\n", "# \xa0TWO ONE\n"),
        ("## \f\n", "## \f\n"),
        ("\xa0\none two\n", "\xa0\nTWO ONE\n"),
        ("> \xa0\n> \u3000\n> one\n> two\n\nsix", "> \xa0\n> \u3000\n> TWO ONE\n\nSIX"),
        ("- \xa0\n  one two\n", "- \xa0\n  TWO ONE\n"),
        ("a|b\n-|-\n\x85|\x85one two\n", "A|B\n-|-\n\x85|\x85TWO ONE\n"),
    ],
)
def test_white_space_that_only_unicode_has_stays(source, translated):
    assert pretended(read_markdown(source)) == translated


@pytest.mark.parametrize(
    "hostile",
    [
        "*",
        "[",
        "]",
        "`",
        "> ",
        "- ",
        "<",
        "|",
        "a|\n|-|\n",
        "![",
        "[a](",
        "_a ",
        "&",
        "\\",
        "<b>",
        "~~",
    ],
)
def test_hostile_text_takes_linear_time(hostile):
    assert pretended(read_markdown("a" * 100_000)) == "A" * 100_000
    assert pretended(read_markdown(hostile * 3000)) is not None
