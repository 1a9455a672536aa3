"""Training a run, new or resumed, from Python and by the command."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from flaxformer_mt.api import say
from flaxformer_mt.api.prepared_text import (
    PreparedText,
    begin_folder,
    open_data,
    planner_of,
    prepare_only,
)
from flaxformer_mt.api.settings import continued, created
from flaxformer_mt.config import (
    ExperimentConfig,
    TrainingConfig,
    freeze,
    to_dict,
    uneven_heads,
)
from flaxformer_mt.config.digest_keys import trains
from flaxformer_mt.data.planner import planned_pass
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.model import parameters
from flaxformer_mt.parallel.compile_cache import share_compiled
from flaxformer_mt.parallel.process_settings import make_deterministic, share_one_heap
from flaxformer_mt.parallel.processes import ALONE, Processes, StopRequest
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.layout import RunDirectory, Status, read_status, reopen, write_status
from flaxformer_mt.rundir.lock import Holding, locked
from flaxformer_mt.rundir.paths import as_path, is_remote
from flaxformer_mt.rundir.staged_files import GrowingFiles, growing_files
from flaxformer_mt.training.instruments import (
    Goodput,
    Profiler,
    Utilization,
    check_steps,
    find_peak,
)
from flaxformer_mt.training.loop import TimeLimit, Training
from flaxformer_mt.training.program import Program, build, mesh_of, with_dtype
from flaxformer_mt.training.step import TrainState
from flaxformer_mt.training.telemetry import Report, Silence, Telemetry
from flaxformer_mt.training.trackers import Trackers, check_installed
from flaxformer_mt.training.validation import Evaluator, loss_evaluator

# A training's clock begins after Python and JAX have started, text was counted and steps were
# timed: about so many seconds. The last checkpoint takes its own time.
_BEFORE, _OF_MINUTES = 15.0, 0.98


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
    it has a checkpoint. `init_from` is another run, whose weights a new one begins with; a later
    call that finds no checkpoint yet needn't name it again.

    `on_report` is called with each training and validation report, as written to `metrics.jsonl`:
    `{"step": 500, "kind": "train", "loss": 2.1, ...}` (docs/observing.md). An error that it raises
    ends training. Ctrl-C, or interrupting a notebook's cell, saves a checkpoint and stops.

    `command` is recorded as what started it, several `processes` train together, and `profile` is
    the first and last step to trace. Raises ConfigError, StartError, RunDirectoryError, and what
    reading data and training raise (`status.json` then says `failed`) or, of a run that has
    finished, what choosing its search raises: the next call chooses again.
    """
    if processes.count == 1:
        share_one_heap()
    goodput = Goodput()
    processes.first(lambda: check_installed(config.training.trackers))
    run = RunDirectory(as_path(workdir))
    command = sys.argv if command is None else command
    if config.training.deterministic:
        make_deterministic()  # before a device is asked for
    # Before text is counted or read, and anything compiled.
    source = processes.first(lambda: _checked_source(run, init_from, config))

    with recorded(run, config, command, processes, init_from=source) as (settings, holding):
        if settings is None:
            return _last_status(run, config, processes)
        _keep_compiled(run)
        session = _Session(
            run=run,
            config=settings,
            holding=holding,
            processes=processes,
            init_from=source,
            goodput=goodput,
            profile=profile,
            on_report=on_report,
        )
        try:
            status = session.train()
        except Exception as error:
            session.record_failure(error)
            raise
        write_status(run, status)

    say(goodput.table())
    _end(run, settings, status, processes)
    return status


def _last_status(run: RunDirectory, config: ExperimentConfig, processes: Processes) -> Status:
    """Of a finished run, for which nothing is left to do but what an interruption left out."""
    if processes.count == 1:
        from flaxformer_mt.api.advice import choose_if_missing

        choose_if_missing(run, config)
    status = read_status(run)
    assert status is not None  # a run has one once it has begun
    return status


def _keep_compiled(run: RunDirectory) -> None:
    """Keeps an accelerator's compiled programs with a run in a bucket."""
    if is_remote(run.path) and jax.default_backend() != "cpu":
        # A preempted TPU loses its disk, and base's step compiles for minutes.
        share_compiled(run.compiled)


def _end(
    run: RunDirectory, settings: ExperimentConfig, status: Status, processes: Processes
) -> None:
    """Says how training ended, and chooses what is left to a trained model."""
    if status.state == "stopped":
        say(
            f"stopped after step {status.step:,} ({status.reason}), saved; the same command resumes"
        )
        return
    say(f"finished at step {status.step:,}: {status.reason}")
    if not processes.is_first:
        return
    from flaxformer_mt.api.advice import conclude  # only now: it loads what training doesn't need

    # A model that is spread over processes leaves the choice to `average`.
    conclude(run, settings, choose=processes.count == 1)


