"""What every process of a run must find alike before any of them goes on.

They meet here: all call these functions in the same order, and all get the same answer.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils

from flaxformer_mt.rundir.errors import CheckpointError

# Seconds until all hosts list the same files. NFS shows a folder as it was for up to 60.
_PATIENCE = 120


def everywhere(ok: bool) -> bool:
    """Whether every process says so.

    One that read well would otherwise wait forever for one that did not.
    """
    if jax.process_count() == 1:
        return ok
    return bool(np.all(multihost_utils.process_allgather(np.asarray(ok))))


def listed_alike(directory: Path, list_steps: Callable[[Path], list[int]]) -> list[int]:
    """The steps of a directory, once every process lists the same ones.

    Processes that took different steps for the newest would go on from different weights. Raises
    CheckpointError.
    """
    steps = list_steps(directory)
    if jax.process_count() == 1:
        return steps
    for _ in range(_PATIENCE):  # counted, not timed: all must give up in the same round
        if _alike(str(steps)):
            return steps
        time.sleep(1)
        steps = list_steps(directory)
    seen = ", ".join(str(step) for step in steps) or "none"
    raise CheckpointError(
        f"{directory}: not every host sees the same checkpoints there; this one sees {seen}. All "
        "need one folder that they share: look at how it is mounted"
    )


def _alike(text: str) -> bool:
    found = multihost_utils.process_allgather(_digest(text))
    return len(set(np.ravel(found).tolist())) == 1


def _digest(text: str) -> np.int32:
    return np.int32(zlib.crc32(text.encode()) >> 1)  # JAX's integers have 31 bits without a sign
