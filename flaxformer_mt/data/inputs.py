"""What the corpora's files were when they were read, and whether they still are that."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data import corpus as corpora

NamedCorpora = Sequence[tuple[str, str, CorpusConfig]]
"""Corpora with their split and their configuration key, such as "data.train.europarl"."""


def describe_all(named: NamedCorpora, folder: str) -> list[dict[str, Any]]:
    """Each file's key, path, size, time of change and sha256, in the order of the corpora.

    Raises:
      CorpusError: a file is missing.
    """
    described = []
    for _, key, corpus in named:
        for setting, path in corpora.files(corpus, folder, key=key).items():
            size, mtime_ns = _stamp(path)
            described.append(
                {
                    "key": f"{key}.{setting}",
                    "path": str(path),
                    "size": size,
                    "mtime_ns": mtime_ns,
                    "sha256": _sha256(path),
                }
            )
    return described


def require_unchanged(recorded: Sequence[dict[str, Any]]) -> None:
    """Raises CorpusError if a file changed since `describe_all`: what was read may be neither."""
    for file in recorded:
        if _stamp(Path(file["path"])) != (file["size"], file["mtime_ns"]):
            raise corpora.CorpusError(f"{file['path']}: changed while it was being read: try again")


def compare(
    recorded: Sequence[dict[str, Any]], named: NamedCorpora, folder: str
) -> tuple[list[str], list[str]]:
    """What changed since `describe_all` made `recorded`, and which corpora are gone, in words.

    A file of the same size and time of change counts as the same; otherwise its digest decides, so
    that a copied or moved corpus is recognised. A corpus that is gone does not matter to a
    store that is made.
    """
    changes, gone = [], []
    for _, key, corpus in named:
        try:
            files = corpora.files(corpus, folder, key=key)
        except corpora.CorpusError as error:
            gone.append(str(error))
            continue
        then = {file["key"]: file for file in recorded}
        for setting, path in files.items():
            file = then[f"{key}.{setting}"]
            if _stamp(path) == (file["size"], file["mtime_ns"]):
                continue
            if path.stat().st_size != file["size"] or _sha256(path) != file["sha256"]:
                changes.append(
                    f"{key}.{setting}: the contents of {path} are not those that were read"
                )
    return changes, gone


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time of change: cheap to compare."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
