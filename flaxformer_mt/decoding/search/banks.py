"""Phrases that an output must have: beam search by dynamic beam allocation, in static shapes.

After Post and Vilar (2018, arXiv 1804.06609) and Hu et al. (2019, NAACL, N19-1090). A step's
candidates are the usual ones, each hypothesis's own best, and the next tokens of its unmet phrases.
Candidates with the same number of constraint tokens to come form a bank. The next beam takes first
the best candidate of the bank with the fewest, so that some hypothesis gets there; then rounds of
the next best of every bank, likeliest first. So a beam with fewer places than banks drops unlikely
banks, not those with the most to come.

A hypothesis never goes where its limit leaves no room for what is to come, so all outputs have all
phrases. Which phrases are met or under way is read from the tokens.

In shapes, `phrases` is the number of phrases that a row has room for, `length` that of a phrase's
tokens, and `overlapping` that of the phrases whose overlaps are counted.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.data.vocabulary import EOS, PAD
from flaxformer_mt.decoding.constraints.phrases import Phrase
from flaxformer_mt.decoding.constraints.superstrings import (
    MOST_OVERLAPPING,
    NEVER,
    overlapping_first,
    shortest_texts,
)
from flaxformer_mt.decoding.constraints.symbols import Continues
from flaxformer_mt.decoding.masks.base import Allowed, TypeFlags
from flaxformer_mt.decoding.rounding import one_of_few
from flaxformer_mt.decoding.source import Types
from flaxformer_mt.decoding.top_k import Candidates, Logits, LogProbs, Places, largest, take

_BEGINNINGS = 8  # of a phrase that are under way at a time and may go on; the longest ones


class Phrases(NamedTuple):
    """The phrases of each row's outputs, padded to few sizes."""

    tokens: Int[Array, "rows phrases length"]
    open: Bool[Array, "rows phrases"]  # its last word may go on; else it must end there
    # Where phrases overlap: the tokens of the shortest text that has all phrases of a subset of
    # the row's first few, bit by bit, if it begins with one of them (NEVER: not of the subset).
    shortest: Int[Array, "rows subsets overlapping"] | None = None

    @property
    def lengths(self) -> Int[Array, "rows 1 phrases"]:
        """Tokens of each phrase; 0: there is none."""
        return (self.tokens != PAD).sum(axis=2)[:, None]


class PhraseProgress(NamedTuple):
    """How far hypotheses are with their row's phrases."""

    met: Bool[Array, "rows beams phrases"]
    ending: Bool[Array, "rows beams phrases"]  # met, unless the next token continues its last word
    matched: Bool[Array, "rows beams phrases length"]  # the last k tokens are its first k

    def of(self, beam: Places) -> "PhraseProgress":
        """That of the chosen hypotheses."""
        return PhraseProgress(*(take(array, beam) for array in self))

    def met_after(self, goes_on: Bool[Array, "#rows #beams"]) -> Bool[Array, "rows beams phrases"]:
        """The phrases met after a token that is in none and continues a word, or doesn't."""
        return self.met | (self.ending & ~goes_on[:, :, None])


