"""The first pairs of training corpora, as files of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from flaxformer_mt.config import CorpusConfig, DataConfig
from flaxformer_mt.data.corpus import Drops, paths, read_pairs
from flaxformer_mt.data.corpus.source import open_source
from flaxformer_mt.reproduction.prepared import alone_in
from flaxformer_mt.rundir.atomic import write_json, writing


def extracted(
    data: DataConfig, pairs: Mapping[str, int], *, folder: Path, say: Callable[[str], None]
) -> DataConfig:
    """`data` with at most the first `pairs[NAME]` sound pairs of each training corpus NAME.

    They are written below `folder`, once: what is there of the same files is used again, and while
    another process writes them this one waits. Raises CorpusError, and RunDirectoryError where
    nothing can be written.
    """
    train = tuple(
        _first(corpus, pairs[corpus.name], data.folder, folder, say)
        if corpus.name in pairs
        else corpus
        for corpus in data.train
    )
    return dataclasses.replace(data, train=train)


def _first(
    corpus: CorpusConfig, count: int, source: str, folder: Path, say: Callable[[str], None]
) -> CorpusConfig:
    if corpus.kind == "synthetic":
        return dataclasses.replace(corpus, size=min(corpus.size, count))
    key = f"data.train.{corpus.name}"
    files = open_source(corpus, source, key).files
    stamps = {name: [str(path), *paths.stamp(path)] for name, path in files.items()}
    origin = json.dumps([dataclasses.asdict(corpus) | {"weight": 0.0}, stamps, count])
    place = (folder / hashlib.sha256(origin.encode()).hexdigest()[:16]).absolute()
    src, tgt, record = place / "src", place / "tgt", place / "extract.json"
    found = CorpusConfig(name=corpus.name, src=str(src), tgt=str(tgt), weight=corpus.weight)
    with alone_in(place, say):
        if record.exists():
            return found
        drops, written = Drops(), 0
        with writing(src) as src_file, writing(tgt) as tgt_file:
            for pair in itertools.islice(read_pairs(corpus, source, drops=drops, key=key), count):
                src_file.write(f"{pair.src}\n")
                tgt_file.write(f"{pair.tgt}\n")
                written += 1
        # Last of all: without it the files are written again.
        write_json(record, {"corpus": corpus.name, "pairs": written, "left_out": drops.counts})
        say(f"{key}: the first {written:,} pairs are used ({count:,} wanted)")
        for example in drops.examples:
            say(f"  left out: {example}")
    return found
