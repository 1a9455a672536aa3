"""Training a run, new or resumed, from Python and by the command."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from flaxformer_mt.api import config_of, say
from flaxformer_mt.api.preparation import (
    begin_folder,
    open_data,
    planner_of,
    prepare_only,
    vocabularies_of,
)
from flaxformer_mt.api.settings import continued, created
from flaxformer_mt.config import ExperimentConfig, freeze, to_dict, uneven_heads
from flaxformer_mt.config.digest_keys import trains
from flaxformer_mt.data.planner import planned_pass
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.errors import UserError
from flaxformer_mt.model import parameters
from flaxformer_mt.parallel.compile_cache import share_compiled
from flaxformer_mt.parallel.process_settings import make_deterministic, share_one_heap
from flaxformer_mt.parallel.processes import ALONE, Processes, StopRequest
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.checkpoint_choice import chosen_weights, list_steps
from flaxformer_mt.rundir.checkpoints import Checkpoints, load_params
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.rundir.layout import RunDirectory, Status, read_status, reopen, write_status
from flaxformer_mt.rundir.lock import Holding, locked
from flaxformer_mt.rundir.paths import as_path, is_remote
from flaxformer_mt.rundir.staged_files import growing_files
from flaxformer_mt.training.instruments import (
    Goodput,
    Profiler,
    Utilization,
    check_steps,
    find_peak,
)
from flaxformer_mt.training.loop import Training
from flaxformer_mt.training.program import Program, build, mesh_of, with_dtype
from flaxformer_mt.training.telemetry import Report, Silence, Telemetry
from flaxformer_mt.training.trackers import Trackers, check_installed
from flaxformer_mt.training.validation import loss_evaluator


def train(
    config: ExperimentConfig,
    workdir: str | os.PathLike[str],
    *,
    init_from: str | os.PathLike[str] | None = None,
    on_report: Report | None = None,
    command: Sequence[str] | None = None,
    processes: Processes = ALONE,
    profile: tuple[int, int] | None = None,
) -> Status:
    """Trains the run in `workdir`, new or resumed; returns how it ended.

    A run resumes where it stopped, with the settings of `config`, some of which may not change once
    it has a checkpoint. `init_from` is another run, whose weights a new one begins with.

    `on_report` is called with each training and validation report, as written to `metrics.jsonl`:
    `{"step": 500, "kind": "train", "loss": 2.1, ...}` (docs/observing.md). An error that it raises
    ends training. Ctrl-C, or interrupting a notebook's cell, saves a checkpoint and stops.

    `command` is recorded as what started it, several `processes` train together, and `profile` is
    the first and last step to trace. Raises ConfigError, StartError, RunDirectoryError, and what
    reading data and training raise; `status.json` then says `failed`.
    """
    if processes.count == 1:
        share_one_heap()
    goodput = Goodput()
    processes.first(lambda: check_installed(config.training.trackers))
    run = RunDirectory(as_path(workdir))
    command = sys.argv if command is None else command
    if config.training.deterministic:
        make_deterministic()  # before a device is asked for
    if init_from is not None:
        init_from = os.fspath(init_from)
        # Before text is counted or read, and anything compiled.
        processes.first(lambda: _begun(run) or bool(require_trained(run, init_from, config)))
    with recorded(run, config, command, processes) as (settings, holding):
        if settings is None:
            finished = read_status(run)
            assert finished is not None
            return finished
        if is_remote(run.path) and jax.default_backend() != "cpu":
            # A preempted TPU loses its disk, and base's step compiles for minutes.
            share_compiled(run.compiled)
        try:
            status = _train(
                run, settings, init_from, holding, processes, goodput, profile, on_report
            )
        except Exception as error:
            # The status can't be written on a full disk, and must not be if another process has
            # taken the run over; the error must be shown all the same.
            with contextlib.suppress(RunDirectoryError):
                holding.check()
                before = read_status(run)
                step = max(before.step if before else 0, goodput.step)
                reason = str(error).split("\n")[0]
                write_status(run, Status(state="failed", step=step, reason=reason))
            raise
        write_status(run, status)
    say(goodput.table())
    if status.state == "stopped":
        how = f"({status.reason}), saved; the same command resumes"
        say(f"stopped after step {status.step:,} {how}")
    else:
        say(f"finished at step {status.step:,}: {status.reason}")
    return status


@contextlib.contextmanager
def recorded(
    run: RunDirectory, config: ExperimentConfig, command: Sequence[str], processes: Processes
) -> Iterator[tuple[ExperimentConfig | None, Holding]]:
    """Creates or continues the run, for all processes: its settings (None: finished), its lock."""
    holding = Holding()
    with contextlib.ExitStack() as held:

        def begin() -> dict[str, Any] | None:
            nonlocal holding
            if not layout.has_record(run):
                begin_folder(run, config)
            # Two processes may race; the lock holder writes the config.
            holding = held.enter_context(locked(run, "training on it"))
            begun = layout.has_record(run)
            settings, changed = continued(run, config) if begun else (created(config), {})
            content = to_dict(with_dtype(settings, jax.local_devices()[0]))
            if not begun:
                layout.create(run.path, content, command)
                return content
            status = read_status(run)
            for key, (old, new) in changed.items():
                say(f"{key}: was {old!r}, now {new!r}")
            finished = status if status and status.state == "finished" else None
            if finished and not trains(changed):
                if changed:
                    layout.record_start(run, content, command)
                say(f"{run}: finished at step {finished.step:,} ({finished.reason}); nothing to do")
                return None
            reopen(run, "its settings have changed")
            layout.record_start(run, content, command)
            return content

        settings = processes.first(begin)
        yield None if settings is None else freeze(settings, str(run.config_file)), holding


class StartError(UserError):
    """Weights of another run that this run can't start from."""


