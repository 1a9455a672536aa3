"""Which checkpoints stay, as properties of the pure rule."""

import math

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir.checkpoint_choice import best_by, ranked, steps_to_keep, without_rank

policies = st.builds(
    TrainingConfig,
    keep_latest=st.integers(0, 4),
    keep_best=st.integers(0, 4),
    keep_for_average=st.integers(0, 6),
    best_metric=st.sampled_from(["bleu", "loss"]),
)
scores = st.one_of(st.none(), st.floats(), st.integers(-5, 5))
histories = st.dictionaries(st.integers(0, 60), scores, min_size=1, max_size=30)


@given(histories, st.sets(st.integers(0, 60)), policies)
def test_the_newest_and_the_best_stay_and_nothing_else(history, irregular, policy):
    metric = policy.best_metric
    metrics = {s: {} if value is None else {metric: value} for s, value in history.items()}
    retained = steps_to_keep(list(history), metrics, policy, irregular=irregular)
    ordered = sorted(history)
    regular = [step for step in ordered if step not in irregular]
    newest = {
        *ordered[-max(1, policy.keep_latest) :],
        # As many as if nothing had been saved for a start or a stop.
        *regular[max(0, len(regular) - policy.keep_for_average) :],
    }
    assert max(history) in retained
    assert newest <= retained
    finite = {s: v for s, v in history.items() if v is not None and math.isfinite(v)}
    if metric == "bleu":  # all below 1 are alike
        finite = {s: v if v >= 1 else 0.0 for s, v in finite.items()}
    older = retained - newest
    assert len(older) <= policy.keep_best
    worse = (lambda a, b: a < b) if metric == "bleu" else (lambda a, b: a > b)
    for step in older:
        better = [s for s in finite if worse(finite[step], finite[s])]
        assert len(better) < policy.keep_best
    if policy.keep_best and finite:
        best = (max if metric == "bleu" else min)(finite.values())
        assert any(finite.get(step) == best for step in retained)

    # Deleting after every save keeps the same as looking at the whole history once.
    one_by_one: set[int] = set()
    for step in ordered:
        one_by_one = steps_to_keep([*one_by_one, step], metrics, policy, irregular=irregular)
    assert one_by_one == retained


def test_of_equal_values_the_earlier_is_better():
    metrics = {10: {"bleu": 100.0}, 20: {"bleu": 100}, 30: {"bleu": 99.0}, 40: {"loss": 1.0}}
    assert ranked(metrics, "bleu", "max") == [10, 20, 30]
    assert ranked(metrics, "bleu", "min") == [30, 10, 20]
    assert ranked(metrics, "chrf", "max") == []


def test_where_values_are_equal_the_lower_loss_is_better():
    losses = {20: 4.0, 40: 2.0, 60: 3.0, 80: math.nan}
    metrics = {step: {"bleu": 0.0, "loss": loss} for step, loss in losses.items()}
    assert ranked(metrics, "bleu", "max") == [40, 60, 20, 80]
    assert ranked({**metrics, 90: {"bleu": 1.1, "loss": 9.0}}, "bleu", "max")[0] == 90
    assert "bleu is below 1 at each of 4 validated" in (without_rank(metrics, "bleu") or "")
    assert without_rank({**metrics, 90: {"bleu": 1.1}}, "bleu") is None
    assert without_rank({20: {"bleu": 0.0}}, "bleu") is None
    assert without_rank({1: {"loss": 2.0}, 2: {"loss": 2.0}}, "loss") is None


@pytest.mark.parametrize("metric", ["bleu", "chrf", "loss"])
def test_the_loss_is_the_only_metric_whose_lowest_value_is_best(metric):
    mode = best_by(TrainingConfig(best_metric=metric))["mode"]
    assert mode == ("min" if metric == "loss" else "max")
