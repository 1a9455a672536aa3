"""Compiles the training step for accelerators you don't have, and estimates its cost."""

import os
import re

from flaxformer_mt.errors import UserError

# Compilers expect to run where the accelerators are.
SETTINGS = {
    "JAX_PLATFORMS": "cpu",  # where this process's arrays live
    "JAX_ENABLE_COMPILATION_CACHE": "false",  # cached programs have no compile time, maybe no text
    "TPU_SKIP_MDS_QUERY": "1",  # no cloud metadata server
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no lock file: nothing here owns a device
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_STDERR_LOG_LEVEL": "1",  # `compile` reads the partitioner's warnings there
    "TPU_LOG_DIR": "disabled",
    "CUDA_VISIBLE_DEVICES": "",  # a card of this machine must not be mistaken for the planned one
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # it asks a driver for its version
}
TPU_VERSIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x")


class PlanningError(UserError):
    """A config, topology or compiled program that can't be planned for here."""


def set_for_compiler() -> None:
    """Sets them for this process, before JAX looks for devices."""
    os.environ.update(SETTINGS)


def names_a_tpu(topology: str) -> bool:
    """Whether it is one of TPUs, such as v5e:2x4 or tpu7x:2x2x1; all others are of GPUs."""
    # A V100 is none.
    return re.match(r"(?i)(v\d[a-z]*|tpu\w*):", topology) is not None
