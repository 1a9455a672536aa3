"""Subword regularisation: other cuts each epoch, the same text, and nothing left to chance."""

import collections
import itertools
import math
import multiprocessing
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from flaxformer_mt.config.schema import BatchConfig, VocabularyConfig
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.data.vocabulary import EOS, UNK, Type, Vocabularies, train_pair
from flaxformer_mt.grammar.text import pairs as grammar
from tests.data.pairs import in_memory, listed

TEXT = list(grammar("train", 120, 1))
EVERYTHING = list(range(len(TEXT)))
Shares = dict[tuple[int, ...], float]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def vocabularies(request):
    return train_pair(TEXT, VocabularyConfig(size=300, kind=request.param))


def stored(vocabularies: Vocabularies) -> TokenPairs:
    src, tgt = zip(*TEXT, strict=True)
    return in_memory(vocabularies.src.encode(src), vocabularies.tgt.encode(tgt))


def drawn(vocabularies, indices, epoch, limits=(200, 200), strength=0.2):
    resampler = Resampler(vocabularies, strength, seed=4)
    pairs = resampler.draw(stored(vocabularies), np.array(indices), epoch, limits)
    return listed(pairs, "src")


def test_the_text_is_the_same_and_the_cuts_differ_between_epochs(vocabularies):
    first, second = (drawn(vocabularies, EVERYTHING, epoch) for epoch in (0, 1))
    for cut in (first, second):
        assert all(ids[-1] == EOS for ids in cut)
        texts = vocabularies.src.decode([ids[:-1] for ids in cut])
        assert texts == [src for src, _ in TEXT]
    differing = sum(ids != other_ids for ids, other_ids in zip(first, second, strict=True))
    assert differing / len(TEXT) > 0.8


def test_without_dropout_bpe_joins_as_sentencepiece_does(vocabularies):
    if vocabularies.src.is_bpe:
        cut = drawn(vocabularies, EVERYTHING, 0, strength=0.0)
        assert cut == listed(stored(vocabularies), "src")


def test_a_cut_depends_on_seed_epoch_and_pair_alone(vocabularies):
    cuts = drawn(vocabularies, list(range(20)), 3)
    assert drawn(vocabularies, [7, 2, 19], 3) == [cuts[7], cuts[2], cuts[19]]
    # In another process as well.
    if vocabularies.src.is_bpe:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(drawn, (vocabularies, list(range(9)), 3)) == cuts[:9]


def bpe_dropout(pieces: list[str], ids: dict[str, int], scores: list[float], p: float) -> Shares:
    """Every cut that algorithm 1 of Provilkov et al. leads to, with its probability."""
    joins = [n for n, pair in enumerate(itertools.pairwise(pieces)) if "".join(pair) in ids]
    joins.sort(key=lambda n: -scores[ids[pieces[n] + pieces[n + 1]]])
    shares: Shares = collections.Counter({tuple(ids[piece] for piece in pieces): p ** len(joins)})
    for left_out, n in enumerate(joins):
        joined = [*pieces[:n], pieces[n] + pieces[n + 1], *pieces[n + 2 :]]
        for cut, share in bpe_dropout(joined, ids, scores, p).items():
            shares[cut] += p**left_out * (1 - p) * share
    return shares


def unigram(text: str, ids: dict[str, int], scores: list[float], alpha: float) -> Shares:
    """Every cut, with the product of its pieces' probabilities to the power of alpha."""
    if not text:
        return collections.Counter({(): 1.0})
    return collections.Counter(
        {
            (ids[text[:end]], *tail): math.exp(alpha * scores[ids[text[:end]]]) * weight
            for end in range(1, len(text) + 1)
            if text[:end] in ids
            for tail, weight in unigram(text[end:], ids, scores, alpha).items()
        }
    )