class Required(NamedTuple):
    """The phrases of a batch and how far its hypotheses are, between two steps of the search."""

    phrases: Phrases
    progress: PhraseProgress
    continues: Bool[Array, " vocab"]  # `Continues`, on the device

    def banned(self, room: Int[Array, " rows"]) -> TypeFlags:
        """The types after which `room` tokens, end mark included, are too few for what is to come;
        and the end mark, unless nothing is."""
        rows, beams, count, length = self.progress.matched.shape

        def needed_if(goes_on: bool) -> Int[Array, "rows beams 1"]:
            unmet = ~self.progress.met_after(jnp.full((1, 1), goes_on))
            return _shortest_rest(self.phrases, unmet, jnp.zeros(unmet.shape, int))[:, :, None]

        continues = jnp.asarray(self.continues)[None, None]
        needed = jnp.where(continues, needed_if(True), needed_if(False))
        banned = needed + 1 > room[:, None, None]  # --> [rows, beams, vocab]

        # Types that go on with a phrase may leave less to come. Of a long phrase that repeats
        # itself only the longest beginnings are looked at; the others' next types are judged as
        # any other.
        begun = jnp.where(self.progress.matched, np.arange(length)[None, None, None], 0)
        begun, _ = jax.lax.top_k(begun, min(length, _BEGINNINGS))  # --> [.., phrases, begun]
        following = jnp.take_along_axis(self.phrases.tokens[:, None], begun, axis=3)
        following = following.reshape(rows, -1)
        beam = jnp.repeat(jnp.arange(beams), count * begun.shape[3])[None]
        beam = jnp.broadcast_to(beam, following.shape)
        none_left = self.to_come(beam, following) + 1 > room[:, None]
        banned = banned.at[jnp.arange(rows)[:, None], beam, following].set(none_left)
        return banned.at[:, :, EOS].set(needed_if(False)[..., 0] > 0)

    def to_come(self, beam: Places, token: Int[Array, "rows of"]) -> Int[Array, "rows of"]:
        """How many constraint tokens are to come after a hypothesis's next `token`: those of the
        shortest text with all unmet phrases, less the beginning of one that is under way. No phrase
        begins with a type that continues a word."""
        phrases, progress = self.phrases, self.progress.of(beam)
        continues = jnp.asarray(self.continues)
        longer, complete = _with_token(phrases, progress, token)
        met = progress.met_after(continues[token])
        goes_on = jnp.roll(continues[phrases.tokens], -1, axis=2)[:, None]
        size = np.arange(1, phrases.tokens.shape[2] + 1)[None, None, None]  # --> [1, 1, 1, length]

        def still_to_come(met: Array, longer: Array) -> Int[Array, "rows of"]:
            return _shortest_rest(phrases, ~met, jnp.where(longer, size, 0).max(axis=3))

        # The token may lengthen a word that ends a phrase now; then the phrase must come again.
        if_it_ends = still_to_come(met | complete, longer & ~goes_on)
        if_it_goes_on = still_to_come(met | (complete & phrases.open[:, None]), longer)
        return jnp.minimum(if_it_ends, if_it_goes_on)

    def among(
        self, candidates: Candidates, logits: Logits, log_probs: LogProbs, allowed: Allowed
    ) -> Candidates:
        """The candidates and, in rows with constraints, each hypothesis's best and the next token
        of each phrase that it hasn't met."""
        rows, beams, _ = logits.shape
        unmet = ~self.progress.met_after(jnp.full((1, 1), False))  # --> [rows, beams, phrases]
        following = _next_tokens(self.phrases, self.progress)
        likely = jnp.where(allowed.flags(beams), logits, -jnp.inf)
        likeliest = jnp.argmax(likely, axis=2, keepdims=True)  # --> [rows, beams, 1]
        token = jnp.concatenate([likeliest, following], axis=2)  # --> [rows, beams, 1 + phrases]
        constrained = (self.phrases.lengths > 0).any(axis=2, keepdims=True)
        constrained = jnp.broadcast_to(constrained, likeliest.shape)
        exists = jnp.concatenate([constrained, unmet], axis=2)

        # As `top_candidates` sums it.
        values = jnp.take_along_axis(likely, token, axis=2)
        log_norm = jax.nn.logsumexp(logits, axis=-1)
        values = log_probs[:, :, None] + (values - log_norm[:, :, None])
        values = jnp.where(exists, values, -jnp.inf).reshape(rows, -1)
        token = token.reshape(rows, -1)  # --> [rows, beams * (1 + phrases)]
        beam = np.repeat(np.arange(beams), following.shape[2] + 1)[None]

        added = Candidates(values, jnp.broadcast_to(beam, token.shape), token)
        both = (jnp.concatenate(pair, axis=1) for pair in zip(candidates, added, strict=True))
        return _without_repeats(Candidates(*both))

    def survivors(
        self, log_probs: Float[Array, "rows of"], beam: Places, token: Places, count: int
    ) -> Places:
        """Which candidates the next beam takes; those with log-probability -inf are none."""
        return from_banks(log_probs, self.to_come(beam, token), count)

    def after(self, parents: Places | None, token: Int[Array, "rows beams"]) -> PhraseProgress:
        """The progress after a step: each hypothesis adds a token to its parent's (None: its
        own)."""
        progress = self.progress if parents is None else self.progress.of(parents)
        longer, complete = _with_token(self.phrases, progress, token)
        met = progress.met_after(jnp.asarray(self.continues)[token])  # --> [rows, beams, phrases]
        is_open = self.phrases.open[:, None]
        met |= complete & is_open

        no_token = jnp.ones((*longer.shape[:3], 1), bool)
        matched = jnp.concatenate([no_token, longer[..., :-1]], axis=3)
        return PhraseProgress(met, complete & ~is_open & ~met, matched)


