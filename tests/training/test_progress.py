"""What survives a restart, and how it changes: validations, going back, checkpoints."""

from __future__ import annotations

import json
import math

import pytest

from flaxformer_mt.data.order import Position
from flaxformer_mt.training.progress import Due, Outcome, Progress, due_after
from flaxformer_mt.training.telemetry import Sums
from tests.training.examples import tiny


def test_survives_json():
    progress = Progress(
        position=Position(3, 7),
        left_out=(Position(0, 1), Position(2, 2)),
        rollbacks=2,
        diverged=17,
        best=0.1,
        best_step=40,
        stale=1,
        seconds=12.5,
        window=Sums(steps=3, loss=0.1 + 0.2),
    )
    assert Progress.from_dict(json.loads(json.dumps(progress.to_dict()))) == progress
    assert Progress.from_dict(json.loads(json.dumps(Progress().to_dict()))) == Progress()


def test_a_position_of_two_parts_is_one_of_the_first_window():
    """Checkpoints from before there were windows."""
    old = {**Progress().to_dict(), "position": {"epoch": 3, "index": 17}}
    assert Progress.from_dict(old).position == Position(3, 0, 17)


def test_a_checkpoint_that_does_not_say_where_the_run_diverged_is_read():
    old = Progress(rollbacks=2).to_dict()
    del old["diverged"]
    assert Progress.from_dict(old) == Progress(rollbacks=2)


@pytest.mark.parametrize(
    ("values", "higher", "best", "stale"),
    [
        ([3.0, 5.0, 4.0], True, (5.0, 2), 1),
        ([3.0, 5.0, 4.0], False, (3.0, 1), 2),
        ([3.0, 3.0], True, (3.0, 1), 1),
        ([math.nan, -math.inf, 1.0], True, (1.0, 3), 0),
        ([math.nan], False, (None, 0), 1),
    ],
)
def test_the_best_and_how_long_it_has_been(values, higher, best, stale):
    metric = "bleu" if higher else "loss"
    more = {"training.best_metric": metric, "training.validate_bleu": higher}
    progress, settings = Progress(), tiny(more).training
    for step, value in enumerate(values, start=1):
        progress = progress.validated(step, {metric: value, "chrf": 1.0}, settings)
    assert ((progress.best, progress.best_step), progress.stale) == (best, stale)


@pytest.mark.parametrize(
    ("step", "scores", "stopping", "outcome"),
    [
        (19, [], None, None),
        (20, [], None, Outcome("finished", 20, "all 20 steps done")),
        (20, [], "SIGTERM received", Outcome("finished", 20, "all 20 steps done")),
        (19, [], "SIGTERM received", Outcome("stopped", 19, "SIGTERM received")),
        (19, [3.0, 2.0, 4.0, 4.0], None, None),
        (
            *(19, [3.0, 2.0, 2.0, 4.0, math.nan], "SIGTERM received"),
            Outcome("finished", 19, "no better loss in 3 validations; the best was 2 at step 2"),
        ),
        (
            *(3, [math.nan] * 3, None),
            Outcome("finished", 3, "no better loss in 3 validations; there was none at all"),
        ),
    ],
)
def test_how_training_ends(step, scores, stopping, outcome):
    progress, settings = Progress(), tiny({"training.steps": 20, "training.patience": 3}).training
    for number, loss in enumerate(scores, start=1):
        progress = progress.validated(number, {"loss": loss}, settings)
    assert progress.outcome(step, settings, stopping) == outcome


def test_what_outlives_going_back():
    bad = [Position(0, 0, 3), Position(0, 0, 4)]
    later = Progress(position=Position(0, 0, 9), seconds=9.0).rolled_back(8, bad)
    back = later.restored(Progress(position=Position(0, 0, 2), seconds=2.0, stale=1))
    assert back == Progress(
        position=Position(0, 0, 2),
        seconds=2.0,
        stale=1,
        left_out=tuple(bad),
        rollbacks=1,
        diverged=8,
    )


def test_only_a_checkpoint_beyond_the_place_repairs_it():
    progress = Progress().rolled_back(8, []).rolled_back(5, [])
    assert (progress.rollbacks, progress.diverged) == (2, 8)
    assert progress.saved(8).rollbacks == 2
    assert progress.saved(9).rollbacks == 0


# --- what is due after a step ---------------------------------------------------------------------


SETTINGS = tiny(
    {
        "training.steps": 20,
        "training.log_every": 3,
        "training.validate_every": 6,
        "training.save_every": 4,
    }
).training


@pytest.mark.parametrize(
    ("step", "due"),
    [
        (1, Due()),
        (3, Due(report=True)),
        (4, Due(checkpoint=True)),
        (6, Due(report=True, validation=True, checkpoint=True)),
        (12, Due(report=True, validation=True, checkpoint=True)),
        (20, Due(report=True, validation=True, checkpoint=True)),
    ],
)
def test_intervals_and_the_end(step, due):
    assert due_after(step, SETTINGS, waiting=Due()) == due
    assert due.anything == (step != 1)


def test_what_waits_stays_due_but_a_report():
    """A report is made at its step, whatever happens to updates."""
    waiting = Due(report=True, validation=True, checkpoint=True)
    assert due_after(7, SETTINGS, waiting=waiting) == Due(validation=True, checkpoint=True)


def test_no_interval_is_never_but_at_the_end():
    settings = tiny({"training.steps": 6, "training.validate_every": 0}).training
    assert not due_after(5, settings, waiting=Due()).validation
    assert due_after(6, settings, waiting=Due()) == Due(report=True, validation=True)
