"""`fm.dry_run`: what a tried step says."""

import dataclasses

import pytest

import flaxformer_mt as fm
from flaxformer_mt.api.trial import DryRun
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.training.instruments import Peak
from flaxformer_mt.training.try_step import Trial

TRIAL = Trial(
    shape=Shape(4, 10, 20),
    compile_seconds=1.0,
    step_seconds=0.5,
    steps=3,
    loss=9.0,
    arguments=2 << 20,
    temporary=1 << 20,
    peak=None,
    in_use=None,
    limit=None,
)


@pytest.fixture
def tried():
    config = fm.load_config("quickstart", {"training.steps": 7200})
    peak = Peak(1e12, "a guess")
    return DryRun(config=config, trial=TRIAL, shapes=3, tgt_vocab_size=100, peak=peak)


def test_utilization_is_of_the_devices_peak(tried):
    flops = training_flops(
        tried.config.model, 100, src_tokens=40, tgt_tokens=80, src_keys=10, tgt_keys=20
    )
    assert tried.mfu == pytest.approx(flops / 0.5 / 1e12)
    assert dataclasses.replace(tried, peak=None).mfu is None


def test_a_trial_is_shown_in_lines(tried):
    text = str(tried)
    assert text.startswith("longest of 3 shapes     4 rows of 10 + 20 positions\n")
    assert "state and batch 2 MiB, temporary 1 MiB\n" in text and "of a guess" in text
    assert "500 ms (best of 3)" in text and "80 source + 160 target per second" in text
    assert "1:00:00 if all have this shape" in text
    assert "mfu" not in str(dataclasses.replace(tried, peak=None))


def test_the_time_of_all_steps_is_named_an_estimate(tried):
    assert str(tried).splitlines()[-1] == (
        "7,200 steps             an estimate: 1:00:00 if all have this shape, plus validation and "
        "checkpoints"
    )
