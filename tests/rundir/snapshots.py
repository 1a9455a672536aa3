"""Small states to save, whose numbers are a function of the step, and how to compare them."""

import contextlib
import resource
import signal
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import RunDirectory
from tests.training.examples import assert_same as assert_same_trees

KEEP_ALL = TrainingConfig(keep_for_average=100)


class Moments(NamedTuple):
    """Shaped like an optimizer's state: a named tuple with a counter, trees and empty nodes."""

    count: jax.Array
    mu: dict
    nu: dict


def tree(step: int, seed: int = 0) -> dict:
    random = np.random.default_rng((seed, step))
    return {
        "embedding": jnp.asarray(random.standard_normal((64, 16)), jnp.float32),
        "encoder": {
            "layer_0": {
                "kernel": jnp.asarray(random.standard_normal((16, 4, 8)), jnp.float32),
                "scale": jnp.asarray(random.standard_normal(16), jnp.bfloat16),
            }
        },
    }


def snapshot(step: int, *, ema: bool = False, **metrics: float) -> Snapshot:
    """A state whose numbers are a function of the step."""
    return Snapshot(
        step=step,
        params=tree(step, 0),
        opt_state=(
            (),
            Moments(jnp.int32(step), tree(step, 1), tree(step, 2)),
            {"key": jax.random.key(step), "none": None},
        ),
        position={"epoch": step // 10, "index": step % 10},
        metrics=metrics,
        ema=tree(step, 3) if ema else None,
    )


def save(run: RunDirectory, *snapshots: Snapshot, settings: TrainingConfig = KEEP_ALL) -> None:
    """Saves them into the run and closes."""
    with Checkpoints(run.checkpoints, settings) as checkpoints:
        for state in snapshots:
            assert checkpoints.save(state)


def abstract(of: Snapshot) -> tuple:
    return jax.eval_shape(lambda: (of.params, of.opt_state))


def assert_same(got: Snapshot, wanted: Snapshot) -> None:
    """Bit for bit, and of the same structure."""
    for name in ("params", "opt_state", "ema"):
        assert_same_trees(getattr(got, name), getattr(wanted, name))
    for name in ("step", "position", "metrics", "kind"):
        assert getattr(got, name) == getattr(wanted, name)


@contextlib.contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file of this process becomes larger than `room` bytes: writing fails in its middle."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, previous)
