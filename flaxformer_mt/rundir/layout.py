"""The run directory: where everything is, and its format version.

`config.json` makes a directory a run directory. It holds the format version, the resolved
configuration, and one entry for each start of training on it.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flaxformer_mt.rundir import WorkdirError
from flaxformer_mt.rundir.paths import (
    as_path,
    check_writable,
    document,
    exists,
    explained,
    is_remote,
    write_json,
)
from flaxformer_mt.versions import git_commit, package_versions

FORMAT_VERSION = 1  # raised when older readers would misread; every version up to it loads


class _Inside:
    """A property of a run: its file or folder of this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDirectory, _: type[RunDirectory]) -> Path:
        return run.path / self._name


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """The paths of a run, in a local folder or in a bucket (`gs://BUCKET/FOLDER`), unchecked."""

    path: Path

    config_file = _Inside("config.json")  # format version, resolved configuration, starts
    vocabulary = _Inside("vocabulary")  # SentencePiece models, the id table, digests
    data = _Inside("data")  # store manifest and token store
    parts = _Inside("data.parts")  # finished parts of an interrupted `prepare --engine ray`
    # What the data's manifest says of training text, in a run that came without data.
    training_text = _Inside("training_text.json")
    checkpoints = _Inside("checkpoints")  # Orbax steps, `average`, `base`, `damaged-STEP`
    length_choice = _Inside("length.json")  # how lengths are normalised, if validation chose it
    shortlist = _Inside("shortlist.npz")  # likely target types of each source type, once learnt
    compiled = _Inside("compiled")  # in a bucket: programs for the run's accelerators
    metrics = _Inside("metrics.jsonl")  # every logged number, one JSON line a report
    tensorboard = _Inside("tensorboard")  # the same numbers for TensorBoard
    goodput = _Inside("goodput.json")  # where the wall time of all starts went
    profile = _Inside("profile")  # traces of training steps
    evaluation = _Inside("evaluation")  # hypotheses and scores with their signatures
    samples = _Inside("samples")  # a few validation sentences per evaluation
    trackers_file = _Inside("trackers.json")  # the run's ids at W&B and MLflow
    status_file = _Inside("status.json")  # whether training runs, stopped, finished or failed
    lock_file = _Inside("lock")  # held by the one process that trains here

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", as_path(self.path))

    def __str__(self) -> str:
        return str(self.path)

    __fspath__ = __str__


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """One start of training: when, how, and with which code."""

    time: str
    command_line: tuple[str, ...]
    python: str
    packages: Mapping[str, str]
    git_commit: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The content of `config.json`, with `config` as plain JSON."""

    format_version: int
    config: Mapping[str, Any]
    starts: tuple[Start, ...]
    # Another run, whose weights this one begins with. Only `train` without a checkpoint asks.
    init_from: str | None = None


def create(
    path: str | os.PathLike[str],
    config: Mapping[str, Any],
    command_line: Sequence[str],
    *,
    init_from: str | None = None,
) -> RunDirectory:
    """Makes `path` a run directory of the current format, with `config` as plain JSON; it begins
    with the weights of the run `init_from`.

    It may hold other files, but no run or remains of one. Raises RunDirectoryError.
    """
    run = RunDirectory(as_path(path))
    make_folder(run)
    if has_record(run):
        raise WorkdirError(f"{run}: already holds a run; choose another directory")
    if exists(run.checkpoints):
        raise WorkdirError(f"{run}: has checkpoints but no config.json; restore it from a copy")
    record = RunRecord(
        format_version=FORMAT_VERSION,
        config=config,
        starts=(_this_start(command_line),),
        init_from=init_from,
    )
    _write_record(run, record)
    return run


def make_folder(run: RunDirectory) -> None:
    """Makes a new run's folder, except in a bucket, to lock it. Raises WorkdirError."""
    check_writable(run.path)
    path = run.path
    if is_remote(path):
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise WorkdirError(f"{path}: is a file; choose a directory for the run") from None
    except OSError as error:
        raise WorkdirError(f"{path}: cannot create a run directory: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise WorkdirError(f"{path}: is not writable; choose another directory for the run")


def open_run(path: str | os.PathLike[str]) -> RunDirectory:
    """The run directory at `path`, if this version can read it. Raises RunDirectoryError."""
    run = RunDirectory(as_path(path))
    read_record(run)
    return run


def has_record(run: RunDirectory) -> bool:
    """Whether there is a run. Raises RunDirectoryError if a bucket can't be reached."""
    return exists(run.config_file)


def read_record(run: RunDirectory) -> RunRecord:
    """The record in `config.json`. Raises RunDirectoryError if it isn't one."""
    with explained(run.path, "read"):
        if not exists(run.path):
            raise WorkdirError(f"{run}: no such directory; check the path (`train` makes a run)")
        if not is_remote(run.path) and not run.path.is_dir():
            raise WorkdirError(f"{run}: is a file, not a run directory")
        if not has_record(run):
            raise WorkdirError(
                f"{run}: not a run directory: config.json is missing; give the directory you gave "
                "to `train --workdir`"
            )

    with document(run.config_file, "restore it from a copy") as content:
        version = content["format_version"]
        if version > FORMAT_VERSION:
            raise WorkdirError(f"{run}: has format version {version}: upgrade flaxformer-mt")
        starts = tuple(
            Start(**start | {"command_line": tuple(start["command_line"])})
            for start in content["starts"]
        )
        return RunRecord(
            format_version=version,
            config=dict(content["config"]),
            starts=starts,
            init_from=content.get("init_from"),
        )


def record_start(
    run: RunDirectory,
    config: Mapping[str, Any],
    command_line: Sequence[str],
    *,
    init_from: str | None = None,
) -> None:
    """Records a later start of a run and its configuration, and which other run it begins with, if
    that has changed. Raises RunDirectoryError."""
    record = read_record(run)
    starts = (*record.starts, _this_start(command_line))
    source = init_from or record.init_from
    record = dataclasses.replace(record, config=config, starts=starts, init_from=source)
    _write_record(run, record)


def _write_record(run: RunDirectory, record: RunRecord) -> None:
    content = dataclasses.asdict(record)
    if record.init_from is None:
        del content["init_from"]
    write_json(run.config_file, content)


def _this_start(command_line: Sequence[str]) -> Start:
    return Start(
        time=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command_line=tuple(command_line),
        python=platform.python_version(),
        packages=package_versions(),
        git_commit=git_commit(),
    )


State = Literal["running", "stopped", "finished", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """`running` (even after a kill), `stopped` on request, `finished` or `failed`, and why."""

    state: State
    step: int
    reason: str = ""


def write_status(run: RunDirectory, status: Status) -> None:
    """Replaces `status.json`. Raises RunDirectoryError."""
    write_json(run.status_file, dataclasses.asdict(status))


def reopen(run: RunDirectory, reason: str) -> None:
    """Records that a finished run will continue. Raises RunDirectoryError.

    Call it before recording other settings: a kill in between must not leave a finished run.
    """
    status = read_status(run)
    if status is not None and status.state == "finished":
        write_status(run, Status(state="stopped", step=status.step, reason=reason))


def read_status(run: RunDirectory) -> Status | None:
    """The last status, or None before the first. Raises RunDirectoryError."""
    if not exists(run.status_file):
        return None
    with document(run.status_file, "delete it") as content:
        return Status(**content)
