"""The figures of `benchmarks.splitter`, of answers that are known."""

import pytest

from benchmarks import splitter
from benchmarks.splitter import Text


def test_lines_are_joined_as_the_language_is_written():
    sentences = [f"Line {number}." for number in range(20)]
    for language, between in (("en", " "), ("ja", "")):
        texts = splitter.joined(sentences, language)
        assert all(1 <= len(one.places) <= 7 for one in texts[:-1])
        assert sorted("".join(one.text for one in texts)) == sorted(
            "".join(sentences) + between * sum(len(one.places) for one in texts)
        )
        assert texts == splitter.joined(sentences, language)


@pytest.mark.parametrize(
    ("answer", "f1"),
    [
        (["A b.", "C.", "D."], 100.0),
        (["A b. C. D."], 0.0),
        (["A b.", "C. D."], 100 * 2 / 3),
        (["A", "b.", "C.", "D."], 80.0),
        (["A b. ", " C.", "D. "], 100.0),  # blanks are nobody's
        (["A b.", "X.", "D."], 100 * 2 / 3),  # what isn't in the text ends nothing
    ],
)
def test_the_score_is_of_places_between_lines(answer, f1):
    texts = {"en": [Text("A b. C. D.", frozenset({3, 5}))]}
    assert splitter.scored({"en": [answer]}, texts)["en"] == pytest.approx(f1)
    assert splitter.changed({"en": [answer]}, texts) == ("X." in answer)


def test_the_best_peer_is_the_best_of_those_that_know_the_language():
    texts = {
        "en": [Text("A. B.", frozenset({2}))],
        "hi": [Text("क। ख।", frozenset({2}))],
    }
    right, wrong = {"en": [["A.", "B."]], "hi": [["क।", "ख।"]]}, {"hi": [["क। ख।"]]}
    metrics = splitter.figures(right, {"one": {"en": right["en"]}, "other": wrong}, texts)
    assert (metrics["ours_f1_hi"], metrics["best_peer_f1_hi"]) == (100.0, 0.0)
    assert metrics["best_peer_f1_en"] == metrics["one_f1_en"] == 100.0


@pytest.mark.parametrize(
    ("line", "language", "is_whole"),
    [
        ("He left.", "en", True),
        ("He said “no.”", "en", True),
        ("A headline", "en", False),
        ("(He left.", "en", False),
        ('He left."', "en", False),
        ("”Yes,“ he said.", "en", False),
        ("Er rief „nein.“", "de", True),
        ("» Er ging. «", "de", True),
        ("वह गया।", "hi", True),
        ("वह डॉ.", "hi", False),
        ("彼は来た。", "ja", True),
        ("彼は来た。」", "ja", False),
        ("第1.", "zh", False),
    ],
)
def test_lines_that_were_cut_wrongly_are_left_out(line, language, is_whole):
    assert splitter.is_whole(line, language) == is_whole
