"""`train`: a new run, or the rest of a stopped one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from flaxformer_mt.cli.arguments import add_config, add_workdir, make_parser, say, take_overrides
from flaxformer_mt.cli.processes import add_processes, cluster
from flaxformer_mt.cli.validation import validation_decoder
from flaxformer_mt.config import (
    ConfigError,
    ExperimentConfig,
    check_resume,
    differences,
    freeze,
    load_config,
    thaw,
    to_dict,
)
from flaxformer_mt.config.load import apply_override
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.sampling import resampler_for
from flaxformer_mt.data.store import Store
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.model.parameters import summary
from flaxformer_mt.parallel import ALONE, Processes, joined
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.averaging import averaged_steps
from flaxformer_mt.rundir.cache import INDEX, local_copy, preparing
from flaxformer_mt.rundir.checkpoints import Checkpoints, list_steps, load_params
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.growing import GrowingFiles, growing_files
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import Holding, locked
from flaxformer_mt.rundir.metrics_log import MetricsLog
from flaxformer_mt.rundir.paths import as_path, exists
from flaxformer_mt.rundir.retention import KeepPolicy
from flaxformer_mt.rundir.selection import has_average
from flaxformer_mt.rundir.status import Status, read_status, write_status
from flaxformer_mt.rundir.weights import default_weights
from flaxformer_mt.training.loop import Outcome, train
from flaxformer_mt.training.program import Program, build
from flaxformer_mt.training.signals import StopRequest
from flaxformer_mt.training.start_from import StartError, check_same_form
from flaxformer_mt.training.telemetry import Silence, Telemetry

STOPPED = 75  # EX_TEMPFAIL: not finished, and the same command goes on


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    rest, overrides = take_overrides(arguments)
    parser = make_parser(prog, purpose)
    add_config(parser, required=False)
    add_workdir(parser)
    parser.add_argument("--init-from", metavar="RUN", help="start from the weights of another run")
    add_processes(parser)
    options = parser.parse_args(rest)
    command = [*prog.split(), *arguments]
    with joined(cluster(options, parser), heartbeat=options.heartbeat) as processes:
        return train_run(
            options.workdir, options.config, overrides, command, options.init_from, processes
        )


def train_run(
    workdir: str,
    spec: str | None,
    overrides: Sequence[str],
    command: Sequence[str],
    init_from: str | None = None,
    processes: Processes = ALONE,
) -> int:
    """Creates or continues the run in `workdir`; returns the exit status.

    Of several processes the first reads and writes the run's record and holds its lock.
    """
    run = RunDirectory(as_path(workdir))
    holding = Holding()
    with contextlib.ExitStack() as held:

        def begin() -> dict[str, Any] | None:
            """The settings; None if there is nothing to do."""
            nonlocal holding
            if not layout.has_record(run):
                if spec is None:
                    raise ConfigError(
                        f"{run}: no run there yet: --config FILE[:VARIANT] says what to train"
                    )
                config = to_dict(load_config(spec, overrides))
                layout.create(run.path, config, command)
                holding = held.enter_context(locked(run))
                return config
            continued, changed = _continued(run, spec, overrides)
            status = read_status(run)
            if status and status.state == "finished" and not changed:
                say(f"{run}: finished at step {status.step:,} ({status.reason}); nothing to do")
                return None
            config = to_dict(continued)
            holding = held.enter_context(locked(run))
            layout.record_start(run, config, command)
            return config

        settings = processes.first(begin)
        if settings is None:
            return 0
        config = freeze(settings, str(run.config_file))
        return _guarded(run, config, init_from, holding, processes)


def _continued(
    run: RunDirectory, spec: str | None, overrides: Sequence[str]
) -> tuple[ExperimentConfig, bool]:
    """The recorded config with the changes asked for, if allowed, and whether there are any.

    Before the first checkpoint nothing is trained that a change could contradict: a first attempt
    may have failed for just that setting.
    """
    recorded = freeze(layout.read_record(run).config, str(run.config_file))
    if spec is None:
        thawed = thaw(recorded)
        for override in overrides:
            apply_override(thawed, override)
        config = freeze(thawed, str(run.config_file))
    else:
        config = load_config(spec, overrides)
    if list_steps(run.checkpoints):
        changed = check_resume(recorded, config, str(run))
    else:
        changed = differences(recorded, config)
    for key, (old, new) in changed.items():
        say(f"{key}: was {old!r}, now {new!r}")
    return config, bool(changed)


def _guarded(
    run: RunDirectory,
    config: ExperimentConfig,
    init_from: str | None,
    holding: Holding,
    processes: Processes,
) -> int:
    """Trains, and leaves in `status.json` how it ended."""
    try:
        with growing_files(run, holding=holding, report=say) as growing:
            outcome = _train(run, config, init_from, holding, growing, processes)
    except Exception as error:
        # On a full or broken disk the status cannot be kept; what went wrong must still be said.
        # Nor may it be where another process has taken the run over.
        with contextlib.suppress(RunDirectoryError):
            holding.check()
            before = read_status(run)
            step = before.step if before else 0
            write_status(run, Status(state="failed", step=step, reason=str(error).split("\n")[0]))
        raise
    write_status(run, Status(state=outcome.state, step=outcome.step, reason=outcome.reason))
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
) -> Outcome:
    settings = config.training
    has_checkpoint = bool(list_steps(run.checkpoints))
    source = None if init_from is None or has_checkpoint else layout.open_run(init_from)
    if source is not None:
        # Before hours of preparing data for it.
        if source == run:
            raise StartError(f"--init-from {init_from}: is this run itself; name another")
        if not list_steps(source.checkpoints):
            raise StartError(f"{source}: holds no checkpoint to start from; train it first")
    if init_from is not None and has_checkpoint:
        say(f"--init-from {init_from} is not used: this run goes on from its own checkpoint")
    if has_average(run.checkpoints):
        steps = ", ".join(f"{step:,}" for step in averaged_steps(run))
        say(f"translate and evaluate use the mean of steps {steps} until `average` is run again")
    processes.first(lambda: _prepare(run, config, source))
    # Of a run in a bucket every machine has a copy of its own.
    vocabularies = Vocabularies.load(local_copy(run.vocabulary))
    data = local_copy(run.data)
    store = Store.open(data, vocabulary_digest=vocabularies.digest)
    sizes = {"src_vocab_size": vocabularies.src.size, "tgt_vocab_size": vocabularies.tgt.size}
    program = build(config, **sizes)
    say(model_table(program, config, **sizes))
    initial = None if source is None else _weights(source, vocabularies, program)

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
        write_status(run, Status(state="running", step=start))
        with _telemetry(growing, processes, start=start, total=settings.steps) as telemetry:
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
                    program,
                    data=data,
                    samples=growing.samples,
                    processes=processes,
                )
                if settings.validate_bleu
                else None,
                initial_params=initial,
                resampler=resampler_for(config.data, vocabularies, settings.seed),
                processes=processes,
            )


def _prepare(run: RunDirectory, config: ExperimentConfig, source: RunDirectory | None) -> None:
    """Makes or verifies `vocabulary/` and `data/`; a `source`'s vocabulary is taken along."""
    if list_steps(run.checkpoints) and not exists(run.vocabulary / INDEX["vocabulary"]):
        # Another would be trained in its place, whose ids mean nothing to the model.
        raise RunDirectoryError(
            f"{run.vocabulary}: is missing, and the checkpoints were trained with it: restore it "
            "from a copy"
        )
    with preparing(run) as folder:
        if source is not None and not (folder / "vocabulary").exists():
            # Verified, and written aside first: half a vocabulary would be taken for the run's own.
            Vocabularies.load(local_copy(source.vocabulary)).save(folder / "vocabulary")
        prepare(
            config.data,
            seed=config.training.seed,
            directory=folder,
            report=say,
            bar=sys.stderr.isatty(),
        )


