"""Marks around the words of a translation whose words don't match one by one."""

import pytest

from flaxformer_mt.markup.html import read_html
from flaxformer_mt.markup.placing import AlignedSentence, escaped, placed


def put(source: str, target: str, links: str | None) -> str:
    """The translation of one text in HTML."""
    document = read_html(source)
    (segment,) = document.segments
    pairs = None
    if links is not None:
        pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    sentence = AlignedSentence(segment.text, target, links=pairs)
    return document.joined([placed(segment, target, [sentence])])


def test_punctuation_is_apart_from_words():
    links = "0-0 1-1 2-4 3-2 4-3"
    out = put("I have <b>seen</b> the <i>dog</i>.", "Ich habe den Hund gesehen.", links)
    assert out == "Ich habe den <i>Hund</i> <b>gesehen</b>."
    assert put("the <b>dog</b>", "der Hund, der", "0-0 1-1 0-2") == "der <b>Hund</b>, der"
    assert put("the <b>dog.</b>", "der Hund.", "0-0 1-1") == "der <b>Hund.</b>"


def test_names_that_stay_are_cut_where_they_were():
    assert put("see H<sub>2</sub>O.", "siehe H2O!", "0-0 1-1") == "siehe H<sub>2</sub>O!"


def test_a_point_takes_its_white_space_along():
    source, links = "a <img> b", "0-1 1-0"
    assert put(source, "B A", links) == "B A <img>"
    assert put("a <img> b c", "A B C", "0-0 1-1 2-2") == "A <img> B C"
    assert put("a<img> b c", "B A C", "0-1 1-0 2-2") == "B A<img> C"
    assert put("a <img>b c", "B A C", "0-1 1-0 2-2") == "B A <img>C"
    assert put("a<img>b c", "AB C", "0-0 1-1") == "AB<img> C"
    assert put("a <img> b.", "B A.", "0-1 1-0") == "B A <img>."


def test_sentences_have_their_own_alignments():
    document = read_html("One <b>dog. Two</b><br> cats.")
    (segment,) = document.segments
    text = "Ein Hund. Zwei Katzen."
    sentences = [
        AlignedSentence("One dog.", "Ein Hund.", 0, 0, [(0, 0), (1, 1)]),
        AlignedSentence("Two cats.", "Zwei Katzen.", 9, 10, [(0, 0), (1, 1)]),
    ]
    out = document.joined([placed(segment, text, sentences)])
    assert out == "Ein <b>Hund. Zwei</b><br> Katzen."


def test_marks_at_the_end_of_a_sentence_stay_there():
    document = read_html("I saw it.<br>You did.")
    (segment,) = document.segments
    sentences = [
        AlignedSentence("I saw it.", "Es sah ich.", 0, 0, [(2, 0), (1, 1), (0, 2)]),
        AlignedSentence("You did.", "Tatest du.", 10, 12, [(1, 0), (0, 1)]),
    ]
    out = document.joined([placed(segment, "Es sah ich. Tatest du.", sentences)])
    assert out == "Es sah ich.<br> Tatest du."


def test_punctuation_within_a_tag_does_not_draw_the_sentence_s_end_into_it():
    assert put("<b>One,</b> two.", "Zwei eins.", "0-1 1-0") == "Zwei <b>eins</b>."


def test_quotation_marks_between_sentences_are_words_of_their_own():
    document = read_html("<q>“One. <b>Two.</b>”</q> x")
    (segment,) = document.segments
    sentences = [
        AlignedSentence("One.", "Eins.", 1, 1, [(0, 0)]),
        AlignedSentence("Two.", "Zwei.", 6, 7, [(0, 0)]),
        AlignedSentence("x", "X", 12, 14, [(0, 0)]),
    ]
    out = document.joined([placed(segment, "“Eins. Zwei.” X", sentences)])
    assert out == "<q>“Eins. <b>Zwei.</b>”</q> X"


def test_without_links_words_are_aligned_by_their_places():
    assert put("a b <b>c d</b>", "A B C D", None) == "A B <b>C D</b>"
    assert put("a <b>b</b>", "A B C D", None) == "A B <b>C D</b>"


def test_words_may_be_letters():
    document = read_html("the <b>old</b> dog.")
    (segment,) = document.segments
    sentence = AlignedSentence(
        segment.text,
        "老狗那。",
        links=[(1, 0), (2, 1), (0, 2)],
        source_words=("the", "old", "dog."),
        target_words=("老", "狗", "那。"),
    )
    assert document.joined([placed(segment, sentence.target, [sentence])]) == "<b>老</b>狗那。"


def test_an_empty_translation_keeps_the_tags():
    assert put("a <b>b</b><br> c", "", "") == "<b></b><br>"


@pytest.mark.parametrize(
    ("text", "quote", "expected"),
    [
        ("a < b & \"c\" 'd' > e", "", "a &lt; b &amp; \"c\" 'd' &gt; e"),
        ("\"c\" 'd'", '"', "&quot;c&quot; 'd'"),
        ("\"c\" 'd'", "'", '"c" &#39;d&#39;'),
        ("a\x00b\x1bc\ud800\uffff\td", "", "abc\td"),
    ],
)
def test_only_what_has_to_be_is_escaped(text, quote, expected):
    assert escaped(text, quote) == expected
