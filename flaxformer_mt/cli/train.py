"""`train`: a new run, or the rest of a stopped one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from flaxformer_mt.cli.arguments import add_config, add_workdir, make_parser, say, take_overrides
from flaxformer_mt.cli.dry_run import dry_run
from flaxformer_mt.cli.preparation import prepared
from flaxformer_mt.cli.processes import add_processes, cluster
from flaxformer_mt.cli.resolve import continued_config, new_config, wants_determinism
from flaxformer_mt.cli.validation import validation_decoder
from flaxformer_mt.config import ExperimentConfig, TrainingConfig, freeze, to_dict
from flaxformer_mt.config.digest_keys import trains
from flaxformer_mt.data.sampling import resampler_for
from flaxformer_mt.data.store import Store
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.decoding.chosen import chosen_weights
from flaxformer_mt.model import table_rows
from flaxformer_mt.model.parameters import summary
from flaxformer_mt.parallel import ALONE, Processes, joined, make_deterministic
from flaxformer_mt.parallel.host_memory import keep_freed_memory, share_one_heap
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.averaging import averaged_steps, stale_average
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.checkpoints import Checkpoints, list_steps, load_params
from flaxformer_mt.rundir.errors import CheckpointError, RunDirectoryError
from flaxformer_mt.rundir.growing import GrowingFiles, growing_files
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import Holding, locked
from flaxformer_mt.rundir.metrics_log import MetricsLog, lost_after, read_metrics
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.rundir.retention import KeepPolicy
from flaxformer_mt.rundir.selection import has_average
from flaxformer_mt.rundir.status import Status, read_status, reopen, write_status
from flaxformer_mt.training.goodput import Goodput, GoodputFile
from flaxformer_mt.training.instruments import Instruments
from flaxformer_mt.training.loop import Outcome, train
from flaxformer_mt.training.profiling import NoProfiler, Profiler, check_steps, parse_steps
from flaxformer_mt.training.program import Program, build
from flaxformer_mt.training.signals import StopRequest
from flaxformer_mt.training.start_from import StartError, check_same_form
from flaxformer_mt.training.telemetry import Silence, Telemetry
from flaxformer_mt.training.utilization import Utilization, find_peak

STOPPED = 75  # EX_TEMPFAIL: not finished, and the same command goes on


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    rest, overrides = take_overrides(arguments)
    parser = make_parser(prog, purpose)
    add_config(parser, required=False)
    add_workdir(parser)
    parser.add_argument(
        "--init-from",
        metavar="RUN",
        help="start from the weights of another run, and from its settings if there is no --config",
    )
    parser.add_argument(
        "--profile-steps",
        metavar="A:B",
        help="trace steps A to B into the run's profile/, for XProf or TensorBoard",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="compile the longest batch shape, show memory, time and ETA on this machine, and end",
    )
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
        if options.dry_run:
            return dry_run(options.workdir, options.config, overrides, processes)
        return train_run(
            options.workdir,
            options.config,
            overrides,
            command,
            options.init_from,
            processes,
            profile,
        )


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

    Of several processes the first reads and writes the run's record and holds its lock. `profile`
    are the first and the last step to trace.
    """
    if processes.count == 1:
        share_one_heap()
    goodput = Goodput()
    run = RunDirectory(as_path(workdir))
    holding = Holding()
    with contextlib.ExitStack() as held:

        def begin() -> dict[str, Any] | None:
            """The settings; None if there is nothing to do."""
            nonlocal holding
            fresh = None
            if not layout.has_record(run):
                # Before the folder is made: a config that is refused leaves none behind.
                fresh = to_dict(new_config(run, spec, overrides, init_from))
                layout.make_folder(run)
            # Two may begin a run at the same time: what it is, its holder says.
            holding = held.enter_context(locked(run, "training on it"))
            if fresh is not None and not layout.has_record(run):
                layout.create(run.path, fresh, command)
                return fresh
            continued, changed = continued_config(run, spec, overrides)
            status = read_status(run)
            for key, (old, new) in changed.items():
                say(f"{key}: was {old!r}, now {new!r}")
            config = to_dict(continued)
            if status and status.state == "finished" and not trains(changed):
                if changed:
                    layout.record_start(run, config, command)
                say(f"{run}: finished at step {status.step:,} ({status.reason}); nothing to do")
                return None
            reopen(run, "its settings have changed")
            layout.record_start(run, config, command)
            return config

        settings = processes.first(begin)
        if settings is None:
            return 0
        config = freeze(settings, str(run.config_file))
        if config.training.deterministic:
            make_deterministic()
        return _guarded(run, config, init_from, holding, processes, goodput, profile)


