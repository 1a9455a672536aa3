"""`doctor`: the first step on a new machine, and with --tpu-hour the first hour."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
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
    patience,
    positive_number,
    print_json,
)
from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.errors import FINAL
from flaxformer_mt.rundir.paths import as_path, remove

if TYPE_CHECKING:
    from flaxformer_mt.diagnosis.machine import Finding
    from flaxformer_mt.parallel.processes import Processes
    from flaxformer_mt.rehearsal.checklist import Hour

_HOURS_CONFIG = "wmt14_en_de:base"
_PARTS = ("machine", "plan", "steps", "input", "save", "train", "resume", "decode")
_FOLDER = "tpu-hour"  # below --workdir
_WHAT = {
    "--workdir": Flag(
        "where your runs will be, local or gs://BUCKET/FOLDER; tested with a "
        "checkpoint (default: the temporary folder)",
        takes="DIR",
    ),
    **CONFIG,
    "--json": Flag("print the findings as JSON"),
}
_HOUR = {
    "--tpu-hour": Flag(
        "rehearse a run: this machine, ten steps beside their plan, input, a checkpoint, training "
        f"that is stopped and resumed, translating (--config: {_HOURS_CONFIG})"
    ),
    "--only": Flag(
        "of the rehearsal only these parts, after the first, machine",
        takes="NAME",
        choices=_PARTS,
        several=True,
    ),
    "--part": Flag(
        "only this part, in this process, with the run that an earlier one has left",
        takes="NAME",
        choices=tuple(name for name in _PARTS if name != "plan"),
    ),
    "--plan": Flag(
        "what `plan --json` printed for the step; else the step is planned", takes="FILE"
    ),
    "--minutes": Flag(
        "how long the rehearsal may take (default: 60)", takes="N", read=positive_number
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, _WHAT)
    flags(parser.add_argument_group("the first hour on a TPU"), _HOUR)
    add_processes(parser)
    options = parser.parse_args(arguments)
    _check(options, parser)
    config = _config(options)
    place = as_path(tempfile.gettempdir() if options.workdir is None else options.workdir)
    if options.tpu_hour:
        return _rehearse(_hour(options, place), place / _FOLDER, as_json=options.json)

    from flaxformer_mt.parallel.processes import joined

    with joined(cluster(options, parser), **patience(options)) as processes:
        findings = []
        for finding in _findings(options, place, config, processes):
            findings.append(finding)
            if options.json and finding.state == "FAIL":
                # At once: what comes after it may not come to its end.
                print(finding.line(), file=sys.stderr, flush=True)
            if processes.is_first and not options.json:
                print(finding.line(), flush=True)
        as_text = json.dumps([dataclasses.asdict(finding) for finding in findings])
        by_process = processes.gather([as_text])
        failed: int = processes.first(lambda: _report(by_process, as_json=options.json))
    return FINAL if failed else 0  # FINAL: another start finds the same machine


def _check(options: Namespace, parser: ArgumentParser) -> None:
    """Ends the command if its flags don't go together."""
    is_rehearsal = options.tpu_hour or options.part
    if options.overrides and options.config is None and not is_rehearsal:
        parser.error(f"--config.{options.overrides[0]} needs a config to change: add --config")
    if options.tpu_hour and options.part:
        parser.error("--part is one part of --tpu-hour: give one of both")
    if options.plan is not None and not is_rehearsal:
        parser.error("--plan is compared by --tpu-hour and --part: add one of both")
    for name in ("minutes", "only"):
        if getattr(options, name) is not None and not options.tpu_hour:
            parser.error(f"--{name} says what --tpu-hour does: add that")
    cluster(options, parser)


def _config(options: Namespace) -> ExperimentConfig | None:
    """The config to check or rehearse; None without one."""
    if options.config is None and (options.tpu_hour or options.part):
        options.config = _HOURS_CONFIG
    if options.config is None:
        return None
    return sized_config(options.config, options.overrides, paced=False)


def _findings(
    options: Namespace, place: Path, config: ExperimentConfig | None, processes: Processes
) -> Iterator[Finding]:
    """Of the machine, or of a part of the rehearsal."""
    if options.part is None:
        from flaxformer_mt.diagnosis.examination import examine

        return examine(place, config, processes)

    from flaxformer_mt.rehearsal.parts import rehearse
    from flaxformer_mt.rehearsal.rehearsed import Rehearsed, read_plan

    assert config is not None
    plan = None if options.plan is None else read_plan(options.plan)
    rehearsed = Rehearsed(config=config, folder=place / _FOLDER, plan=plan, processes=processes)
    return rehearse(options.part, rehearsed)


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
    return _conclude([finding for _, finding in findings])


def _conclude(findings: Sequence[Finding]) -> int:
    """Says how many findings there are of each state; returns how many failed."""
    states = [finding.state for finding in findings]
    say(f"{states.count('ok')} ok, {states.count('warn')} warnings, {states.count('FAIL')} failed")
    return states.count("FAIL")


def _hour(options: Namespace, place: Path) -> Hour:
    """The words that each part's command gets."""
    from flaxformer_mt.rehearsal.checklist import MINUTES, Hour

    given = {
        "--process-id": options.process_id,
        "--coordinator": options.coordinator,
        "--num-processes": options.num_processes,
        "--heartbeat": options.heartbeat,
    }
    return Hour(
        config=["--config", options.config, *(f"--config.{text}" for text in options.overrides)],
        place=["--workdir", str(place)],
        processes=[
            word
            for flag, value in given.items()
            if value is not None
            for word in (flag, str(value))
        ],
        plan=options.plan,
        minutes=options.minutes or MINUTES,
        parts=options.only or _PARTS,
    )


def _rehearse(hour: Hour, folder: Path, *, as_json: bool) -> int:
    """Runs the checklist, which works in `folder`; returns the exit status."""
    from flaxformer_mt.rehearsal.checklist import Checklist
    from flaxformer_mt.rehearsal.rehearsed import read_plan

    if hour.plan is not None:
        read_plan(hour.plan)
    # A part must not go on when this command is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    findings = []
    with tempfile.TemporaryDirectory(prefix="flaxformer-hour-") as work:
        checklist = Checklist(hour, Path(work), say)
        for finding in checklist.run():
            findings.append(finding)
            of_another = " @" in finding.name
            if not as_json and not (of_another and finding.state == "ok"):
                print(finding.line(), flush=True)
    if as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    failed = _conclude(findings)
    if failed:
        say(f"the rest was not tried; the short training is in {folder}")
    elif checklist.is_first:
        remove(folder)
    return FINAL if failed else 0
