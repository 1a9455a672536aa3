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
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.errors import FINAL, STOPPED
from flaxformer_mt.rehearsal import FOLDER, LIMITS, MINUTES
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.diagnosis.machine import Finding
    from flaxformer_mt.parallel.processes import Processes
    from flaxformer_mt.rehearsal.checklist import Hour

_HOURS_CONFIG = "wmt14_en_de:base"
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
        f"run only these stages of the rehearsal, after machine: {', '.join([*LIMITS][1:])}",
        takes="NAME",
        choices=LIMITS,
        several=True,
    ),
    "--stage": Flag(
        "run one stage (machine, or as for --only) in this process; `resume` and `decode` need "
        "the run that `train` left",
        takes="NAME",
        choices=tuple(stage for stage in LIMITS if stage != "plan"),
    ),
    "--plan": Flag(
        "what `plan --json` printed for the step; else the step is planned", takes="FILE"
    ),
    "--minutes": Flag(
        f"how long the rehearsal may take (default: {MINUTES:g})", takes="N", read=positive_number
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
    keep_programs()
    if options.tpu_hour:
        return _rehearse(options)
    place = as_path(tempfile.gettempdir() if options.workdir is None else options.workdir)

    from flaxformer_mt.diagnosis.machine import check_locked_memory
    from flaxformer_mt.parallel.processes import joined

    findings: list[Finding] = []

    def report(finding: Finding, is_first: bool) -> None:
        findings.append(finding)
        if options.json and finding.state != "ok":
            # At once: what comes after it may not come to its end.
            print(finding.line(), file=sys.stderr, flush=True)
        if is_first and not options.json:
            print(finding.line(), flush=True)

    # Before a device is asked for, which fails if the limit is too low.
    for finding in check_locked_memory():
        report(finding, is_first=True)
    with joined(cluster(options, parser), **patience(options)) as processes:
        for finding in _findings(options, place, config, processes):
            report(finding, processes.is_first)
        as_text = json.dumps([dataclasses.asdict(finding) for finding in findings])
        by_process = processes.gather([as_text])
        failed: int = processes.first(lambda: _report(by_process, as_json=options.json))
    return FINAL if failed else 0  # FINAL: another start finds the same machine


def _check(options: Namespace, parser: ArgumentParser) -> None:
    """Ends the command if its flags don't go together."""
    if options.tpu_hour and options.stage:
        parser.error("--tpu-hour runs all stages: leave out --stage, or name some with --only")
    if not options.tpu_hour:
        for name in ("minutes", "only"):
            if getattr(options, name) is not None:
                parser.error(f"--{name} needs --tpu-hour")
    elif options.join_within is not None:
        parser.error("--join-within: every stage of --tpu-hour has its own, by its limit")
    if not options.tpu_hour and not options.stage:
        if options.plan is not None:
            parser.error("--plan needs --tpu-hour or --stage")
        if options.overrides and options.config is None:
            parser.error(f"--config.{options.overrides[0]} needs a config to change: add --config")
    cluster(options, parser)


def _config(options: Namespace) -> ExperimentConfig | None:
    """The config to check or rehearse; None without one."""
    if options.config is None and (options.tpu_hour or options.stage):
        options.config = _HOURS_CONFIG
    if options.config is None:
        return None
    return sized_config(options.config, options.overrides, paced=False)


def _findings(
    options: Namespace, place: Path, config: ExperimentConfig | None, processes: Processes
) -> Iterator[Finding]:
    """Of the machine, or of a stage of the rehearsal."""
    if options.stage is None:
        from flaxformer_mt.diagnosis.examination import examine

        return examine(place, config, processes)

    from flaxformer_mt.rehearsal.rehearsed import Rehearsed, read_plan
    from flaxformer_mt.rehearsal.stages import rehearse

    assert config is not None
    # Only the first process may have the file.
    plan = processes.first(lambda: None if options.plan is None else dict(read_plan(options.plan)))
    rehearsed = Rehearsed(config=config, folder=place / FOLDER, plan=plan, processes=processes)
    return rehearse(options.stage, rehearsed)


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
    """The words that each stage's command gets."""
    from flaxformer_mt.rehearsal.checklist import Hour

    values_by_flag = {
        "--process-id": options.process_id,
        "--coordinator": options.coordinator,
        "--num-processes": options.num_processes,
        "--heartbeat": options.heartbeat,
    }
    words = [(flag, str(value)) for flag, value in values_by_flag.items() if value is not None]
    return Hour(
        config=["--config", options.config, *(f"--config.{text}" for text in options.overrides)],
        place=["--workdir", str(place)],
        processes=[word for flag_and_value in words for word in flag_and_value],
        plan=options.plan,
        minutes=options.minutes or MINUTES,
        stages=options.only or tuple(LIMITS),
    )


def _rehearse(options: Namespace) -> int:
    """Runs the checklist; returns the exit status."""
    from flaxformer_mt.diagnosis.machine import has_failed
    from flaxformer_mt.rehearsal.checklist import Checklist
    from flaxformer_mt.rehearsal.rehearsed import end_rehearsal

    # A stage must not go on when this command is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))
    findings = []
    with tempfile.TemporaryDirectory(prefix="flaxformer-hour-") as work:
        place = as_path(work if options.workdir is None else options.workdir)
        checklist = Checklist(_hour(options, place), Path(work), say)
        for finding in checklist.run():
            findings.append(finding)
            is_shown = checklist.is_of_first(finding) or finding.state != "ok"
            if is_shown and not options.json:
                print(finding.line(), flush=True)
        failed = has_failed(findings)
        if checklist.is_first and not failed:
            end_rehearsal(place / FOLDER)
    _conclude_hour(findings, checklist.is_first, as_json=options.json)
    return FINAL if failed else 0


def _conclude_hour(findings: Sequence[Finding], is_first: bool, *, as_json: bool) -> None:
    """Only the first of several hosts has something to say, unless this one has failed."""
    if is_first and as_json:
        print_json([dataclasses.asdict(finding) for finding in findings])
    if findings:
        _conclude(findings)
