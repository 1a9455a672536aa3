"""How far an unfinished `prepare` is, in a file that is always whole, and how to go on from there.

Everything that the rest of the work depends on is in the file or beside it: the store as
`StoreWriter.flush` left it, the accounts so far, the hashes of the pairs seen. What was
written after the file is cut off, so that the result is that of a call without interruption.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import sentencepiece

import flaxformer_mt
from flaxformer_mt.files.reading import load_json

PROGRESS = "progress.json"
HASHES = "pairs.hashes"
"""Hashes of the pairs kept so far, where duplicates are looked for: uint64, little-endian."""
VOCABULARY = "vocabulary"
"""The trained vocabulary, until all is done."""
LEFTOVERS = (PROGRESS, HASHES)

EVERY = 500_000
"""Records between two writings of the file: half a minute or so of work to lose."""


@dataclasses.dataclass
class Progress:
    """The state of an unfinished call; plain JSON throughout."""

    settings: dict[str, Any]
    inputs: list[dict[str, Any]]
    vocabulary: dict[str, Any]
    """Its part of the manifest."""
    records: list[int]
    """Of each training corpus, as counted for the vocabulary's sample; none if it was found."""
    accounts: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """Of the corpora done, and of the one under way if `lines` is not 0."""
    lines: int = 0
    """Records of the corpus under way that are done with."""
    bytes: int = 0
    """How much text they are."""
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    """Bytes of the validation texts and of the hashes."""
    store: dict[str, Any] | None = None
    """What `StoreWriter.flush` returned."""
    program: str = ""

    def write(self, directory: Path) -> None:
        """Puts the file in the folder in one step."""
        self.program = _program()
        aside = directory / f".{PROGRESS}"
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(self), file, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, directory / PROGRESS)

    @classmethod
    def read(cls, directory: Path) -> Progress | None:
        """The folder's file; None if there is none, or one that this program has not written."""
        try:
            recorded = load_json(directory / PROGRESS)
            return cls(**recorded) if recorded["program"] == _program() else None
        except (OSError, KeyError, TypeError, ValueError):
            return None


def _program() -> str:
    """The versions that decide what text becomes."""
    return f"flaxformer_mt {flaxformer_mt.__version__}, sentencepiece {sentencepiece.__version__}"