@contextlib.contextmanager
def recorded(
    run: RunDirectory,
    config: ExperimentConfig,
    command: Sequence[str],
    processes: Processes,
    *,
    init_from: str | None = None,
) -> Iterator[tuple[ExperimentConfig | None, Holding]]:
    """Creates or continues the run, for all processes: its settings (None: finished), its lock."""
    holding = Holding()
    with contextlib.ExitStack() as stack:

        def begin() -> dict[str, Any] | None:
            nonlocal holding
            if not layout.has_record(run):
                begin_folder(run, config)
            # Two processes may race; the lock holder writes the config.
            holding = stack.enter_context(locked(run, "training on it"))
            if layout.has_record(run):
                return _record_continuing(run, config, command, init_from)
            content = _content(created(config))
            layout.create(run.path, content, command, init_from=_wherever(init_from))
            return content

        content = processes.first(begin)
        yield None if content is None else freeze(content, str(run.config_file)), holding


def _record_continuing(
    run: RunDirectory, config: ExperimentConfig, command: Sequence[str], init_from: str | None
) -> dict[str, Any] | None:
    """Records another start of an existing run; its settings as JSON, None if it is finished."""
    settings, changes = continued(run, config)
    content = _content(settings)
    status = read_status(run)
    for key, (old, new) in changes.items():
        say(f"{key}: was {old!r}, now {new!r}")

    if status is not None and status.state == "finished" and not trains(changes):
        if changes:
            layout.record_start(run, content, command)
        say(f"{run}: finished at step {status.step:,} ({status.reason}); nothing to do")
        return None
    reopen(run, "its settings have changed")
    source = None if list_steps(run.checkpoints) else _wherever(init_from)
    layout.record_start(run, content, command, init_from=source)
    return content


def _wherever(place: str | None) -> str | None:
    """A place that means the same from any folder."""
    if place is None or is_remote(as_path(place)):
        return place
    return os.path.abspath(place)


def _content(settings: ExperimentConfig) -> dict[str, Any]:
    """Settings as a run records them, with the dtype that this machine chooses."""
    return to_dict(with_dtype(settings, jax.local_devices()[0]))


def _checked_source(
    run: RunDirectory, given: str | os.PathLike[str] | None, config: ExperimentConfig
) -> str | None:
    """The other run that a run without a checkpoint begins with: the one given, or the one that an
    earlier start was given and never came to. Raises StartError for one that can't be used."""
    source = None if given is None else os.fspath(given)
    if layout.has_record(run):
        if list_steps(run.checkpoints):
            return source
        status = read_status(run)
        is_finished = status is not None and status.state == "finished"
        if source is None and not is_finished:
            source = layout.read_record(run).init_from
    if source is None:
        _require_no_source(config.training)
        return None
    from flaxformer_mt.api.starting import require_trained

    if given is None:
        say(f"starting from {source}, as the run's first start was to")
    require_trained(run, source, config)
    return source


