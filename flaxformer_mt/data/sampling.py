"""Subword regularisation: words are split into pieces afresh each epoch.

BPE-dropout (Provilkov et al. 2020, algorithm 1) or unigram sampling (Kudo 2018), on the stored ids,
word by word. A pair's segmentation is a pure function of (seed, epoch, pair) on every machine.
SentencePiece's own sampling isn't: its generator differs from process to process.

Many words are cut at once: arrays have a row for each character of the longest word and a column
for each word.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Integer, UInt64

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.order import hashed
from flaxformer_mt.data.store import StoredSentences, TokenPairs, Tokens, runs
from flaxformer_mt.data.vocabulary import BLANK, EOS, Type, Vocabularies, Vocabulary
from flaxformer_mt.mixing import MURMUR_64

# In an epoch, at most this many cuts of a word are drawn, and its places choose among them. Drawing
# at each place of a frequent word would take half as long again.
_CUTS = 1 << 10
# Characters of the words that are cut at once: their arrays should fit into a core's cache.
_AT_A_TIME = 1 << 15
_NOTHING = 1 << 32  # above every piece

_Grid = Int64[np.ndarray, "characters words"]
_Keys = UInt64[np.ndarray, " words"]
_Counts = Int64[np.ndarray, " words"]
_Columns = Int64[np.ndarray, " columns"]
_Nodes = Int64[np.ndarray, "reaches characters words"]


def resampler_for(config: DataConfig, vocabularies: Vocabularies, seed: int) -> Resampler | None:
    """The resampler that a config asks for, if any."""
    strength = config.vocabulary.sampling
    tags = config.tags
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
        sentences: StoredSentences,
        indices: Integer[np.ndarray, " pairs"],
        stream: tuple[int, int],
        limit: int,
    ) -> Tokens:
        """One side's sentences; `stream` is the epoch and the side's number."""
        lengths = sentences.lengths(indices).astype(np.int64)
        weights = sentences.weights(indices)
        stored = Tokens(sentences.gather(indices), _offsets(lengths), weights)
        words = _Words.of(stored, cutter.begins_word)

        sequence = np.random.SeedSequence((self._seed, *stream), spawn_key=(2,))
        pair_key, place_key, word_key = np.random.Philox(sequence).random_raw(3)
        identities = words.identities(word_key)
        choices = words.place_bits(indices, pair_key, place_key) % np.uint64(_CUTS)

        # A draw is one of the cuts of a word; all places that chose it share it.
        keys, draw_of_word = np.unique(MURMUR_64.mixed(identities + choices), return_inverse=True)
        example = np.empty(len(keys), np.int64)  # one of the words that share the draw
        example[draw_of_word] = np.arange(len(words.starts))
        sizes = words.sizes[example]
        tokens = words.tokens[runs(words.starts[example], sizes)]
        cuts = cutter.cut(tokens, sizes, identities[example], keys)

        flat, sizes = cuts.gather(draw_of_word)
        drawn = Tokens(flat, _offsets(sizes)[words.bounds], weights)
        return _within(limit, drawn, stored)


def _within(limit: int, drawn: Tokens, stored: Tokens) -> Tokens:
    """The drawn sentences, and in place of those longer than `limit` the stored ones."""
    too_long = np.diff(drawn.offsets) > limit
    if not too_long.any():
        return drawn
    both = StoredSentences([drawn, stored])
    chosen = np.arange(len(drawn)) + len(drawn) * too_long
    return Tokens(both.gather(chosen), _offsets(both.lengths(chosen)), stored.weights)


@dataclasses.dataclass(frozen=True)
class _Words:
    """The words of sentences: runs of tokens of which the first begins with a blank."""

    tokens: Int32[np.ndarray, " tokens"]  # of all sentences, end to end
    starts: Int64[np.ndarray, " words"]  # of each word the first token
    sizes: _Counts  # in tokens
    bounds: Int64[np.ndarray, " sentences_and_one"]  # of each sentence the first word

    @classmethod
    def of(cls, sentences: Tokens, begins_word: Bool[np.ndarray, " types"]) -> _Words:
        """`begins_word` says for each type whether a word begins with it."""
        tokens = sentences.flat
        begins = begins_word[tokens]
        begins[sentences.offsets[:-1]] = True
        starts = np.flatnonzero(begins)
        sizes = np.diff(starts, append=len(tokens))
        return cls(tokens, starts, sizes, np.searchsorted(starts, sentences.offsets))

    def identities(self, key: np.uint64) -> _Keys:
        """64 bits of each word, which depend on its tokens alone.

        Two words of a window share theirs with a probability below 10^-9.
        """
        within = np.arange(len(self.tokens)) - np.repeat(self.starts, self.sizes)
        token_bits = MURMUR_64.mixed(
            self.tokens.astype(np.uint64) << np.uint64(32) | within.astype(np.uint64)
        )
        return np.add.reduceat(token_bits, self.starts) ^ key

    def place_bits(
        self, indices: Integer[np.ndarray, " sentences"], pair_key: np.uint64, place_key: np.uint64
    ) -> _Keys:
        """Random bits of each word's place: the pair, by its index, and the word's number in it."""
        counts = np.diff(self.bounds)
        number = np.arange(len(self.starts)) - np.repeat(self.bounds[:-1], counts)
        pair_bits = hashed(indices.astype(np.uint64) ^ pair_key) << np.uint64(32)
        return hashed((np.repeat(pair_bits, counts) + number.astype(np.uint64)) ^ place_key)


class _Cuts(NamedTuple):
    """The tokens of cut words, of which word i has `sizes[i]` from `firsts[i]` on."""

    tokens: Int32[np.ndarray, " tokens"]
    firsts: _Counts
    sizes: _Counts

    def gather(
        self, words: Int64[np.ndarray, " places"]
    ) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " places"]]:
        """The tokens of these words, end to end, and how many each has."""
        sizes = self.sizes[words]
        return self.tokens[runs(self.firsts[words], sizes)], sizes


class _Cutter:
    """Cuts a vocabulary's words. Pieces are numbered by their scores, the best is 0."""

    def __init__(self, vocabulary: Vocabulary, strength: float, tags: Collection[str] = ()) -> None:
        types = vocabulary.types()
        whole = vocabulary.symbols | frozenset(tags)
        plain = [
            number for number, type_ in enumerate(types) if type_.plain and type_.text not in whole
        ]
        plain.sort(key=lambda number: -types[number].score)
        pieces = {types[number].text: piece for piece, number in enumerate(plain)}
        self._types = np.array(plain, np.int32)  # of each piece
        self._characters = _spelled(types, frozenset(plain), pieces)
        self.begins_word = np.array([type_.text.startswith(BLANK) for type_ in types])
        self.begins_word[EOS] = True

        self._draw: Callable[[_Grid, _Keys], _Grid]
        if vocabulary.is_bpe:
            self._draw = _Dropout(pieces, strength)
        else:
            scores = np.array([types[number].score for number in plain])
            self._draw = _Lattice(pieces, strength * scores)

    def cut(
        self, stored: Integer[np.ndarray, " tokens"], sizes: _Counts, words: _Keys, keys: _Keys
    ) -> _Cuts:
        """A cut of each word, drawn by its key; words with unknown characters stay as stored.

        `stored` has the words' tokens end to end, `sizes` of them each; `words` identifies words.
        """
        firsts = _offsets(sizes)[:-1]
        characters = self._characters.gather(stored)
        bounds = _offsets(np.add.reduceat(self._characters.lengths(stored), firsts))
        lengths = np.diff(bounds)  # of words, in characters
        known = np.flatnonzero(np.minimum.reduceat(characters, bounds[:-1]) >= 0)

        pool = [stored]
        pool_size = len(stored)
        firsts, sizes = firsts.copy(), sizes.copy()
        no_piece = len(self._types)
        for chunk in _chunks(known, lengths, words):
            row = np.arange(lengths[chunk].max())[:, None]
            grid = characters.take(bounds[chunk] + row, mode="clip").astype(np.int64)
            grid[row >= lengths[chunk]] = no_piece  # [characters, words]
            pieces = self._draw(grid, keys[chunk]).T  # [words, characters]
            is_piece = pieces != no_piece
            pool.append(self._types[pieces[is_piece]])
            sizes[chunk] = is_piece.sum(axis=1)
            firsts[chunk] = pool_size + _offsets(sizes[chunk])[:-1]
            pool_size += len(pool[-1])
        return _Cuts(np.concatenate(pool), firsts, sizes)


