"""Subword regularisation: words are split into pieces afresh each epoch.

BPE-dropout (Provilkov et al. 2020, algorithm 1) or unigram sampling (Kudo 2018), on the stored ids,
word by word. What a pair becomes is a pure function of (seed, epoch, pair) on every machine, which
SentencePiece's own sampling is not: its generator differs from process to process.

Many words are cut at once: arrays have a row for each character of the longest word and a column
for each word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import numpy as np
from jaxtyping import Float64, Int64, Integer, UInt64

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.order import hashed, mixed
from flaxformer_mt.data.store import Sentences, TokenPairs, Tokens, runs
from flaxformer_mt.data.vocabulary import BLANK, EOS, Vocabularies, Vocabulary

# In an epoch, at most this many cuts of a word are drawn, and its places choose among them. Drawing
# at each place of a frequent word would take half as long again.
_CUTS = 1 << 10
# Characters of the words that are cut at once: their arrays should fit into a core's cache.
_AT_A_TIME = 1 << 15
_NOTHING = 1 << 32  # above every piece

_Grid = Int64[np.ndarray, "characters words"]
_Keys = UInt64[np.ndarray, " words"]
_Counts = Int64[np.ndarray, " words"]


def resampler_for(config: DataConfig, vocabularies: Vocabularies, seed: int) -> Resampler | None:
    """The resampler that a config asks for, if any."""
    strength = config.vocabulary.sampling
    tags = {corpus.tag for corpus in config.train}
    return Resampler(vocabularies, strength, seed, tags) if strength else None


class Resampler:
    """Draws segmentations of stored pairs."""

    def __init__(
        self,
        vocabularies: Vocabularies,
        strength: float,
        seed: int,
        tags: Collection[str] = (),
    ) -> None:
        """`strength` is BPE-dropout's p or unigram's alpha, in (0, 1); source `tags` stay whole."""
        self._seed = seed
        src = _Cutter(vocabularies.src, strength, tags)
        tgt = src if vocabularies.shared else _Cutter(vocabularies.tgt, strength)
        self._cutters = {"src": src, "tgt": tgt}

    def draw(
        self,
        pairs: TokenPairs,
        indices: Integer[np.ndarray, " pairs"],
        epoch: int,
        limits: tuple[int, int],
    ) -> TokenPairs:
        """The pairs at `indices`, in memory, each split afresh.

        Sentences that would exceed their side's limit, end mark included, and words with unknown
        characters or bytes stay as stored.
        """
        src, tgt = (
            self._side(cutter, pairs.sides[side], indices, (epoch, number), limits[number])
            for number, (side, cutter) in enumerate(self._cutters.items())
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
        sizes = np.diff(starts, append=len(flat))
        words_before = np.searchsorted(starts, np.concatenate([[0], ends]))
        counts = np.diff(words_before)
        number = np.arange(len(starts)) - np.repeat(words_before[:-1], counts)
        sequence = np.random.SeedSequence((self._seed, *place), spawn_key=(2,))
        keys = np.random.Philox(sequence).random_raw(3)
        of_pair = hashed(indices.astype(np.uint64) ^ keys[0]) << np.uint64(32)
        bits = hashed((np.repeat(of_pair, counts) + number.astype(np.uint64)) ^ keys[1])
        # A word's 64 bits. Two words of a window share theirs with a probability below 10^-9.
        within = np.arange(len(flat)) - np.repeat(starts, sizes)
        of_token = mixed(flat.astype(np.uint64) << np.uint64(32) | within.astype(np.uint64))
        words = np.add.reduceat(of_token, starts) ^ keys[2]
        draws, draw_of = np.unique(mixed(words + bits % np.uint64(_CUTS)), return_inverse=True)
        example = np.empty(len(draws), np.int64)
        example[draw_of] = np.arange(len(starts))
        tokens, firsts, sizes = cutter.cut(
            flat[runs(starts[example], sizes[example])], sizes[example], words[example], draws
        )
        drawn = tokens[runs(firsts[draw_of], sizes[draw_of])]
        cut = Tokens(drawn, _offsets(sizes[draw_of])[words_before])
        too_long = np.diff(cut.offsets) > limit
        if not too_long.any():
            return cut
        both = Sentences([cut, Tokens(flat, _offsets(lengths))])
        chosen = np.arange(len(cut)) + len(cut) * too_long
        return Tokens(both.gather(chosen), _offsets(both.lengths(chosen)))


class _Cutter:
    """Cuts a vocabulary's words. Pieces are numbered by their scores, the best is 0."""

    def __init__(self, vocabulary: Vocabulary, strength: float, tags: Collection[str] = ()) -> None:
        types = [
            kind._replace(plain=kind.plain and kind.text not in tags) for kind in vocabulary.types()
        ]
        plain = [number for number, kind in enumerate(types) if kind.plain]
        plain.sort(key=lambda number: -types[number].score)
        self._types = np.array(plain, np.int32)
        pieces = {types[number].text: piece for piece, number in enumerate(plain)}
        spelled = [
            [pieces.get(character, -1) for character in kind.text] if kind.plain else [-1]
            for kind in types
        ]
        # Each type's characters, as pieces; -1 where one is none.
        self._characters = Tokens(
            np.array([piece for spelling in spelled for piece in spelling], np.int32),
            _offsets(np.array([*map(len, spelled)])),
        )
        self.begins_word = np.array([kind.text.startswith(BLANK) for kind in types])
        self.begins_word[EOS] = True
        scores = np.array([types[number].score for number in plain])
        self._drawn: Callable[[_Grid, _Keys], _Grid] = (
            _Dropout(pieces, strength) if vocabulary.is_bpe else _Lattice(pieces, strength * scores)
        )

    def cut(
        self, stored: Integer[np.ndarray, " tokens"], sizes: _Counts, words: _Keys, keys: _Keys
    ) -> tuple[Integer[np.ndarray, " tokens_and_drawn"], _Counts, _Counts]:
        """A cut of each word, drawn by its key: tokens, where each word's begin, how many.

        `stored` has the words' tokens end to end; `words` identifies them.
        """
        firsts = _offsets(sizes)[:-1]
        characters = self._characters.gather(stored)
        bounds = _offsets(np.add.reduceat(self._characters.lengths(stored), firsts))
        lengths = np.diff(bounds)
        order = np.flatnonzero(np.minimum.reduceat(characters, bounds[:-1]) >= 0)
        # Words of equal length together, and draws of the same word beside each other.
        by = lengths[order].astype(np.uint64) << np.uint64(48) | words[order] >> np.uint64(16)
        order = order[np.argsort(by)]
        pool, filled = [stored], len(stored)
        firsts, sizes = firsts.copy(), sizes.copy()
        none = len(self._types)
        chunk = np.cumsum(lengths[order]) // _AT_A_TIME
        for here in np.split(order, np.flatnonzero(np.diff(chunk)) + 1):
            if not len(here):
                continue
            row = np.arange(lengths[here].max())[:, None]
            grid = characters.take(bounds[here] + row, mode="clip").astype(np.int64)
            grid[row >= lengths[here]] = none
            pieces = self._drawn(grid, keys[here]).T
            kept = pieces != none
            pool.append(self._types[pieces[kept]])
            sizes[here] = kept.sum(axis=1)
            firsts[here] = filled + _offsets(sizes[here])[:-1]
            filled += len(pool[-1])
        return np.concatenate(pool), firsts, sizes


