"""The bootstrap against sacreBLEU's own, and independence of how it is cut into parts."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from flaxformer_mt.evaluation import resampling
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Ter, measure
from flaxformer_mt.evaluation.resampling import SEED, bootstrap_scores, chunks, interval, intervals
from tests.evaluation.noise import grammar_text, noisy

_, REFERENCES = grammar_text(80)
HYPOTHESES = noisy(REFERENCES, 0.3, 1)


def test_means_and_intervals_are_sacrebleu_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(SEED))
    systems = [("Baseline: a", HYPOTHESES), ("b", HYPOTHESES)]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF()}
    _, wanted = PairedTest(systems, metrics, [REFERENCES], test_type="bs", n_samples=400)()
    found = intervals(measure([Bleu(), Chrf()], HYPOTHESES, REFERENCES), samples=400)
    for ours, theirs in zip(found, (wanted["BLEU"][0], wanted["chrF2"][0]), strict=True):
        # Theirs is computed in float32.
        assert ours.mean == pytest.approx(theirs.mean, abs=1e-3)
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs.ci, abs=1e-3)


def test_parts_of_any_size_give_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measure([Bleu(), Ter()], HYPOTHESES, REFERENCES)
    whole = bootstrap_scores(measured, samples=100)
    monkeypatch.setattr(resampling, "_CHUNK", 32 * len(REFERENCES))
    assert list(chunks(100, len(REFERENCES))) == [32, 32, 32, 4]
    for one, other in zip(whole, bootstrap_scores(measured, samples=100), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_seed_is_an_experiment() -> None:
    measured = measure([Chrf()], HYPOTHESES, REFERENCES)
    first, again = (bootstrap_scores(measured, samples=50, seed=1)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, bootstrap_scores(measured, samples=50, seed=2)[0])


def test_equal_sentences_leave_nothing_to_chance() -> None:
    measured = measure([Bleu()], ["a b c d e f"] * 20, ["a b c d e x"] * 20)
    (found,) = intervals(measured, samples=64)
    assert found.low == pytest.approx(found.high) == pytest.approx(measured[0].score)


def test_an_interval_leaves_out_a_fortieth_at_each_end() -> None:
    found = interval(np.arange(1000.0)[::-1])
    assert (found.low, found.high, found.mean) == (25, 974, 499.5)
    one = interval(np.array([7.0]))
    assert (one.low, one.high, one.mean) == (7, 7, 7)


@pytest.mark.extended
def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Test sets drawn from a large one: its score lies in 95% of their intervals, or nearly."""
    _, references = grammar_text(1500)
    (large,) = measure([Chrf()], noisy(references, 0.3, 2), references)
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(100):
        (found,) = intervals([large.of(rng.choice(1500, 150))], samples=200)
        covered += found.low <= large.score <= found.high
    assert covered >= 88
