"""`train`: a new run, or the rest of a stopped one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from flaxformer_mt.cli.arguments import CONFIG, WORKDIR, flags, make_parser, say, take_overrides
from flaxformer_mt.cli.average import tell_of_average
from flaxformer_mt.cli.preparation import open_data, prepare_only
from flaxformer_mt.cli.processes import add_processes, cluster
from flaxformer_mt.cli.resolve import recorded, run_to_start_from, wants_determinism, weights_of
from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.sampling import resampler_for
from flaxformer_mt.model import parameters
from flaxformer_mt.parallel import ALONE, Processes, joined, make_deterministic, share_one_heap
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.layout import RunDirectory, Status, read_status, write_status
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.rundir.staged_files import GrowingFiles, growing_files
from flaxformer_mt.training.instruments import (
    Goodput,
    Instruments,
    Profiler,
    Utilization,
    check_steps,
    find_peak,
    parse_steps,
)
from flaxformer_mt.training.loop import Training
from flaxformer_mt.training.program import build
from flaxformer_mt.training.progress import Outcome, keep_policy
from flaxformer_mt.training.signals import StopRequest
from flaxformer_mt.training.telemetry import Silence, Telemetry, open_telemetry
from flaxformer_mt.training.validation import loss_evaluator

STOPPED = 75  # EX_TEMPFAIL: not finished, and the same command goes on


_WHAT = {
    "--init-from RUN": "start from the weights of another run, and from its settings if there is "
    "no --config",
    "--profile-steps A:B": "trace steps A to B into the run's profile/, for XProf or TensorBoard",
    "--dry-run": "compile the longest batch shape, show memory, time and ETA on this machine, and "
    "end",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    rest, overrides = take_overrides(arguments)
    parser = make_parser(prog, purpose)
    flags(parser, WORKDIR, required=True)
    flags(parser, CONFIG | _WHAT)
    add_processes(parser)
    options = parser.parse_args(rest)
    if options.dry_run and (options.profile_steps or options.init_from):
        parser.error("--dry-run tries a step and ends: leave --profile-steps and --init-from out")
    profile = None if options.profile_steps is None else parse_steps(options.profile_steps)
    command = [*prog.split(), *arguments]
    if wants_determinism(options.workdir, options.config, overrides, options.init_from):
        # Where processes join each other, devices are counted: it would be too late.
        make_deterministic()
    with joined(cluster(options, parser), heartbeat=options.heartbeat) as processes:
        place, spec = options.workdir, options.config
        if options.dry_run:
            # Only here: training has no use for it.
            from flaxformer_mt.cli.dry_run import dry_run

            return dry_run(place, spec, overrides, processes)
        return train_run(place, spec, overrides, command, options.init_from, processes, profile)


def train_run(
    workdir: str,
    spec: str | None,
    overrides: Sequence[str],
    command: Sequence[str],
    init_from: str | None = None,
    processes: Processes = ALONE,
    profile: tuple[int, int] | None = None,
) -> int:
    """Creates or continues the run in `workdir`; returns the exit status.

    It leaves in `status.json` how training ended. `profile` are the first and the last step to
    trace.
    """
    if processes.count == 1:
        share_one_heap()
    goodput = Goodput()
    run = RunDirectory(as_path(workdir))
    with recorded(run, spec, overrides, command, init_from, processes) as (config, holding):
        if config is None:
            return 0
        if config.training.deterministic:
            make_deterministic()
        try:
            with growing_files(run, holding=holding, report=say) as growing:

                def before_save() -> None:
                    holding.check()
                    growing.upload()

                outcome = _train(
                    run, config, init_from, growing, before_save, processes, goodput, profile
                )
        except Exception as error:
            # On a full or broken disk the status cannot be kept; what went wrong must still be
            # said. Nor may it be where another process has taken the run over.
            with contextlib.suppress(RunDirectoryError):
                holding.check()
                before = read_status(run)
                step = max(before.step if before else 0, goodput.step)
                reason = str(error).split("\n")[0]
                write_status(run, Status(state="failed", step=step, reason=reason))
            raise
        write_status(run, Status(state=outcome.state, step=outcome.step, reason=outcome.reason))
    say(goodput.table())
    step, reason = outcome.step, outcome.reason
    if outcome.state == "stopped":
        say(f"stopped after step {step:,} ({reason}), saved; the same command goes on")
        return STOPPED
    say(f"finished at step {step:,}: {reason}")
    return 0


def _train(
    run: RunDirectory,
    config: ExperimentConfig,
    init_from: str | None,
    growing: GrowingFiles,
    before_save: Callable[[], None],
    processes: Processes,
    goodput: Goodput,
    profile: tuple[int, int] | None,
) -> Outcome:
    settings = config.training
    source = run_to_start_from(run, init_from, processes)
    tell_of_average(run)
    processes.first(lambda: prepare_only(run, config, source))
    vocabularies, store = open_data(run)
    sizes = vocabularies.src.size, vocabularies.tgt.size
    program = build(config, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1])
    say(parameters.table(program.abstract.params, config.model, *sizes))
    devices = list(program.mesh.devices.flat)
    peak, line = find_peak(devices, settings.chip_tflops, config.model.dtype)
    say(line)
    initial = None if source is None else weights_of(source, vocabularies, program, processes)
    folder = growing.profile if processes.is_first else None
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(
            Checkpoints(run.checkpoints, keep_policy(settings), report=say, before_save=before_save)
        )
        stop = stack.enter_context(StopRequest(processes))
        start = checkpoints.latest_step() or 0
        if profile is not None:
            check_steps(*profile, start=start, total=settings.steps)
        write_status(run, Status(state="running", step=start))
        telemetry: Telemetry = Silence()
        if processes.is_first:
            goodput.keep_in(growing.goodput, say)
            telemetry = stack.enter_context(
                open_telemetry(growing.metrics, growing.tensorboard, settings, start=start)
            )
        evaluators = [loss_evaluator(program, store.valid, telemetry.message)]
        if settings.validate_bleu:
            # Decoding and metrics are a quarter of our modules; without it none is loaded.
            from flaxformer_mt.cli.validation import bleu_evaluator

            evaluators.append(
                bleu_evaluator(program, vocabularies, run, growing.samples, processes)
            )
        return Training(
            program=program,
            pairs=store.train,
            evaluators=evaluators,
            checkpoints=checkpoints,
            telemetry=telemetry,
            stop=stop,
            instruments=Instruments(
                goodput=goodput,
                # The other processes' devices do the same at the same time: one trace shows it.
                profiler=Profiler() if profile is None else Profiler(*profile, folder),
                utilization=None if peak is None else Utilization(config.model, sizes[1], peak),
            ),
            initial_params=initial,
            resampler=resampler_for(config.data, vocabularies, settings.seed),
        ).run()
