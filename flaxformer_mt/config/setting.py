"""A setting of the schema: a dataclass field that says what it means and what depends on it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Decides = Literal["training", "scoring", "nothing"]


def setting(
    default: Any, help: str, *, resume: bool = False, decides: Decides | None = None
) -> Any:
    """A dataclass field with its explanation; `resume` says whether a resumed run may change it.

    `decides` is what the setting has a part in: what is trained ("training"), what numbers a
    trained model then gets ("scoring"), or only where, how fast and with what reports that happens
    ("nothing"). None: as the group that it is in, of which the outermost decides training.
    """
    metadata = {"help": help, "resume": resume, "decides": decides}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def operational(default: Any, help: str) -> Any:
    """A setting that decides nothing and may change at any time: where, how fast, what is said."""
    return setting(default, help, resume=True, decides="nothing")
