"""Learns the vocabulary from a sample drawn evenly over the training corpora."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from flaxformer_mt.config.schema import CorpusConfig, DataConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.corpus import (
    CorpusError,
    CorpusRecord,
    Drops,
    NoText,
    PairSource,
    checked,
    open_split,
    paths,
)
from flaxformer_mt.data.corpus.encodings import likely_encoding
from flaxformer_mt.data.corpus.pairs import HELD_OUT, INVALID_UTF8, TRAINED_ON
from flaxformer_mt.data.corpus.text_files import damage, open_text
from flaxformer_mt.data.prepare.encode import record_bytes
from flaxformer_mt.data.prepare.evaluation_text import EvaluationText
from flaxformer_mt.data.prepare.filters import script_of
from flaxformer_mt.data.prepare.manifest import PrepareError, Say, named_corpora
from flaxformer_mt.data.prepare.sieve import Kept, Sieve, mix, resized, without_uneven
from flaxformer_mt.data.prepare.spread import Spread
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.files.reading import AnyPath
from flaxformer_mt.progress import Meter

ENOUGH = 1_000_000  # pairs of a corpus that are read to check and measure it: seconds
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
    _check("valid", config, most=1 if config.valid_fraction else None)
    _check("train", config, most=ENOUGH)


def _check(split: str, config: DataConfig, most: int | None) -> None:
    """Raises as `check_inputs`, for one split."""
    pairs, drops = 0, Drops()
    opened = open_split(config, split, without_fetched=True)
    for key, _, source in opened:
        if source.size is not None:
            pairs += source.size
            continue
        corpus_drops = Drops()
        number = sum(1 for _ in itertools.islice(sound_records(source, corpus_drops), most))
        require_decodable(key, [source], number + corpus_drops.total, corpus_drops)
        pairs += number
        drops.merge(corpus_drops)
    if opened and not pairs:
        raise nothing_left(split, [drops])


def train_vocabulary(
    config: DataConfig,
    seed: int,
    say: Say,
    *,
    evaluation: EvaluationText | None = None,
    spread: Spread | None = None,
    bar: bool = False,
) -> tuple[Vocabularies, int, list[int]]:
    """The vocabulary, the number of its training pairs, and how many records each corpus has.

    It is learned from pairs that the filters keep, mixed as training mixes the corpora, if it does.
    """
    opened = open_split(config, "train")
    sources = [source for _, _, source in opened]
    by_corpus = _by_corpus(opened)
    weights = [corpus.weight for corpus in config.train]
    if config.mix_temperature:
        counted = [_size(of_corpus, spread, say, bar=bar) for of_corpus in by_corpus]
        weights = mixing_weights(counted, config)
    shares, groups = [1.0], [sources]
    if all(weights):
        shares, groups = [weight / sum(weights) for weight in weights], by_corpus

    task = "prepare: reading text for the vocabulary"
    share_read = share_of(text_bytes(*sources))
    with Meter(task, say, unit="pairs", share=share_read, terminal=bar) as meter:
        sample_sizes = [math.ceil(share * config.vocabulary.sample) for share in shares]
        drawn, counts = _draw(groups, sample_sizes, seed, meter, spread)

    # Checked after drawing: checking a large corpus takes minutes.
    sieve = Sieve(config, evaluation)
    pools = [sieve.kept(pool) for pool in drawn]
    left_out = f", leaving out {sieve.drops.describe()}" if sieve.drops.total else ""
    if not any(pools):
        shares, pools = [1.0], [_sieved_sample(sources, Sieve(config, evaluation), config, seed)]
    say(f"prepare: training the vocabulary on {sum(map(len, pools)):,} pairs{left_out}")
    vocabularies, pairs = _train(pools, shares, config, say)
    return vocabularies, pairs, counts


def mixing_weights(pairs: Sequence[int], config: DataConfig) -> list[float]:
    """The weights that `data.mix_temperature` gives corpora of so many pairs: n^(1/T), by which
    small ones are drawn more often than their size says (Arivazhagan et al., 2019)."""
    return [max(1, number) ** (1 / config.mix_temperature) for number in pairs]


def _by_corpus(opened: Sequence[tuple[str, CorpusConfig, PairSource]]) -> list[list[PairSource]]:
    """The sources of each corpus."""
    by_corpus: dict[str, list[PairSource]] = {}
    for key, _, source in opened:
        by_corpus.setdefault(key, []).append(source)
    return [*by_corpus.values()]


def _size(sources: Sequence[PairSource], spread: Spread | None, say: Say, *, bar: bool) -> int:
    """How many records the sources of a corpus have, for which they may have to be read. Raises
    CorpusError."""
    return sum(_size_of(source, spread, say, bar=bar) for source in sources)


def _size_of(source: PairSource, spread: Spread | None, say: Say, *, bar: bool) -> int:
    size = spread.size(source) if spread else None
    if size is None:
        size = source.size
    if size is not None:
        return size

    count = 0
    records = source.records()
    task = f"prepare: counting the pairs of {source.label}"
    with Meter(task, say, unit="pairs", share=share_of(text_bytes(source)), terminal=bar) as meter:
        while chunk := list(itertools.islice(records, _AT_A_TIME)):
            count += len(chunk)
            meter.advance(lines=len(chunk), size=record_bytes(chunk))
    return count


def _sieved_sample(
    sources: Sequence[PairSource], sieve: Sieve, config: DataConfig, seed: int
) -> list[Kept]:
    """A sample of all pairs that the filters keep. Raises PrepareError if there are none."""
    drawn = sample(sieve.kept_of(sources), config.vocabulary.sample, seed)
    if not drawn:
        raise nothing_left("train", [sieve.drops])
    return drawn


def _train(
    pools: list[list[Kept]], shares: Sequence[float], config: DataConfig, say: Say
) -> tuple[Vocabularies, int]:
    """The vocabulary of the pools, without pairs that its tokens drop, and the number of pairs."""
    train = functools.partial(_trained, shares=shares, config=config)
    even_pools, vocabularies = without_uneven(pools, train(pools), config, train)
    pairs = sum(map(len, even_pools))
    if dropped := sum(map(len, pools)) - pairs:
        say(f"prepare: trained it again, without {dropped:,} pairs that filters drop by length")
    for line in resized(vocabularies, config.vocabulary):
        say(f"prepare: {line}")
    say(f"prepare: the vocabulary has {sizes(vocabularies)}")
    return vocabularies, pairs


def _draw(
    groups: Sequence[Sequence[PairSource]],
    sample_sizes: Sequence[int],
    seed: int,
    meter: Meter,
    spread: Spread | None,
) -> tuple[list[list[Any]], list[int]]:
    """A sample of each group of corpora, and how many records each corpus has."""
    counts: Counter[int] = Counter()  # by the sources' ids
    drawn: list[list[Any]] = []
    for group, size in zip(groups, sample_sizes, strict=True):
        drawn.append(sample(_records(group, counts, meter, spread), size, seed))
    if spread:
        for records, group in zip(drawn, groups, strict=True):
            _read(records, group, spread)
    return drawn, [counts[id(source)] for group in groups for source in group]


def _trained(
    pools: Sequence[Sequence[Kept]], shares: Sequence[float], config: DataConfig
) -> Vocabularies:
    mixed = mix(pools, shares, config.vocabulary.sample)
    pairs = [(source.tagged(src).decode(), tgt.decode()) for source, (src, tgt) in mixed]
    tags = [tag for _, _, corpus in named_corpora(config) for tag in corpus.tags]
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
    """The error for a split of which filters leave no pair; `drops` are its corpora's."""
    total = Drops(sum((Counter(of_corpus.counts) for of_corpus in drops), Counter()))
    if not total.total:
        return PrepareError(f"data.{split}: the corpus is empty")
    pairs = f"{total.total:,} pairs"
    if total.counts.keys() == {TRAINED_ON}:
        return PrepareError(
            f"data.valid_fraction holds out none of the {pairs}: raise it, or set data.valid to "
            "text of its own"
        )
    if total.counts.keys() == {HELD_OUT}:
        return PrepareError(
            f"data.valid_fraction holds out all {pairs}: lower it; pairs with the same source "
            "stay together"
        )
    first = next(example for of_corpus in drops for example in of_corpus.examples)
    return PrepareError(
        f"data.{split}: all {pairs} were dropped: {total.describe()}; the first: {first}"
    )


