"""A configured corpus of any kind, as records and as sentence pairs."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

from flaxformer_mt.config import CorpusConfig, DataConfig
from flaxformer_mt.config.consistency import CORPUS_SETTINGS
from flaxformer_mt.data.corpus import keyed_records, paths, tfds_sets
from flaxformer_mt.data.corpus.keyed_records import KeyedRecords, texts_at
from flaxformer_mt.data.corpus.pairs import CorpusError, Defect, Drops, Pair
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.shards import read_array_record
from flaxformer_mt.data.corpus.text_files import Place, TextFiles, is_plain, lines

HELD_OUT = "held out for validation"
TRAINED_ON = "trained on"


class Source(Protocol):
    """A corpus that was found and can be read and pickled."""

    @property
    def files(self) -> Mapping[str, AnyPath]:
        """What is read, by setting name."""

    @property
    def label(self) -> str:
        """The corpus in messages, such as its first file."""

    def records(self) -> Iterator[tuple[bytes, ...]]:
        """The raw columns, streaming; record n, from 1, is "line" n. Raises CorpusError."""

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        """None if these columns are a source and a target sentence in UTF-8."""


@dataclasses.dataclass(frozen=True)
class Changed:
    """A corpus that another one is made from, record by record."""

    whole: Source

    @property
    def files(self) -> Mapping[str, AnyPath]:
        return self.whole.files

    @property
    def label(self) -> str:
        return self.whole.label

    def records(self) -> Iterator[tuple[bytes, ...]]:
        return self.whole.records()


@dataclasses.dataclass(frozen=True)
class Tagged(Changed):
    """A corpus with the same token before each source (Caswell et al. 2019)."""

    tag: str

    def records(self) -> Iterator[tuple[bytes, ...]]:
        for src, *rest in self.whole.records():
            yield self._lead + src, *rest

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        return self.whole.check((columns[0].removeprefix(self._lead), *columns[1:]))

    @property
    def _lead(self) -> bytes:
        return f"{self.tag} ".encode()


@dataclasses.dataclass(frozen=True)
class Part(Changed):
    """The pairs of a corpus that are held out for validation, or all others, by source text."""

    fraction: float
    held_out: bool

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        """A pair of the other part has a defect, so that lines keep their numbers."""
        if defect := self.whole.check(columns):
            return defect
        digest = hashlib.blake2b(columns[0].strip(), digest_size=8).digest()
        if (int.from_bytes(digest) < self.fraction * 2**64) == self.held_out:
            return None
        return Defect(self.label, TRAINED_ON if self.held_out else HELD_OUT, "by its source text")


def is_seekable(source: Source) -> bool:
    """Whether any part of the corpus can be read without what stands before it."""
    if isinstance(source, Changed):
        return is_seekable(source.whole)
    of_lines = isinstance(source, TextFiles) or (
        isinstance(source, KeyedRecords) and [part.func for part in source.parts] == [lines]
    )
    return of_lines and all(map(is_plain, source.files.values()))


def part_of(source: Source, places: Mapping[str, Place]) -> Source:
    """A seekable corpus from these places of its files on."""
    if isinstance(source, Changed):
        return dataclasses.replace(source, whole=part_of(source.whole, places))
    if isinstance(source, TextFiles):
        return dataclasses.replace(source, places=places)
    [(name, place)] = places.items()
    part = functools.partial(lines, source.files[name], place)
    return dataclasses.replace(cast(KeyedRecords, source), parts=(part,))


def open_split(
    data: DataConfig, split: str, *, fetch: bool = True
) -> list[tuple[str, CorpusConfig, Source]]:
    """Each corpus of "train" or "valid": its key, its settings and its source. Raises CorpusError.

    Without `fetch`, sets of TFDS and of the hub are left out.
    """
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    if split == "valid" and not data.valid_fraction:
        corpora = {"data.valid": data.valid}
    opened = []
    for key, corpus in corpora.items():
        if not fetch and (corpus.kind == "tfds" or corpus.path.startswith(keyed_records.HUB)):
            continue
        # What is held out doesn't depend on the tag.
        source = open_source(dataclasses.replace(corpus, tag=""), data.folder, key)
        if data.valid_fraction:
            source = Part(source, data.valid_fraction, held_out=split == "valid")
            if split == "valid":
                key, corpus = "data.valid", dataclasses.replace(corpus, name="valid", weight=0.0)
        opened.append((key, corpus, Tagged(source, corpus.tag) if corpus.tag else source))
    return opened


def open_source(
    corpus: CorpusConfig, folder: str = "", key: str = "", *, make: bool = True
) -> Source:
    """The source that the settings under `key` name, its files' existence checked.

    Paths are relative to `folder`. With `make`, a TFDS set is prepared and one of the hub fetched
    if need be, which may take long. Raises CorpusError, which names the setting.
    """
    key = key or corpus.name or "corpus"
    if corpus.tag:
        untagged = dataclasses.replace(corpus, tag="")
        return Tagged(open_source(untagged, folder, key, make=make), corpus.tag)
    for name in CORPUS_SETTINGS[corpus.kind].all:
        if not getattr(corpus, name):
            text = f"{key}.{name} is not set: a corpus of kind {corpus.kind!r} needs it"
            if key == "data.valid":
                text += "; or hold out training text with data.valid_fraction=0.01"
            raise CorpusError(text)
    if corpus.kind == "synthetic":
        drawn = functools.partial(_drawn, corpus.split, corpus.size)
        # There is no file to name, and its records are the texts.
        return KeyedRecords({}, f"{key} (built-in grammar)", (drawn,), tuple)
    texts = functools.partial(texts_at, src=corpus.src, tgt=corpus.tgt)
    if corpus.kind in ("files", "tsv", "jsonl"):
        found = {
            name: paths.require_file(getattr(corpus, name), folder, f"{key}.{name}")
            for name in (("src", "tgt") if corpus.kind == "files" else ("path",))
        }
        if corpus.kind != "jsonl":
            return TextFiles(found)
        read = functools.partial(lines, found["path"])
        return KeyedRecords(found, str(found["path"]), (read,), texts)
    if corpus.kind == "array_record":
        matches = paths.require_matches(corpus.path, folder, f"{key}.path")
        shards = {f"path[{number}]": shard for number, shard in enumerate(matches)}
        parts = tuple(functools.partial(read_array_record, shard) for shard in matches)
        return KeyedRecords(shards, corpus.path, parts, texts)
    if corpus.kind == "hf":
        return keyed_records.open_files(corpus, folder, key, fetch=make)
    return tfds_sets.open_set(corpus, folder, key, make=make)


def _drawn(split: Any, size: int) -> Iterator[tuple[bytes, bytes]]:
    from flaxformer_mt.data import synthetic

    for src, tgt in synthetic.pairs(split, size):
        yield src.encode(), tgt.encode()


def read_pairs(
    corpus: CorpusConfig, folder: str = "", *, drops: Drops | None = None, key: str = ""
) -> Iterator[Pair]:
    """The pairs of the corpus under `key` in order, streaming.

    A pair with invalid UTF-8, a control character, an empty side, or not exactly two texts is
    counted in `drops`, or without `drops`, as for test sets, an error. Raises CorpusError.
    """
    key = key or corpus.name or "corpus"
    source = open_source(corpus, folder, key)
    for line, columns in enumerate(source.records(), 1):
        defect = source.check(columns)
        if defect is None:
            src, tgt = columns
            yield Pair(line, src.decode(), tgt.decode())
        elif drops is None:
            what = f"{defect.file}:{line}: {defect.reason}: {defect.detail} ({key})"
            raise CorpusError(f"{what}; this corpus may not skip pairs: correct the line")
        else:
            drops.add(line, defect)