def _spelled(types: Sequence[Type], plain: Container[int], pieces: Mapping[str, int]) -> Tokens:
    """The characters of each type, as pieces; -1 for characters and types without a piece."""
    spellings = [
        [pieces.get(character, -1) for character in type_.text] if number in plain else [-1]
        for number, type_ in enumerate(types)
    ]
    flat = np.array([piece for spelling in spellings for piece in spelling], np.int32)
    return Tokens(flat, _offsets(np.array([*map(len, spellings)])))


def _chunks(
    chosen: Int64[np.ndarray, " chosen"], lengths: _Counts, words: _Keys
) -> Iterator[Int64[np.ndarray, " chunk"]]:
    """The chosen words in chunks of about `_AT_A_TIME` characters.

    Words of equal length are together, and draws of the same word beside each other.
    """
    sort_keys = lengths[chosen].astype(np.uint64) << np.uint64(48) | words[chosen] >> np.uint64(16)
    order = chosen[np.argsort(sort_keys)]
    chunk_of_word = np.cumsum(lengths[order]) // _AT_A_TIME
    for chunk in np.split(order, np.flatnonzero(np.diff(chunk_of_word)) + 1):
        if len(chunk):
            yield chunk


class _Dropout:
    """BPE from single characters; each time, each possible join is left out with p."""

    def __init__(self, pieces: Mapping[str, int], p: float) -> None:
        self._p = p
        self._no_piece = len(pieces)
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
        """A piece is in the row of its first character."""
        joining = _Joining(self._joins, self._lengths, characters, self._no_piece)
        rows = len(joining.grid)
        # The best n joins of a word are left out with a chance of p ** n, here by descending n.
        chances = np.floor(self._p ** np.arange(rows, 0, -1) * 2**32)

        for turn in range(rows):
            columns, joins = joining.best()
            if not len(columns):
                break
            drawn = hashed(keys[columns] ^ np.uint64(turn)).astype(np.float64)
            affected = np.flatnonzero(drawn < chances[-1])
            if len(affected):
                left_out = rows - np.searchsorted(chances, drawn[affected], "right")
                columns, joins = joining.leave_out(columns, joins, affected, left_out)
            joining.join(columns, joins)
        return joining.grid


