"""Trackers besides `metrics.jsonl`: TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flaxformer_mt.config import ExperimentConfig, flatten, to_dict, to_text
from flaxformer_mt.errors import UserError, install
from flaxformer_mt.rundir.layout import RunDirectory, State
from flaxformer_mt.rundir.paths import exists, is_remote, read_json, reason, write_json

# tensorboardX loads Google's storage client where that is installed: half a second before a run's
# first step. W&B and MLflow take longer.
if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter

# W&B's project and MLflow's experiment, unless the environment names one.
_PROJECT = "flaxformer-mt"
_PAUSE = 60.0  # seconds until a tracker that has failed is tried again, doubled each time ...
_LONGEST = 3600.0  # ... up to this


class TrackerError(UserError):
    """A tracker that isn't installed, or that can't be opened when training starts."""


class Sample(NamedTuple):
    source: str
    reference: str
    hypothesis: str


def as_text(samples: Sequence[Sample]) -> str:
    """Samples as text: three lines each, separated by empty lines."""
    return "\n".join(
        "".join(f"{name:10} {text}\n" for name, text in sample._asdict().items())
        for sample in samples
    )


def check_installed(names: Sequence[str]) -> None:
    """Raises TrackerError if the package of one of `training.trackers` is missing."""
    for name in names:
        # tensorboardX is a dependency. To Python a folder named `wandb`, such as W&B makes, is a
        # package without an origin.
        if name == "tensorboard":
            continue
        if not getattr(importlib.util.find_spec(name), "origin", None):
            raise TrackerError(f"'training.trackers': '{name}' is not installed: {install(name)}")


@dataclasses.dataclass
class _Followed:
    name: str
    tracker: Board | Wandb | Mlflow
    waiting: list[Callable[[], None]] = dataclasses.field(default_factory=list)  # not yet taken
    again: float = 0.0  # when it is tried next
    pause: float = 0.0  # since it failed; 0: it has not


class Trackers(contextlib.AbstractContextManager["Trackers"]):
    """The trackers of a run. They never stop training.

    One that can't be opened is an error. Reports that one doesn't take later wait, in order, and
    are tried again with the next report after one minute, then two, four ...; those left at the end
    are counted.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.state: State = "failed"  # how training ends, unless told otherwise
        self.say = say
        self._all: list[_Followed] = []

    def open(self, run: RunDirectory, board: Path, config: ExperimentConfig) -> None:
        """Opens `training.trackers`, under the ids that the run has had there.

        Raises TrackerError, and RunDirectoryError for the file of ids.
        """
        file = run.trackers_file
        ids = _tracker_ids(file)
        for name in dict.fromkeys(config.training.trackers):
            if name == "tensorboard":
                self.add(name, Board(board, to_text(config)))
                continue
            known_id = ids.get(name)
            kind = Wandb if name == "wandb" else Mlflow
            try:
                tracker = kind(run, config, known_id)
            except Exception as error:
                raise TrackerError(
                    f"{name}: the run can't be opened: {reason(error)}"
                    + (
                        f"; {file} has its id: delete the file to start another run there"
                        if known_id
                        else ""
                    )
                ) from error
            self.add(name, tracker)
            if tracker.id != known_id:
                ids[name] = tracker.id
                write_json(file, ids)

    def add(self, name: str, tracker: Any) -> None:
        self._all.append(_Followed(name, tracker))

    def show(self, step: int, values: Mapping[str, float]) -> None:
        self._send(lambda tracker: tracker.show(step, values))

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        self._send(lambda tracker: tracker.samples(step, samples))

    def rewind(self, step: int) -> None:
        self._send(lambda tracker: tracker.rewind(step))

    def _send(self, call: Callable[[Any], None]) -> None:
        for followed in self._all:
            followed.waiting.append(functools.partial(call, followed.tracker))
            if time.monotonic() >= followed.again:
                self._try(followed)

    def _try(self, followed: _Followed) -> None:
        """Sends what is waiting, in order; on an error, doubles the pause until the next try."""
        try:
            while followed.waiting:
                followed.waiting[0]()
                del followed.waiting[0]
        except Exception as error:
            if not followed.pause:
                self.say(f"{followed.name}: {reason(error)}; it gets the missing reports later")
            followed.pause = min(2 * followed.pause, _LONGEST) or _PAUSE
            followed.again = time.monotonic() + followed.pause
            return
        if followed.pause:
            self.say(f"{followed.name}: up to date again")
        followed.pause = 0.0

    def __exit__(self, *_: object) -> None:
        for followed in self._all:
            self._try(followed)
            if followed.waiting:
                self.say(
                    f"{followed.name}: {len(followed.waiting):,} reports never arrived; "
                    "metrics.jsonl has their numbers"
                )
            try:
                followed.tracker.close(self.state)
            except Exception as error:
                self.say(f"{followed.name}: can't be closed: {reason(error)}")


