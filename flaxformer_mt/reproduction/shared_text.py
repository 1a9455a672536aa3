"""Text that rows share, made once and by one process at a time: the first pairs, token stores."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.config import CorpusConfig, DataConfig
from flaxformer_mt.data.corpus import Drops, paths, read_pairs
from flaxformer_mt.data.corpus.source import open_source
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.prepare.manifest import settings_of
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import write_json, writing

Say = Callable[[str], None]


def first_pairs(
    data: DataConfig, pairs: Mapping[str, int], *, folder: Path, say: Say
) -> DataConfig:
    """`data` with at most the first `pairs[NAME]` sound pairs of each training corpus NAME.

    They are written below `folder`, once: what is there of the same files is used again. Raises
    CorpusError, and RunDirectoryError where nothing can be written.
    """

    def first(corpus: CorpusConfig) -> CorpusConfig:
        count = pairs.get(corpus.name)
        return corpus if count is None else _first(corpus, count, data.folder, folder, say)

    return dataclasses.replace(data, train=tuple(map(first, data.train)))


def _first(corpus: CorpusConfig, count: int, source: str, folder: Path, say: Say) -> CorpusConfig:
    if corpus.kind == "synthetic":
        return dataclasses.replace(corpus, size=min(corpus.size, count))
    key = f"data.train.{corpus.name}"
    files = open_source(corpus, source, key).files
    stamps = {name: [str(path), *paths.stamp(path)] for name, path in files.items()}
    place = _place(folder, [dataclasses.asdict(corpus) | {"weight": 0.0}, stamps, count]).absolute()
    src, tgt, record = place / "src", place / "tgt", place / "extract.json"
    with _alone_in(place, say):
        if not record.exists():
            drops, written = Drops(), 0
            read = read_pairs(corpus, source, drops=drops, key=key)
            with writing(src) as src_file, writing(tgt) as tgt_file:
                for pair in itertools.islice(read, count):
                    written += 1
                    src_file.write(f"{pair.src}\n")
                    tgt_file.write(f"{pair.tgt}\n")
            # Last of all: without it the files are written again.
            write_json(record, {"corpus": corpus.name, "pairs": written, "left_out": drops.counts})
            say(f"{key}: the first {written:,} pairs are used ({count:,} wanted)")
            for example in drops.examples:
                say(f"  left out: {example}")
    return CorpusConfig(name=corpus.name, src=str(src), tgt=str(tgt), weight=corpus.weight)


def take_prepared(
    run: RunDirectory, data: DataConfig, *, seed: int, folder: Path, say: Say
) -> None:
    """Gives a run its vocabulary and token store.

    They are made in a folder below `folder`, once for all rows that differ in the model alone, and
    shared by hard links. Raises what `data.prepare.prepare` does, and RunDirectoryError.
    """
    places = [(c.src, c.tgt, c.path, c.split) for c in (*data.train, data.valid)]
    place = _place(folder, [settings_of(data, seed), places, data.folder], sort_keys=True)
    with _alone_in(place, say):
        prepare(data, seed=seed, directory=place, report=say, bar=sys.stderr.isatty())
    for name in ("vocabulary", "data"):
        _take(place / name, run.path / name)


def _place(folder: Path, content: Any, *, sort_keys: bool = False) -> Path:
    """The folder of what `content` decides."""
    text = json.dumps(content, sort_keys=sort_keys)
    return folder / hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def _alone_in(place: Path, say: Say) -> Iterator[None]:
    """Makes the folder `place` and holds it: the kernel lets go of it, however this process dies.

    While another process holds it this one waits. Raises RunDirectoryError.
    """
    path = place / "lock"
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = path.open("a", encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{place}: another process prepares the same text; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            say(
                f"warning: {place}: this file system has no locks ({error.strerror}); make sure "
                "that nothing else prepares the same text"
            )
        yield


def _take(source: Path, target: Path) -> None:
    """`source` under another name as well, its files shared: nothing writes to them again."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            shutil.copy2(source, target)

    if target.exists():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as aside:
            shutil.copytree(source, aside, copy_function=link)
    except OSError as error:
        raise RunDirectoryError(f"{target}: cannot be written: {error.strerror}") from error
