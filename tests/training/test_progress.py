"""What survives a restart, and how it changes: validations, going back, checkpoints."""

import dataclasses
import json
import math

import pytest

from flaxformer_mt.data.order import Position
from flaxformer_mt.rundir.layout import Status
from flaxformer_mt.training.progress import Due, Progress, due_after
from flaxformer_mt.training.telemetry import MetricSums
from tests.training.examples import tiny

STALE = "no better loss in 3 validations"


def test_survives_json_and_is_read_from_early_checkpoints():
    progress = Progress(
        position=Position(3, 7), left_out=(Position(0, 1),), window=MetricSums(steps=3)
    )
    recorded = json.loads(json.dumps(dataclasses.asdict(progress)))
    assert Progress.from_dict(recorded) == progress
    # Before there were windows in an epoch, `diverged`, the store's digest and sums.
    del recorded["position"]["window"], recorded["diverged"], recorded["data"], recorded["window"]
    changed = dataclasses.replace(progress, position=Position(3, 0, 0), window=MetricSums())
    assert Progress.from_dict(recorded) == changed


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
    changes = {"training.best_metric": metric, "training.validate_bleu": higher}
    progress, settings = Progress(), tiny(changes).training
    for step, value in enumerate(values, start=1):
        progress = progress.validated(step, {metric: value, "chrf": 1.0}, settings)
    assert ((progress.best, progress.best_step), progress.stale) == (best, stale)


FLAT = [(0.0, 5.0), (0.0, 4.0), (0.0, 4.5), (0.0, 3.0), (0.0, math.nan)]


@pytest.mark.parametrize(
    ("pairs", "best", "stale"),
    [
        (FLAT, (0.0, 4), 1),
        ([*FLAT, (1.2, 9.0)], (1.2, 6), 0),
        ([(1.58, 6.0), (0.0, 5.0), (0.0, 4.0)], (1.58, 1), 2),
        ([(7.0, 5.0), (7.0, 4.0), (6.0, 3.0)], (7.0, 2), 1),
        ([(0.0, math.nan), (0.0, 4.0)], (0.0, 2), 0),
        ([(math.nan, 5.0), (0.0, 4.0), (0.0, 3.0)], (0.0, 3), 0),
    ],
)
@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_a_score_that_is_the_same_throughout_leaves_the_choice_to_the_loss(
    metric, pairs, best, stale
):
    changes = {"training.best_metric": metric, "training.validate_bleu": True}
    progress, settings = Progress(), tiny(changes).training
    for step, (value, loss) in enumerate(pairs, start=1):
        progress = progress.validated(step, {metric: value, "loss": loss}, settings)
    assert ((progress.best, progress.best_step), progress.stale) == (best, stale)


def test_a_bleu_by_chance_does_not_rank():
    """0.58 at the first validation, of a word or two that match, and 0 at all later ones."""
    settings = tiny({"training.best_metric": "bleu", "training.validate_bleu": True}).training
    progress = Progress()
    for step, (value, loss) in enumerate([(0.58, 6.06), (0.0, 5.8), (0.02, 5.75)], start=1):
        progress = progress.validated(step, {"bleu": value, "loss": loss}, settings)
    assert (progress.best_step, progress.stale, progress.alike) == (3, 0, 3)


def test_patience_says_that_the_loss_decided():
    changes = {"training.best_metric": "bleu", "training.validate_bleu": True}
    progress, settings = Progress(), tiny({**changes, "training.patience": 2}).training
    for step, loss in enumerate([5.0, 4.0, 4.5, 4.25], start=1):
        assert progress.outcome(step, settings) is None
        progress = progress.validated(step, {"bleu": 0.0, "loss": loss}, settings)
    outcome = progress.outcome(4, settings)
    assert outcome is not None
    assert outcome.reason == (
        "no lower loss in 2 validations; the lowest was 4 at step 2; bleu was below 1 at each of 4 "
        "validations, so the lowest loss decides which is best"
    )


def test_a_run_of_an_earlier_version_that_stood_at_0_goes_on_by_the_loss():
    recorded = dataclasses.asdict(Progress(best=0.0, best_step=20, stale=3))
    del recorded["best_loss"], recorded["alike"]
    progress = Progress.from_dict(json.loads(json.dumps(recorded)))
    changes = {"training.best_metric": "bleu", "training.validate_bleu": True}
    progress = progress.validated(100, {"bleu": 0.0, "loss": 2.0}, tiny(changes).training)
    assert (progress.best_step, progress.stale, progress.alike) == (100, 0, 2)


@pytest.mark.parametrize(
    ("step", "scores", "stopping", "outcome"),
    [
        (19, [], None, None),
        (20, [], None, ("finished", "all 20 steps done")),
        (20, [], "SIGTERM received", ("finished", "all 20 steps done")),
        (21, [], None, ("finished", "beyond training.steps = 20")),
        (19, [], "SIGTERM received", ("stopped", "SIGTERM received")),
        (19, [3.0, 2.0, 4.0, 4.0], None, None),
        (
            *(19, [3.0, 2.0, 2.0, 4.0, math.nan], "SIGTERM received"),
            ("finished", f"{STALE}; the best was 2 at step 2"),
        ),
        (3, [math.nan] * 3, None, ("finished", f"{STALE}; there was none")),
    ],
)
def test_how_training_ends(step, scores, stopping, outcome):
    progress, settings = Progress(), tiny({"training.steps": 20, "training.patience": 3}).training
    for number, loss in enumerate(scores, start=1):
        progress = progress.validated(number, {"loss": loss}, settings)
    outcome = outcome and Status(state=outcome[0], step=step, reason=outcome[1])
    assert progress.outcome(step, settings, stopping) == outcome


def test_only_a_checkpoint_beyond_the_place_repairs_it():
    progress = Progress().rolled_back(8, [], most=2).rolled_back(5, [], most=2)
    assert (progress.rollbacks, progress.diverged) == (2, 8)
    assert progress.saved(8).rollbacks == 2
    assert progress.saved(9).rollbacks == 0


def test_what_is_due_after_a_step():
    """What waits stays due, but a report: it is made at its step, whatever happens to updates."""
    intervals = {"log_every": 3, "validate_every": 6, "save_every": 4}
    changes = {f"training.{name}": value for name, value in intervals.items()}
    settings = tiny({"training.steps": 20, **changes}).training
    everything = Due(report=True, validation=True, checkpoint=True)
    for step, due in {
        1: Due(),
        3: Due(report=True),
        4: Due(checkpoint=True),
        6: everything,
        12: everything,
        20: everything,
    }.items():
        assert due_after(step, settings, waiting=Due()) == due
    waiting = due_after(7, settings, waiting=everything)
    assert waiting == Due(validation=True, checkpoint=True)

    # No interval is never but at the end.
    never = tiny({"training.steps": 6, "training.validate_every": 0}).training
    assert not due_after(5, never, waiting=Due()).validation
    assert due_after(6, never, waiting=Due()) == Due(report=True, validation=True)
