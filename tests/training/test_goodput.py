"""Where the time goes, on a clock that the test moves."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.data.pipeline import Batches
from flaxformer_mt.training.instruments import KINDS, Goodput
from tests.training.examples import program
from tests.training.runs import Killed, Run


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spend(goodput: Goodput, clock: Clock, kind: str, seconds: float) -> None:
    with goodput(kind):
        clock.now += seconds


def trained(clock: Clock, *, save_at: int, steps: int) -> Goodput:
    """A start with steps of two seconds each and one checkpoint."""
    goodput = Goodput(clock=clock)
    spend(goodput, clock, "start", 10)
    for step in range(1, steps + 1):
        spend(goodput, clock, "steps", 2)
        if step == save_at:
            spend(goodput, clock, "checkpoints", 1)
            goodput.saved(step)
        goodput.step = step
    return goodput


def test_every_second_belongs_to_one_kind(clock):
    goodput = trained(clock, save_at=3, steps=5)
    assert goodput.seconds == dict.fromkeys(KINDS, 0) | {"start": 10, "steps": 10, "checkpoints": 1}
    assert goodput.share == 10 / 21


def test_a_block_within_another_is_its_own_and_may_change_its_mind(clock):
    goodput = Goodput(clock=clock)
    clock.now += 1
    with goodput("other"):
        clock.now += 2
        with pytest.raises(LookupError), goodput("data"):
            clock.now += 4
            raise LookupError
        with goodput("steps"):
            clock.now += 8
            goodput.kind = "compile"
        clock.now += 16
    clock.now += 32
    spent = {"start": 33, "other": 18, "data": 4, "compile": 8}
    assert goodput.seconds == dict.fromkeys(KINDS, 0) | spent


class Slow:
    """A loss that is computed when the test says so."""

    def __init__(self, loss: Any) -> None:
        self.loss, self.computed = loss, threading.Event()

    def is_ready(self) -> bool:
        return self.computed.is_set()

    def block_until_ready(self) -> Slow:
        assert self.computed.wait(60)
        return self

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return np.asarray(self.block_until_ready().loss)


def test_waiting_for_data_costs_nothing_while_the_devices_compute(tmp_path, monkeypatch):
    """Of four waits the first has no step behind it, and one step ends before the wait does."""
    losses: list[Slow] = []
    following = Batches.__next__

    def late(self: Batches) -> Any:
        time.sleep(0.2)
        if len(losses) == 2:
            losses[-1].computed.set()
        return following(self)

    def step(state: Any, batch: Any) -> Any:
        if losses:
            losses[-1].computed.set()
        state, metrics = program().train_step(state, batch)
        jax.block_until_ready(state)
        losses.append(Slow(metrics["loss"]))
        if len(losses) == 4:
            losses[-1].computed.set()
        return state, {**metrics, "loss": losses[-1]}

    monkeypatch.setattr(Batches, "__next__", late)
    changes = {"training.steps": 4, "training.log_every": 100, "training.validate_every": 0}
    run = Run(tmp_path, changes, on=dataclasses.replace(program(), train_step=step))
    run.start()
    assert run.goodput.seconds["data"] > 2 * 0.2
    assert run.goodput.seconds["steps"] > 2 * 0.2


def test_steps_after_the_last_checkpoint_are_lost_by_a_kill(clock, tmp_path):
    record = trained(clock, save_at=3, steps=5).to_dict()
    (tmp_path / "goodput.json").write_text(json.dumps(record))
    clock.now += 1000  # nobody had the machine
    again = Goodput(clock=clock)
    again.keep_in(tmp_path / "goodput.json", pytest.fail)
    again.goes_on_after(3)
    spend(again, clock, "start", 4)
    for _ in range(2):
        spend(again, clock, "steps", 2)
    again.keep(5)
    assert again.seconds["lost"] == 4
    assert again.seconds["steps"] == 10
    assert again.share == 10 / 29
    kept = json.loads((tmp_path / "goodput.json").read_text())
    assert (kept["starts"], kept["step"], kept["wall_seconds"]) == (2, 5, 21 + 8)
    # Going on once more from where it is loses nothing.
    again.goes_on_after(5)
    assert again.seconds["lost"] == 4


def test_going_back_twice_over_the_same_checkpoint(clock):
    goodput = trained(clock, save_at=2, steps=3)
    goodput.goes_on_after(2)
    spend(goodput, clock, "steps", 5)
    goodput.step = 3
    goodput.goes_on_after(2)
    assert goodput.seconds["lost"] == 2 + 5
    goodput.goes_on_after(0)
    assert goodput.seconds["lost"] == 4 + 7
    assert goodput.seconds["steps"] == 0


def test_an_unknown_checkpoint_is_taken_in_proportion(clock):
    goodput = trained(clock, save_at=4, steps=5)
    goodput.goes_on_after(3)
    assert goodput.seconds["steps"] == 6
    assert goodput.seconds["lost"] == 4


def test_table_shows_what_took_time(clock):
    table = trained(clock, save_at=3, steps=5).table()
    assert table.splitlines() == [
        "goodput 47.6% of 0:00:21 in 1 start",
        "  steps that count                       0:00:10    47.6%",
        "  checkpoints                            0:00:01     4.8%",
        "  start: data, model, restoring          0:00:10    47.6%",
    ]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"seconds": 3, "starts": 1}'])
def test_a_damaged_file_is_said_and_stops_nothing(tmp_path, clock, content):
    said: list[str] = []
    (tmp_path / "goodput.json").write_text(content)
    goodput = Goodput(clock=clock)
    goodput.keep_in(tmp_path / "goodput.json", said.append)
    assert len(said) == 1 and said[0].startswith("goodput is counted anew: goodput.json")
    goodput.keep(1)
    assert json.loads((tmp_path / "goodput.json").read_text())["step"] == 1
    goodput.keep_in(tmp_path / "none" / "goodput.json", said.append)
    for step in range(3):
        goodput.keep(step)
    assert len(said) == 2, "what cannot be written is said once"


def test_a_killed_run_has_lost_its_steps_and_a_finished_one_adds_up(tmp_path):
    """The loop's own blocks: kill after a report, go on from the checkpoint before it."""
    changes = {"training.steps": 8, "training.save_every": 2, "training.log_every": 1}
    run = Run(tmp_path, changes)
    with pytest.raises(Killed):
        run.start(kill_after=5)
    killed = run.goodput
    assert killed.step == 5
    assert killed.seconds["lost"] == 0
    run.start()
    assert run.goodput.starts == 2
    assert run.goodput.seconds["lost"] > 0
    assert run.goodput.step == 8
    spent = {kind for kind, seconds in run.goodput.seconds.items() if seconds}
    assert spent == set(KINDS) - {"compile"} or spent == set(KINDS)
