"""Learns the vocabulary from a sample drawn evenly over the training corpora."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.corpus import CorpusError, Drops, Source, open_split, paths
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.text_files import damage, open_text, tab_separated
from flaxformer_mt.data.prepare.encode import record_bytes
from flaxformer_mt.data.prepare.manifest import PrepareError, Report, named_corpora
from flaxformer_mt.data.prepare.spread import Spread
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.progress import Meter

ENOUGH = 1_000_000  # pairs of a corpus that `count_pairs` reads at most: seconds
_AT_A_TIME = 1 << 14
_HEAD = 1 << 22

Record = tuple[Source, tuple[bytes, ...]]
T = TypeVar("T")


def check_inputs(config: DataConfig) -> None:
    """Reads the validation text and the beginning of training text, for early errors.

    Raises PrepareError if there is nothing to train or validate on; CorpusError for files that are
    missing, can't be read, or whose sides differ in length.
    """
    if not config.train:
        raise PrepareError("data.train has no corpus: set data.train=SRC,TGT")
    _count("valid", config, most=1 if config.valid_fraction else None)
    count_pairs(config)


def count_pairs(config: DataConfig) -> int:
    """How many pairs there are to train on, before filters, without sets of TFDS or the hub."""
    return _count("train", config, most=ENOUGH)


def _count(split: str, config: DataConfig, most: int | None) -> int:
    pairs, drops = 0, Drops()
    opened = open_split(config, split, fetch=False)
    for _, corpus, source in opened:
        if corpus.kind == "synthetic":
            pairs += corpus.size
        else:
            pairs += sum(1 for _ in itertools.islice(_sound_records([source], drops), most))
    if opened and not pairs:
        raise nothing_left(split, [drops])
    return pairs


def train_vocabulary(
    config: DataConfig,
    seed: int,
    report: Report,
    *,
    spread: Spread | None = None,
    bar: bool = False,
) -> tuple[Vocabularies, int, list[int]]:
    """The vocabulary, the number of its training pairs, and how many records each corpus has."""
    sources = [source for _, _, source in open_split(config, "train")]
    counts = [0] * len(sources)
    size = config.vocabulary.sample
    total = text_bytes(*sources)
    what = "prepare: reading text for the vocabulary"
    with Meter(what, report, unit="pairs", share=share_of(total), terminal=bar) as meter:
        drawn: list[Any] = sample(_records(sources, counts, meter, spread), size, seed)
    if spread:
        _read(drawn, sources, spread)
    # Checked after drawing: checking a large corpus takes minutes.
    drops, sound = Drops(), list[Record]()
    for source, columns in drawn:
        if defect := source.check(columns):
            drops.add(defect)
        else:
            sound.append((source, columns))
    if not sound:
        of_all = Drops()
        sound = sample(_sound_records(sources, of_all), size, seed)
        if not sound:
            raise nothing_left("train", [of_all])
    pairs = [(src.decode("utf-8"), tgt.decode("utf-8")) for _, (src, tgt) in sound]
    without = f", without {drops.describe()}" if drops.total else ""
    report(f"prepare: training the vocabulary on {len(pairs):,} pairs{without}")
    tags = [corpus.tag for _, _, corpus in named_corpora(config) if corpus.tag]
    vocabularies = vocabulary.train_pair(pairs, config.vocabulary, tags=tuple(dict.fromkeys(tags)))
    report(f"prepare: the vocabulary has {sizes(vocabularies)}")
    return vocabularies, len(pairs), counts


def sample(records: Iterator[T], size: int, seed: int) -> list[T]:
    """At most `size` records, each with the same chance (Vitter 1985's reservoir, algorithm R)."""
    # NumPy keeps raw bits the same in every version.
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


def nothing_left(split: str, drops: Sequence[Drops]) -> PrepareError:
    whole = Drops(sum((Counter(one.counts) for one in drops), Counter()))
    if not whole.total:
        return PrepareError(f"data.{split}: the corpus is empty")
    first = next(example for one in drops for example in one.examples)
    dropped = f"all {whole.total:,} pairs were dropped: {whole.describe()}"
    return PrepareError(f"data.{split}: {dropped}; the first: {first}")


def text_bytes(*sources: Source) -> int | None:
    """Bytes of the corpora's lines for progress, estimated if compressed; None if unknown."""
    # Files of other kinds hold more than is read, or other bytes.
    if not all(source.files and source.texts in (tuple, tab_separated) for source in sources):
        return None
    found = [_text_bytes(path) for source in sources for path in source.files.values()]
    return None if None in found else sum(size or 0 for size in found)


def share_of(total: int | None) -> Callable[[int], float | None]:
    return lambda size: size / total if total else None


def _text_bytes(path: AnyPath) -> int | None:
    size, _ = paths.stamp(path)
    try:
        with paths.reaching(path), open_text(path) as (text, file):
            given, read = len(text.read(_HEAD)), file.tell()
    except Exception as error:
        if isinstance(error, CorpusError) or damage(path, error, after=0):
            return size  # whoever reads it reports the error
        raise
    if text is file:
        return size
    return None if read == size and given == _HEAD else size * given // max(1, read)


def _records(
    sources: Sequence[Source], counts: list[int], meter: Meter, spread: Spread | None
) -> Iterator[tuple[Source, tuple[bytes, ...] | int]]:
    for number, source in enumerate(sources):
        if spread and (known := spread.size(source)) is not None:
            counts[number] = known
            yield from zip(itertools.repeat(source), range(known))
            continue
        records = source.records()
        while chunk := list(itertools.islice(records, _AT_A_TIME)):
            counts[number] += len(chunk)
            meter.advance(lines=len(chunk), size=record_bytes(chunk))
            yield from zip(itertools.repeat(source), chunk)


def _read(drawn: list[Any], sources: Sequence[Source], spread: Spread) -> None:
    for source in sources:
        places = [
            place
            for place, (of, what) in enumerate(drawn)
            if of is source and isinstance(what, int)
        ]
        places.sort(key=lambda place: drawn[place][1])
        records = spread.records(source, [drawn[place][1] for place in places])
        for place, record in zip(places, records, strict=True):
            drawn[place] = source, record


def _sound_records(sources: Sequence[Source], drops: Drops) -> Iterator[Record]:
    for source in sources:
        for line, columns in enumerate(source.records(), 1):
            if defect := source.check(columns, line):
                drops.add(defect)
            else:
                yield source, columns