class _Joining:
    """Words while their pieces are joined.

    A piece is in the row of its first character; the other rows of its characters are empty. The
    same row has its join with the next piece. A join is a number, the joined piece above the
    row's bits: a word's least join is that of the best piece, leftmost among equals.
    """

    def __init__(
        self,
        table: _Table,
        lengths: Int64[np.ndarray, " pieces"],
        characters: _Grid,
        no_piece: int,
    ) -> None:
        self._table = table
        self._lengths = lengths  # of pieces, in characters
        self._no_piece = no_piece
        self._words = characters.shape[1]
        border = np.full((1, self._words), no_piece)
        self.grid = np.concatenate([border, characters, border])  # [rows, words]

        rows = len(self.grid)
        self._shift = rows.bit_length()
        self._impossible = _NOTHING << self._shift
        self._joins = np.full((rows - 1, self._words), self._impossible)  # [rows - 1, words]
        self._joins[1:-1] = table.get(characters[:-1], characters[1:]) << self._shift
        self._joins[1:-1] |= np.arange(1, rows - 2)[:, None]

        # Flat: an index is row * words + column.
        self._flat_pieces = self.grid.ravel()
        self._flat_joins = self._joins.ravel()
        self._row_before = np.repeat(np.arange(-1, rows - 1), self._words)  # of the piece before

    def best(self) -> tuple[_Columns, _Columns]:
        """The words that have a possible join, by their columns, and the best join of each."""
        best = self._joins.min(axis=0)
        columns = np.flatnonzero(best < self._impossible)
        return columns, best[columns]

    def leave_out(
        self, columns: _Columns, joins: _Columns, affected: _Columns, counts: _Columns
    ) -> tuple[_Columns, _Columns]:
        """The words and their best joins; of the `affected` ones without the first `counts` joins.

        A word whose possible joins are all left out is finished.
        """
        affected_columns = columns[affected]
        ranked = np.sort(self._joins[:, affected_columns], axis=0)  # [rows - 1, affected]
        ranks = np.minimum(counts, len(ranked) - 1)
        next_best = ranked[ranks, np.arange(len(affected))]
        joins[affected] = next_best
        self._joins[:, affected_columns[next_best >= self._impossible]] = self._impossible
        possible = joins < self._impossible
        return columns[possible], joins[possible]

    def join(self, columns: _Columns, joins: _Columns) -> None:
        """Carries out a join of each of these words."""
        joined = joins >> self._shift
        row = joins & ((1 << self._shift) - 1)
        left = row * self._words + columns
        right = (row + self._lengths[self._flat_pieces[left]]) * self._words + columns
        self._flat_pieces[right] = self._no_piece
        self._flat_joins[right] = self._impossible
        self._flat_pieces[left] = joined

        # The new piece's joins with its neighbours.
        after = (row + self._lengths[joined]) * self._words + columns
        self._flat_joins[left] = self._join_of(joined, self._flat_pieces[after], row)
        self._row_before[after] = row
        row_before = self._row_before[left]
        before = row_before * self._words + columns
        self._flat_joins[before] = self._join_of(self._flat_pieces[before], joined, row_before)

    def _join_of(self, first: _Columns, second: _Columns, row: _Columns) -> _Columns:
        return self._table.get(first, second) << self._shift | row


