"""A machine that fails to read costs no checkpoint: not one is set aside or deleted for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
import pytest

from flaxformer_mt.rundir import UnreadError, checkpoint_format
from flaxformer_mt.rundir.checkpoint_choice import (
    KeepPolicy,
    best_steps,
    default_weights,
    list_steps,
    regular_steps,
)
from flaxformer_mt.rundir.checkpoints import Checkpoints
from tests.rundir.snapshots import abstract, assert_same, snapshot

FEW = KeepPolicy(keep_latest=1, keep_best=1, keep_for_average=0)
PASSING = [errno.EIO, errno.ESTALE, errno.EMFILE]

Failing = Callable[[str, int, int], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Makes reads of an item, "STEP/NAME", fail so many times with this error of the system's."""
    monkeypatch.setattr(checkpoint_format, "_WAITS", (0.0, 0.0))

    def fail(item: str, number: int, times: int) -> None:
        left = [times]

        def flaky(read: Callable[..., Any]) -> Callable[..., Any]:
            def reads(self: Any, place: Path, *arguments: Any, **named: Any) -> Any:
                if left[0] and str(place).endswith(item):
                    left[0] -= 1
                    raise OSError(number, os.strerror(number), str(place))
                return read(self, place, *arguments, **named)

            return reads

        for handler in (ocp.JsonCheckpointHandler, ocp.StandardCheckpointHandler):
            monkeypatch.setattr(handler, "restore", flaky(handler.restore))

    return fail


@pytest.mark.parametrize("number", PASSING)
@pytest.mark.parametrize("item", ["meta", "position", "params"])
def test_what_passes_is_not_noticed(run, saved, failing: Failing, item: str, number: int) -> None:
    saved(snapshot(1), snapshot(2))
    with Checkpoints(run.checkpoints, KeepPolicy(), report=pytest.fail) as checkpoints:
        failing(f"2/{item}", number, 2)
        assert_same(checkpoints.restore(*abstract(snapshot(2))), snapshot(2))
        assert checkpoints.steps() == [1, 2]


@pytest.mark.parametrize("item", ["meta", "opt_state"])
def test_what_stays_is_an_error_and_nothing_is_moved(
    run, saved, failing: Failing, item: str
) -> None:
    saved(snapshot(1), snapshot(2))
    with Checkpoints(run.checkpoints, KeepPolicy(), report=pytest.fail) as checkpoints:
        failing(f"2/{item}", errno.EIO, 1000)
        with pytest.raises(
            UnreadError,
            match=rf"2: {item} cannot be read: .*output error.*; run the command",
        ):
            checkpoints.restore(*abstract(snapshot(2)))
    assert list_steps(run.checkpoints) == [1, 2]


MANY = """UNKNOWN: Error reading "w/0" in OCDBT database at local file "/x": Failed to open:
Too many open files [os_error_code='24'] [tensorstore_spec='...']"""


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        # TensorStore has a form of its own for the system's errors, and Orbax wraps that.
        (Exception(ValueError(MANY)), "params cannot be read: Too many open files"),
        (
            Exception(ValueError("PERMISSION_DENIED: ... [os_error_code='13']")),
            "params cannot be read: Permission denied",
        ),
        (ValueError("PERMISSION_DENIED: reading local file"), "2: params cannot be read"),
        (MemoryError("too much"), "2: params cannot be read: MemoryError"),
    ],
)
def test_what_the_machine_lacks_is_not_damage(run, saved, monkeypatch, cause, message) -> None:
    def fail(*_: Any, **__: Any) -> None:
        if not isinstance(cause.args[0], Exception):
            raise cause
        raise Exception("Encountered error while reading array index") from cause.args[0]

    saved(snapshot(1), snapshot(2))
    monkeypatch.setattr(ocp.StandardCheckpointHandler, "restore", fail)
    monkeypatch.setattr(checkpoint_format, "_WAITS", ())
    with Checkpoints(run.checkpoints, KeepPolicy()) as checkpoints:
        with pytest.raises(UnreadError, match=message):
            checkpoints.restore(*abstract(snapshot(2)))
        assert checkpoints.steps() == [1, 2]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_step_that_does_not_say_what_it_is_worth_is_kept(
    run, saved, failing: Failing, damaged: bool
) -> None:
    saved(snapshot(1, bleu=40.0), snapshot(2, bleu=30.0), policy=FEW)
    if damaged:
        os.truncate(run.checkpoints / "1" / "meta" / "metadata", 10)
    else:
        failing("1/meta", errno.EIO, 3)
    reports: list[str] = []
    with Checkpoints(run.checkpoints, FEW, report=reports.append) as checkpoints:
        checkpoints.save(snapshot(3, bleu=35.0))
    assert list_steps(run.checkpoints) == [1, 3]
    if damaged:
        return
    assert len(reports) == 1 and reports[0].endswith("; meanwhile it is kept")
    with Checkpoints(run.checkpoints, FEW) as checkpoints:
        assert checkpoints.best_step() == 1
        checkpoints.save(snapshot(4, bleu=36.0))
    assert list_steps(run.checkpoints) == [1, 4]


def test_no_other_is_called_the_best_meanwhile(run, saved, failing: Failing) -> None:
    saved(snapshot(1, bleu=40.0), snapshot(2, bleu=30.0))
    failing("1/meta", errno.ESTALE, 1000)
    for choose in (lambda: best_steps(run.checkpoints, 1), lambda: default_weights(run)):
        with pytest.raises(UnreadError, match="1: meta cannot be read"):
            choose()
    with pytest.raises(UnreadError):
        regular_steps(run.checkpoints)
