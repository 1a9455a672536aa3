"""The bootstrap and both tests against sacreBLEU's own, and where the answer is known."""

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from flaxformer_mt.evaluation import SEED, significance
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Measured, Ter, measure
from flaxformer_mt.evaluation.significance import (
    approximate_randomization,
    bootstrap_scores,
    chunks,
    interval,
    paired_bootstrap,
    written,
)
from tests.evaluation.noise import grammar_text, noisy

_, REFERENCES = grammar_text(80)
BASELINE = noisy(REFERENCES, 0.3, 1)
SIMILAR = noisy(REFERENCES, 0.26, 5)
BETTER = noisy(REFERENCES, 0.08, 3)


def measured(hypotheses: list[str]) -> tuple[Measured, ...]:
    return measure([Bleu(), Chrf(), Ter()], hypotheses, REFERENCES)


@pytest.mark.parametrize("system", [SIMILAR, BETTER], ids=["similar", "better"])
@pytest.mark.parametrize(
    ("kind", "test"), [("bs", paired_bootstrap), ("ar", approximate_randomization)]
)
def test_p_values_are_sacrebleu_s(kind, test, system, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", str(SEED))
    systems = [("Baseline: a", BASELINE), ("b", system)]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    _, expected = PairedTest(systems, metrics, [REFERENCES], test_type=kind, n_samples=500)()
    samples = {"samples" if kind == "bs" else "trials": 500}
    outcomes = test(measured(BASELINE), measured(system), **samples)
    for ours, name in zip(outcomes, metrics, strict=True):
        first, second = expected[name]
        assert ours.difference == pytest.approx(second.score - first.score)
        # Ties count here, and TER's differences come in few sizes.
        assert ours.p_value >= second.p_value - 1e-9

    # Without ties, as it counts, the numbers are the same.
    monkeypatch.setattr(significance, "_TIE", -1e-9)
    outcomes = test(measured(BASELINE), measured(system), **samples)
    for ours, name in zip(outcomes, metrics, strict=True):
        assert ours.p_value == pytest.approx(expected[name][1].p_value, abs=1e-9)


def test_no_p_value_is_written_as_0():
    assert [written(p) for p in (1e-5, 1 / 1001, 0.001, 0.0123, 1.0)] == [
        *("< 0.001", "< 0.001", "0.0010", "0.0123", "1.0000")
    ]
    assert written(0.00049, digits=3) == "< 0.001"


@pytest.mark.parametrize("test", [paired_bootstrap, approximate_randomization])
def test_where_the_answer_is_known(test):
    base, best = measured(BASELINE), measured(REFERENCES)
    for outcome in test(base, base):
        assert outcome.p_value == 1 and outcome.difference == 0 and not outcome.better
    for clear, worse in zip(test(base, best), test(best, base), strict=True):
        assert clear.p_value < 0.002
        assert (clear.difference < 0) == (clear.metric == "ter")
        if test is paired_bootstrap:
            assert (clear.better, worse.better) == (1, 0)
            assert clear.interval.low <= clear.difference <= clear.interval.high


def test_intervals_are_sacrebleu_s_and_parts_give_the_same_draws(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", str(SEED))
    systems = [("Baseline: a", BASELINE), ("b", BASELINE)]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF()}
    _, expected = PairedTest(systems, metrics, [REFERENCES], test_type="bs", n_samples=400)()
    pair = measure([Bleu(), Chrf()], BASELINE, REFERENCES)
    intervals = map(interval, bootstrap_scores(pair, samples=400, seed=SEED))
    for ours, theirs in zip(intervals, (expected["BLEU"][0], expected["chrF2"][0]), strict=True):
        # Theirs is computed in float32.
        assert ours.mean == pytest.approx(theirs.mean, abs=1e-3)
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs.ci, abs=1e-3)
    pair = measured(BASELINE), measured(SIMILAR)
    together = bootstrap_scores(pair[0], samples=100, seed=SEED)
    trials = approximate_randomization(*pair, trials=100)
    monkeypatch.setattr(significance, "_CHUNK", 32 * len(REFERENCES))
    assert list(chunks(100, len(REFERENCES))) == [32, 32, 32, 4]
    for of_all, of_parts in zip(
        together, bootstrap_scores(pair[0], samples=100, seed=SEED), strict=True
    ):
        np.testing.assert_array_equal(of_all, of_parts)
    assert approximate_randomization(*pair, trials=100) == trials