@contextlib.contextmanager
def _telemetry(
    growing: GrowingFiles, processes: Processes, *, start: int, total: int
) -> Iterator[Telemetry]:
    if not processes.is_first:
        yield Silence()
        return
    with MetricsLog(growing.metrics, resume_step=start) as log:
        telemetry = Telemetry(log=log, tensorboard=growing.tensorboard, start=start, total=total)
        try:
            yield telemetry
        finally:
            telemetry.close()


def _weights(source: RunDirectory, vocabularies: Vocabularies, program: Program) -> Any:
    """The best parameters of another run, checked to fit: same vocabulary, same shapes."""
    theirs = Vocabularies.load(local_copy(source.vocabulary))
    if theirs.digest != vocabularies.digest:
        raise StartError(
            f"{source}: was trained with another vocabulary ({theirs.digest[:12]}) than this run's "
            f"({vocabularies.digest[:12]}); a new --workdir takes the vocabulary along"
        )
    params = load_params(source, default_weights(source))
    check_same_form(params, program.abstract.params, str(source))
    return params


def model_table(
    program: Program, config: ExperimentConfig, *, src_vocab_size: int, tgt_vocab_size: int
) -> str:
    """Parameters by part, by formula and counted, as lines for people."""
    rows = summary(program.abstract.params, config.model, src_vocab_size, tgt_vocab_size)
    lines = [f"{'part':<28}{'by formula':>14}{'counted':>14}"]
    lines += [f"{row.part:<28}{row.by_formula:>14,}{row.counted:>14,}" for row in rows]
    return "\n".join(lines)
