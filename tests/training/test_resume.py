"""One go, or any number of stops and kills on the way: the same run, bit for bit."""

import dataclasses
from typing import Any

import pytest

from flaxformer_mt.data.store import StoreError, TokenPairs
from flaxformer_mt.rundir.layout import Status
from tests.training.examples import assert_same, build_tiny, random_pairs, tiny
from tests.training.runs import TRAIN, Killed, Run

SETTINGS = {
    "training.steps": 13,
    "training.log_every": 3,
    "training.validate_every": 6,
    "training.save_every": 4,
    "training.keep_for_average": 20,
}


@pytest.fixture(scope="module")
def in_one_go(tmp_path_factory) -> Run:
    run = Run(tmp_path_factory.mktemp("in_one_go"), SETTINGS)
    outcome = run.start()
    assert (outcome.state, outcome.step, outcome.reason) == ("finished", 13, "all 13 steps done")
    return run


def assert_same_run(ours: Run, theirs: Run) -> None:
    a, b = ours.snapshot(), theirs.snapshot()
    assert_same((a.params, a.opt_state, a.ema), (b.params, b.opt_state, b.ema))
    assert a.metrics == b.metrics
    timeless = [
        {k: v for k, v in shot.position.items() if k not in ("seconds", "window")}
        for shot in (a, b)
    ]
    assert timeless[0] == timeless[1]
    assert ours.log() == theirs.log()


def test_stops_leave_no_trace(in_one_go, tmp_path):
    """In mid-epoch and mid-report; at a step with a checkpoint; at one with a validation."""
    run = Run(tmp_path, SETTINGS)
    for step in (5, 8, 12):
        outcome = run.start(stop_after=step)
        assert (outcome.state, outcome.step) == ("stopped", step)
        assert outcome.reason == "SIGTERM received"
        assert run.steps()[-1] == step
    assert run.start().state == "finished"
    assert run.shown.startswith("resuming after step 12\n")
    assert_same_run(run, in_one_go)
    # Nothing was trained twice and nothing left out.
    assert len(run.batches) == 13
    for a, b in zip(run.batches, in_one_go.batches, strict=True):
        assert_same(a, b)


def test_a_stop_asked_for_in_a_validation_needs_no_other_step(tmp_path):
    def decode(params: Any, step: int) -> dict[str, float]:
        run.stop.received = "SIGTERM"
        return {}

    run = Run(tmp_path, SETTINGS, decode=decode)
    every = tiny(SETTINGS).training.validate_every
    assert run.start() == Status(state="stopped", step=every, reason="SIGTERM received")
    assert len(run.batches) == run.steps()[-1] == every


def test_only_checkpoints_of_an_interval_are_regular(tmp_path):
    """Averages take no others, but the last one of a run that has not gone on."""
    run = Run(tmp_path, {**SETTINGS, "training.steps": 11})
    run.start(stop_after=5)
    assert run.snapshot(5).kind == "stop"
    run.start()
    kinds = {step: run.snapshot(step).kind for step in run.steps()}
    assert kinds == {4: "regular", 6: "regular", 8: "regular", 11: "end"}
    run.on = dataclasses.replace(run.on, lower_train_step=None)  # no step is left
    assert run.start().state == "finished"
    # Scores are of what was validated.
    assert run.snapshot(8).metrics == {}
    assert set(run.snapshot(6).metrics) == {"loss", "perplexity", "source_gain"}


@pytest.mark.parametrize("kind", ["adamw", "adafactor", "lion", "muon"])
def test_a_stop_leaves_no_trace_with_another_optimizer(kind, tmp_path):
    optimizer = {"training.optimizer.kind": kind, "training.optimizer.weight_decay": 0.01}
    settings = {**SETTINGS, **optimizer}
    on = build_tiny(settings)
    stopped, whole = (Run(tmp_path / name, settings, on=on) for name in ("stopped", "whole"))
    assert stopped.start(stop_after=7).state == "stopped"
    assert stopped.start().state == whole.start().state == "finished"
    assert_same_run(stopped, whole)


def test_kills_leave_no_trace(in_one_go, tmp_path):
    """The last checkpoint is gone back to, and what was logged since is not there twice."""
    run = Run(tmp_path, SETTINGS)
    for step in (2, 7, 11):
        with pytest.raises(Killed):
            run.start(kill_after=step)
    assert run.steps() == [4, 6, 8]
    assert run.start().state == "finished"
    assert_same_run(run, in_one_go)


@pytest.mark.extended
def test_more_steps_go_on_from_the_end(in_one_go, tmp_path):
    """A run that was to end at 6 and may then go on is the one that was never to end there."""
    run = Run(tmp_path, {**SETTINGS, "training.steps": 6})
    assert run.start().step == 6
    run.changes = SETTINGS
    assert run.start().step == 13
    assert_same_run(run, in_one_go)


def test_a_position_is_none_in_other_pairs(in_one_go, tmp_path):
    """Nothing else would tell: the order is of their number, and any window has a first batch."""

    def of_store(pairs: TokenPairs, digest: str) -> TokenPairs:
        sides = (side.shards for side in pairs.sides.values())
        return TokenPairs(*sides, pairs.corpora, digest=digest * 64)

    run = Run(tmp_path, SETTINGS)
    run.start(stop_after=5)
    # Early checkpoints don't say what pairs they are of, and are gone on with.
    assert run.snapshot().position["data"] == ""
    run.train_pairs = of_store(TRAIN, "a")
    assert run.start(stop_after=8).step == 8
    run.train_pairs = of_store(random_pairs(60, seed=9), "b")
    with pytest.raises(StoreError, match="8: was trained on different pairs") as raised:
        run.start()
    assert f"--init-from {tmp_path}" in str(raised.value)
    assert len(run.batches) == 8
    run.train_pairs = of_store(TRAIN, "a")
    assert run.start().state == "finished"
    ours, theirs = run.snapshot(), in_one_go.snapshot()
    assert ours.position["data"] == "a" * 64
    assert_same((ours.params, ours.opt_state), (theirs.params, theirs.opt_state))
