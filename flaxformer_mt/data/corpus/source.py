"""A configured corpus of any kind, as records and as sentence pairs."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_never

from flaxformer_mt.config import CorpusConfig, DataConfig
from flaxformer_mt.config.kinds import (
    AlignedFiles,
    ArrayRecords,
    CommaSeparated,
    CorpusSource,
    GrammarText,
    JsonLines,
    ParquetFiles,
    TabSeparated,
    TfdsSet,
    TranslationMemory,
    ZipArchive,
)
from flaxformer_mt.data.corpus import (
    json_records,
    memories,
    parquet,
    tables,
    text_files,
    tfds_sets,
    zip_archives,
)
from flaxformer_mt.data.corpus.pairs import NO_PAIR, CorpusError, Drops, Pair, PairSource, checked
from flaxformer_mt.data.corpus.patterns import expanded


def open_split(
    data: DataConfig, split: str, *, without_fetched: bool = False
) -> list[tuple[str, CorpusConfig, PairSource]]:
    """Each corpus of "train" or "valid": its key, its settings and its source, or one after the
    other its sources, if a pattern names several files. Raises CorpusError.

    `without_fetched` leaves out sets of TFDS and of the hub.
    """
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    if split == "valid" and not data.valid_fraction:
        corpora = data.validation
    opened = []
    for key, corpus in corpora.items():
        if without_fetched and corpus.source.is_fetched:
            continue
        of_corpus = data.of_corpus(corpus)
        sources = open_sources(corpus, data.folder, key)
        if data.valid_fraction and split == "valid":
            key, corpus = "data.valid", dataclasses.replace(corpus, name="valid", weight=0.0)
        for source in sources:
            source = dataclasses.replace(
                source,
                languages=(of_corpus.src_lang, of_corpus.tgt_lang),
                fraction=data.valid_fraction,
                held_out=split == "valid",
            )
            opened.append((key, corpus, source))
    return opened


def open_sources(
    corpus: CorpusConfig, folder: str = "", key: str = "", *, download: bool = True
) -> list[PairSource]:
    """One source for each file, or pair of files, that a corpus names: several with a pattern.
    As `open_source`."""
    key = key or corpus.name or "corpus"
    return [
        open_source(one, folder, key, download=download) for one in expanded(corpus, folder, key)
    ]


def open_source(
    corpus: CorpusConfig, folder: str = "", key: str = "", *, download: bool = True
) -> PairSource:
    """The source that the settings under `key` name, its files' existence checked.

    Paths are relative to `folder`. With `download`, a TFDS set is prepared and one of the hub
    fetched if need be, which may take long. Raises CorpusError, which names the setting.
    """
    key = key or corpus.name or "corpus"
    settings = corpus.source
    for name in settings.needed():
        if not getattr(settings, name):
            if key == "data.valid":
                raise CorpusError(
                    f"{key}.{name} is not set: a corpus of kind {corpus.kind!r} needs it; or hold "
                    "out training text with data.valid_fraction=0.01"
                )
            raise CorpusError(f"{key}.{name} is not set: a corpus of kind {corpus.kind!r} needs it")
    opened = _opened(settings, folder, key, download=download)
    if settings.sides is not None:
        _require_two(settings.sides, opened, key)
    return dataclasses.replace(opened, tag=corpus.tag)


def _opened(settings: CorpusSource, folder: str, key: str, *, download: bool) -> PairSource:
    match settings:
        case AlignedFiles():
            return text_files.open_aligned(settings, folder, key)
        case TabSeparated():
            return tables.open_tab_separated(settings, folder, key)
        case CommaSeparated():
            return tables.open_comma_separated(settings, folder, key)
        case JsonLines():
            return json_records.open_lines(settings, folder, key)
        case ZipArchive():
            return zip_archives.open_archive(settings, folder, key)
        case TranslationMemory():
            return memories.open_memory(settings, folder, key)
        case ArrayRecords():
            return json_records.open_shards(settings, folder, key)
        case ParquetFiles():
            return parquet.open_files(settings, folder, key, download=download)
        case TfdsSet():
            return tfds_sets.open_set(settings, folder, key, download=download)
        case GrammarText():
            return _open_grammar(settings, key)
        case unknown:
            assert_never(unknown)


def _require_two(sides: tuple[str, str], source: PairSource, key: str) -> None:
    """Raises CorpusError if one file, or one key, is named as both sides."""
    src, tgt = source.files.get("src"), source.files.get("tgt")
    are_equal = sides[0] == sides[1]
    if isinstance(src, Path) and isinstance(tgt, Path):
        are_equal = src.samefile(tgt)
    if are_equal:
        raise CorpusError(
            f"{key}.src and {key}.tgt name the same {'key' if src is None else 'file'}, "
            f"{sides[0]!r}: set one of them to the other language's"
        )


def _open_grammar(settings: GrammarText, key: str) -> PairSource:
    """Text of the built-in grammar: there is no file to name, and its records are the texts."""
    drawn = functools.partial(_drawn, settings.split, settings.size)
    return PairSource({}, f"{key} (built-in grammar)", (drawn,), tuple, size=settings.size)


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
    for source in open_sources(corpus, folder, key):
        yield from _pairs_of(source, drops, key)


def _pairs_of(source: PairSource, drops: Drops | None, key: str) -> Iterator[Pair]:
    """As `read_pairs`, of one source."""
    for line, record in enumerate(source.records(), 1):
        defect = source.check(record, line)
        if defect is None:
            src, tgt = checked(record)
            yield Pair(line, source.tagged(src).decode(), tgt.decode())
        elif drops is None and defect.reason in NO_PAIR:
            continue
        elif drops is None:
            raise CorpusError(f"{defect} ({key}); this corpus may not skip pairs: correct the line")
        else:
            drops.add(defect)
