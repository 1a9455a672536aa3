"""What an unfinished output is part of, and how far it is complete: a small JSON file beside it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.rundir.atomic import read_json, write_json
from flaxformer_mt.rundir.errors import RunDirectoryError

FORMAT = 1


class OutputError(ValueError):
    """Output that cannot be written, or not be gone on with; the message names the file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consumed:
    """How much of the input is done: its first lines, their bytes, and a digest of them.

    `sums` is what was counted on the way.
    """

    lines: int = 0
    size: int = 0
    sha256: str = ""
    sums: Mapping[str, float] = dataclasses.field(default_factory=dict)


def write_state(
    path: Path, identity: Mapping[str, Any], consumed: Consumed, *, output: int
) -> None:
    """Records beside a part what it is part of and that `output` of it (bytes, parts) is done."""
    state = {"format": FORMAT, "identity": dict(identity), "output": output}
    write_json(path, state | {"consumed": dataclasses.asdict(consumed)})


def read_state(path: Path, identity: Mapping[str, Any]) -> tuple[Consumed, int]:
    """What `write_state` recorded; nothing where nothing was done.

    Raises OutputError if it is of another `identity`, or damaged.
    """
    try:
        state = read_json(path)
        if state["format"] != FORMAT:
            raise OutputError(
                f"{path}: has format {state['format']}; this program reads {FORMAT}: finish with "
                "the other version, or begin anew with --restart"
            )
        consumed, output = Consumed(**state["consumed"]), int(state["output"])
        recorded: dict[str, Any] = dict(state["identity"])
    except (RunDirectoryError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, OutputError):
            raise
        raise OutputError(f"{path}: is damaged: {error}; begin anew with --restart") from error
    if not consumed.lines:
        return Consumed(), 0  # nothing that could not belong to this call
    # As they look after a round trip through JSON.
    now = json.loads(json.dumps(dict(identity)))
    for name in {**recorded, **now}:
        if recorded.get(name) != now.get(name):
            raise OutputError(
                f"{path}: tells of a call with {name} {recorded.get(name)!r}, and now it is "
                f"{now.get(name)!r}: what it has made does not belong to this; call it as before, "
                "or begin anew with --restart"
            )
    return consumed, output
