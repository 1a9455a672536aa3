"""Lines of n-best lists as different programs write them, and as we do."""

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.n_best_lists import Candidate, NotACandidate, begins_list, candidate_of, line_of


@pytest.mark.parametrize(
    "line",
    [
        # Moses, with its options for alignments and segmentations.
        "7 ||| das Haus  ||| LexicalReordering0= -1.2 0 -0.5 LM0= -23.1 WordPenalty0= -2 ||| -1.5",
        "7 ||| das Haus ||| LM0= -23.1 ||| -1.5 ||| 0-0 1-1 ",
        "7 ||| das Haus ||| LM0= -23.1 ||| -1.5 ||| 0-1=0 2=1-1 ||| 0-0 1-1",
        "7 ||| das Haus ||| LM0= -23.1 ||| -1.5 ||| ",
        "7 ||| das Haus ||| d: 0 -2.4 lm: -49.3 w: -5 ||| -1.5",
        # Marian, with its options for word counts, alignments and word scores.
        "7 ||| das Haus ||| F0= -3.2 F1= -0.1 ||| -1.5",
        "7 ||| das Haus ||| WordCounts=3,2 ||| 0-0 1-1 ||| WordScores= -1 -2 ||| F0= -3 ||| -1.5",
        # Nematus; without a score; with a field left empty; without names.
        "7 ||| das Haus ||| -1.5",
        "7 ||| das Haus",
        "7 ||| das Haus ||| LM0= -23.1",
        "7 ||| das Haus |||  ||| -1.5",
        "7 ||| das Haus ||| -0.5 -1e-3 ||| -15E-1",
        "007\t|||\tdas Haus\t|||\tp=0.3\t|||\t-1.5",
    ],
)
def test_programs_agree_on_the_translation_and_the_score(line):
    candidate = candidate_of(line)
    assert (candidate.sentence, candidate.text) == (7, "das Haus")
    assert candidate.score in (-1.5, None)
    assert (candidate.score is None) == ("-1.5" not in line and "-15E-1" not in line)


@pytest.mark.parametrize(
    ("line", "text", "score"),
    [
        ("0 ||| a ||| b ||| LM0= -1 ||| -1.5", "a ||| b", -1.5),
        ("0 ||| 12 ||| -0.3", "12", -0.3),
        ("0 ||| Antwort: ||| -0.3", "Antwort:", -0.3),
        ("0 ||| 3-4 ||| LM0= -1 ||| -inf", "3-4", float("-inf")),
        ("0 ||| a|||b ||| LM0= -1 ||| 2", "a|||b", 2),
        ("0 |||  ||| LM0= 0 ||| 0", "", 0),
        ("0 ||| ||| ||| 0", "", 0),
        ("0 |||", "", None),
        ("0 ||| log_prob= 1 ||| log_prob= -1.0 ||| -1.0", "log_prob= 1", -1),
    ],
)
def test_odd_translations(line, text, score):
    assert candidate_of(line) == Candidate(0, text, score)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "doesn't begin with a sentence's number"),
        ("das Haus ||| LM0= -1 ||| -1.5", "doesn't begin with a sentence's number"),
        ("-1 ||| das Haus ||| -1.5", "doesn't begin with a sentence's number"),
        ("0|||das Haus|||-1.5", "doesn't begin with a sentence's number"),
        ("0 ||| das Haus ||| LM0= -1 ||| nan", "has a score that isn't a number"),
    ],
)
def test_other_lines_are_refused(line, reason):
    with pytest.raises(NotACandidate, match=reason):
        candidate_of(line)
    assert begins_list(line) == ("nan" in line)


WORDS = st.sampled_from(
    ["Haus", "|||", "0-0", "a= 1", "-1.5", "0=1", "WordScores=", "F0=", "log_prob="]
)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


@given(TEXTS, st.floats(-1e3, 0), st.sampled_from([None, "", "0-0 1-2"]))
def test_what_we_write_is_read_whatever_the_text(text, score, alignment):
    line = line_of(3, text, log_prob=2 * score, score=score, alignment=alignment)
    candidate = candidate_of(line)
    assert candidate.text.split() == text.split()
    assert candidate.sentence == 3
    assert candidate.score == pytest.approx(score, abs=1e-6)
