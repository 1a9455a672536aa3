"""How a run stands, for people and for the next command."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from flaxformer_mt.rundir.atomic import read_json, write_json
from flaxformer_mt.rundir.errors import WorkdirError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import exists

State = Literal["running", "stopped", "finished", "failed"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """`running` also stands after a kill: only a clean end can write another state.

    `stopped` ended on request and goes on where it was; `finished` reached its last step or ran
    out of patience; `failed` gave up. `reason` is one sentence for people.
    """

    state: State
    step: int
    reason: str = ""


def write_status(run: RunDirectory, status: Status) -> None:
    """Replaces `status.json`. Raises RunDirectoryError."""
    write_json(run.status_file, dataclasses.asdict(status))


def reopen(run: RunDirectory, reason: str) -> None:
    """Notes that a finished run is to go on; of any other run the status stays.

    It comes before other settings are recorded, not after: whoever is killed between the two would
    leave a run that is finished by its former settings and is never trained by the new ones.
    Raises RunDirectoryError.
    """
    status = read_status(run)
    if status is not None and status.state == "finished":
        write_status(run, Status(state="stopped", step=status.step, reason=reason))


def read_status(run: RunDirectory) -> Status | None:
    """The last status, or None before the first. Raises RunDirectoryError."""
    if not exists(run.status_file):
        return None
    try:
        content = read_json(run.status_file)
    except WorkdirError as error:
        raise WorkdirError(f"{error}; delete it") from error
    try:
        status = Status(
            state=content["state"], step=int(content["step"]), reason=str(content["reason"])
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WorkdirError(
            f"{run.status_file}: is not a status ({type(error).__name__}: {error}); delete it"
        ) from error
    if status.state not in get_args(State):
        raise WorkdirError(
            f"{run.status_file}: unknown state {status.state!r}; upgrade flaxformer-mt"
        )
    return status
