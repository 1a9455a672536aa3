"""`train`: starts a run or resumes one."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flaxformer_mt.api import say
from flaxformer_mt.api.settings import SettingsRequest, settled_by_first
from flaxformer_mt.cli.arguments import (
    CONFIG,
    WORKDIR,
    Flag,
    add_processes,
    cluster,
    flags,
    make_parser,
    patience,
    steps,
)
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.config import ConfigError, ExperimentConfig
from flaxformer_mt.config.languages import tag_of_each_pair
from flaxformer_mt.errors import STOPPED, program
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory, Status
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.parallel.processes import Processes

_WHAT = {
    "--init-from": Flag(
        "start from another run's weights, and its settings unless --config is given", takes="RUN"
    ),
    "--profile-steps": Flag(
        "trace steps A to B into the run's profile/ for XProf or TensorBoard",
        takes="A:B",
        read=steps,
    ),
    "--dry-run": Flag(
        "compile the longest batch shape, show memory, time and ETA on this machine, and exit"
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, WORKDIR, required=True)
    flags(parser, CONFIG | _WHAT)
    add_processes(parser)
    options = parser.parse_args(arguments)
    if options.dry_run and (options.profile_steps or options.init_from):
        parser.error("--dry-run only tries a step: leave out --profile-steps and --init-from")
    asked_cluster = cluster(options, parser)
    run = RunDirectory(as_path(options.workdir))
    request = SettingsRequest(run, options.config, options.overrides, options.init_from)
    # Before JAX is loaded, and before hosts wait for each other: a misspelt setting shows at once.
    request.check_file()

    keep_programs()
    from flaxformer_mt.parallel.process_settings import make_deterministic
    from flaxformer_mt.parallel.processes import joined

    with contextlib.suppress(ConfigError, RunDirectoryError):  # reported when the run begins
        # In every process, and before joining, which counts devices: it would be too late then.
        if request.deterministic:
            make_deterministic()
    with joined(asked_cluster, **patience(options)) as processes:
        config = settled_by_first(processes, request.settled, options.workdir)
        if options.dry_run:
            from flaxformer_mt.cli.dry_run import dry_run

            return dry_run(run, config, processes)
        from flaxformer_mt.api.training import train

        status = train(
            config,
            run,
            init_from=options.init_from,
            command=options.command,
            processes=processes,
            profile=options.profile_steps,
        )
    if status.state != "stopped":
        for line in _next_commands(run, options.workdir, config):
            say(line)
    return _exit_status(status)


def _next_commands(run: RunDirectory, place: str, config: ExperimentConfig) -> Iterator[str]:
    """Advice for a finished run: to average it, if it has enough checkpoints, and to translate,
    with the tag that its model was always given."""
    from flaxformer_mt.rundir.checkpoint_choice import regular_steps

    workdir = f"--workdir {shlex.quote(place)}"
    count = len(regular_steps(run.checkpoints))
    if count < 2:
        yield "next: translate"
    else:
        yield "next: average the last checkpoints, usually better than the last one, and translate"
        fewer = f" --last {count}" if count < config.training.keep_for_average else ""
        yield f"  {program()} average {workdir}{fewer}"
    tag = next(iter(tag_of_each_pair(config.data.directions).values()))
    tagged = f" --tag {shlex.quote(tag)}" if tag else ""
    yield f"  {program()} translate {workdir}{tagged} < INPUT > OUTPUT"


def train_run(
    workdir: str,
    spec: str | None,
    overrides: Sequence[str],
    command: Sequence[str],
    init_from: str | None = None,
    processes: Processes | None = None,
    profile: tuple[int, int] | None = None,
) -> int:
    """Calls `api.training.train`; returns the exit status."""
    from flaxformer_mt.api.training import train
    from flaxformer_mt.parallel.processes import ALONE

    processes = processes or ALONE
    run = RunDirectory(as_path(workdir))
    request = SettingsRequest(run, spec, overrides, init_from)
    status = train(
        settled_by_first(processes, request.settled, workdir),
        run,
        init_from=init_from,
        command=command,
        processes=processes,
        profile=profile,
    )
    return _exit_status(status)


def _exit_status(status: Status) -> int:
    return STOPPED if status.state == "stopped" else 0