def run_to_start_from(
    run: RunDirectory, init_from: str | None, processes: Processes
) -> RunDirectory | None:
    """The other run whose weights a new one begins with. Raises StartError if it has none."""
    if init_from is None:
        return None
    # The first process decides for all: if they saw different states, some would wait forever.
    if processes.first(lambda: bool(list_steps(run.checkpoints))):
        say(f"--init-from {init_from} is ignored: this run resumes from its own checkpoint")
        return None
    return require_trained(run, init_from)


def _begun(run: RunDirectory) -> bool:
    return layout.has_record(run) and bool(list_steps(run.checkpoints))


def require_trained(
    run: RunDirectory, init_from: str, config: ExperimentConfig | None = None
) -> RunDirectory:
    """The run `init_from`, which must be another run with weights, of the form that `config` asks
    for. Raises StartError."""
    if RunDirectory(as_path(init_from)) == run:
        raise StartError(f"--init-from {init_from}: is this run itself; choose another")
    source = layout.open_run(init_from)
    if not list_steps(source.checkpoints):
        raise StartError(f"{source}: has no checkpoint to start from; train it first")
    if config is not None:
        check_same_sizes(config_of(source), config, str(source))
    return source


# Settings that decide which parameters there are, and their shapes.
_SIZES = (
    *("encoder_layers", "decoder_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v", "norm"),
    *("positions", "tie", "attention_bias", "logits_bias"),
)


def check_same_sizes(there: ExperimentConfig, here: ExperimentConfig, origin: str) -> None:
    """Raises StartError for settings with which weights of one can't start the other."""
    names = [*_SIZES]
    if there.model.positions == here.model.positions == "learned":
        names.append("max_length")
    different = [
        f"'model.{name}' = {getattr(there.model, name)} there, {getattr(here.model, name)} here"
        for name in names
        if getattr(there.model, name) != getattr(here.model, name)
    ]
    if different:
        raise StartError(
            f"{origin}: its weights do not fit this model: {'; '.join(different)}: set them as "
            "there, or leave out --config to take over its settings"
        )