def _tracker_ids(file: Path) -> dict[str, str]:
    """The ids that a run has in its trackers, by tracker. Raises TrackerError for other content."""
    ids: dict[str, str] = read_json(file) if exists(file) else {}
    if not isinstance(ids, dict) or not all(isinstance(text, str) for text in ids.values()):
        raise TrackerError(
            f'{file}: is not an object of ids, such as {{"wandb": "abc"}}: delete it to '
            "start other runs there"
        )
    return ids


class Board:
    """TensorBoard's event files in `folder`; a report is in its file when `show` returns.

    (tensorboardX's own writer uses a thread, which can lose the last one.) A file begins with the
    first report or after a failure, and says where its session starts, which hides later steps.
    """

    def __init__(self, folder: Path, config: str) -> None:
        self._folder = folder
        self._config = config
        self._after = 0
        self._writer: EventsWriter | None = None

    def show(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary

        numbers = [
            Summary.Value(tag=tag, simple_value=float(value)) for tag, value in values.items()
        ]
        self._write(step, summary=Summary(value=numbers))

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        self._write(step, summary=_preformatted("samples", as_text(samples)))

    def _write(self, step: int, **content: Any) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        now = time.time()
        try:
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                # The nanoseconds keep a start from emptying the file of another in the same second.
                self._writer = writer = EventsWriter(
                    str(self._folder / "events"), f".{time.time_ns()}"
                )
                first = self._after + 1
                start = SessionLog(status=SessionLog.START)
                writer.write_event(Event(step=first, wall_time=now, session_log=start))
                config = _preformatted("config", self._config)
                writer.write_event(Event(step=first, wall_time=now, summary=config))
            self._writer.write_event(Event(step=step, wall_time=now, **content))
            self._writer.flush()
        except OSError:
            self.close()
            raise
        self._after = step

    def rewind(self, step: int) -> None:
        """The next report hides what was shown of steps after `step`."""
        self.close()
        self._after = step

    def close(self, state: State = "stopped") -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # `show` has raised for what could not be written. A writer whose flush fails leaves its
            # file open.
            for close in (writer.close, writer._py_recordio_writer.close):
                with contextlib.suppress(OSError):
                    close()


def _preformatted(tag: str, content: str) -> Any:
    from tensorboardX.summary import text

    return text(tag, "".join(f"    {line}\n" for line in content.splitlines()))


class Wandb:
    """A run of W&B, which can't go back: of repeated steps the first report stays."""

    def __init__(self, run: RunDirectory, config: ExperimentConfig, known_id: str | None) -> None:
        import wandb

        self._table = wandb.Table
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            dir=os.environ.get("WANDB_DIR", None if is_remote(run.path) else run.path),
            id=known_id,
            resume="allow",
            # The name that a person may have given it since stays.
            name=None if known_id else run.path.name,
            config=to_dict(config),
            allow_val_change=True,
            # Beside a run that the program may have of its own.
            reinit="create_new",
            # Otherwise it waits for a network forever. Unsent reports stay in `dir`.
            settings=wandb.Settings(finish_timeout=300, finish_timeout_raises=True),
        )
        self.id: str = self._run.id

    def show(self, step: int, values: Mapping[str, Any]) -> None:
        if step >= self._run.step:
            self._run.log(dict(values), step=step)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        rows = [list(sample) for sample in samples]
        self.show(step, {"samples": self._table(columns=list(Sample._fields), data=rows)})

    def rewind(self, step: int) -> None:
        pass

    def close(self, state: State) -> None:
        self._run.finish(exit_code=int(state == "failed"))


