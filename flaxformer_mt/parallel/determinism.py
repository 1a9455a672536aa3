"""The same bits from every run, on GPUs too."""

from __future__ import annotations

import os

import jax

from flaxformer_mt.errors import UserError

# Leaves out operations whose sums depend on the order in which threads arrive, and the choice of
# kernels by timing them (XLA's documentation of its GPU flags).
FLAG = "--xla_gpu_deterministic_ops=true"


class DeterminismError(UserError):
    """XLA has been started without the flag that was asked for too late."""


def make_deterministic() -> None:
    """Has XLA compile deterministic programs for GPUs; elsewhere they are so anyway.

    Must come before any use of a device. Raises DeterminismError if it comes later.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if FLAG in flags.split():
        return
    if _started():
        if jax.default_backend() == "gpu":
            raise DeterminismError(
                "'training.deterministic' = true comes too late: GPUs are in use already in this "
                f"process; start a new one, or set XLA_FLAGS={FLAG} for this one"
            )
        return
    os.environ["XLA_FLAGS"] = f"{flags} {FLAG}".strip()


def _started() -> bool:
    # JAX tells nobody else, and asking for a device would start it.
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())
