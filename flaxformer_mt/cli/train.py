"""`train`: starts a run or resumes one."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flaxformer_mt.api import say
from flaxformer_mt.api.settings import settled
from flaxformer_mt.cli.arguments import (
    CONFIG,
    WORKDIR,
    add_processes,
    cluster,
    flags,
    make_parser,
)
from flaxformer_mt.config import ConfigError, freeze, load_config, to_dict
from flaxformer_mt.errors import STOPPED, program
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.parallel.processes import Processes

_WHAT = {
    "--init-from RUN": "start from another run's weights, and its settings unless --config is "
    "given",
    "--profile-steps A:B:steps": "trace steps A to B into the run's profile/ for XProf or "
    "TensorBoard",
    "--dry-run": "compile the longest batch shape, show memory, time and ETA on this machine, and "
    "exit",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, overridable=True)
    flags(parser, WORKDIR, required=True)
    flags(parser, CONFIG | _WHAT)
    add_processes(parser)
    options = parser.parse_args(arguments)
    if options.dry_run and (options.profile_steps or options.init_from):
        parser.error("--dry-run only tries a step: leave out --profile-steps and --init-from")
    # After the arguments: these import JAX.
    from flaxformer_mt.parallel.process_settings import make_deterministic
    from flaxformer_mt.parallel.processes import joined

    overrides = options.overrides
    run = RunDirectory(as_path(options.workdir))
    with contextlib.suppress(ConfigError, RunDirectoryError):  # reported when the run begins
        # In every process; not all may be able to read the text.
        config = settled(run, options.config, overrides, options.init_from, load_config)
        if config.training.deterministic:
            # Joining counts devices: it would be too late then.
            make_deterministic()
    with joined(cluster(options, parser), heartbeat=options.heartbeat) as processes:
        if options.dry_run:
            from flaxformer_mt.cli.dry_run import dry_run

            return dry_run(options.workdir, options.config, overrides, processes)
        status = train_run(
            options.workdir,
            options.config,
            overrides,
            options.command,
            init_from=options.init_from,
            processes=processes,
            profile=options.profile_steps,
        )
    if status == 0:
        for line in _next_commands(run, options.workdir):
            say(line)
    return status


def _next_commands(run: RunDirectory, place: str) -> Iterator[str]:
    """Advice for a finished run: to average it, if it has enough checkpoints, and to translate."""
    from flaxformer_mt.rundir.checkpoint_choice import regular_steps

    workdir = f"--workdir {shlex.quote(place)}"
    to_average = settled(run, None, (), None).training.keep_for_average
    count = len(regular_steps(run.checkpoints))
    if count < 2:
        yield "next: translate"
    else:
        yield "next: average the last checkpoints, usually better than the last one, and translate"
        fewer = f" --last {count}" if count < to_average else ""
        yield f"  {program()} average {workdir}{fewer}"
    yield f"  {program()} translate {workdir} < INPUT > OUTPUT"


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
    # Only the first process reads the run, which could change a moment later.
    config = processes.first(lambda: to_dict(settled(run, spec, overrides, init_from)))
    status = train(
        freeze(config, workdir),
        run,
        init_from=init_from,
        command=command,
        processes=processes,
        profile=profile,
    )
    return STOPPED if status.state == "stopped" else 0