def _guarded(
    run: RunDirectory,
    config: ExperimentConfig,
    init_from: str | None,
    holding: Holding,
    processes: Processes,
    goodput: Goodput,
    profile: tuple[int, int] | None,
) -> int:
    """Trains, and leaves in `status.json` how it ended."""
    try:
        with growing_files(run, holding=holding, report=say) as growing:
            outcome = _train(run, config, init_from, holding, growing, processes, goodput, profile)
    except Exception as error:
        # On a full or broken disk the status cannot be kept; what went wrong must still be said.
        # Nor may it be where another process has taken the run over.
        with contextlib.suppress(RunDirectoryError):
            holding.check()
            before = read_status(run)
            step = max(before.step if before else 0, goodput.step)
            write_status(run, Status(state="failed", step=step, reason=str(error).split("\n")[0]))
        raise
    write_status(run, Status(state=outcome.state, step=outcome.step, reason=outcome.reason))
    say(goodput.table())
    if outcome.state == "stopped":
        say(
            f"stopped after step {outcome.step:,} ({outcome.reason}), saved; "
            "the same command goes on"
        )
        return STOPPED
    say(f"finished at step {outcome.step:,}: {outcome.reason}")
    return 0


def _train(
    run: RunDirectory,
    config: ExperimentConfig,
    init_from: str | None,
    holding: Holding,
    growing: GrowingFiles,
    processes: Processes,
    goodput: Goodput,
    profile: tuple[int, int] | None,
) -> Outcome:
    settings = config.training
    # The first process says it for all: who saw none would wait for an answer about weights that
    # nobody asks for who sees one.
    has_checkpoint = processes.first(lambda: bool(list_steps(run.checkpoints)))
    source = None if init_from is None or has_checkpoint else layout.open_run(init_from)
    if source is not None:
        # Before hours of preparing data for it.
        if source == run:
            raise StartError(f"--init-from {init_from}: is this run itself; name another")
        if not list_steps(source.checkpoints):
            raise StartError(f"{source}: holds no checkpoint to start from; train it first")
    if init_from is not None and has_checkpoint:
        say(f"--init-from {init_from} is not used: this run goes on from its own checkpoint")
    _tell_of_average(run)
    processes.first(lambda: _prepare(run, config, source))
    # Of a run in a bucket every machine has a copy of its own.
    vocabularies = Vocabularies.load(local_copy(run.vocabulary))
    data = local_copy(run.data)
    store = Store.open(data, vocabulary_digest=vocabularies.digest)
    src_size, tgt_size = vocabularies.src.size, vocabularies.tgt.size
    program = build(config, src_vocab_size=src_size, tgt_vocab_size=tgt_size)
    say(model_table(program, config, src_vocab_size=src_size, tgt_vocab_size=tgt_size))
    peak, line = find_peak(
        list(program.mesh.devices.flat), settings.chip_tflops, config.model.dtype
    )
    say(line)
    initial = None if source is None else _weights(source, vocabularies, program, processes)

    policy = KeepPolicy(
        keep_latest=settings.keep_latest,
        keep_best=settings.keep_best,
        keep_for_average=settings.keep_for_average,
        metric=settings.best_metric,
        mode="max" if settings.best_metric == "bleu" else "min",
    )

    def before_save() -> None:
        holding.check()
        growing.upload()

    with (
        Checkpoints(run.checkpoints, policy, report=say, before_save=before_save) as checkpoints,
        StopRequest() as stop,
    ):
        start = checkpoints.latest_step() or 0
        if profile is not None:
            check_steps(*profile, start=start, total=settings.steps)
        write_status(run, Status(state="running", step=start))
        account = GoodputFile(growing.goodput if processes.is_first else None, report=say)
        account.load(goodput)
        with _telemetry(growing, processes, settings, start=start) as telemetry:
            return train(
                config,
                program=program,
                train_pairs=store.train,
                valid_pairs=store.valid,
                checkpoints=checkpoints,
                telemetry=telemetry,
                stop=stop,
                decode=validation_decoder(
                    config,
                    vocabularies,
                    program.model,
                    data=data,
                    samples=growing.samples,
                    processes=processes,
                )
                if settings.validate_bleu
                else None,
                initial_params=initial,
                resampler=resampler_for(config.data, vocabularies, settings.seed),
                processes=processes,
                instruments=Instruments(
                    goodput=goodput,
                    goodput_file=account,
                    profiler=_profiler(profile, growing, processes),
                    utilization=None if peak is None else Utilization(config.model, tgt_size, peak),
                ),
                after_first_step=lambda: keep_freed_memory(processes.count),
            )


