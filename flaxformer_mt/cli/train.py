"""`train`: a new run, or the rest of a stopped one."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from flaxformer_mt.cli.arguments import add_config, add_workdir, make_parser, say, take_overrides
from flaxformer_mt.cli.validation import validation_decoder
from flaxformer_mt.config import (
    ConfigError,
    ExperimentConfig,
    check_resume,
    freeze,
    load_config,
    thaw,
    to_dict,
)
from flaxformer_mt.config.load import apply_override
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.sampling import resampler_for
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.model.parameters import summary
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.averaging import averaged_steps
from flaxformer_mt.rundir.cache import local_copy, preparing
from flaxformer_mt.rundir.checkpoints import Checkpoints, list_steps, load_params
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.growing import GrowingFiles, growing_files
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import Holding, locked
from flaxformer_mt.rundir.metrics_log import MetricsLog
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.rundir.retention import KeepPolicy
from flaxformer_mt.rundir.selection import has_average
from flaxformer_mt.rundir.status import Status, read_status, write_status
from flaxformer_mt.rundir.weights import default_weights
from flaxformer_mt.training.loop import Outcome, train
from flaxformer_mt.training.program import Program, build
from flaxformer_mt.training.signals import StopRequest
from flaxformer_mt.training.start_from import StartError, check_same_form
from flaxformer_mt.training.telemetry import Telemetry

STOPPED = 75  # EX_TEMPFAIL: not finished, and the same command goes on


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    rest, overrides = take_overrides(arguments)
    parser = make_parser(prog, purpose)
    add_config(parser, required=False)
    add_workdir(parser)
    parser.add_argument("--init-from", metavar="RUN", help="start from the weights of another run")
    options = parser.parse_args(rest)
    command = [*prog.split(), *arguments]
    return train_run(options.workdir, options.config, overrides, command, options.init_from)


def train_run(
    workdir: str,
    spec: str | None,
    overrides: Sequence[str],
    command: Sequence[str],
    init_from: str | None = None,
) -> int:
    """Creates or continues the run in `workdir`; returns the exit status."""
    run = RunDirectory(as_path(workdir))
    if layout.has_record(run):
        config, changed = _continued(run, spec, overrides)
        status = read_status(run)
        if status and status.state == "finished" and not changed:
            say(f"{run}: finished at step {status.step:,} ({status.reason}); nothing to do")
            return 0
        with locked(run) as holding:
            layout.record_start(run, to_dict(config), command)
            return _guarded(run, config, init_from, holding)
    if spec is None:
        raise ConfigError(f"{run}: no run there yet: --config FILE[:VARIANT] says what to train")
    config = load_config(spec, overrides)
    run = layout.create(run.path, to_dict(config), command)
    with locked(run) as holding:
        return _guarded(run, config, init_from, holding)


def _continued(
    run: RunDirectory, spec: str | None, overrides: Sequence[str]
) -> tuple[ExperimentConfig, bool]:
    """The recorded config with the changes asked for, if allowed, and whether there are any."""
    recorded = freeze(layout.read_record(run).config, str(run.config_file))
    if spec is None:
        thawed = thaw(recorded)
        for override in overrides:
            apply_override(thawed, override)
        config = freeze(thawed, str(run.config_file))
    else:
        config = load_config(spec, overrides)
    changed = check_resume(recorded, config, str(run))
    for key, (old, new) in changed.items():
        say(f"{key}: was {old!r}, now {new!r}")
    return config, bool(changed)


def _guarded(
    run: RunDirectory, config: ExperimentConfig, init_from: str | None, holding: Holding
) -> int:
    """Trains, and leaves in `status.json` how it ended."""
    try:
        with growing_files(run, holding=holding, report=say) as growing:
            outcome = _train(run, config, init_from, holding, growing)
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
) -> Outcome:
    settings = config.training
    has_checkpoint = bool(list_steps(run.checkpoints))
    source = None if init_from is None or has_checkpoint else layout.open_run(init_from)
    if init_from is not None and has_checkpoint:
        say(f"--init-from {init_from} is not used: this run goes on from its own checkpoint")
    if has_average(run.checkpoints):
        steps = ", ".join(f"{step:,}" for step in averaged_steps(run))
        say(f"translate and evaluate use the mean of steps {steps} until `average` is run again")
    with preparing(run) as folder:
        if source is not None and not (folder / "vocabulary").exists():
            shutil.copytree(local_copy(source.vocabulary), folder / "vocabulary")
        store = prepare(
            config.data,
            seed=settings.seed,
            directory=folder,
            report=say,
            bar=sys.stderr.isatty(),
        )
    vocabularies = Vocabularies.load(folder / "vocabulary")
    sizes = {"src_vocab_size": vocabularies.src.size, "tgt_vocab_size": vocabularies.tgt.size}
    program = build(
        config, src_vocab_size=vocabularies.src.size, tgt_vocab_size=vocabularies.tgt.size
    )
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
        with MetricsLog(growing.metrics, resume_step=start) as log:
            telemetry = Telemetry(
                log=log, tensorboard=growing.tensorboard, start=start, total=settings.steps
            )
            try:
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
                        data=folder / "data",
                        samples=growing.samples,
                    )
                    if settings.validate_bleu
                    else None,
                    initial_params=initial,
                    resampler=resampler_for(config.data, vocabularies, settings.seed),
                )
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
