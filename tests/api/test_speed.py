"""The steps that fit into some minutes, and how a machine's pace is measured."""

import pytest

from flaxformer_mt.api.speed import FEWEST, Pacing, measured_pacing
from flaxformer_mt.config import load_config

PACING = Pacing(step=0.25, compiling=40, validation=5, validations=8, checkpoints=50, spent=10)


def test_steps_fill_the_time_that_everything_else_leaves():
    for minutes in (5, 20, 300):
        seconds = PACING.beside + PACING.steps_in(minutes) * PACING.step
        assert 0.9 * 60 * minutes < seconds <= 60 * minutes
    assert PACING.describe(20).startswith("20 minutes: 4,")


def test_too_short_a_time_gives_the_fewest_steps_and_says_what_they_take():
    assert PACING.steps_in(1) == FEWEST
    assert PACING.describe(1).endswith("the fewest steps, 100, take about 2 minutes")


def test_a_pace_is_measured_by_real_steps():
    config = load_config(
        "quickstart", ["model.d_model=16", "model.d_ff=16", "data.batch.tokens=64"]
    )
    pacing = measured_pacing(config, length=8, validation_positions=640)
    assert 0 < pacing.step < pacing.spent and pacing.compiling > 0
    assert pacing.validation == pytest.approx(10 * (3.2 + 1 / 3) * pacing.step)
    assert pacing.validations == 1 + 1300 // 650
