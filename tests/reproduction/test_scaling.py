"""The rule of `--scale`: the same training, shorter; and what training takes by formula."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.config import flatten, load_config
from flaxformer_mt.model.flops import shape_flops
from flaxformer_mt.reproduction.paper import ROWS
from flaxformer_mt.reproduction.planned import planned_flops, planned_parameters
from flaxformer_mt.reproduction.settings import (
    scaled,
    scaled_schedule,
    validating_at_checkpoints,
)
from flaxformer_mt.training.optimizer import learning_rate

SCALES = [0.5, 0.1, 0.025, 0.01]


@pytest.mark.parametrize("spec", ["table3:base", "wmt14_en_de:big", "multi30k:tiny"])
def test_the_learning_rate_is_the_same_at_the_same_share_of_training(spec):
    config = load_config(spec)
    for scale in SCALES:
        whole, part = config.training, scaled(config, scale).training
        full = learning_rate(whole.schedule, config.model.d_model)
        short = learning_rate(part.schedule, config.model.d_model)
        # The schedule counts updates already made: step n is asked for by n - 1.
        steps = np.round(np.linspace(0.01, 1, 25) * part.steps)
        at = whole.steps * steps / part.steps
        np.testing.assert_allclose(short(steps - 1), full(at - 1), rtol=1e-5)


def test_the_highest_rate_is_kept_even_where_steps_cannot_be_shared():
    schedule = load_config("table3:base").training.schedule
    highest = float(learning_rate(schedule, 512)(3999))
    for scale in (*SCALES, 1e-4, 1e-6):
        short = scaled_schedule(schedule, scale)
        ours = float(learning_rate(short, 512)(short.warmup_steps - 1))
        assert ours == pytest.approx(highest, rel=1e-5)


@pytest.mark.parametrize("row", [row for row in ROWS if row.average], ids=lambda row: row.label)
def test_averaging_covers_the_same_last_part_of_training(row):
    def window(config):
        training = config.training
        return training.keep_for_average * training.save_every / training.steps

    config = load_config(row.spec)
    for scale in SCALES:  # steps are whole: a few in a hundred more or less
        assert window(scaled(config, scale)) == pytest.approx(window(config), rel=0.04)


@pytest.mark.parametrize("scale", [0.1, 1e-6])
def test_nothing_else_changes(scale):
    before = load_config("wmt14_en_de:base")
    after = flatten(scaled(before, scale))
    changed = {key for key, value in flatten(before).items() if after[key] != value}
    training = "steps save_every keep_for_average log_every validate_every validate_bleu"
    allowed = {f"training.{name}" for name in [*training.split(), "best_metric"]}
    allowed |= {"training.schedule.warmup_steps", "training.schedule.factor"}
    assert changed <= allowed
    assert after["training.steps"] == max(1, 100_000 * scale)
    # However short: as many checkpoints as there can be.
    assert after["training.keep_for_average"] <= max(1, after["training.steps"])


@pytest.mark.parametrize(
    ("validate", "save"), [(1000, 1500), (1000, 600), (10, 15), (0, 7), (5, 1)]
)
def test_validation_makes_no_checkpoint_of_its_own(validate, save):
    config = load_config("table3:base")
    training = dataclasses.replace(config.training, validate_every=validate, save_every=save)
    found = validating_at_checkpoints(dataclasses.replace(config, training=training)).training
    assert found.validate_every % save == 0
    assert (found.validate_every == 0) == (validate == 0)
    assert abs(found.validate_every - validate) < save


def test_planned_flops_are_those_of_full_batches():
    config = load_config("wmt14_en_de:big")
    step = shape_flops(config.model, 37_000, rows=1000, src_length=25, tgt_length=25)
    assert planned_flops(config) == pytest.approx(300_000 * step)
    assert planned_parameters(config) == pytest.approx(214.2e6, rel=1e-3)
