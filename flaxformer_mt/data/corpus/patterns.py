"""Corpora of several files that a glob pattern names, such as `part-*.en` and `part-*.de`."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.config import CorpusConfig
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import CorpusError
from flaxformer_mt.files.reading import AnyPath

_WILD = re.compile(r"\*|\?|\[[^]]+\]")


def expanded(corpus: CorpusConfig, folder: str, key: str) -> Iterator[CorpusConfig]:
    """The corpus once for each file, or pair of files, that its patterns match, by name; itself if
    it has none. Raises CorpusError for sides that don't go together."""
    if not corpus.source.is_by_file:
        yield corpus
        return
    patterns: dict[str, str] = {
        name: setting
        for name in corpus.source.named_files()
        if _is_pattern(setting := getattr(corpus, name), folder)
    }
    if not patterns:
        yield corpus
        return

    files = {
        name: _by_wild_parts(pattern, folder, f"{key}.{name}") for name, pattern in patterns.items()
    }
    _require_counterparts(corpus, files, key)
    first = next(iter(files.values()))
    for parts in first:
        places: dict[str, Any] = {name: _place(side[parts]) for name, side in files.items()}
        yield dataclasses.replace(corpus, **places)


def _is_pattern(setting: str, folder: str) -> bool:
    """Whether a setting has wildcards, and isn't the name of a file with such characters."""
    if _WILD.search(setting) is None:
        return False
    place = paths.locate(setting, folder)
    return not (isinstance(place, Path) and place.exists())


def _by_wild_parts(pattern: str, folder: str, key: str) -> dict[tuple[str, ...], AnyPath]:
    """The files that match, by what the wildcards stand for in their names, in order of names."""
    located = str(paths.locate(pattern, folder))
    wild = "".join(
        f"({_expression(part)})" if _WILD.fullmatch(part) else re.escape(part)
        for part in re.split(f"({_WILD.pattern})", located)
    )
    found = {}
    for path in paths.require_matches(pattern, folder, key):
        match = re.fullmatch(wild, str(path))
        found[match.groups() if match else (str(path),)] = path
    return found


def _expression(wildcard: str) -> str:
    """A regular expression for a wildcard within a name."""
    if wildcard == "*":
        return "[^/]*"
    return "[^/]" if wildcard == "?" else wildcard.replace("[!", "[^")


def _require_counterparts(
    corpus: CorpusConfig, files: Mapping[str, Mapping[tuple[str, ...], AnyPath]], key: str
) -> None:
    """Raises CorpusError for a file without one for each other setting that names files."""
    names = corpus.source.named_files()
    for name, other in itertools.permutations(names, 2):
        if name in files and other not in files:
            raise CorpusError(
                f"{key}.{name} = {getattr(corpus, name)!r} names several files, but {key}.{other} "
                f"= {getattr(corpus, other)!r} one: use wildcards in both"
            )
    for name, other in itertools.permutations(files, 2):
        for parts, path in files[name].items():
            if parts not in files[other]:
                raise CorpusError(
                    f"{path}: has no counterpart among the files of {key}.{other} = "
                    f"{getattr(corpus, other)!r}"
                )


def _place(path: AnyPath) -> str:
    """The file, wherever relative paths start."""
    return os.path.abspath(path) if isinstance(path, Path) else str(path)