def _profiler(
    profile: tuple[int, int] | None, growing: GrowingFiles, processes: Processes
) -> Profiler:
    if profile is None:
        return NoProfiler()
    # The other processes' devices do the same at the same time: one trace shows it.
    return Profiler(*profile, growing.profile if processes.is_first else None)


def _tell_of_average(run: RunDirectory) -> None:
    if not has_average(run.checkpoints):
        return
    try:
        steps = ", ".join(f"{step:,}" for step in averaged_steps(run))
        say(
            stale_average(run)
            or f"the average of steps {steps} is out of date with the next checkpoint: run "
            "`average` again after training"
        )
    except CheckpointError as error:
        # Training makes no use of it.
        say(f"warning: {error}; until then, translate and evaluate fail")


def _prepare(run: RunDirectory, config: ExperimentConfig, source: RunDirectory | None) -> None:
    with prepared(run, config, source=source):
        pass  # each process opens what is there then


@contextlib.contextmanager
def _telemetry(
    growing: GrowingFiles, processes: Processes, settings: TrainingConfig, *, start: int
) -> Iterator[Telemetry]:
    if not processes.is_first:
        yield Silence()
        return
    with MetricsLog(growing.metrics, resume_step=start) as log:
        last = lost_after(read_metrics(growing.metrics), start, every=settings.log_every)
        if last is not None:
            say(
                f"warning: {growing.metrics} has no report after step {last:,}: those up to step "
                f"{start:,} are lost; training itself goes on unchanged"
            )
        telemetry = Telemetry(
            log=log, tensorboard=growing.tensorboard, start=start, total=settings.steps
        )
        try:
            yield telemetry
        finally:
            telemetry.close()


def _weights(
    source: RunDirectory, vocabularies: Vocabularies, program: Program, processes: Processes
) -> Callable[[], Any]:
    """Reads the best parameters of another run, host arrays of this one's vocabulary and shapes.

    Which they are is settled here, by the first process for all: the other run may be training.
    """
    theirs = Vocabularies.load(local_copy(source.vocabulary))
    if theirs.digest != vocabularies.digest:
        raise StartError(
            f"{source}: was trained with another vocabulary ({theirs.digest[:12]}) than this run's "
            f"({vocabularies.digest[:12]}); a new --workdir takes the vocabulary along"
        )
    which = processes.first(lambda: chosen_weights(source, "auto").checkpoint)

    def read() -> Any:
        params = load_params(source, which)
        check_same_form(params, program.abstract.params, str(source))
        return jax.device_get(params)

    return read


def model_table(
    program: Program, config: ExperimentConfig, *, src_vocab_size: int, tgt_vocab_size: int
) -> str:
    """Parameters by part, by formula and counted, as lines for people."""
    rows = summary(program.abstract.params, config.model, src_vocab_size, tgt_vocab_size)
    lines = [f"{'part':<28}{'by formula':>14}{'counted':>14}"]
    lines += [f"{row.part:<28}{row.by_formula:>14,}{row.counted:>14,}" for row in rows]
    for side, size in {"source": src_vocab_size, "target": tgt_vocab_size}.items():
        if (padded := table_rows(config.model, size)) > size:
            lines.append(
                f"{side} embedding: {size:,} types, {padded:,} rows (model.vocab_multiple)"
            )
    return "\n".join(lines)
