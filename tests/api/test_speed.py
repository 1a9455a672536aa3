"""The steps that fit into some minutes, and how a machine's pace is measured."""

import dataclasses

import pytest

from flaxformer_mt.api.speed import FEWEST, Pacing, measured_pacing
from flaxformer_mt.config import read_config
from flaxformer_mt.config.batch_shapes import step_flops
from flaxformer_mt.config.sizes import ENOUGH, LITTLE, TextSize, training_steps, work

PACING = Pacing(step=0.25, compiling=5, validation=5, spent=10, text=TextSize(LITTLE))


def test_steps_fill_the_time_that_everything_else_leaves():
    for minutes in (5, 20, 300):
        steps = PACING.steps_in(minutes)
        seconds = PACING.seconds_beside(steps) + steps * PACING.step
        assert 0.9 * 60 * minutes < seconds <= 60 * minutes
    assert PACING.describe(20).startswith("training.minutes=20: 4,0")


def test_too_short_a_time_gives_the_fewest_steps_and_says_what_they_take():
    assert PACING.steps_in(1) == FEWEST
    advice = "training ends before, and fewer teach little: give it 2 minutes or more"
    assert PACING.describe(1).endswith(advice)


def test_a_short_time_affords_the_sizes_of_less_text():
    """Of a text, those whose steps there is time for a quarter of; of little text, all."""
    much = dataclasses.replace(PACING, text=TextSize(20 * LITTLE), step=2.0)
    afforded = [much.affordable_tokens(minutes) for minutes in (1, 20, 60, 180, 1000)]
    assert afforded[0] == LITTLE and afforded[-1] == 20 * LITTLE
    assert afforded == sorted(afforded) and len(set(afforded)) >= 4
    for minutes, tokens in zip((20, 60, 180), afforded[1:4], strict=True):
        text = dataclasses.replace(much.text, affordable=tokens)
        smaller = work(text, 1).model
        assert smaller.d_model <= work(much.text, 1).model.d_model
        # As fast as its FLOPs say.
        pace = 2.0 * step_flops(work(text, 1)) / step_flops(work(much.text, 1))
        steps = dataclasses.replace(much, text=text, step=pace).steps_in(minutes)
        assert 0.98 * ENOUGH <= steps / training_steps(text) < 2 * ENOUGH
    few = dataclasses.replace(PACING, text=TextSize(LITTLE // 4))
    assert few.affordable_tokens(1) == LITTLE // 4


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"training.validate_every": 50}, (20 - 7) * 5 + (40 - 41) * 1.2 * 0.25),
        ({"training.validate_every": 0}, (1 - 7) * 5),  # only at the end
        ({"training.save_every": 1}, (1000 - 41) * 1.2 * 0.25),
        ({"data.batch.max_shapes": 12}, (12 - 4) * 5),
        ({"data.batch.max_shapes": 0}, 0),  # as many as the training's length repays
    ],
)
def test_what_the_user_sets_beside_the_steps_is_in_the_time(given, seconds):
    """A training of 1,000 steps has 4 shapes, 7 validations and 41 checkpoints otherwise."""
    pacing = dataclasses.replace(PACING, given=given)
    longer = pacing.seconds_beside(1000) - PACING.seconds_beside(1000)
    assert longer == pytest.approx(seconds)
    steps = pacing.steps_in(20)
    assert pacing.seconds_of(steps) <= 0.95 * 20 * 60 < pacing.seconds_of(steps + 2)


def test_a_pace_is_measured_by_real_steps():
    config = read_config(
        "quickstart", ["model.d_model=16", "model.d_ff=16", "data.batch.tokens=64"]
    )
    text = TextSize(tokens=400, pairs=50)  # four words a side, 1.7 pieces each, and an end mark
    pacing = measured_pacing(config, text, TextSize(tokens=640, pairs=80), {})
    assert 0 < pacing.step < pacing.spent and 0 < pacing.compiling < pacing.spent
    assert pacing.validation == pytest.approx(80 * 8 / 64 * (3.2 + 1 / 3) * pacing.step)