class _Dropout:
    """BPE from single characters; each time, each possible join is left out with p."""

    def __init__(self, pieces: Mapping[str, int], p: float) -> None:
        self._p, self._none = p, len(pieces)
        self._joins = _Table(
            {
                (pieces[text[:cut]], pieces[text[cut:]]): piece
                for text, piece in pieces.items()
                for cut in range(1, len(text))
                if text[:cut] in pieces and text[cut:] in pieces
            },
            len(pieces) + 1,
        )
        self._lengths = np.array([*map(len, pieces)])

    def __call__(self, characters: _Grid, keys: _Keys) -> _Grid:
        """A piece stands in the row of its first character."""
        none, words = self._none, len(keys)
        border = np.full((1, words), none)
        grid = np.concatenate([border, characters, border])
        rows = len(grid)
        shift = rows.bit_length()
        # The join of a piece and the next, and its row: the least is the best, leftmost among
        # equals.
        impossible = _NOTHING << shift
        joins = np.full((rows - 1, words), impossible)
        joins[1:-1] = self._joins.get(characters[:-1], characters[1:]) << shift
        joins[1:-1] |= np.arange(1, rows - 2)[:, None]
        # Flat from here on: an index is row * words + column.
        before = np.repeat(np.arange(-1, rows - 1), words)
        pieces, candidates = grid.ravel(), joins.ravel()
        # Of the joins from the best on, n and more are left out with p ** n.
        chances = np.floor(self._p ** np.arange(rows, 0, -1) * 2**32)
        for turn in range(rows):
            best = joins.min(axis=0)
            columns = np.flatnonzero(best < impossible)
            if not len(columns):
                break
            best = best[columns]
            chance = hashed(keys[columns] ^ np.uint64(turn)).astype(np.float64)
            left_out = np.flatnonzero(chance < chances[-1])
            if len(left_out):
                several = columns[left_out]
                ranked = np.sort(joins[:, several], axis=0)
                nth = rows - np.searchsorted(chances, chance[left_out], "right")
                best[left_out] = found = ranked[
                    np.minimum(nth, len(ranked) - 1), np.arange(len(several))
                ]
                joins[:, several[found >= impossible]] = impossible
                columns, best = columns[best < impossible], best[best < impossible]
            joined, row = best >> shift, best & ((1 << shift) - 1)
            at = row * words + columns
            middle = (row + self._lengths[pieces[at]]) * words + columns
            pieces[middle], candidates[middle] = none, impossible
            pieces[at] = joined
            after = (row + self._lengths[joined]) * words + columns
            candidates[at] = self._joins.get(joined, pieces[after]) << shift | row
            before[after] = row
            row = before[at]
            at = row * words + columns
            candidates[at] = self._joins.get(pieces[at], joined) << shift | row
        return grid


