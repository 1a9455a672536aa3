"""`training.minutes`: steps by the time that training may take, chosen when a run is created."""

import pytest

from flaxformer_mt.config import ConfigError, read_config
from flaxformer_mt.config.sizes import LITTLE, TextSize
from tests.config.test_load import TEXT, for_tokens


def lasting(minutes, *overrides, recorded=None):
    """The config `files` for little text on a machine that does 50 steps a minute."""
    settings = [*TEXT, f"training.minutes={minutes}", *overrides]
    return read_config(
        "files",
        settings,
        recorded=recorded,
        text=TextSize(LITTLE),
        steps=int(50 * minutes),
    )


def test_minutes_choose_the_steps_and_what_hangs_on_them():
    short, long = lasting(10).training, lasting(100).training
    assert (short.minutes, short.steps, long.steps) == (10, 500, 5000)
    for training in (short, long):
        assert training.schedule.warmup_steps < training.steps / 2
        assert training.patience * training.validate_every < training.steps / 2
    assert short.save_every < long.save_every
    assert lasting(10).model == for_tokens(LITTLE).model


def test_what_hangs_on_steps_follows_the_user_s_steps_too():
    chosen = lasting(10).training
    given = for_tokens(LITTLE, "training.steps=500").training
    assert given.steps == chosen.steps == 500
    assert given.schedule.warmup_steps == chosen.schedule.warmup_steps == 150
    assert (given.save_every, given.validate_every) == (chosen.save_every, chosen.validate_every)


def test_a_run_keeps_the_steps_that_its_minutes_chose():
    """Also on another machine, or resumed without the minutes."""
    begun = lasting(10)
    assert lasting(10, recorded=begun) == begun
    assert for_tokens(LITTLE, recorded=begun) == begun
    # Steps of one's own, the chosen ones too, or the minutes would end it again.
    for steps in (900, begun.training.steps):
        longer = for_tokens(LITTLE, f"training.steps={steps}", recorded=begun)
        assert (longer.training.steps, longer.training.minutes) == (steps, 0)
        settings = [*TEXT, "training.minutes=10", f"training.steps={steps}"]
        assert read_config("files", settings, recorded=longer) == longer  # the same command resumes
    endless = for_tokens(LITTLE, "training.minutes=0", recorded=begun).training
    assert (endless.steps, endless.minutes) == (begun.training.steps, 0)
    with pytest.raises(ConfigError, match="'training.minutes' = 20 counts when a run is created"):
        lasting(20, recorded=begun)


@pytest.mark.parametrize(
    ("spec", "overrides", "message"),
    [
        ("files:tiny", [], "'training.minutes' needs the config `files` without a variant"),
        ("quickstart", [], "'training.minutes' needs the config `files` without a variant"),
        ("files", ["training.steps=7"], "'training.minutes' chooses 'training.steps': set one"),
    ],
)
def test_minutes_that_could_not_choose_the_steps_are_refused(spec, overrides, message):
    with pytest.raises(ConfigError, match=message):
        read_config(spec, ["training.minutes=5", *overrides])
