"""The learning rate against the paper's formula (section 5.3)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.config import ScheduleConfig
from flaxformer_mt.training.optimizer import learning_rate

STEPS = np.arange(1, 20_001)


def rates(config: ScheduleConfig, d_model: int = 512, steps: np.ndarray = STEPS) -> np.ndarray:
    """The rates of steps counted from 1; a schedule counts the updates already made."""
    return np.asarray(learning_rate(config, d_model)(jnp.asarray(steps - 1)))


@pytest.mark.parametrize("d_model", [512, 1024])
@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_equals_the_formula(factor, d_model):
    steps = STEPS.astype(np.float64)
    wanted = factor * d_model**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
    got = rates(ScheduleConfig(factor=factor), d_model)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert got.dtype == np.float32


@pytest.mark.parametrize(
    ("step", "rate"),
    [(1, 1.746928e-7), (4000, 6.987712e-4), (100_000, 1.397542e-4)],
)
def test_values_of_the_base_model(step, rate):
    """Computed by hand from d_model 512 and a warm-up of 4,000 steps."""
    assert rates(ScheduleConfig(), steps=np.array([step])) == pytest.approx(rate, rel=1e-6)


def test_the_first_update_is_step_one():
    assert float(learning_rate(ScheduleConfig(), 512)(0)) > 0


@pytest.mark.parametrize("warmup", [1, 10, 4000])
def test_peak_is_the_highest_rate_and_stands_at_the_end_of_the_warm_up(warmup):
    config = ScheduleConfig(kind="peak", peak=0.005, warmup_steps=warmup)
    got = rates(config)
    assert got.argmax() + 1 == warmup
    assert got.max() == pytest.approx(0.005)


def test_peak_has_the_papers_curve():
    """Linear growth, then the inverse square root; d_model has no say."""
    config = ScheduleConfig(kind="peak", peak=512**-0.5 * 4000**-0.5)
    np.testing.assert_allclose(rates(config), rates(ScheduleConfig()), rtol=1e-6)
    np.testing.assert_array_equal(rates(config, 512), rates(config, 1024))
