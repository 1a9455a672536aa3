"""Which sentences are shown, what is marked in them, and the page as a browser would read it."""

import dataclasses
import re
import time

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.evaluation.metrics import Chrf
from flaxformer_mt.evaluation.page import differences, page, worst_and_best
from flaxformer_mt.evaluation.scoring import Scoring, assess
from tests.evaluation.noise import grammar_text, noisy
from tests.figures.examples import Reader

SOURCES, TARGETS = grammar_text(30)
OUTPUTS = noisy(TARGETS, 0.3, 1)
FOUND = assess(OUTPUTS, TARGETS, sources=SOURCES, scoring=Scoring(ter=False, resamples=0))
HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</style></script><!-- ]]> &amp; &lt;b&gt; {{x}} ${x} `x`",
    "'; alert(1); //\u2028 \u202eright-to-left \u0000 \u001b[31m \u007f",
    "javascript:alert(1) <a href='javascript:alert(1)'>x</a> <svg/onload=alert(1)>",
    "",
]
REFERENCES = ["a b c", "<b>d</b> e", "f & g", "h", "שלום עולם", "nothing"]


@pytest.mark.parametrize("sources", [SOURCES, None])
def test_each_sentence_stands_with_its_text_and_words(sources):
    text = page("x", dataclasses.replace(FOUND, sources=sources), origin="", shown=4)
    items = re.findall(r'<li data-line="(\d+)".*? data-words="(\d+)">(.*?)</li>', text)
    scores = Chrf().sentence_scores(Chrf().counts(OUTPUTS, TARGETS))
    order = scores.argsort(kind="stable").tolist()
    assert [int(line) - 1 for line, _, _ in items] == order[:4] + order[-4:]
    for line, words, item in items:
        number = int(line) - 1
        assert int(words) == len((sources or TARGETS)[number].split())
        sentence_text = " ".join(Reader(item).text.split())
        assert (" ".join(SOURCES[number].split()) in sentence_text) == (sources is not None)
        assert " ".join(OUTPUTS[number].split()) in sentence_text


def test_of_several_references_the_nearest_is_marked():
    references = [["a b X d e", "x"], ["a b c d", None], ["q r", "y"]]
    scoring = Scoring(ter=False, resamples=0)
    found = assess(["a b c d e", "y"], references, scoring=scoring)
    items = re.findall(r"<li .*?</li>", page("x", found, origin=""))
    first, second = sorted(items)
    sides = dict(re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", first))
    assert sides["reference 1"] == "a b X d e" and sides["reference 3"] == "q r"
    assert sides["reference 2"] == "a b c d"
    assert sides["translation"] == "a b c d <ins>e</ins>"
    names = re.findall("<dt>(.*?)</dt>", second)
    assert names == ["reference 1", "reference 3", "translation"]
    assert "<dd>y</dd>" in re.sub(' dir="auto"', "", second)
    assert "Of several references, the one with the highest" in page("x", found, origin="")


def test_marks_by_hand():
    ours, theirs = differences("the big dog sleeps now", "the dog sleeps today now here")
    assert [words for words, differs in ours if differs] == ["big"]
    assert [words for words, differs in theirs if differs] == ["today", "here"]
    assert differences("", "a  b") == ([], [("a b", True)])
    # A line of megabytes is shown unmarked.
    ours, theirs = differences("a " * 100_000, "b " * 100_000)
    assert not ours[0][1] and not theirs[0][1]


def test_marks_of_words_that_repeat_take_no_cubic_time():
    """difflib takes minutes for these 2,000 words a side, which one loop of a model can write."""
    ours, theirs = "a b " * 1000, "b b a " * 666
    start = time.process_time()
    marked, _ = differences(ours, theirs)
    assert time.process_time() - start < 5
    assert sum(len(text.split()) for text, differs in marked if not differs) >= 1300


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_no_word_is_lost_and_what_is_unmarked_agrees(ours, theirs):
    sides = differences(" ".join(ours), " ".join(theirs))
    for words, side in zip((ours, theirs), sides, strict=True):
        assert " ".join(text for text, _ in side).split() == words
    common = [" ".join(text for text, differs in side if not differs).split() for side in sides]
    assert common[0] == common[1]


def test_a_small_set_is_shown_whole():
    for count in (15, 16, 1000):
        assert sorted(worst_and_best(FOUND, count)) == list(range(30))


def made(hypotheses: list[str], references: list[str], name: str = "x") -> str:
    scoring = Scoring(ter=False, resamples=20)
    assessment = assess(hypotheses, references, sources=hypotheses, scoring=scoring)
    return page(name, assessment, origin=f"Weights: {name}")


@pytest.fixture(scope="module")
def hostile_page():
    """The page of HOSTILE translations, with hostile sources and a hostile name."""
    return made(HOSTILE, REFERENCES, name=HOSTILE[0])


def test_sentences_never_become_code(hostile_page):
    """That a page allows its own code alone is `tests/test_pages.py`'s."""
    reader = Reader(hostile_page)
    assert reader.open == []
    harmless = {tag for tag, _ in Reader(made(REFERENCES[:1], REFERENCES[:1])).tags}
    assert {tag for tag, _ in reader.tags} <= harmless | {"del", "ins", "em", "p"}
    assert sum(tag == "script" for tag, _ in reader.tags) == 1
    keys = {key for _, attributes in reader.tags for key in attributes}
    assert not any(key.startswith("on") or key in ("src", "href", "style") for key in keys)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", made(REFERENCES, REFERENCES))


def test_sentences_can_be_read(hostile_page):
    text = " ".join(Reader(hostile_page).text.split())
    for line in HOSTILE[:3] + HOSTILE[4:5]:
        assert line in text
    # Controls are made visible: HTML does not allow them.
    assert "(empty)" in text and "␀" in text and "␛[31m ␡" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", hostile_page)


def test_controls_have_labels_and_sentences_what_they_are_sorted_by(hostile_page):
    tags = Reader(hostile_page).tags
    labelled = {attributes["for"] for tag, attributes in tags if tag == "label"}
    controls = {attributes["id"] for tag, attributes in tags if tag in ("select", "input")}
    assert labelled == controls
    assert all(attributes["dir"] == "auto" for tag, attributes in tags if tag == "dd")
    sentences = [attributes for tag, attributes in tags if tag == "li"]
    lines = sorted(int(sentence["data-line"] or 0) for sentence in sentences)
    assert lines == [1, 2, 3, 4, 5, 6]
    for key in re.findall(r'<option value="(\w+)-(?:a|de)scending">', hostile_page):
        assert all(float(sentence[f"data-{key}"] or "x") >= 0 for sentence in sentences)
