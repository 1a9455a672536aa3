"""The vocabulary of the training corpora, trained on a sample that is drawn evenly over them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import corpus as corpora, vocabulary
from flaxformer_mt.data.corpus import Drops, Source
from flaxformer_mt.data.prepare.accounts import nothing_left
from flaxformer_mt.data.prepare.extent import record_bytes, text_bytes
from flaxformer_mt.data.prepare.manifest import named_corpora
from flaxformer_mt.data.prepare.meter import Meter
from flaxformer_mt.data.vocabulary import Vocabularies

_AT_A_TIME = 1 << 14

Record = tuple[bytes, ...]


def train_vocabulary(
    config: DataConfig, seed: int, meter: Meter
) -> tuple[Vocabularies, int, list[int]]:
    """The vocabulary, on how many pairs it was trained, and how many records each corpus has.

    Raises:
      PrepareError: there is no sound pair.
      CorpusError, VocabularyError: see there.
    """
    sources = [
        corpora.open_source(corpus, config.folder, key)
        for split, key, corpus in named_corpora(config)
        if split == "train"
    ]
    counts = [0] * len(sources)
    size = config.vocabulary.sample
    extents = [text_bytes(source) for source in sources]
    # In bytes if that is known of all of them.
    total = None if None in extents else sum(filter(None, extents))
    unit = "pairs" if total is None else "bytes"
    with meter.stage("reading for the vocabulary", total, unit=unit):
        drawn = sample(_records(sources, counts, meter, unit == "bytes"), size, seed)
    # Records are checked once they are drawn: to check every one of a large corpus takes minutes.
    drops = Drops()
    pairs = _sound(sources, drawn, drops)
    if not pairs:
        pairs = _sound(sources, sample(_sound_records(config, "train"), size, seed), drops)
    without = f", leaving out {drops.describe()}" if drops.total else ""
    meter.say(f"prepare: training the vocabulary on {len(pairs):,} pairs{without}")
    vocabularies = vocabulary.train_pair(pairs, config.vocabulary)
    meter.say(f"prepare: the vocabulary has {sizes(vocabularies)}")
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


def _records(
    sources: Sequence[Source], counts: list[int], meter: Meter, in_bytes: bool
) -> Iterator[tuple[int, Record]]:
    """Every corpus's records with the corpus's number; `counts` follows."""
    for number, source in enumerate(sources):
        records = source.records()
        while chunk := list(itertools.islice(records, _AT_A_TIME)):
            counts[number] += len(chunk)
            meter.advance(record_bytes(chunk) if in_bytes else len(chunk))
            for columns in chunk:
                yield number, columns


def require_validation(config: DataConfig) -> None:
    """Reads what will be validated on: to find after hours that it cannot be would be late.

    Raises:
      PrepareError: there is no sound pair.
      CorpusError: see there.
    """
    for _ in _sound_records(config, "valid"):
        pass


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
