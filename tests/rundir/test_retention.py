"""Which checkpoints stay, as properties of the pure rule."""

from __future__ import annotations

import math

from hypothesis import given, strategies as st

from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy, ranked, steps_to_keep

policies = st.builds(
    KeepPolicy,
    keep_latest=st.integers(0, 4),
    keep_best=st.integers(0, 4),
    keep_for_average=st.integers(0, 6),
    metric=st.just("bleu"),
    mode=st.sampled_from(["max", "min"]),
)
scores = st.one_of(st.none(), st.floats(), st.integers(-5, 5))
histories = st.dictionaries(st.integers(0, 10_000), scores, min_size=1, max_size=30)


def as_metrics(history):
    return {step: {} if value is None else {"bleu": value} for step, value in history.items()}


@given(histories, st.sets(st.integers(0, 10_000)), policies)
def test_the_newest_and_the_best_stay_and_nothing_else(history, irregular, policy):
    kept = steps_to_keep(list(history), as_metrics(history), policy, irregular=irregular)
    ordered = sorted(history)
    regular = [step for step in ordered if step not in irregular]
    newest = {
        *ordered[-max(1, policy.keep_latest) :],
        *regular[max(0, len(regular) - policy.keep_for_average) :],
    }
    assert max(history) in kept
    assert newest <= kept
    finite = {s: v for s, v in history.items() if v is not None and math.isfinite(v)}
    others = kept - newest
    assert len(others) <= policy.keep_best
    worse = (lambda a, b: a < b) if policy.mode == "max" else (lambda a, b: a > b)
    for step in others:
        better = [s for s in finite if worse(finite[step], finite[s])]
        assert len(better) < policy.keep_best
    if policy.keep_best and finite:
        best = (max if policy.mode == "max" else min)(finite.values())
        assert any(finite.get(step) == best for step in kept)


@given(histories, st.sets(st.integers(0, 10_000)), policies)
def test_keeping_one_by_one_loses_no_best(history, irregular, policy):
    """Deleting after every save keeps the same best as looking at the whole history once."""
    metrics = as_metrics(history)
    kept: set[int] = set()
    for step in sorted(history):
        kept = steps_to_keep([*kept, step], metrics, policy, irregular=irregular)
    assert kept == steps_to_keep(list(history), metrics, policy, irregular=irregular)


@given(histories, st.sets(st.integers(0, 10_000)), policies)
def test_stops_push_out_nothing_that_is_averaged(history, stops, policy):
    """The regular steps that would be averaged are the same with stops and without."""
    regular = [step for step in history if step not in stops]
    kept = steps_to_keep([*history, *stops], as_metrics(history), policy, irregular=stops)
    alone = steps_to_keep(regular, as_metrics(history), policy) if regular else set()
    newest = sorted(regular, reverse=True)[: policy.keep_for_average]
    assert set(newest) <= kept & alone


def test_of_equal_values_the_earlier_is_better():
    metrics = {10: {"bleu": 100.0}, 20: {"bleu": 100}, 30: {"bleu": 99.0}, 40: {"loss": 1.0}}
    assert ranked(metrics, "bleu", "max") == [10, 20, 30]
    assert ranked(metrics, "bleu", "min") == [30, 10, 20]
    assert ranked(metrics, "chrf", "max") == []
