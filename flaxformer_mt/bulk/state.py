"""What an unfinished output is part of, and how far it is complete: a small JSON file beside it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.errors import UserError
from flaxformer_mt.rundir.atomic import read_json, write_json
from flaxformer_mt.rundir.errors import RunDirectoryError

FORMAT = 2


class OutputError(UserError):
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorded:
    """What is done, how much output (bytes, parts) that has made, and whether that is all."""

    consumed: Consumed = Consumed()
    output: int = 0
    finished: bool = False


def write_state(path: Path, identity: Mapping[str, Any], recorded: Recorded) -> None:
    """Records beside a part what it is part of, and how much of it is done.

    Only one process may do so at a time.
    """
    state = {
        "format": FORMAT,
        "identity": dict(identity),
        "output": recorded.output,
        "finished": recorded.finished,
        "consumed": dataclasses.asdict(recorded.consumed),
    }
    write_json(path, state, aside=aside(path))


def aside(path: Path) -> Path:
    """What `write_state` may leave beside `path` if it is killed; the next one takes it over."""
    return path.with_name(f".{path.name}.tmp")


def read_state(path: Path, identity: Mapping[str, Any]) -> Recorded:
    """What `write_state` recorded; nothing where nothing was done.

    Raises OutputError if it is of another `identity`, or damaged.
    """
    try:
        state = read_json(path)
        _check(isinstance(state, dict), "no object")
        if "format" in state and state["format"] != FORMAT:
            raise OutputError(
                f"{path}: has format {state['format']}; this program reads {FORMAT}: finish with "
                "the other version, or begin anew with --restart"
            )
        recorded = _recorded(state)
        then: dict[str, Any] = state["identity"]
    except (RunDirectoryError, _Damage) as error:
        raise OutputError(f"{path}: is damaged: {error}; begin anew with --restart") from error
    if not recorded.consumed.lines:
        return Recorded()  # nothing that could not belong to this call
    # As they look after a round trip through JSON.
    now = json.loads(json.dumps(dict(identity)))
    for name in {**then, **now}:
        if then.get(name) != now.get(name):
            raise OutputError(
                f"{path}: tells of a call with {name} {then.get(name)!r}, and now it is "
                f"{now.get(name)!r}: what it has made does not belong to this; call it as before, "
                "or begin anew with --restart"
            )
    return recorded


class _Damage(Exception):
    """What is wrong with a record."""


def _recorded(state: Mapping[str, Any]) -> Recorded:
    """Raises _Damage for a record that `write_state` has not written."""
    keys = {"format", "identity", "output", "finished", "consumed"}
    _check(state.keys() == keys, f"not the keys {', '.join(sorted(keys))}")
    _check(isinstance(state["identity"], dict), "'identity' is no object")
    _check(_is_count(state["output"]), "'output' is no count")
    _check(isinstance(state["finished"], bool), "'finished' is not true or false")
    consumed = state["consumed"]
    names = {field.name for field in dataclasses.fields(Consumed)}
    _check(isinstance(consumed, dict) and consumed.keys() == names, "'consumed' lacks something")
    for name in ("lines", "size"):
        _check(_is_count(consumed[name]), f"'{name}' is no count")
    _check(isinstance(consumed["sha256"], str), "'sha256' is no text")
    sums = consumed["sums"]
    numbers = isinstance(sums, dict) and all(
        type(each) in (int, float) and math.isfinite(each) for each in sums.values()
    )
    _check(numbers, "'sums' are no numbers")
    return Recorded(
        consumed=Consumed(**consumed), output=state["output"], finished=state["finished"]
    )


def _check(condition: bool, complaint: str) -> None:
    if not condition:
        raise _Damage(complaint)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
