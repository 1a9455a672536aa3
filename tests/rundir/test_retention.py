"""Which checkpoints stay, as properties of the pure rule."""

import math

from hypothesis import given, strategies as st

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir.checkpoint_choice import ranked, steps_to_keep

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
    kept = steps_to_keep(list(history), metrics, policy, irregular=irregular)
    ordered = sorted(history)
    regular = [step for step in ordered if step not in irregular]
    newest = {
        *ordered[-max(1, policy.keep_latest) :],
        # As many as if nothing had been saved for a start or a stop.
        *regular[max(0, len(regular) - policy.keep_for_average) :],
    }
    assert max(history) in kept
    assert newest <= kept
    finite = {s: v for s, v in history.items() if v is not None and math.isfinite(v)}
    others = kept - newest
    assert len(others) <= policy.keep_best
    worse = (lambda a, b: a < b) if metric == "bleu" else (lambda a, b: a > b)
    for step in others:
        better = [s for s in finite if worse(finite[step], finite[s])]
        assert len(better) < policy.keep_best
    if policy.keep_best and finite:
        best = (max if metric == "bleu" else min)(finite.values())
        assert any(finite.get(step) == best for step in kept)
    # Deleting after every save keeps the same as looking at the whole history once.
    one_by_one: set[int] = set()
    for step in ordered:
        one_by_one = steps_to_keep([*one_by_one, step], metrics, policy, irregular=irregular)
    assert one_by_one == kept


def test_of_equal_values_the_earlier_is_better():
    metrics = {10: {"bleu": 100.0}, 20: {"bleu": 100}, 30: {"bleu": 99.0}, 40: {"loss": 1.0}}
    assert ranked(metrics, "bleu", "max") == [10, 20, 30]
    assert ranked(metrics, "bleu", "min") == [30, 10, 20]
    assert ranked(metrics, "chrf", "max") == []
