"""A configured corpus of any kind, as records and as sentence pairs."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.config import CorpusConfig, DataConfig
from flaxformer_mt.config.consistency import CORPUS_SETTINGS
from flaxformer_mt.data.corpus import keyed_records, paths, tfds_sets
from flaxformer_mt.data.corpus.keyed_records import texts_at
from flaxformer_mt.data.corpus.pairs import CorpusError, Drops, Pair, PairSource
from flaxformer_mt.data.corpus.shards import read_array_record
from flaxformer_mt.data.corpus.text_files import SUFFIXES, LinePlace, aligned, lines, tab_separated


def is_seekable(source: PairSource) -> bool:
    """Whether any part of the corpus can be read without the text before it."""
    readers = [part.func for part in source.parts]
    packed = any(path.suffix.lower() in SUFFIXES for path in source.files.values())
    return not packed and readers in ([lines], [aligned])


def part_of(source: PairSource, places: Mapping[str, LinePlace]) -> PairSource:
    """A seekable corpus from these places of its files on."""
    [read] = source.parts
    part = functools.partial(read, *(places[name] for name in source.files))
    return dataclasses.replace(source, parts=(part,))


def open_split(
    data: DataConfig, split: str, *, fetch: bool = True
) -> list[tuple[str, CorpusConfig, PairSource]]:
    """Each corpus of "train" or "valid": its key, its settings and its source. Raises CorpusError.

    Without `fetch`, sets of TFDS and of the hub are left out.
    """
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    if split == "valid" and not data.valid_fraction:
        corpora = {"data.valid": data.valid}
    opened = []
    for key, corpus in corpora.items():
        if not fetch and is_fetched(corpus):
            continue
        source = open_source(corpus, data.folder, key)
        source = dataclasses.replace(
            source, fraction=data.valid_fraction, held_out=split == "valid"
        )
        if source.fraction and source.held_out:
            key, corpus = "data.valid", dataclasses.replace(corpus, name="valid", weight=0.0)
        opened.append((key, corpus, source))
    return opened


def is_fetched(corpus: CorpusConfig) -> bool:
    """Whether TFDS or the hub has the corpus."""
    return corpus.kind == "tfds" or corpus.path.startswith(keyed_records.HUB)


def open_source(
    corpus: CorpusConfig, folder: str = "", key: str = "", *, fetch: bool = True
) -> PairSource:
    """The source that the settings under `key` name, its files' existence checked.

    Paths are relative to `folder`. With `fetch`, a TFDS set is prepared and one of the hub fetched
    if need be, which may take long. Raises CorpusError, which names the setting.
    """
    key = key or corpus.name or "corpus"
    for name in CORPUS_SETTINGS[corpus.kind].needed:
        if not getattr(corpus, name):
            if key == "data.valid":
                raise CorpusError(
                    f"{key}.{name} is not set: a corpus of kind {corpus.kind!r} needs it; or hold "
                    "out training text with data.valid_fraction=0.01"
                )
            raise CorpusError(f"{key}.{name} is not set: a corpus of kind {corpus.kind!r} needs it")
    source = dataclasses.replace(_opened(corpus, folder, key, fetch), tag=corpus.tag)
    if "src" in CORPUS_SETTINGS[corpus.kind].needed:
        _require_two_sides(corpus, source, key)
    return source


def _require_two_sides(corpus: CorpusConfig, source: PairSource, key: str) -> None:
    """Raises CorpusError if one file, or one key, is named as both sides."""
    src, tgt = source.files.get("src"), source.files.get("tgt")
    are_equal = corpus.src == corpus.tgt
    if isinstance(src, Path) and isinstance(tgt, Path):
        are_equal = src.samefile(tgt)
    if are_equal:
        raise CorpusError(
            f"{key}.src and {key}.tgt name the same {'file' if corpus.kind == 'files' else 'key'}, "
            f"{corpus.src!r}: set one of them to the other language's"
        )


def _opened(corpus: CorpusConfig, folder: str, key: str, fetch: bool) -> PairSource:
    texts = functools.partial(texts_at, src=corpus.src, tgt=corpus.tgt)
    match corpus.kind:
        case "files":
            src = paths.require_file(corpus.src, folder, f"{key}.src")
            tgt = paths.require_file(corpus.tgt, folder, f"{key}.tgt")
            sides = functools.partial(aligned, src, tgt)
            return PairSource({"src": src, "tgt": tgt}, str(src), (sides,), tuple, where="")
        case "tsv" | "jsonl":
            path = paths.require_file(corpus.path, folder, f"{key}.path")
            read = PairSource({"path": path}, str(path), (functools.partial(lines, path),), texts)
            if corpus.kind == "jsonl":
                return read
            return dataclasses.replace(read, texts=tab_separated, where=" of the {side} column")
        case "array_record":
            matches = paths.require_matches(corpus.path, folder, f"{key}.path")
            shards = {f"path[{number}]": shard for number, shard in enumerate(matches)}
            parts = tuple(functools.partial(read_array_record, shard) for shard in matches)
            return PairSource(shards, corpus.path, parts, texts)
        case "hf":
            return keyed_records.open_files(corpus, folder, key, fetch=fetch)
        case "tfds":
            return tfds_sets.open_set(corpus, folder, key, fetch=fetch)
        case "synthetic":
            drawn = functools.partial(_drawn, corpus.split, corpus.size)
            # There is no file to name, and its records are the texts.
            return PairSource({}, f"{key} (built-in grammar)", (drawn,), tuple)


def _drawn(split: Any, size: int) -> Iterator[tuple[bytes, bytes]]:
    from flaxformer_mt.grammar import text as synthetic

    for src, tgt in synthetic.pairs(split, size):
        yield src.encode(), tgt.encode()


def read_pairs(
    corpus: CorpusConfig, folder: str = "", *, drops: Drops | None = None, key: str = ""
) -> Iterator[Pair]:
    """The pairs of the corpus under `key` in order, streaming, sources with their tag.

    A pair with invalid UTF-8, a control character, an empty side, or not exactly two texts is
    counted in `drops`, or without `drops`, as for test sets, an error. Raises CorpusError.
    """
    key = key or corpus.name or "corpus"
    source = open_source(corpus, folder, key)
    for line, columns in enumerate(source.records(), 1):
        defect = source.check(columns, line)
        if defect is None:
            src, tgt = columns
            yield Pair(line, source.tagged(src).decode(), tgt.decode())
        elif drops is None:
            raise CorpusError(f"{defect} ({key}); this corpus may not skip pairs: correct the line")
        else:
            drops.add(defect)
