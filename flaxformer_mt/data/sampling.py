"""Subword regularisation: words are cut into pieces anew each epoch.

BPE-dropout (Provilkov et al. 2020, algorithm 1) or unigram sampling (Kudo 2018), on the stored ids,
word by word. What a pair becomes is a pure function of (seed, epoch, pair) on every machine, which
SentencePiece's own sampling is not: its generator differs from process to process.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, Integer

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data.order import hashed
from flaxformer_mt.data.store import Sentences, TokenPairs, Tokens
from flaxformer_mt.data.vocabulary import EOS, Type, Vocabularies, Vocabulary

# An occurrence of a word takes one of these many cuts, each drawn once: a frequent word shows
# nearly all the variety there is, and drawing costs a look-up.
_CUTS = 64
_REMEMBERED = 1 << 20
_BLANK = "\u2581"


def resampler_for(config: DataConfig, vocabularies: Vocabularies, seed: int) -> Resampler | None:
    """The one that a config asks for, if any."""
    strength = config.vocabulary.sampling
    return Resampler(vocabularies, strength, seed) if strength else None


class Resampler:
    """Draws segmentations of stored pairs. Not safe for several threads."""

    def __init__(self, vocabularies: Vocabularies, strength: float, seed: int) -> None:
        """`strength` is BPE-dropout's p or the unigram model's alpha, in (0, 1)."""
        self._seed = seed
        src = _Cutter(vocabularies.src, strength, seed)
        tgt = src if vocabularies.shared else _Cutter(vocabularies.tgt, strength, seed)
        self._cutters = {"src": src, "tgt": tgt}

    def draw(
        self,
        pairs: TokenPairs,
        indices: Integer[np.ndarray, " pairs"],
        epoch: int,
        limits: tuple[int, int],
    ) -> TokenPairs:
        """The pairs at `indices`, in memory, each cut anew.

        A sentence that came out longer than its side's limit, end mark included, and a word with
        an unknown character or bytes stay as they are stored.
        """
        src, tgt = (
            self._side(self._cutters[side], pairs.sides[side], indices, (epoch, number), limit)
            for number, (side, limit) in enumerate(zip(("src", "tgt"), limits, strict=True))
        )
        return TokenPairs([src], [tgt])

    def _side(
        self,
        cutter: _Cutter,
        stored: Sentences,
        indices: Integer[np.ndarray, " pairs"],
        place: tuple[int, int],
        limit: int,
    ) -> Tokens:
        flat, lengths = stored.gather(indices), stored.lengths(indices).astype(np.int64)
        ends = np.cumsum(lengths)
        begins_word = cutter.begins_word[flat]
        begins_word[ends - lengths] = True
        starts = np.flatnonzero(begins_word)
        words_before = np.searchsorted(starts, np.concatenate([[0], ends]))
        counts = np.diff(words_before)
        number = np.arange(len(starts)) - np.repeat(words_before[:-1], counts)
        sequence = np.random.SeedSequence((self._seed, *place), spawn_key=(2,))
        key = np.random.Philox(sequence).random_raw(2)
        of_pair = hashed(indices.astype(np.uint64) ^ key[0]) << np.uint64(32)
        bits = hashed((np.repeat(of_pair, counts) + number.astype(np.uint64)) ^ key[1])
        raw = flat.astype(np.int32).tobytes()
        bounds = (np.append(starts, len(flat)) * 4).tolist()
        cuts = [
            cutter.cut(raw[begin:end], which)
            for begin, end, which in zip(
                bounds[:-1], bounds[1:], (bits % np.uint64(_CUTS)).tolist(), strict=True
            )
        ]
        drawn = np.frombuffer(b"".join(cuts), np.int32)
        word_ends = np.cumsum([0, *map(len, cuts)]) // 4
        new_lengths = np.diff(word_ends[words_before])
        return _unless_longer(
            Tokens(drawn, _offsets(new_lengths)), Tokens(flat, _offsets(lengths)), limit
        )


class _Cutter:
    """The cuts of a vocabulary's words."""

    def __init__(self, vocabulary: Vocabulary, strength: float, seed: int) -> None:
        types = vocabulary.types()
        self._types = types
        self._ids = {kind.text: number for number, kind in enumerate(types) if kind.plain}
        self._bpe, self._strength, self._seed = vocabulary.is_bpe, strength, seed
        self._longest = max((len(text) for text in self._ids), default=0)
        self.begins_word = np.array([kind.text.startswith(_BLANK) for kind in types])
        self.begins_word[EOS] = True
        self._known: dict[tuple[bytes, int], bytes] = {}

    def cut(self, word: bytes, which: int) -> bytes:
        """Cut number `which` of a word, int32 ids as bytes in and out."""
        found = self._known.get((word, which))
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[word, which] = self._draw(word, which)
        return found

    def _draw(self, word: bytes, which: int) -> bytes:
        kinds: list[Type] = [self._types[number] for number in np.frombuffer(word, np.int32)]
        if not all(kind.plain for kind in kinds):
            return word
        text = "".join(kind.text for kind in kinds)
        if not all(character in self._ids for character in text):
            return word
        digest = hashlib.blake2b(f"{self._seed} {which} {text}".encode(), digest_size=8).digest()
        chance = random.Random(int.from_bytes(digest, "little"))
        pieces = self._dropout(text, chance) if self._bpe else self._lattice(text, chance)
        return np.array([self._ids[piece] for piece in pieces], np.int32).tobytes()

    def _dropout(self, text: str, chance: random.Random) -> list[str]:
        """BPE from single characters; each time, each possible join is left out with p."""
        pieces = list(text)
        while True:
            best, at = -math.inf, -1
            for number in range(len(pieces) - 1):
                joined = self._ids.get(pieces[number] + pieces[number + 1])
                if joined is None or chance.random() < self._strength:
                    continue
                if self._types[joined].score > best:
                    best, at = self._types[joined].score, number
            if at < 0:
                return pieces
            pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]

    def _lattice(self, text: str, chance: random.Random) -> list[str]:
        """A cut with probability proportional to that of its pieces, to the power of alpha.

        Forward sums over all cuts of each beginning of the word, then drawn from the end.
        """
        forward = [0.0] + [-math.inf] * len(text)  # logarithms
        for end in range(1, len(text) + 1):
            terms = [weight for _, weight in self._last_pieces(text, end, forward)]
            largest = max(terms)
            forward[end] = largest + math.log(sum(math.exp(term - largest) for term in terms))
        pieces: list[str] = []
        end = len(text)
        while end:
            options = self._last_pieces(text, end, forward)
            shares = itertools.accumulate(math.exp(weight - forward[end]) for _, weight in options)
            start, _ = options[bisect.bisect(list(shares)[:-1], chance.random())]
            pieces.append(text[start:end])
            end = start
        return pieces[::-1]

    def _last_pieces(
        self, text: str, end: int, forward: Sequence[float]
    ) -> list[tuple[int, float]]:
        """Where the piece that ends at `end` may begin, and the weight of all cuts with it."""
        return [
            (start, forward[start] + self._strength * self._types[number].score)
            for start in range(max(0, end - self._longest), end)
            if (number := self._ids.get(text[start:end])) is not None
        ]


def _offsets(lengths: Int64[np.ndarray, " items"]) -> Int64[np.ndarray, " items_and_one"]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _unless_longer(drawn: Tokens, stored: Tokens, limit: int) -> Tokens:
    """The drawn sentences, but the stored ones in place of those above the limit."""
    too_long = np.flatnonzero(np.diff(drawn.offsets) > limit)
    if not len(too_long):
        return drawn
    sentences = np.split(drawn.flat, drawn.offsets[1:-1])
    for number in too_long:
        sentences[number] = stored[int(number)]
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    return Tokens(np.concatenate(sentences), _offsets(lengths))
