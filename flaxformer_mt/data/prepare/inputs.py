"""What the corpora's files were when they were read, and whether they still are that."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data import corpus as corpora
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.paths import AnyPath

NamedCorpora = Sequence[tuple[str, str, CorpusConfig]]
"""Corpora with their split and their configuration key, such as "data.train.europarl"."""


def describe_all(
    named: NamedCorpora,
    folder: str,
    *,
    known: Sequence[dict[str, Any]] = (),
    make: bool = False,
) -> list[dict[str, Any]]:
    """Each file's key, path, size, time of change and sha256, in the order of the corpora.

    The digest of a file that `known` describes and that has not changed since is taken from there.
    A TFDS set that is not prepared is prepared if `make` says so, and is missing otherwise.

    Raises:
      CorpusError: a file is missing.
    """
    digests = {(file["path"], file["size"], file["mtime_ns"]): file["sha256"] for file in known}
    described = []
    for _, key, corpus in named:
        source = corpora.open_source(corpus, folder, key, make=make)
        for setting, path in source.files.items():
            size, mtime_ns = paths.stamp(path)
            sha256 = digests.get((str(path), size, mtime_ns)) or _sha256(path)
            described.append(
                {
                    "key": f"{key}.{setting}",
                    "path": str(path),
                    "size": size,
                    "mtime_ns": mtime_ns,
                    "sha256": sha256,
                }
            )
    return described


def require_unchanged(recorded: Sequence[dict[str, Any]]) -> None:
    """Raises CorpusError if a file changed since `describe_all`: what was read may be neither."""
    for file in recorded:
        path = paths.locate(file["path"], "")
        if paths.stamp(path) != (file["size"], file["mtime_ns"]):
            raise corpora.CorpusError(f"{path}: changed while it was being read: try again")


def repeated(described: Sequence[dict[str, Any]]) -> list[str]:
    """What stands in two places and is hardly meant to, in words: no error, but worth a look."""
    found, first = [], dict[str, dict[str, Any]]()
    for file in described:
        other = first.setdefault(file["sha256"], file)
        if other is file or not file["size"]:
            continue
        corpus, other_corpus = (one["key"].rpartition(".")[0] for one in (file, other))
        if corpus == other_corpus:
            found.append(f"{other['key']} and {file['key']} have the same contents")
        elif corpus == "data.valid":
            found.append(
                f"{file['key']} has the contents of {other['key']}: what is validated on was "
                "learned from, and says nothing about new text"
            )
    return found


def changed_contents(
    recorded: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]
) -> list[str]:
    """What differs between two descriptions, in words; a copied or moved file is the same."""
    then = {file["key"]: file["sha256"] for file in recorded}
    changes = [
        f"{file['key']}: the contents of {file['path']} are not those that were read"
        for file in now
        if then.get(file["key"]) != file["sha256"]
    ]
    gone = then.keys() - {file["key"] for file in now}
    return changes + [f"{key}: was read, and is no longer there" for key in sorted(gone)]


def compare(
    recorded: Sequence[dict[str, Any]], named: NamedCorpora, folder: str
) -> tuple[list[str], list[str]]:
    """What changed since `describe_all` made `recorded`, and which corpora are gone, in words.

    A file of the same size and time of change counts as the same; otherwise its digest decides.
    A corpus that is gone does not matter to a store that is made.
    """
    changes, gone = [], []
    for item in named:
        key = item[1]
        then = [file for file in recorded if file["key"].startswith(f"{key}.")]
        try:
            now = describe_all([item], folder, known=then)
        except corpora.CorpusError as error:
            gone.append(str(error))
            continue
        changes += changed_contents(then, now)
    return changes, gone


def _sha256(path: AnyPath) -> str:
    with paths.reaching(path), paths.open_binary(path) as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()