def weights_of(
    source: RunDirectory, vocabularies: Vocabularies, program: Program, processes: Processes
) -> Callable[[], Any]:
    """Reads another run's best parameters, as the first process chooses them, into host arrays."""
    if vocabularies_of(source).digest != vocabularies.digest:
        raise StartError(f"{source}: its vocabulary differs from this run's; use a new --workdir")
    which = processes.first(lambda: chosen_weights(source, "auto").checkpoint)

    def read() -> Any:
        params = load_params(source, which)
        check_same_form(params, program.abstract.params, str(source))
        return jax.device_get(params)

    return read


def check_same_form(params: Any, abstract: Any, origin: str) -> None:
    """Raises StartError naming every parameter that is missing or has another shape."""
    have, want = (
        {path: leaf.shape for path, leaf in flatten_paths(tree).items()}
        for tree in (params, abstract)
    )
    problems = [
        f"{name}: {have.get(name, 'absent')} there, {want.get(name, 'absent')} here"
        for name in sorted({*have, *want})
        if have.get(name) != want.get(name)
    ]
    if problems:
        more = [f"and {len(problems) - 5} more"] if problems[5:] else []
        shown = "; ".join(problems[:5] + more)
        raise StartError(f"{origin}: its weights do not fit this model: {shown}")


def _train(
    run: RunDirectory,
    config: ExperimentConfig,
    init_from: str | None,
    holding: Holding,
    processes: Processes,
    goodput: Goodput,
    profile: tuple[int, int] | None,
    on_report: Report | None,
) -> Status:
    settings = config.training
    with contextlib.ExitStack() as stack:
        growing = stack.enter_context(growing_files(run, holding, say))
        trackers = stack.enter_context(Trackers(say))
        processes.first(lambda: trackers.open(run, growing.tensorboard, config))
        mesh_of(config)  # what it raises need not wait for the data
        source = run_to_start_from(run, init_from, processes)
        processes.first(lambda: prepare_only(run, config, source))
        vocabularies, store = open_data(run)
        sizes = vocabularies.src.size, vocabularies.tgt.size
        program = build(config, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1])
        if said := uneven_heads(config.model):
            say(said)
        say(parameters.table(program.abstract.params, config.model, *sizes))
        devices = list(program.mesh.devices.flat)
        peak, line = find_peak(devices, settings.chip_tflops, config.model.dtype)
        say(line)
        initial = None if source is None else weights_of(source, vocabularies, program, processes)
        folder = growing.profile if processes.is_first else None

        def before_save() -> None:
            holding.check()
            growing.upload()

        checkpoints = stack.enter_context(
            Checkpoints(run.checkpoints, settings, report=say, before_save=before_save)
        )
        stop = stack.enter_context(StopRequest(processes))
        start = checkpoints.latest_step() or 0
        if profile is not None:
            check_steps(*profile, start=start, total=settings.steps)
        write_status(run, Status(state="running", step=start))
        telemetry: Telemetry = Silence()
        if processes.is_first:
            goodput.keep_in(growing.goodput, say)
            telemetry = Telemetry(
                growing, trackers, start=start, total=settings.steps, told=on_report
            )
            stack.enter_context(telemetry)
        evaluators = [loss_evaluator(program, store.valid, telemetry.message)]
        if settings.validate_bleu:
            # Decoding and metrics are a quarter of our modules: load them only if needed.
            from flaxformer_mt.api.validation import bleu_evaluator

            evaluators.append(
                bleu_evaluator(program, vocabularies, run, telemetry.samples, processes)
            )
        outcome = Training(
            program=program,
            planner=planner_of(config, store, vocabularies),
            evaluators=evaluators,
            validation_shapes=planned_pass(store.valid, config.data.batch).shapes,
            checkpoints=checkpoints,
            telemetry=telemetry,
            stop=stop,
            clock=goodput,
            # One process's trace: the others' devices do the same at the same time.
            profiler=Profiler() if profile is None else Profiler(*profile, folder),
            utilization=None if peak is None else Utilization(config.model, sizes[1], peak),
            initial_params=initial,
        ).run()
        trackers.state = outcome.state
        return outcome