def word_cuts(pairs: TokenPairs, types: Sequence[Type]) -> Iterator[tuple[int, ...]]:
    """The source tokens of each word."""
    for row in listed(pairs, "src"):
        tokens = row[:-1]
        starts = [n for n, token in enumerate(tokens) if types[token].text.startswith("\u2581")]
        for start, stop in itertools.pairwise([*starts, len(tokens)]):
            yield tuple(tokens[start:stop])


@pytest.mark.parametrize("strength", [0.1, 0.5])
def test_within_a_run_cuts_come_as_often_as_their_probabilities_say(vocabularies, strength):
    """Four words at 30,000 places each of three epochs, against all their cuts."""
    vocabulary, epochs = vocabularies.src, 3
    types = vocabulary.types()
    sentence = vocabulary.encode(["the man does not"])[0] * 300
    pairs = in_memory([sentence] * 100, [[]] * 100)
    resampler = Resampler(vocabularies, strength, seed=0)
    counts: collections.Counter[tuple[int, ...]] = collections.Counter()
    for epoch in range(epochs):
        cut = resampler.draw(pairs, np.arange(100), epoch, (10_000, 10_000))
        counts.update(word_cuts(cut, types))

    ids = {kind.text: number for number, kind in enumerate(types) if kind.plain}
    scores = [kind.score for kind in types]
    probabilities = bpe_dropout if vocabulary.is_bpe else unigram
    draws = 3_000  # of which all others are copies
    for word in ("\u2581the", "\u2581man", "\u2581does", "\u2581not"):
        text = list(word) if vocabulary.is_bpe else word
        weights = probabilities(text, ids, scores, strength)
        assert sum(counts[cut] for cut in weights) == epochs * 30_000
        for cut, weight in weights.items():
            share = weight / sum(weights.values())
            error = abs(counts[cut] / (epochs * 30_000) - share)
            assert error < 4.5 * math.sqrt(share * (1 - share) / draws) + 2 / draws


def test_what_would_be_too_long_or_is_unknown_stays_as_it_is(vocabularies):
    pairs = stored(vocabularies)
    limit = int(pairs.lengths[0][5])
    for epoch in range(5):
        cut, uncut = drawn(vocabularies, [5, 6], epoch, (limit, 200))
        assert len(cut) <= limit
        assert len(uncut) <= limit or uncut == listed(pairs, "src")[6]
    unknown = in_memory([[UNK, UNK]], [[5]])
    drawn_pairs = Resampler(vocabularies, 0.9, seed=4).draw(unknown, np.array([0]), 0, (200, 200))
    assert listed(drawn_pairs, "src") == [[UNK, UNK, EOS]]


def test_plans_are_made_of_the_cuts(vocabularies):
    pairs, resampler = stored(vocabularies), Resampler(vocabularies, 0.2, seed=4)
    window = Planner(pairs, BatchConfig(tokens=2000), 1, resampler=resampler).window(0, 0)
    limits = int(pairs.lengths[0].max()), int(pairs.lengths[1].max())
    assert sorted(window.plan.pairs.tolist()) == EVERYTHING
    assert listed(window.pairs, "src")[3] == drawn(vocabularies, [3], 0, limits)[0]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_no_cut_splits_a_symbol(kind):
    symbols = ("<x1/>", "doorhouse")  # letters that have pieces
    config = VocabularyConfig(size=300, kind=kind, symbols=symbols)
    vocabularies = train_pair(TEXT, config)
    src = vocabularies.src
    sentence = f"the baker {symbols[0]} sees the house{symbols[1]} ."
    rows = src.encode([sentence] * 20)
    resampler = Resampler(vocabularies, 0.5, seed=4)
    pairs = resampler.draw(in_memory(rows, rows), np.arange(20), 0, (200, 200))
    numbers = [src.pieces().index(symbol) for symbol in symbols]
    for side in ("src", "tgt"):
        cuts = listed(pairs, side)
        assert src.decode([ids[:-1] for ids in cuts]) == [sentence] * 20
        assert all([id for id in ids if id in numbers] == numbers for ids in cuts)
        assert len({*map(tuple, cuts)}) >= 3