def at_start(phrases: Phrases, beams: int) -> PhraseProgress:
    """The progress of `beams` empty hypotheses per row."""
    rows, count, length = phrases.tokens.shape
    none = jnp.zeros((rows, beams, count), bool)
    matched = jnp.zeros((rows, beams, count, length), bool).at[..., 0].set(True)
    return PhraseProgress(none | (phrases.lengths == 0), none, matched)


def _with_token(
    phrases: Phrases, progress: PhraseProgress, token: Int[Array, "rows beams"]
) -> tuple[Bool[Array, "rows beams phrases length"], Bool[Array, "rows beams phrases"]]:
    """[..., k]: the first k + 1 tokens of a phrase are the last ones after `token`, and there are
    more to come; and whether all of a phrase is."""
    size = np.arange(1, phrases.tokens.shape[2] + 1)[None, None, None]  # --> [1, 1, 1, length]
    lengths = phrases.lengths[..., None]  # --> [rows, 1, phrases, 1]
    follows = phrases.tokens[:, None] == token[:, :, None, None]
    begun = progress.matched & follows  # --> [rows, beams, phrases, length]
    return begun & (size < lengths), (begun & (size == lengths)).any(axis=3)


def _shortest_rest(
    phrases: Phrases,
    unmet: Bool[Array, "rows beams phrases"],
    under_way: Int[Array, "rows beams phrases"],
) -> Int[Array, "rows beams"]:
    """The tokens of the shortest text with all `unmet` phrases, if that may begin with one of
    which the last so many tokens are `under_way`."""
    under_way = jnp.where(unmet, under_way, 0)
    in_full = jnp.where(unmet, phrases.lengths, 0)  # --> [rows, beams, phrases]
    if phrases.shortest is None:
        return in_full.sum(axis=2) - under_way.max(axis=2)

    overlapping = phrases.shortest.shape[2]
    bits = jnp.asarray(1 << np.arange(overlapping))
    subset = jnp.where(unmet[..., :overlapping], bits, 0).sum(axis=2)  # --> [rows, beams]
    row = jnp.arange(len(unmet))[:, None]
    if_first = phrases.shortest[row, subset]  # --> [rows, beams, overlapping]
    begun_overlapping = (if_first - under_way[..., :overlapping]).min(axis=2)
    begun_apart = if_first.min(axis=2)
    if under_way.shape[2] > overlapping:
        begun_apart -= under_way[..., overlapping:].max(axis=2)
    return in_full[..., overlapping:].sum(axis=2) + jnp.minimum(begun_overlapping, begun_apart)


def _next_tokens(phrases: Phrases, progress: PhraseProgress) -> Int[Array, "rows beams phrases"]:
    """The token by which each phrase goes on from its longest beginning."""
    size = np.arange(phrases.tokens.shape[2])[None, None, None]  # --> [1, 1, 1, length]
    begun = progress.matched & (size < phrases.lengths[..., None])
    under_way = jnp.where(begun, size, 0).max(axis=3)  # --> [rows, beams, phrases]
    return jnp.take_along_axis(phrases.tokens[:, None], under_way[..., None], axis=3)[..., 0]


def _without_repeats(candidates: Candidates) -> Candidates:
    """Of the candidates that continue a hypothesis by the same token only the first counts."""
    values, beam, token = candidates
    equal = (beam[:, :, None] == beam[:, None]) & (token[:, :, None] == token[:, None])
    earlier = np.tri(values.shape[1], k=-1, dtype=bool)[None]  # --> [1, of, of]
    again = equal & earlier & jnp.isfinite(values)[:, None]
    return Candidates(jnp.where(again.any(axis=2), -jnp.inf, values), beam, token)


