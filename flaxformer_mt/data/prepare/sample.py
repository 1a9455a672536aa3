"""Learns the vocabulary from a sample drawn evenly over the training corpora."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.corpus import CorpusError, Drops, PairSource, open_split, paths
from flaxformer_mt.data.corpus.encodings import likely_encoding
from flaxformer_mt.data.corpus.pairs import HELD_OUT, INVALID_UTF8, TRAINED_ON
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.data.corpus.text_files import damage, open_text, tab_separated
from flaxformer_mt.data.prepare.encode import record_bytes
from flaxformer_mt.data.prepare.filters import script_of
from flaxformer_mt.data.prepare.manifest import PrepareError, Report, named_corpora
from flaxformer_mt.data.prepare.sieve import Record, Sieve, mix, resized, without_uneven
from flaxformer_mt.data.prepare.spread import Spread
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.progress import Meter

ENOUGH = 1_000_000  # pairs of a corpus that `count_pairs` reads at most: seconds
_AT_A_TIME = 1 << 14
_HEAD = 1 << 22
MOST_UNDECODABLE = 0.2  # of a corpus's lines
_LOOKED_AT = 100  # lines whose encoding is guessed

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
    for key, corpus, source in opened:
        if corpus.kind == "synthetic":
            pairs += corpus.size
            continue
        of_corpus = Drops()
        number = sum(1 for _ in itertools.islice(_sound_records(source, of_corpus), most))
        require_decodable(key, source, number + of_corpus.total, of_corpus, config)
        pairs += number
        drops.merge(of_corpus)
    if opened and not pairs:
        raise nothing_left(split, [drops])
    return pairs


def train_vocabulary(
    config: DataConfig,
    seed: int,
    report: Report,
    *,
    scripts: tuple[str, str] = ("", ""),
    spread: Spread | None = None,
    bar: bool = False,
) -> tuple[Vocabularies, int, list[int]]:
    """The vocabulary, the number of its training pairs, and how many records each corpus has.

    It is learned from what the filters keep, and where corpora have weights, by these. `scripts`
    are those of the languages, for the filter that looks at them.
    """
    opened = open_split(config, "train")
    sources = [source for _, _, source in opened]
    weights = [corpus.weight for _, corpus, _ in opened]
    shares, groups = [1.0], [sources]
    if all(weights):
        shares = [weight / sum(weights) for weight in weights]
        groups = [[source] for source in sources]
    size = config.vocabulary.sample
    what = "prepare: reading text for the vocabulary"
    share_read = share_of(text_bytes(*sources))
    with Meter(what, report, unit="pairs", share=share_read, terminal=bar) as meter:
        sample_sizes = [math.ceil(share * size) for share in shares]
        drawn, counts = _draw(groups, sample_sizes, seed, meter, spread)
    # Checked after drawing: checking a large corpus takes minutes.
    sieve = Sieve(config, scripts)
    pools = [sieve.kept(pool) for pool in drawn]
    without = f", leaving out {sieve.drops.describe()}" if sieve.drops.total else ""
    if not any(pools):
        sieve = Sieve(config, scripts)
        shares, pools = [1.0], [sample(sieve.kept_of(sources), size, seed)]
        if not pools[0]:
            raise nothing_left("train", [sieve.drops])

    number = sum(map(len, pools))
    report(f"prepare: training the vocabulary on {number:,} pairs{without}")
    train = functools.partial(_trained, shares=shares, config=config)
    left, vocabularies = without_uneven(pools, train(pools), config, train)
    if dropped := number - sum(map(len, left)):
        report(f"prepare: trained it again, without {dropped:,} pairs that filters drop by length")
    for line in resized(vocabularies, config.vocabulary):
        report(f"prepare: {line}")
    report(f"prepare: the vocabulary has {sizes(vocabularies)}")
    return vocabularies, sum(map(len, left)), counts


def _draw(
    groups: Sequence[Sequence[PairSource]],
    sample_sizes: Sequence[int],
    seed: int,
    meter: Meter,
    spread: Spread | None,
) -> tuple[list[list[Any]], list[int]]:
    """A sample of each group of corpora, and how many records each corpus has."""
    sources = [source for group in groups for source in group]
    places = {id(source): number for number, source in enumerate(sources)}
    counts = [0] * len(sources)
    drawn: list[list[Any]] = []
    for group, size in zip(groups, sample_sizes, strict=True):
        drawn.append(sample(_records(group, places, counts, meter, spread), size, seed))
    if spread:
        for records, group in zip(drawn, groups, strict=True):
            _read(records, group, spread)
    return drawn, counts


def _trained(
    pools: Sequence[Sequence[Record]], shares: Sequence[float], config: DataConfig
) -> Vocabularies:
    mixed = mix(pools, shares, config.vocabulary.sample)
    pairs = [(source.tagged(src).decode(), tgt.decode()) for source, (src, tgt) in mixed]
    tags = [corpus.tag for _, _, corpus in named_corpora(config) if corpus.tag]
    return vocabulary.train_pair(pairs, config.vocabulary, tags=tuple(dict.fromkeys(tags)))


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
    pairs = f"{whole.total:,} pairs"
    if whole.counts.keys() == {TRAINED_ON}:
        return PrepareError(
            f"data.valid_fraction holds out none of the {pairs}: raise it, or set data.valid to "
            "text of its own"
        )
    if whole.counts.keys() == {HELD_OUT}:
        return PrepareError(
            f"data.valid_fraction holds out all {pairs}: lower it; pairs with the same source "
            "stay together"
        )
    first = next(example for one in drops for example in one.examples)
    dropped = f"all {pairs} were dropped: {whole.describe()}"
    return PrepareError(f"data.{split}: {dropped}; the first: {first}")


def require_decodable(
    key: str, source: PairSource, read: int, drops: Drops, config: DataConfig
) -> None:
    """Raises PrepareError if more than a fifth of a corpus's lines isn't UTF-8 text.

    Such text has another encoding, and what is left of it lacks every line with an accent.
    """
    number = drops.counts.get(INVALID_UTF8, 0)
    if number <= MOST_UNDECODABLE * read:
        return
    first = next(example for example in drops.examples if example.reason == INVALID_UTF8)
    language = config.src_lang if first.file == source.file_of("src") else config.tgt_lang
    encoding = likely_encoding(_undecodable(source), script_of(language) or "")
    looks = f"it looks like {encoding}" if encoding else "it has another encoding"
    raise PrepareError(
        f"{key}: {number:,} of {read:,} lines aren't UTF-8, first {first.file}:{first.line} "
        f"({first.detail}): {looks}; convert the file: "
        f"iconv -f {encoding or 'ENCODING'} -t UTF-8 {first.file} > NEW"
    )


def _undecodable(source: PairSource) -> list[bytes]:
    """The first texts that aren't UTF-8."""
    found = list[bytes]()
    for columns in source.records():
        for text in columns if len(columns) == 2 else ():
            try:
                text.decode()
            except UnicodeDecodeError:
                found.append(text)
        if len(found) >= _LOOKED_AT:
            break
    return found


def text_bytes(*sources: PairSource) -> int | None:
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
    sources: Sequence[PairSource],
    places: Mapping[int, int],
    counts: list[int],
    meter: Meter,
    spread: Spread | None,
) -> Iterator[tuple[PairSource, tuple[bytes, ...] | int]]:
    for source in sources:
        number = places[id(source)]
        if spread and (known := spread.size(source)) is not None:
            counts[number] = known
            yield from zip(itertools.repeat(source), range(known))
            continue
        records = source.records()
        while chunk := list(itertools.islice(records, _AT_A_TIME)):
            counts[number] += len(chunk)
            meter.advance(lines=len(chunk), size=record_bytes(chunk))
            yield from zip(itertools.repeat(source), chunk)


def _read(drawn: list[Any], sources: Sequence[PairSource], spread: Spread) -> None:
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


def _sound_records(source: PairSource, drops: Drops) -> Iterator[tuple[bytes, ...]]:
    for line, columns in enumerate(source.records(), 1):
        if defect := source.check(columns, line):
            drops.add(defect)
        else:
            yield columns
