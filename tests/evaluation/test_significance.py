"""The bootstrap and both tests against sacreBLEU's own, and where the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from flaxformer_mt.evaluation import significance
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Measured, Ter, measure
from flaxformer_mt.evaluation.significance import (
    SEED,
    approximate_randomization,
    bootstrap_scores,
    chunks,
    interval,
    intervals,
    paired_bootstrap,
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
def test_p_values_are_sacrebleu_s(
    kind: str, test: Any, system: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(SEED))
    systems = [("Baseline: a", BASELINE), ("b", system)]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF(), "TER": TER()}
    _, wanted = PairedTest(systems, metrics, [REFERENCES], test_type=kind, n_samples=500)()
    samples = {"samples" if kind == "bs" else "trials": 500}
    found = test(measured(BASELINE), measured(system), **samples)
    for ours, name in zip(found, metrics, strict=True):
        first, second = wanted[name]
        assert ours.difference == pytest.approx(second.score - first.score)
        # Ties count here, and TER's differences come in few sizes.
        assert ours.p_value >= second.p_value - 1e-9
    # Without ties, as it counts, the numbers are the same.
    monkeypatch.setattr(significance, "_TIE", -1e-9)
    found = test(measured(BASELINE), measured(system), **samples)
    for ours, name in zip(found, metrics, strict=True):
        assert ours.p_value == pytest.approx(wanted[name][1].p_value, abs=1e-9)


@pytest.mark.parametrize("test", [paired_bootstrap, approximate_randomization])
def test_where_the_answer_is_known(test: Any) -> None:
    for same in test(measured(BASELINE), measured(BASELINE)):
        assert same.p_value == 1 and same.difference == 0 and not same.better
    for clear in test(measured(BASELINE), measured(REFERENCES)):
        assert clear.p_value < 0.002
        assert (clear.difference < 0) == (clear.metric == "ter")


def test_bootstrap_tells_how_often_a_system_is_better() -> None:
    for found in paired_bootstrap(measured(BASELINE), measured(BETTER)):
        # Of TER less is better.
        assert found.better is not None and found.better > 0.99
        assert found.interval is not None
        assert found.interval.low <= found.difference <= found.interval.high
    for found in paired_bootstrap(measured(BETTER), measured(BASELINE)):
        assert found.better == 0


def test_randomization_by_counting_all_exchanges() -> None:
    """Three sentences: the p-value is the share of 8 exchanges that differ as much, nearly."""
    references = ["a b c d e", "f g h i j", "k l m n o"]
    one = measure([Ter()], ["a b c d e", "f g h x x", "k l m n o"], references)
    other = measure([Ter()], ["a b c x x", "f g h i j", "k l m x x"], references)
    edits = np.array([[0, 2], [2, 0], [0, 2]])
    real = abs(edits[:, 0].sum() - edits[:, 1].sum())
    exchanges = [[number >> bit & 1 for bit in range(3)] for number in range(8)]
    as_large = sum(
        abs(sum(row[swap] - row[1 - swap] for row, swap in zip(edits, swaps, strict=True))) >= real
        for swaps in exchanges
    )
    (found,) = approximate_randomization(one, other, trials=4000)
    assert found.p_value == pytest.approx(as_large / 8, abs=0.03)


@pytest.mark.extended
def test_equal_systems_are_told_apart_no_oftener_than_they_should() -> None:
    """Under the null hypothesis a p below .1 comes up in one of ten experiments."""
    _, references = grammar_text(300)
    metric = [Chrf()]
    one, other = (measure(metric, noisy(references, 0.3, seed), references)[0] for seed in (1, 2))
    rng = np.random.default_rng(0)
    false_alarms = 0
    for seed in range(200):
        # Whose sentence is whose is decided by a coin: the null hypothesis, made true.
        swap = rng.integers(2, size=(300, 1), dtype=bool)
        first = Measured(metric[0], np.where(swap, one.counts, other.counts))
        second = Measured(metric[0], np.where(swap, other.counts, one.counts))
        (found,) = approximate_randomization([first], [second], trials=200, seed=seed)
        false_alarms += found.p_value < 0.1
    assert 8 <= false_alarms <= 34


def test_means_and_intervals_are_sacrebleu_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(SEED))
    systems = [("Baseline: a", BASELINE), ("b", BASELINE)]
    metrics = {"BLEU": BLEU(), "chrF2": CHRF()}
    _, wanted = PairedTest(systems, metrics, [REFERENCES], test_type="bs", n_samples=400)()
    found = intervals(measure([Bleu(), Chrf()], BASELINE, REFERENCES), samples=400)
    for ours, theirs in zip(found, (wanted["BLEU"][0], wanted["chrF2"][0]), strict=True):
        # Theirs is computed in float32.
        assert ours.mean == pytest.approx(theirs.mean, abs=1e-3)
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs.ci, abs=1e-3)


def test_parts_of_any_size_give_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = measured(BASELINE), measured(SIMILAR)
    whole, trials = (
        bootstrap_scores(pair[0], samples=100),
        approximate_randomization(*pair, trials=100),
    )
    monkeypatch.setattr(significance, "_CHUNK", 32 * len(REFERENCES))
    assert list(chunks(100, len(REFERENCES))) == [32, 32, 32, 4]
    for one, other in zip(whole, bootstrap_scores(pair[0], samples=100), strict=True):
        np.testing.assert_array_equal(one, other)
    assert approximate_randomization(*pair, trials=100) == trials


def test_a_seed_is_an_experiment() -> None:
    measured = measure([Chrf()], BASELINE, REFERENCES)
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