def from_banks(
    values: Float[Array, "rows of"], needed: Int[Array, "rows of"], count: int
) -> Places:
    """Which candidates the next beam takes; `needed` numbers their banks."""

    def before(a: Array, b: Array) -> Bool[Array, "rows of of"]:
        """[i, j]: j comes before i, by smaller a, then larger b, then place."""
        a_same = a[:, None] == a[:, :, None]
        earlier = np.tri(a.shape[1], k=-1, dtype=bool)[None]
        b_before = (b[:, None] > b[:, :, None]) | ((b[:, None] == b[:, :, None]) & earlier)
        return (a[:, None] < a[:, :, None]) | (a_same & b_before)

    exists = jnp.isfinite(values)
    bank = jnp.where(exists, needed, jnp.iinfo(needed.dtype).max)
    same_bank = bank[:, :, None] == bank[:, None]
    round_ = (before(bank, values) & same_bank).sum(axis=2)  # --> [rows, of]
    first = (round_ == 0) & (bank == bank.min(axis=1, keepdims=True))
    round_ = jnp.where(first, -1, jnp.where(exists, round_, values.shape[1]))
    place = before(round_, values).sum(axis=2)
    return largest(-place.astype(jnp.float32), count)[1]


def room_for(phrases: Sequence[Sequence[Phrase]]) -> tuple[int, int]:
    """Room for how many phrases, and of how many tokens, arrays of rows with these phrases have:
    one of few sizes, since they are compiled in."""
    count = one_of_few(max(map(len, phrases)), 4)
    length = one_of_few(max(len(phrase.tokens) for of_row in phrases for phrase in of_row), 8)
    return count, length


def arranged(
    phrases: Sequence[Sequence[Phrase]],
    types: Types,
    rows: int,
    continues: Continues,
) -> Phrases:
    """The phrases of a batch's rows as the search needs them, in its own ids of the `types`."""
    ordered = [overlapping_first(of_row, continues) for of_row in phrases]
    count, length = room_for(phrases)
    tokens: Any = np.full((rows, count, length), PAD, np.int32)
    is_open: Any = np.zeros((rows, count), bool)
    for row, (of_row, _) in enumerate(ordered):
        for place, phrase in enumerate(of_row):
            tokens[row, place, : len(phrase.tokens)] = np.searchsorted(types, phrase.tokens)
            is_open[row, place] = phrase.open

    most = max(number for _, number in ordered)
    if not most:
        return Phrases(tokens, is_open)
    overlapping = min(MOST_OVERLAPPING, 4 if most <= 4 else 8)
    tables = _tables([of_row for of_row, _ in ordered], rows, overlapping, continues)
    return Phrases(tokens, is_open, tables)


def none_of(rows: int, count: int, length: int, continues: Continues) -> Phrases:
    """Room for `count` phrases of `length` tokens in each row, which has none."""
    tokens: Any = np.full((rows, count, length), PAD, np.int32)
    is_open: Any = np.zeros((rows, count), bool)
    return in_larger_arrays(Phrases(tokens, is_open), count, length, continues)


def in_larger_arrays(phrases: Phrases, count: int, length: int, continues: Continues) -> Phrases:
    """The same with room for `count` phrases of `length` tokens in each row. `shortest` is there
    even if no phrases overlap, so that the form doesn't depend on them."""
    rows, present, present_length = phrases.tokens.shape
    padding = (0, 0), (0, count - present), (0, length - present_length)
    tokens: Any = np.pad(phrases.tokens, padding, constant_values=PAD)
    is_open: Any = np.pad(phrases.open, padding[:2])
    of_rows = [
        [
            Phrase(tuple(phrase[phrase != PAD].tolist()), bool(may_go_on))
            for phrase, may_go_on in zip(of_row, open_of_row, strict=True)
            if (phrase != PAD).any()
        ]
        for of_row, open_of_row in zip(tokens, is_open, strict=True)
    ]
    overlapping = min(MOST_OVERLAPPING, count)
    return Phrases(tokens, is_open, _tables(of_rows, rows, overlapping, continues))


def _tables(
    phrases: Sequence[Sequence[Phrase]],
    rows: int,
    overlapping: int,
    continues: Continues,
) -> Any:
    """`Phrases.shortest` for the first `overlapping` phrases of each row; more rows have none."""
    shortest = np.zeros((rows, 1 << overlapping, overlapping), np.int32)
    for row, of_row in enumerate(phrases):
        table = shortest_texts(of_row[:overlapping], continues)
        shortest[row, : len(table), : table.shape[1]] = table
        shortest[row, : len(table), table.shape[1] :] = NEVER
    shortest[:, 0] = 0
    return shortest
