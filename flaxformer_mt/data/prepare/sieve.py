"""Applies the filters to a sample, so that no vocabulary is learned from pairs that they drop."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool

from flaxformer_mt.config.schema import DataConfig, VocabularyConfig
from flaxformer_mt.data.corpus import CorpusRecord, Drops, PairSource, checked
from flaxformer_mt.data.prepare import filters
from flaxformer_mt.data.prepare.encode import CHUNK, Chunk, Range, sides, sift
from flaxformer_mt.data.prepare.evaluation_text import EvaluationText
from flaxformer_mt.data.vocabulary import Vocabularies

Drawn = tuple[PairSource, CorpusRecord]  # from one of the corpora
Kept = tuple[PairSource, tuple[bytes, bytes]]  # one that the filters keep
# Pairs that filters drop by their tokens matter from this share of the text on.
_MATTERS = 0.01


class Sieve:
    """The filters that `encode_chunk` and `encode_corpora` apply, but for those by tokens.

    No text has fewer tokens than words, so pairs with too many words are dropped as too long.
    """

    def __init__(self, config: DataConfig, evaluation: EvaluationText | None = None) -> None:
        self._filter = config.filter
        self._evaluation = evaluation
        self._seen = filters.Seen()
        self._seen_near = filters.SeenNear()
        self.drops = Drops()

    def kept(self, drawn: Sequence[Drawn]) -> list[Kept]:
        """The records that are left, in the same order; the first of duplicates by corpora."""
        mask = np.zeros(len(drawn), bool)
        places_by_source: dict[int, list[int]] = {}
        for place, (source, _) in enumerate(drawn):
            places_by_source.setdefault(id(source), []).append(place)
        for source_places in places_by_source.values():
            source, _ = drawn[source_places[0]]
            for first in range(0, len(source_places), CHUNK):
                places = np.array(source_places[first : first + CHUNK])
                records = [drawn[place][1] for place in places]
                # Lines have lost their numbers: these say only how many were dropped.
                mask[places] = self._mask(Chunk("train", source, 0, records))
        return [(source, checked(record)) for source, record in itertools.compress(drawn, mask)]

    def kept_of(self, sources: Iterable[PairSource]) -> Iterator[Kept]:
        """All records of corpora that are left, streaming. Raises CorpusError."""
        for source in sources:
            for chunk in Range("train", source).chunks():
                for record in itertools.compress(chunk.records, self._mask(chunk)):
                    yield source, checked(record)

    def _mask(self, chunk: Chunk) -> Bool[np.ndarray, " records"]:
        """Which of the chunk's records are left."""
        sifted = sift(chunk, self._filter, self._evaluation)
        if self._filter.duplicates:
            new = self._seen.add(filters.hashes(zip(*sides(chunk, sifted), strict=True)))
            detail = "the same pair came before"
            sifted = sifted.without(sifted.kept()[~new], filters.DUPLICATE, detail)
        if threshold := self._filter.near_duplicates:
            pairs = zip(*sides(chunk, sifted), strict=True)
            new = self._seen_near.add(filters.band_hashes(pairs, threshold))
            detail = "a similar pair came before"
            sifted = sifted.without(sifted.kept()[~new], filters.NEAR_DUPLICATE, detail)

        most_words = self._filter.max_length - 1  # the end mark is a token too
        pairs = zip(*sides(chunk, sifted), strict=True)
        too_long = [max(_words(src), _words(tgt)) > most_words for src, tgt in pairs]
        detail = f"more than {most_words} words"
        too_long_places = sifted.kept()[np.array(too_long, bool)]
        sifted = sifted.without(too_long_places, filters.TOO_LONG, detail)
        self.drops.merge(sifted.drops)
        return sifted.mask


def _words(text: bytes) -> int:
    return len([word for word in text.split(b" ") if word])


