"""`training.minutes`: steps by the time that training may take, chosen when a run is created."""

import pytest

from flaxformer_mt.config import ConfigError, load_config
from tests.config.test_load import TEXT, for_pairs


def lasting(minutes, *overrides, recorded=None):
    """The config `files` for 20,000 pairs on a machine that does 50 steps a minute."""
    settings = [*TEXT, f"training.minutes={minutes}", *overrides]
    return load_config(
        "files",
        settings,
        recorded=recorded,
        count=lambda data: 20_000,
        pace=lambda config: int(50 * config.training.minutes),
    )


def test_minutes_choose_the_steps_and_what_hangs_on_them():
    short, long = lasting(10).training, lasting(100).training
    assert (short.minutes, short.steps, long.steps) == (10, 500, 5000)
    for training in (short, long):
        assert training.schedule.warmup_steps < training.steps / 2
        assert training.patience * training.validate_every <= 2 * training.steps
    assert short.save_every < long.save_every
    assert lasting(10).model == for_pairs(20_000).model


def test_a_run_keeps_the_steps_that_its_minutes_chose():
    """Also on another machine, or resumed without the minutes."""
    begun = lasting(10)
    assert lasting(10, recorded=begun) == begun
    assert for_pairs(20_000, recorded=begun) == begun
    assert for_pairs(20_000, "training.steps=900", recorded=begun).training.steps == 900
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
        load_config(spec, ["training.minutes=5", *overrides])
