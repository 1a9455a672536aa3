"""The vocabulary of the training corpora, trained on a sample that is drawn evenly over them."""

from __future__ import annotations

import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import corpus as corpora, vocabulary
from flaxformer_mt.data.corpus import Drops, Source, paths
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.text_files import TwoColumns, TwoFiles, zstd
from flaxformer_mt.data.prepare.manifest import PrepareError, Report, named_corpora
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.progress import Meter

_AT_A_TIME = 1 << 14
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".xz": lzma.LZMADecompressor,
    ".zst": zstd.ZstdDecompressor,
}
_HEAD = 1 << 20
_MOST = _HEAD << 4  # a megabyte of one repeated line would fill the memory

Record = tuple[bytes, ...]


def require_validation(config: DataConfig) -> None:
    """Reads what will be validated on: to find after hours that it cannot be would be late.

    Raises PrepareError if there is no sound pair; CorpusError.
    """
    for _ in _sound_records(config, "valid"):
        pass


def train_vocabulary(
    config: DataConfig, seed: int, report: Report, *, bar: bool = False
) -> tuple[Vocabularies, int, list[int]]:
    """The vocabulary, on how many pairs it was trained, and how many records each corpus has.

    Raises PrepareError if there is no sound pair; CorpusError, VocabularyError.
    """
    sources = [
        corpora.open_source(corpus, config.folder, key)
        for split, key, corpus in named_corpora(config)
        if split == "train"
    ]
    counts = [0] * len(sources)
    size = config.vocabulary.sample
    total = text_bytes(*sources)
    what = "prepare: reading for the vocabulary"
    with Meter(what, report, unit="pairs", share=share_of(total), terminal=bar) as meter:
        drawn = sample(_records(sources, counts, meter), size, seed)
    # Records are checked once they are drawn: to check every one of a large corpus takes minutes.
    drops = Drops()
    pairs = _sound(sources, drawn, drops)
    if not pairs:
        pairs = _sound(sources, sample(_sound_records(config, "train"), size, seed), drops)
    without = f", leaving out {drops.describe()}" if drops.total else ""
    report(f"prepare: training the vocabulary on {len(pairs):,} pairs{without}")
    vocabularies = vocabulary.train_pair(pairs, config.vocabulary)
    report(f"prepare: the vocabulary has {sizes(vocabularies)}")
    return vocabularies, len(pairs), counts


def sample(records: Iterator[tuple[int, Record]], size: int, seed: int) -> list[tuple[int, Record]]:
    """At most `size` records, each with the same chance (Vitter 1985's reservoir, algorithm R)."""
    # Raw bits: for those alone NumPy promises the same stream in every version.
    random = np.random.Philox(np.random.SeedSequence(seed))
    drawn = list(itertools.islice(records, size))
    seen = len(drawn)
    while chunk := list(itertools.islice(records, _AT_A_TIME)):
        seen_by_then = seen + 1 + np.arange(len(chunk))
        shares = (random.random_raw(len(chunk)) >> np.uint64(11)) * 2.0**-53
        places = (shares * seen_by_then).astype(np.int64)
        for number in np.flatnonzero(places < size):
            drawn[places[number]] = chunk[number]
        seen += len(chunk)
    return drawn


def sizes(vocabularies: Vocabularies) -> str:
    if vocabularies.shared:
        return f"{vocabularies.src.size:,} types for both sides"
    return f"{vocabularies.src.size:,} source and {vocabularies.tgt.size:,} target types"


def nothing_left(split: str, drops: Drops) -> PrepareError:
    if not drops.total:
        return PrepareError(f"data.{split}: there are no pairs: the corpus is empty")
    return PrepareError(
        f"data.{split}: none of the {drops.total:,} pairs read is left: {drops.describe()}; "
        f"the first: {drops.examples[0]}"
    )


def text_bytes(*sources: Source) -> int | None:
    """Bytes of the corpora's lines, as `record_bytes` counts them; None if that is not known.

    For progress, not for accounts: of a compressed file it is an estimate, what its first megabyte
    gives times its size; not known where that megabyte gives more than 16.
    """
    total = 0
    for source in sources:
        if not isinstance(source, TwoFiles | TwoColumns):
            return None
        for path in source.files.values():
            if (size := _text_bytes(path)) is None:
                return None
            total += size
    return total


def record_bytes(records: Sequence[Record]) -> int:
    return sum(len(column) + 1 for columns in records for column in columns)


def share_of(total: int | None) -> Callable[[int], float | None]:
    return lambda size: size / total if total else None


def _text_bytes(path: AnyPath) -> int | None:
    size, _ = paths.stamp(path)
    decompressor = _DECOMPRESSORS.get(path.suffix.lower())
    if decompressor is None:
        return size
    with paths.reaching(path), paths.open_binary(path) as stream:
        head = stream.read(_HEAD)
    try:
        text = decompressor().decompress(head, _MOST)
    except (zlib.error, lzma.LZMAError, zstd.ZstdError):
        return size  # Who reads it will say what is wrong with it.
    if len(text) == _MOST:
        return None
    return max(size, size * len(text) // max(1, len(head)))


def _records(
    sources: Sequence[Source], counts: list[int], meter: Meter
) -> Iterator[tuple[int, Record]]:
    """Every corpus's records with the corpus's number; `counts` follows."""
    for number, source in enumerate(sources):
        records = source.records()
        while chunk := list(itertools.islice(records, _AT_A_TIME)):
            counts[number] += len(chunk)
            meter.advance(lines=len(chunk), size=record_bytes(chunk))
            for columns in chunk:
                yield number, columns


def _sound_records(config: DataConfig, split: str) -> Iterator[tuple[int, Record]]:
    """The records that are pairs; raises PrepareError after the last if there are none."""
    drops, found = Drops(), False
    of_split = (named for named in named_corpora(config) if named[0] == split)
    for number, (_, key, corpus) in enumerate(of_split):
        for pair in corpora.read_pairs(corpus, config.folder, drops=drops, key=key):
            found = True
            yield number, (pair.src.encode("utf-8"), pair.tgt.encode("utf-8"))
    if not found:
        raise nothing_left(split, drops)


def _sound(
    sources: Sequence[Source], drawn: Sequence[tuple[int, Record]], drops: Drops
) -> list[tuple[str, str]]:
    pairs = []
    for number, columns in drawn:
        defect = sources[number].check(columns)
        if defect is None:
            pairs.append((columns[0].decode("utf-8"), columns[1].decode("utf-8")))
        else:
            # Which line it was is not known of a drawn record; the report tells.
            drops.counts[defect.reason] = drops.counts.get(defect.reason, 0) + 1
    return pairs
