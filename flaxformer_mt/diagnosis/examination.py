"""All that `doctor` looks at, in order."""

import functools
from collections.abc import Iterator
from pathlib import Path

import jax

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.diagnosis import machine
from flaxformer_mt.diagnosis.machine import Check, Finding, examined, has_failed
from flaxformer_mt.diagnosis.step import check_experiment, check_step
from flaxformer_mt.parallel.compile_cache import folder_in_use
from flaxformer_mt.parallel.processes import Processes


def examine(
    place: Path, config: ExperimentConfig | None, processes: Processes
) -> Iterator[Finding]:
    """All checks' findings, one after another; `place` is where runs will be.

    Several processes make each check together, and end after one that fails in any of them: the
    next might wait for that process.
    """
    device = jax.local_devices()[0]
    folder = folder_in_use()  # of compiled programs, chosen when the command began
    checks: dict[str, Check] = {
        "versions": machine.check_versions,
        "devices": lambda: machine.check_devices(processes),
        "processes": lambda: machine.check_processes(processes),
        "step": lambda: check_step(device),
        "collective": machine.check_collective,
        "speed": lambda: machine.check_speed(device),
        "bucket": lambda: machine.check_bucket(place),
        "checkpoint": lambda: machine.check_checkpoint(place, processes),
        "space": lambda: machine.check_space(place, folder),
        "cache": lambda: machine.check_cache(folder),
    }
    if config is not None:
        checks["config"] = functools.partial(check_experiment, config)
    for name, check in checks.items():
        findings = list(examined(name, check))
        yield from findings
        if processes.count > 1 and processes.anywhere(has_failed(findings)):
            return
