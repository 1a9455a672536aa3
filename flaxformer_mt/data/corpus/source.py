"""A corpus of the configuration as a source of records: the one door to every kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import paths, tfds_sets
from flaxformer_mt.data.corpus.array_records import ArrayRecords
from flaxformer_mt.data.corpus.built_in import BuiltIn
from flaxformer_mt.data.corpus.json_records import JsonKeys, JsonLines
from flaxformer_mt.data.corpus.pairs import CorpusError, Defect
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.text_files import TwoColumns, TwoFiles

_SETTINGS = {
    "files": ("src", "tgt"),
    "tsv": ("path",),
    "jsonl": ("path", "src", "tgt"),
    "array_record": ("path", "src", "tgt"),
    "tfds": ("path", "src", "tgt", "split"),
}
"""What a corpus of each kind must name."""


class Source(Protocol):
    """A corpus that was found and can be read; it can be pickled, for worker processes."""

    @property
    def files(self) -> Mapping[str, AnyPath]:
        """What is read, by setting name; nothing for the built-in grammar."""

    @property
    def label(self) -> str:
        """What a message about the whole corpus names, such as its first file."""

    def records(self) -> Iterator[tuple[bytes, ...]]:
        """The raw columns, streaming; record n, counted from 1, is "line" n.

        Raises:
          CorpusError: a file that is damaged or not what it should be, or sides that differ in
            their number of lines.
        """

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        """None if these columns are a source and a target sentence in UTF-8; cheap and pure."""


def open_source(
    corpus: CorpusConfig, folder: str = "", key: str = "", *, make: bool = True
) -> Source:
    """The source that a corpus's settings name, its files' existence checked.

    Relative paths stand in `folder`; `key` is the corpus's place in the configuration. A TFDS set
    that is not prepared is prepared first, which may take long, unless `make` is False.

    Raises:
      CorpusError: a setting is empty or wrong, or a file is missing; the message names the setting.
    """
    key = key or corpus.name or "corpus"
    if corpus.kind == "synthetic":
        if corpus.size <= 0:
            raise CorpusError(f"{key}.size is {corpus.size}: say how many pairs to make")
        return BuiltIn(corpus.split, corpus.size, f"{key} (built-in grammar)")
    for name in _SETTINGS[corpus.kind]:
        if not getattr(corpus, name):
            raise CorpusError(f"{key}.{name} is not set: a corpus of kind {corpus.kind!r} needs it")
    if corpus.kind == "files":
        return TwoFiles(
            paths.require_file(corpus.src, folder, f"{key}.src"),
            paths.require_file(corpus.tgt, folder, f"{key}.tgt"),
        )
    if corpus.kind == "tsv":
        return TwoColumns(paths.require_file(corpus.path, folder, f"{key}.path"))
    if corpus.kind == "jsonl":
        path = paths.require_file(corpus.path, folder, f"{key}.path")
        return JsonLines(path, JsonKeys(corpus.src, corpus.tgt))
    if corpus.kind == "array_record":
        shards = paths.require_matches(corpus.path, folder, f"{key}.path")
        return ArrayRecords(shards, corpus.path, JsonKeys(corpus.src, corpus.tgt))
    return tfds_sets.open_set(corpus, folder, key, make=make)
