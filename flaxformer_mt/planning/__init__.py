"""Compiles the training step for accelerators you don't have, and estimates its cost."""

import os

from flaxformer_mt.errors import UserError

# libtpu expects to run on a TPU machine.
SETTINGS = {
    "JAX_PLATFORMS": "cpu",  # where this process's arrays live
    "TPU_SKIP_MDS_QUERY": "1",  # no cloud metadata server
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no lock file: nothing here owns a device
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_STDERR_LOG_LEVEL": "1",  # `compile` reads the partitioner's warnings there
    "TPU_LOG_DIR": "disabled",
    "JAX_ENABLE_COMPILATION_CACHE": "false",  # cached programs have no compile time, maybe no text
}


class PlanningError(UserError):
    """A config, topology or compiled program that can't be planned for here."""


def set_for_compiler() -> None:
    """Sets them for this process, before JAX looks for devices."""
    os.environ.update(SETTINGS)