def require_decodable(key: str, sources: Sequence[PairSource], read: int, drops: Drops) -> None:
    """Raises PrepareError if more than a fifth of a corpus's lines isn't UTF-8 text.

    Such text has another encoding, and its other lines are those without accents.
    """
    number = drops.counts.get(INVALID_UTF8, 0)
    if number <= MOST_UNDECODABLE * read:
        return
    first = next(example for example in drops.examples if example.reason == INVALID_UTF8)
    source = next(
        one for one in sources if first.file in (one.label, *map(str, one.files.values()))
    )
    src_lang, tgt_lang = source.languages
    language = src_lang if first.file == source.file_of("src") else tgt_lang
    encoding = likely_encoding(_undecodable(source), script_of(language) or "")
    raise PrepareError(
        f"{key}: {number:,} of {read:,} lines aren't UTF-8, first {first.file}:{first.line} "
        f"({first.detail}): it {f'looks like {encoding}' if encoding else 'has another encoding'}; "
        f"convert the file: iconv -f {encoding or 'ENCODING'} -t UTF-8 {first.file} > NEW"
    )


def _undecodable(source: PairSource) -> list[bytes]:
    """The first texts that aren't UTF-8."""
    undecodable = list[bytes]()
    for record in source.records():
        for text in () if isinstance(record, NoText) else record:
            try:
                text.decode()
            except UnicodeDecodeError:
                undecodable.append(text)
        if len(undecodable) >= _LOOKED_AT:
            break
    return undecodable


