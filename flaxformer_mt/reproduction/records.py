"""Files of results and failures, and the status they give each row."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from flaxformer_mt.config import ConfigError, ExperimentConfig
from flaxformer_mt.reproduction.experiment import Experiment, again
from flaxformer_mt.reproduction.paper import Row, RowError
from flaxformer_mt.reproduction.result_file import Result, ResultError, read_result, read_results
from flaxformer_mt.reproduction.settings import paper_config
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import read_json, remove_file, write_json

FAILED = "failed"  # the folder, below that of the results
FULL, REDUCED = "measured at full scale", "measured at reduced scale"
MEANING = {
    FULL: "the paper's recipe, data size and steps",
    REDUCED: "fewer steps, other text or other sizes: not comparable with the paper's score",
    "compiled and costed only": "its step was compiled by the TPU compiler, in full or with one "
    "and two layers; nothing is trained",
    "failed": "tried and failed: the reason is below",
    "not run": "has a config and a command, but no result",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """A row that failed: its experiment in `details`, and why."""

    name: str
    command: str
    message: str
    details: Mapping[str, str]

    @property
    def label(self) -> str:
        """Its row's, which the paper's tables may no longer have."""
        return self.details["row"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentState:
    """An experiment's state, why, and its result where it has one."""

    state: Literal["done", "stale", "failed", "not run"]
    note: str = ""
    result: Result | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Records:
    """The records of a folder: of rows, of comparisons of rows, and of failures."""

    rows: tuple[Result, ...] = ()
    orderings: tuple[Result, ...] = ()
    failures: tuple[Failure, ...] = ()

    def of(self, row: Row) -> Iterator[Result]:
        return (result for result in self.rows if result.details["row"] == row.label)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowRecords:
    """A row of the paper, and all that the records hold of it."""

    paper: Row
    config: ExperimentConfig  # the paper's
    results: tuple[Result, ...]  # those that aren't stale
    failures: tuple[Failure, ...]
    is_costed: bool  # its step was compiled by the TPU compiler

    @property
    def full(self) -> list[Result]:
        return [result for result in self.results if result.details.get("status") == FULL]

    @property
    def status(self) -> str:
        """A key of MEANING."""
        if self.results:
            return FULL if self.full else REDUCED
        if self.failures:
            return "failed"
        return "compiled and costed only" if self.is_costed else "not run"


def read_records(folder: Path) -> Records:
    """A folder's records, maybe none. Raises ResultError for a foreign file."""
    results = read_results(folder)
    for result in results:
        if not {"row", "experiments"} & set(result.details):
            raise ResultError(f"{folder / result.name}.json: is not a result of `reproduce`")
    return Records(
        rows=tuple(result for result in results if "row" in result.details),
        orderings=tuple(result for result in results if "experiments" in result.details),
        failures=tuple(_failure(path) for path in sorted((folder / FAILED).glob("*.json"))),
    )


def row_records(row: Row, records: Records, *, is_costed: bool) -> RowRecords:
    """Raises ConfigError if the row's own config is broken."""
    return RowRecords(
        paper=row,
        config=paper_config(row.spec),
        results=tuple(result for result in records.of(row) if stale(result) is None),
        failures=tuple(failure for failure in records.failures if failure.label == row.label),
        is_costed=is_costed,
    )


def stale(result: Result) -> str | None:
    """Why a row's result no longer matches the row; None if it does."""
    try:
        experiment = again(result.details)
    except (RowError, ConfigError) as error:
        return f"its settings are no longer valid: {error}"
    if experiment.digest != result.details["digest"]:
        return "the row's config has changed since it was measured"
    return None


def experiment_state(experiment: Experiment, folder: Path) -> ExperimentState:
    """An experiment's state by its files. Raises ResultError, RunDirectoryError."""
    path = folder / f"{experiment.name}.json"
    if path.exists():
        result = read_result(path)
        if result.details.get("digest") == experiment.digest:
            return ExperimentState(state="done", result=result)
        return ExperimentState(state="stale", note=f"{path} has different settings", result=result)

    failure_file = _failure_file(experiment, folder)
    if failure_file.exists():
        return ExperimentState(state="failed", note=_failure(failure_file).message)
    return ExperimentState(state="not run")


def write_failure(experiment: Experiment, message: str, folder: Path) -> None:
    path = _failure_file(experiment, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "name": experiment.name,
        "command": experiment.command,
        "message": message,
        "details": experiment.details(),
    }
    write_json(path, content)


def remove_failure(experiment: Experiment, folder: Path) -> None:
    remove_file(_failure_file(experiment, folder))


def _failure_file(experiment: Experiment, folder: Path) -> Path:
    return folder / FAILED / f"{experiment.name}.json"


def _failure(path: Path) -> Failure:
    try:
        failure = Failure(**read_json(path))
        _ = failure.label.strip(), failure.message.strip()
    except (RunDirectoryError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise ResultError(f"{path}: is not a failure record: {error}") from error
    return failure
