"""Which sentences are shown, and what is marked in them."""

from __future__ import annotations

from hypothesis import given, strategies as st

from flaxformer_mt.evaluation import Scoring, assess
from flaxformer_mt.evaluation.examples import Span, differences, worst_and_best
from flaxformer_mt.evaluation.metrics import Chrf
from tests.evaluation.noise import grammar_text, noisy

SOURCES, REFERENCES = grammar_text(30)
HYPOTHESES = noisy(REFERENCES, 0.3, 1)
FOUND = assess(HYPOTHESES, REFERENCES, sources=SOURCES, scoring=Scoring(ter=False, resamples=0))


def test_the_lowest_and_the_highest_in_order() -> None:
    shown = worst_and_best(FOUND, HYPOTHESES, REFERENCES, sources=SOURCES, shown=4)
    scores = sorted(
        float(Chrf().sentence_scores(Chrf().counts([h], [r]))[0])
        for h, r in zip(HYPOTHESES, REFERENCES, strict=True)
    )
    assert [example.chrf for example in shown] == [*scores[:4], *scores[-4:]]
    for example in shown:
        assert example.source == SOURCES[example.line - 1]
        assert example.words == len(SOURCES[example.line - 1].split())
        texts = [" ".join(span.text for span in side) for side in (example.hypothesis,)]
        assert texts == [" ".join(HYPOTHESES[example.line - 1].split())]


def test_of_a_small_set_all_are_shown_once() -> None:
    for shown in (15, 16, 1000):
        found = worst_and_best(FOUND, HYPOTHESES, REFERENCES, shown=shown)
        assert sorted(example.line for example in found) == list(range(1, 31))
        assert all(example.source is None for example in found)


def test_marks_by_hand() -> None:
    ours, theirs = differences("the big dog sleeps now", "the dog sleeps today now here")
    assert [span.text for span in ours if span.differs] == ["big"]
    assert [span.text for span in theirs if span.differs] == ["today", "here"]
    assert differences("", "a  b") == ((), (Span("a b", True),))
    assert differences("a b", "a b") == ((Span("a b", False),), (Span("a b", False),))


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_no_word_is_lost_and_what_is_unmarked_agrees(ours: list[str], theirs: list[str]) -> None:
    sides = differences(" ".join(ours), " ".join(theirs))
    for words, side in zip((ours, theirs), sides, strict=True):
        assert " ".join(span.text for span in side).split() == words
    common = [" ".join(s.text for s in side if not s.differs).split() for side in sides]
    assert common[0] == common[1]


def test_a_line_of_megabytes_is_shown_unmarked() -> None:
    ours, theirs = differences("a " * 100_000, "b " * 100_000)
    assert not ours[0].differs and not theirs[0].differs