class _Lattice:
    """Draws a cut with probability proportional to that of its pieces, to the power of alpha."""

    def __init__(self, pieces: Mapping[str, int], weights: Float64[np.ndarray, " pieces"]) -> None:
        """`weights` are the pieces' logarithms, times alpha."""
        none = len(pieces)
        nodes, steps = [none], dict[tuple[int, int], int]()
        for text, piece in pieces.items():
            if not all(character in pieces for character in text):
                continue
            here = 0
            for character in text:
                step = here, pieces[character]
                if step not in steps:
                    steps[step] = len(nodes)
                    nodes.append(none)
                here = steps[step]
            nodes[here] = piece
        self._steps = _Table(steps, none + 1)
        self._pieces = np.array([*nodes, none])
        self._weights = np.append(weights, -math.inf)[self._pieces]
        self._longest = max(map(len, pieces), default=0)

    def __call__(self, characters: _Grid, keys: _Keys) -> _Grid:
        """Forward sums over all cuts of each beginning of a word; then drawn from the end."""
        rows = len(characters)
        new = (characters[:, 1:] != characters[:, :-1]).any(axis=0)
        words = characters[:, np.flatnonzero(np.append(True, new))]
        word_of = np.append(0, np.cumsum(new))
        # Where the tree of all pieces leads from each character on.
        nodes = np.full((min(self._longest, rows), *words.shape), len(self._pieces) - 1)
        here = np.zeros_like(words)
        for step in range(len(nodes)):
            here = self._steps.get(here[: rows - step], words[step:])
            here = np.minimum(here, len(self._pieces) - 1)
            nodes[step, : rows - step] = here
        weights = self._weights[nodes]
        forward = np.zeros((rows + 1, words.shape[1]))  # logarithms
        for end in range(1, rows + 1):
            steps = np.arange(min(len(nodes), end))
            starts = end - 1 - steps
            forward[end] = np.logaddexp.reduce(forward[starts] + weights[steps, starts], axis=0)
        none = self._pieces[-1]
        drawn = np.full_like(characters, none)
        ends = (characters != none).sum(axis=0)
        columns = np.arange(len(keys))
        steps = np.arange(len(nodes))[:, None]
        for turn in range(rows):
            starts = ends - 1 - steps
            of = word_of[columns]
            logs = forward[starts, of] + weights[steps, starts, of] - forward[ends, of]
            shares = np.cumsum(np.exp(np.where(starts < 0, -math.inf, logs)), axis=0)
            chance = hashed(keys[columns] ^ np.uint64(turn)) / 2**32 * shares[-1]
            step = (shares <= chance).sum(axis=0)
            ends = ends - 1 - step
            drawn[ends, columns] = self._pieces[nodes[step, ends, of]]
            ends, columns = ends[ends > 0], columns[ends > 0]
            if not len(ends):
                break
        return drawn


class _Table:
    """Looks up many pairs of numbers at a time."""

    def __init__(self, values: Mapping[tuple[int, int], int], seconds: int) -> None:
        """The second number of a pair is always below `seconds`."""
        self._seconds = seconds
        keys = np.array([first * seconds + second for first, second in values], np.int64)
        order = np.argsort(keys)
        self._keys = np.append(keys[order], np.iinfo(np.int64).max)
        self._values = np.append(np.array([*values.values()], np.int64)[order], _NOTHING)

    def get(
        self, first: Integer[np.ndarray, "*items"], second: Integer[np.ndarray, "*items"]
    ) -> Int64[np.ndarray, "*items"]:
        """The value of each pair, `_NOTHING` for one without."""
        keys = first * self._seconds + second
        places = np.searchsorted(self._keys, keys)
        return np.where(self._keys[places] == keys, self._values[places], _NOTHING)


def _offsets(lengths: Int64[np.ndarray, " items"]) -> Int64[np.ndarray, " items_and_one"]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