class Mlflow:
    """A run of MLflow, which can't go back: of repeated steps the first report stays.

    Without a server, its database and files are in one folder: the run's `mlflow`.
    """

    def __init__(self, run: RunDirectory, config: ExperimentConfig, known_id: str | None) -> None:
        # Otherwise a server that is down delays each report by minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        folder = _mlflow_folder(run)
        self._metric = Metric
        self._client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}" if folder else None)
        self._takes_files = True
        self._shown: dict[str, int] = {}  # the last step of each number
        if known_id is None:
            self.id: str = self._create_run(run.path.name, config, folder)
        else:
            self.id = known_id
            self._resume_run(run, folder)
        if self._takes_files:
            self._client.log_dict(self.id, to_dict(config), "config.json")

    def _create_run(self, name: str, config: ExperimentConfig, folder: Path | None) -> str:
        """Creates a run with the config as its parameters; returns its id."""
        from mlflow.entities import Param

        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = self._client.get_experiment_by_name(title)
        if experiment:
            experiment_id = experiment.experiment_id
        else:
            files = (folder / "artifacts").as_uri() if folder else None
            experiment_id = self._client.create_experiment(title, files)
        new_id: str = self._client.create_run(experiment_id, run_name=name).info.run_id
        # MLflow's parameters can't change; config.json has later starts' settings.
        params = [Param(key, str(value)) for key, value in flatten(config).items()]
        for first in range(0, len(params), 100):  # its limit
            self._client.log_batch(new_id, params=params[first : first + 100])
        return new_id

    def _resume_run(self, run: RunDirectory, folder: Path | None) -> None:
        known_run = self._client.get_run(self.id)
        if folder and not known_run.info.artifact_uri.startswith(folder.as_uri()):
            # MLflow notes absolute paths, which would lead into another run's folder.
            self._takes_files = False
            warnings.warn(
                f"mlflow: the run directory has moved from {known_run.info.artifact_uri}, so "
                f"MLflow gets numbers but no samples; {run.samples} has them",
                stacklevel=3,
            )
        for tag in known_run.data.metrics:
            history = self._client.get_metric_history(self.id, tag)
            self._shown[tag] = max(metric.step for metric in history)
        self._client.update_run(self.id, status="RUNNING")

    def show(self, step: int, values: Mapping[str, float]) -> None:
        now = round(1000 * time.time())
        named = {_mlflow_name(tag): value for tag, value in values.items()}
        new = {name: value for name, value in named.items() if step > self._shown.get(name, -1)}
        metrics = [self._metric(name, value, now, step) for name, value in new.items()]
        self._client.log_batch(self.id, metrics=metrics)
        self._shown |= dict.fromkeys(new, step)

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        if self._takes_files:
            self._client.log_text(self.id, as_text(samples), f"samples/step-{step}.txt")

    def rewind(self, step: int) -> None:
        pass

    def close(self, state: State) -> None:
        status = {"finished": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED")
        self._client.set_terminated(self.id, status)


def _mlflow_name(tag: str) -> str:
    """A tag such as `valid/bleu/SET` as `valid/bleu.SET`: an older MLflow's store of files keeps
    each metric in a file of its name, which can't also be a folder of others."""
    kind, slash, name = tag.partition("/")
    return kind + slash + name.replace("/", ".")


def _mlflow_folder(run: RunDirectory) -> Path | None:
    """Where MLflow keeps this run's database and files; None: where MLflow itself says.

    MLflow's own default is two places in the current folder. A database that is there already, as
    earlier versions left it, stays in use.
    """
    import mlflow

    if mlflow.is_tracking_uri_set() or Path("mlflow.db").exists():
        return None
    folder = Path("mlflow") if is_remote(run.path) else Path(run.path) / "mlflow"
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
