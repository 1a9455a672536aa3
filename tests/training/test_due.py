"""What is due after a step, as a pure function."""

from __future__ import annotations

import pytest

from flaxformer_mt.training.due import Due, due_after
from tests.training.examples import tiny

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
