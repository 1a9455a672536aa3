"""Scores by the length of the source."""

from __future__ import annotations

import pytest

from flaxformer_mt.evaluation.lengths import by_length
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, measure
from tests.evaluation.noise import grammar_text, noisy


def test_buckets_are_corpora_of_their_own() -> None:
    _, references = grammar_text(40)
    hypotheses = noisy(references, 0.2, 1)
    # 0, 1, 10, 11, 20, 21, 60, 61 and 500 words.
    sizes = [0, 1, 10, 11, 20, 21, 60, 61, 500] + [5] * 31
    sources = [" ".join(["w"] * size) for size in sizes]
    metrics = [Bleu(), Chrf()]
    found = by_length(measure(metrics, hypotheses, references), sources)
    assert [(bucket.low, bucket.high, bucket.sentences) for bucket in found] == [
        (0, 10, 34),
        (11, 20, 2),
        (21, 30, 1),
        (51, 60, 1),
        (61, None, 2),
    ]
    assert sum(bucket.sentences for bucket in found) == 40
    bleu, chrf = measure(metrics, hypotheses[3:5], references[3:5])
    assert found[1].metrics == {"sacrebleu_13a": bleu.score, "chrf": chrf.score}
    assert found[1].length_ratio == pytest.approx(bleu.totals[0] / bleu.totals[1])
    assert [bucket.label for bucket in found][-2:] == ["51 to 60", "61 and more"]


def test_no_reference_words_are_no_division_by_zero() -> None:
    (bucket,) = by_length(measure([Bleu()], ["a"], [""]), ["one two"], bounds=(5,))
    assert (bucket.length_ratio, bucket.metrics) == (0.0, {"sacrebleu_13a": 0.0})