def _require_no_source(settings: TrainingConfig) -> None:
    """Raises StartError for settings that go on from another run's training."""
    needing = {
        "training.keep_moments": settings.keep_moments,
        "training.adapters.rank": settings.adapters.rank,
    }
    for key, value in needing.items():
        if value:
            from flaxformer_mt.api.starting import StartError

            raise StartError(f"'{key}' = {str(value).lower()} needs --init-from")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Session:
    """One start of training on a run, in this process."""

    run: RunDirectory
    config: ExperimentConfig
    holding: Holding
    processes: Processes
    init_from: str | None
    goodput: Goodput
    profile: tuple[int, int] | None
    on_report: Report | None

    def train(self) -> Status:
        """Prepares, compiles and trains; everything opened is closed when this returns."""
        run, config, processes = self.run, self.config, self.processes
        with contextlib.ExitStack() as stack:
            growing = stack.enter_context(growing_files(run, self.holding, say))
            trackers = stack.enter_context(Trackers(say))
            processes.first(lambda: trackers.open(run, growing.tensorboard, config))

            mesh_of(config)  # an impossible mesh is refused before data is prepared
            source = self._source()
            processes.first(lambda: prepare_only(run, config, source))
            text = open_data(run)
            vocabularies, store = text
            program = _built(config, vocabularies)
            utilization = _utilization(config, program, vocabularies)
            first_state = self._first_state(source, vocabularies, program)

            checkpoints = stack.enter_context(self._checkpoints(growing))
            stop = stack.enter_context(StopRequest(processes))
            start = checkpoints.latest_step() or 0
            profiler = self._profiler(growing, start)
            write_status(run, Status(state="running", step=start))
            telemetry: Telemetry = Silence()
            if processes.is_first:
                telemetry = stack.enter_context(self._telemetry(growing, trackers, start))
            evaluators = self._evaluators(program, text, telemetry)

            outcome = Training(
                program=program,
                planner=planner_of(config, store, vocabularies),
                evaluators=evaluators,
                validation_shapes=planned_pass(store.valid, config.data.batch).shapes,
                checkpoints=checkpoints,
                telemetry=telemetry,
                stop=stop,
                clock=self.goodput,
                profiler=profiler,
                utilization=utilization,
                first_state=first_state,
                limit=self._limit(),
            ).run()
            trackers.state = outcome.state
            return outcome

    def _source(self) -> RunDirectory | None:
        """The run whose weights this one begins with."""
        if self.init_from is None:
            return None
        from flaxformer_mt.api.starting import run_to_start_from

        return run_to_start_from(self.run, self.init_from, self.processes)

    def _first_state(
        self, source: RunDirectory | None, vocabularies: Vocabularies, program: Program
    ) -> Callable[[TrainState], TrainState] | None:
        if source is None:
            return None
        from flaxformer_mt.api.starting import beginning_of

        return beginning_of(source, vocabularies, program, self.processes)

    def _limit(self) -> TimeLimit | None:
        minutes = self.config.training.minutes
        if not minutes:
            return None
        seconds = _OF_MINUTES * 60 * minutes - _BEFORE
        return TimeLimit(seconds=seconds, clock=self.goodput, processes=self.processes)

    def record_failure(self, error: Exception) -> None:
        """Writes why training ended into the run's status, if possible.

        That isn't possible on a full disk, and not allowed if another process has taken the run
        over; the error must be shown all the same.
        """
        with contextlib.suppress(RunDirectoryError):
            self.holding.check()
            previous = read_status(self.run)
            step = max(previous.step if previous else 0, self.goodput.step)
            reason = str(error).split("\n")[0]
            write_status(self.run, Status(state="failed", step=step, reason=reason))

    def _checkpoints(self, growing: GrowingFiles) -> Checkpoints:
        def before_save() -> None:
            self.holding.check()
            growing.upload()

        return Checkpoints(
            self.run.checkpoints, self.config.training, say=say, before_save=before_save
        )

    def _profiler(self, growing: GrowingFiles, start: int) -> Profiler:
        if self.profile is None:
            return Profiler()
        check_steps(*self.profile, start=start, total=self.config.training.steps)
        # One process's trace: the others' devices do the same at the same time.
        folder = growing.profile if self.processes.is_first else None
        return Profiler(*self.profile, folder)

    def _telemetry(self, growing: GrowingFiles, trackers: Trackers, start: int) -> Telemetry:
        self.goodput.keep_in(growing.goodput, say)
        total = self.config.training.steps
        return Telemetry(growing, trackers, start=start, total=total, told=self.on_report)

    def _evaluators(
        self, program: Program, text: PreparedText, telemetry: Telemetry
    ) -> list[Evaluator]:
        evaluators = [loss_evaluator(program, text.store.valid, telemetry.message)]
        if self.config.training.validate_bleu:
            # Decoding and metrics are a quarter of our modules: load them only if needed.
            from flaxformer_mt.api.validation import bleu_evaluator

            evaluators.append(
                bleu_evaluator(
                    program, text.vocabularies, self.run, telemetry.samples, self.processes
                )
            )
        return evaluators


def _built(config: ExperimentConfig, vocabularies: Vocabularies) -> Program:
    """The program to train, with a table of its parameters for people."""
    src_types, tgt_types = vocabularies.src.size, vocabularies.tgt.size
    program = build(config, src_vocab_size=src_types, tgt_vocab_size=tgt_types)
    if note := uneven_heads(config.model):
        say(note)
    say(parameters.table(program.abstract_weights, config.model, src_types, tgt_types))
    if program.abstract.base is not None:
        trained = sum(parameters.count(program.abstract.params).values())
        say(f"adapters: {trained:,} parameters are trained, the others stay as they are")
    return program


def _utilization(
    config: ExperimentConfig, program: Program, vocabularies: Vocabularies
) -> Utilization | None:
    """How MFU is measured on these devices; None where their peak is unknown."""
    devices = list(program.mesh.devices.flat)
    peak, line = find_peak(devices, config.training.chip_tflops, config.model.dtype)
    say(line)
    return None if peak is None else Utilization(config.model, vocabularies.tgt.size, peak)