def without_uneven(
    pools: list[list[Kept]],
    vocabularies: Vocabularies,
    config: DataConfig,
    train: Callable[[list[list[Kept]]], Vocabularies],
) -> tuple[list[list[Kept]], Vocabularies]:
    """The pools without pairs that filters drop by their tokens, and the vocabulary of these pools.

    Only a vocabulary tells which these are, so it was learned from them. `train` learns it again if
    they are more than `_MATTERS` of the text or have characters that no other pair has, unless the
    new vocabulary would keep one of them: an unknown long word is one token.
    """
    masks = [_fits(pool, vocabularies, config) for pool in pools]
    pools_and_masks = [*zip(pools, masks, strict=True)]
    left = [[*itertools.compress(pool, mask)] for pool, mask in pools_and_masks]
    dropped = [[*itertools.compress(pool, ~mask)] for pool, mask in pools_and_masks]
    if not any(dropped) or not any(left):
        return pools, vocabularies
    are_many = _size(dropped) > _MATTERS * (_size(left) + _size(dropped))
    if not are_many and _characters(dropped) <= _characters(left):
        return pools, vocabularies
    again = train(left)
    if any(_fits(pool, again, config).any() for pool in dropped):
        return pools, vocabularies
    return left, again


def _fits(
    pool: Sequence[Kept], vocabularies: Vocabularies, config: DataConfig
) -> Bool[np.ndarray, " records"]:
    """Which pairs the filters by tokens keep, but for a tag's tokens.

    A pair that is too long only with its tag is learned from, and dropped when it is encoded: the
    tag is of no text, and the model's length holds for what is stored.
    """
    masks = [np.ones(0, bool)]
    for first in range(0, len(pool), CHUNK):
        pairs = [record for _, record in pool[first : first + CHUNK]]
        _, src = vocabularies.src.encode_flat([src for src, _ in pairs])
        _, tgt = vocabularies.tgt.encode_flat([tgt for _, tgt in pairs])
        shorter, longer = np.minimum(src, tgt), np.maximum(src, tgt)
        with np.errstate(over="ignore"):
            even = longer <= (config.filter.max_ratio or np.inf) * shorter
        masks.append(even & (longer <= config.filter.max_length))
    return np.concatenate(masks)


def _characters(pools: Iterable[Iterable[Kept]]) -> set[str]:
    characters = set[str]()
    for _, (src, tgt) in itertools.chain.from_iterable(pools):
        characters.update(src.decode(), tgt.decode())
    return characters


def _size(pools: Iterable[Iterable[Kept]]) -> int:
    pairs = itertools.chain.from_iterable(pools)
    return sum(len(src) + len(tgt) for _, (src, tgt) in pairs)


def mix(pools: Sequence[Sequence[Kept]], shares: Sequence[float], size: int) -> list[Kept]:
    """Records of the pools by their shares, at most about `size`; one that lacks some repeats.

    None is cut that would fit, since its rare characters would be lost.
    """
    if len(pools) == 1:
        return [*pools[0]]
    # With so many, no pool's record is left out.
    complete = max(len(pool) / share for pool, share in zip(pools, shares, strict=True))
    total = min(size, complete)
    mixed = list[Kept]()
    for pool, share in zip(pools, shares, strict=True):
        number = max(1, round(share * total))
        mixed += itertools.islice(itertools.cycle(pool), number)
    return mixed


def resized(vocabularies: Vocabularies, config: VocabularyConfig) -> Iterator[str]:
    """A line if a vocabulary has another size than was chosen for the number of pairs."""
    if not config.soft_size:
        return
    named = [("", vocabularies.src)]
    if not vocabularies.shared:
        named = [("source's ", vocabularies.src), ("target's ", vocabularies.tgt)]
    for name, side in named:
        has_own_size = config.tgt_types == "words" or config.tgt_size > 0
        if name.startswith("target") and has_own_size:
            continue
        chosen = f"data.vocabulary.size: {config.size:,} types were chosen for the number of pairs"
        if side.size < config.size:
            yield f"{chosen}, but the {name}text yields {side.size:,}: that many are used"
        elif side.size > config.size:
            yield f"{chosen}, but the {name}characters need more: {side.size:,} are used"
