"""Compiles the training step for accelerators you don't have, and estimates its cost."""

import os

# libtpu expects to run on a TPU machine.
SETTINGS = {
    "JAX_PLATFORMS": "cpu",  # arrays of this process live on the CPU, also on a TPU machine
    "TPU_SKIP_MDS_QUERY": "1",  # no question to the metadata server of a cloud machine
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no lock file: nothing here owns a device
    "TPU_WORKER_HOSTNAMES": "localhost",
    # Its warnings, the partitioner's among them, to standard error, where `compile` reads
    # them, and not into files under /tmp/tpu_logs.
    "TPU_STDERR_LOG_LEVEL": "1",
    "TPU_LOG_DIR": "disabled",
    # A program from JAX's cache would have taken no time to compile, and its text may be gone.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}


def set_for_compiler() -> None:
    """Sets them for this process. Without effect on a JAX that has looked for devices already."""
    os.environ.update(SETTINGS)
