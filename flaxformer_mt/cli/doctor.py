"""`doctor`: the first step on a new machine."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flaxformer_mt.api import say
from flaxformer_mt.api.settings import sized_config
from flaxformer_mt.cli.arguments import (
    CONFIG,
    Flag,
    add_processes,
    cluster,
    flags,
    make_parser,
    print_json,
)
from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.errors import FINAL
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.diagnosis.machine import Check, Finding
    from flaxformer_mt.parallel.processes import Processes

_WHAT = {
    "--workdir": Flag(
        "where your runs will be, local or gs://BUCKET/FOLDER; tested with a "
        "checkpoint (default: the temporary folder)",
        takes="DIR",
    ),
    **CONFIG,
    "--json": Flag("print the findings as JSON"),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, _WHAT)
    add_processes(parser)
    options = parser.parse_args(arguments)
    overrides = options.overrides
    if overrides and options.config is None:
        parser.error(f"--config.{overrides[0]} needs a config to change: add --config")
    config = None
    if options.config is not None:
        config = sized_config(options.config, overrides, paced=False)
    place = as_path(tempfile.gettempdir() if options.workdir is None else options.workdir)
    from flaxformer_mt.parallel.processes import joined

    with joined(cluster(options, parser), heartbeat=options.heartbeat) as processes:
        findings = []
        for finding in examine(place, config, processes):
            findings.append(finding)
            if processes.is_first and not options.json:
                print(finding.line(), flush=True)
        as_text = json.dumps([dataclasses.asdict(finding) for finding in findings])
        by_process = processes.gather([as_text])
        failed: int = processes.first(lambda: _report(by_process, as_json=options.json))
    return FINAL if failed else 0  # FINAL: another start finds the same machine


def examine(
    place: Path, config: ExperimentConfig | None, processes: Processes
) -> Iterator[Finding]:
    """All checks' findings, one after another; `place` is where runs will be."""
    import jax

    from flaxformer_mt.diagnosis import machine
    from flaxformer_mt.diagnosis.step import check_experiment, check_step
    from flaxformer_mt.parallel.compile_cache import folder_in_use

    device = jax.local_devices()[0]
    folder = folder_in_use()  # of compiled programs, chosen when the command began
    checks: dict[str, Check] = {
        "versions": machine.check_versions,
        "devices": lambda: machine.check_devices(processes),
        "processes": lambda: machine.check_processes(processes),
        "step": lambda: check_step(device),
        "collective": machine.check_collective,
        "speed": lambda: machine.check_speed(device),
        "checkpoint": lambda: machine.check_checkpoint(place, processes),
        "space": lambda: machine.check_space(place, folder),
        "cache": lambda: machine.check_cache(folder),
    }
    if config is not None:
        checks["config"] = functools.partial(check_experiment, config)
    for name, check in checks.items():
        yield from machine.examined(name, check)


def _report(by_process: Sequence[Sequence[str]], *, as_json: bool) -> int:
    """Prints all processes' findings, each process's as JSON; returns how many checks failed."""
    from flaxformer_mt.diagnosis.machine import Finding

    findings = [
        (number, Finding(**fields))
        for number, (text,) in enumerate(by_process)
        for fields in json.loads(text)
    ]
    if as_json:
        print_json(
            [{"process": number, **dataclasses.asdict(finding)} for number, finding in findings]
        )
    else:
        for number, finding in findings:
            if number and finding.state != "ok":
                print(f"process {number}: {finding.line()}")
    states = [finding.state for _, finding in findings]
    say(f"{states.count('ok')} ok, {states.count('warn')} warnings, {states.count('FAIL')} failed")
    return states.count("FAIL")