def text_bytes(*sources: PairSource) -> int | None:
    """Bytes of the corpora's lines for progress, estimated if compressed; None if unknown."""
    # Other files hold more than is read, or other bytes.
    if not all(source.is_bare_text for source in sources):
        return None
    by_file = [_text_bytes(path) for source in sources for path in source.files.values()]
    return None if None in by_file else sum(size or 0 for size in by_file)


def share_of(total: int | None) -> Callable[[int], float | None]:
    """The share of a total, if it is known, that a size is, for a `Meter`."""
    return lambda size: size / total if total else None


def _text_bytes(path: AnyPath) -> int | None:
    """A file's bytes without compression, estimated by its head."""
    size, _ = paths.stamp(path)
    try:
        with paths.reaching(path), open_text(path) as (text, file):
            head = len(text.read(_HEAD))
            packed_head = file.tell()
    except Exception as error:
        if isinstance(error, CorpusError) or damage(path, error, after=0):
            return size  # whoever reads it reports the error
        raise
    if text is file:
        return size
    if packed_head == size and head == _HEAD:
        return None  # the buffer has read all of the file, which may hold any number of bytes
    return size * head // max(1, packed_head)


def _records(
    sources: Sequence[PairSource], counts: Counter[int], meter: Meter, spread: Spread | None
) -> Iterator[tuple[PairSource, CorpusRecord | int]]:
    """Records with their corpus, counted in `counts`; of seekable ones the numbers alone."""
    for source in sources:
        size = spread.size(source) if spread else None
        if size is not None:
            counts[id(source)] = size
            yield from zip(itertools.repeat(source), range(size))
            continue
        records = source.records()
        while chunk := list(itertools.islice(records, _AT_A_TIME)):
            counts[id(source)] += len(chunk)
            meter.advance(lines=len(chunk), size=record_bytes(chunk))
            yield from zip(itertools.repeat(source), chunk)


def _read(drawn: list[Any], sources: Sequence[PairSource], spread: Spread) -> None:
    """Puts the records in place of the numbers that were drawn of seekable corpora."""
    for source in sources:
        places = [
            place
            for place, (drawn_source, record) in enumerate(drawn)
            if drawn_source is source and isinstance(record, int)
        ]
        places.sort(key=lambda place: drawn[place][1])
        records = spread.records(source, [drawn[place][1] for place in places])
        for place, record in zip(places, records, strict=True):
            drawn[place] = source, record


def sound_records(source: PairSource, drops: Drops) -> Iterator[tuple[bytes, bytes]]:
    for line, record in enumerate(source.records(), 1):
        if defect := source.check(record, line):
            drops.add(defect)
        else:
            yield checked(record)