class _Lattice:
    """Draws a cut with probability proportional to that of its pieces, to the power of alpha.

    Pieces are paths in a tree of characters. `nodes[reach, start]` is the node to which the
    characters from `start` through `start + reach` lead.
    """

    def __init__(self, pieces: Mapping[str, int], weights: Float64[np.ndarray, " pieces"]) -> None:
        """`weights` are the pieces' logarithms, times alpha."""
        no_piece = len(pieces)
        piece_of_node = [no_piece]
        steps = dict[tuple[int, int], int]()
        for text, piece in pieces.items():
            if not all(character in pieces for character in text):
                continue
            node = 0
            for character in text:
                step = node, pieces[character]
                if step not in steps:
                    steps[step] = len(piece_of_node)
                    piece_of_node.append(no_piece)
                node = steps[step]
            piece_of_node[node] = piece
        self._steps = _Table(steps, no_piece + 1)
        self._no_node = len(piece_of_node)
        self._pieces = np.array([*piece_of_node, no_piece])  # of each node, and of no node
        self._weights = np.append(weights, -math.inf)[self._pieces]
        self._longest = max(map(len, pieces), default=0)

    def __call__(self, characters: _Grid, keys: _Keys) -> _Grid:
        """A piece is in the row of its first character."""
        # Equal words are side by side and share their sums.
        is_new = (characters[:, 1:] != characters[:, :-1]).any(axis=0)
        words = characters[:, np.flatnonzero(np.append(True, is_new))]  # [characters, words]
        word_of_column = np.append(0, np.cumsum(is_new))
        nodes = self._nodes(words)
        forward = self._forward(nodes)

        no_piece = self._pieces[-1]
        drawn = np.full_like(characters, no_piece)
        ends = (characters != no_piece).sum(axis=0)
        columns = np.arange(len(keys))
        for turn in range(len(characters)):
            word = word_of_column[columns]
            chances = hashed(keys[columns] ^ np.uint64(turn)) / 2**32
            reach = self._last_reach(nodes, forward, word, ends, chances)
            starts = ends - 1 - reach
            drawn[starts, columns] = self._pieces[nodes[reach, starts, word]]
            ends, columns = starts[starts > 0], columns[starts > 0]
            if not len(ends):
                break
        return drawn

    def _nodes(self, words: _Grid) -> _Nodes:
        """Where the tree leads from each character on."""
        rows = len(words)
        nodes = np.full((min(self._longest, rows), *words.shape), self._no_node)
        node = np.zeros_like(words)  # the root
        for reach in range(len(nodes)):
            node = self._steps.get(node[: rows - reach], words[reach:])
            node = np.minimum(node, self._no_node)
            nodes[reach, : rows - reach] = node
        return nodes

    def _forward(self, nodes: _Nodes) -> Float64[np.ndarray, "characters_and_one words"]:
        """Logarithms of the sums over all cuts of each beginning of a word."""
        weights = self._weights[nodes]  # [reaches, characters, words]
        longest, rows, words = nodes.shape
        forward = np.zeros((rows + 1, words))
        for end in range(1, rows + 1):
            reaches = np.arange(min(longest, end))
            starts = end - 1 - reaches
            # [reaches, words]
            cuts = forward[starts] + weights[reaches, starts]
            forward[end] = np.logaddexp.reduce(cuts, axis=0)
        return forward

    def _last_reach(
        self,
        nodes: _Nodes,
        forward: Float64[np.ndarray, "characters_and_one words"],
        word: _Columns,
        ends: _Columns,
        chances: Float64[np.ndarray, " columns"],
    ) -> _Columns:
        """How far the last piece before `ends` reaches, drawn by `chances` in [0, 1)."""
        reaches = np.arange(len(nodes))[:, None]
        starts = ends - 1 - reaches  # [reaches, columns]
        weights = self._weights[nodes[reaches, starts, word]]
        logs = forward[starts, word] + weights - forward[ends, word]
        shares = np.cumsum(np.exp(np.where(starts < 0, -math.inf, logs)), axis=0)
        return (shares <= chances * shares[-1]).sum(axis=0)


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
