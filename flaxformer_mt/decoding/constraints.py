"""Phrases that an output must have: beam search by dynamic beam allocation, in static shapes.

After Post and Vilar (2018, arXiv 1804.06609) and Hu et al. (2019, NAACL, N19-1090). A step's
candidates are the usual ones, each hypothesis's own best, and the next tokens of its unmet phrases.
Candidates with the same number of constraint tokens to come form a bank. The next beam takes first
the best candidate of the bank with the fewest, so that some hypothesis gets there; then rounds of
the next best of every bank, likeliest first. So a beam with fewer places than banks drops unlikely
banks, not those with the most to come.

A hypothesis never goes where its limit leaves no room for what is to come, so all outputs have all
phrases. Which phrases are met or under way is read from the tokens.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.data.vocabulary import EOS, PAD
from flaxformer_mt.decoding.batch_shapes import one_of_few
from flaxformer_mt.decoding.candidates import Found, LogProbs, Places, best, take
from flaxformer_mt.decoding.rules import Allowed, Logits, TypeMask

Continues = Bool[Array, " vocab"]
MOST_TOGETHER = 8  # phrases of a row whose overlaps are counted exactly; others count in full
_NEVER = 1 << 20  # tokens: more than any output has
_BEGINNINGS = 8  # of a phrase that are under way at a time and may go on; the longest ones


@dataclasses.dataclass(frozen=True)
class Phrase:
    tokens: tuple[int, ...]
    open: bool  # the last word may go on after them


class Phrases(NamedTuple):
    """The phrases of each row's outputs, padded to few sizes."""

    tokens: Int[Array, "rows phrases length"]
    open: Bool[Array, "rows phrases"]  # its last word may go on; else it must end there
    # Where phrases overlap: the tokens of the shortest text that has all phrases of a subset of
    # the row's first few, bit by bit, if it begins with one of them (_NEVER: not of the subset).
    shortest: Int[Array, "rows subsets first"] | None = None

    @property
    def lengths(self) -> Int[Array, "rows 1 phrases"]:
        """0: none."""
        return (self.tokens != PAD).sum(axis=2)[:, None]


class Standing(NamedTuple):
    """Hypotheses' progress with their row's phrases."""

    met: Bool[Array, "rows beams phrases"]
    ending: Bool[Array, "rows beams phrases"]  # met, unless the next token continues its last word
    matched: Bool[Array, "rows beams phrases length"]  # the last k tokens are its first k

    def of(self, beam: Places) -> "Standing":
        return Standing(*(take(each, beam) for each in self))

    def kept(self, goes_on: Bool[Array, "#rows #beams"]) -> Bool[Array, "rows beams phrases"]:
        """What is met after a token that is in no phrase and continues a word, or doesn't."""
        return self.met | (self.ending & ~goes_on[:, :, None])


def at_start(phrases: Phrases, beams: int) -> Standing:
    """The standing of `beams` empty hypotheses per row."""
    rows, count, length = phrases.tokens.shape
    none = jnp.zeros((rows, beams, count), bool)
    matched = jnp.zeros((rows, beams, count, length), bool).at[..., 0].set(True)
    return Standing(none | (phrases.lengths == 0), none, matched)


def after(
    phrases: Phrases, at: Standing, token: Int[Array, "rows beams"], continues: Continues
) -> Standing:
    """The standing after each hypothesis's next `token`; `continues` marks types that don't begin
    a word."""
    longer, complete = _with_token(phrases, at, token)
    met = at.kept(jnp.asarray(continues)[token])
    is_open = phrases.open[:, None]
    met |= complete & is_open
    none_said = jnp.ones((*longer.shape[:3], 1), bool)
    matched = jnp.concatenate([none_said, longer[..., :-1]], axis=3)
    return Standing(met, complete & ~is_open & ~met, matched)


def _with_token(
    phrases: Phrases, at: Standing, token: Int[Array, "rows beams"]
) -> tuple[Bool[Array, "rows beams phrases length"], Bool[Array, "rows beams phrases"]]:
    """[..., k]: the first k + 1 tokens of a phrase are the last ones after `token`, and there are
    more to come; and whether all of a phrase is."""
    size = np.arange(1, phrases.tokens.shape[2] + 1)[None, None, None]
    lengths = phrases.lengths[..., None]
    same = at.matched & (phrases.tokens[:, None] == token[:, :, None, None])
    return same & (size < lengths), (same & (size == lengths)).any(axis=3)


def to_come(
    phrases: Phrases,
    at: Standing,
    token: Int[Array, "rows beams"],
    continues: Continues,
) -> Int[Array, "rows beams"]:
    """How many constraint tokens are to come after each hypothesis's next `token`: those of the
    shortest text with all unmet phrases, less the beginning of one that is under way. No phrase
    begins with a type that continues a word."""
    continues = jnp.asarray(continues)
    longer, complete = _with_token(phrases, at, token)
    met = at.kept(continues[token])
    goes_on = jnp.roll(continues[phrases.tokens], -1, axis=2)[:, None]
    size = np.arange(1, phrases.tokens.shape[2] + 1)[None, None, None]

    def rest(met: Array, longer: Array) -> Array:
        return _rest(phrases, ~met, jnp.where(longer, size, 0).max(axis=3))

    # The next token may lengthen a word that ends a phrase now; then the phrase must come again.
    kept = rest(met | complete, longer & ~goes_on)
    broken = rest(met | (complete & phrases.open[:, None]), longer)
    return jnp.minimum(kept, broken)


def _rest(
    phrases: Phrases,
    unmet: Bool[Array, "rows beams phrases"],
    under_way: Int[Array, "rows beams phrases"],
) -> Int[Array, "rows beams"]:
    """The tokens of the shortest text with all `unmet` phrases, if that may begin with one of
    which the last so many tokens are `under_way`."""
    under_way = jnp.where(unmet, under_way, 0)
    in_full = jnp.where(unmet, phrases.lengths, 0)
    if phrases.shortest is None:
        return in_full.sum(axis=2) - under_way.max(axis=2)
    together = phrases.shortest.shape[2]
    bits = jnp.asarray(1 << np.arange(together))
    subset = jnp.where(unmet[..., :together], bits, 0).sum(axis=2)  # --> [rows, beams]
    row = jnp.arange(len(unmet))[:, None]
    if_first = phrases.shortest[row, subset]  # --> [rows, beams, together]
    begun_together = (if_first - under_way[..., :together]).min(axis=2)
    begun_apart = if_first.min(axis=2)
    if under_way.shape[2] > together:
        begun_apart -= under_way[..., together:].max(axis=2)
    return in_full[..., together:].sum(axis=2) + jnp.minimum(begun_together, begun_apart)


def leaves_no_room(
    phrases: Phrases,
    at: Standing,
    room: Int[Array, " rows"],
    continues: Continues,
) -> TypeMask:
    """The types after which `room` tokens, end mark included, are too few for what is to come; and
    the end mark, unless nothing is."""
    rows, beams, count, length = at.matched.shape

    def without(goes_on: bool) -> Int[Array, "rows beams 1"]:
        unmet = ~at.kept(jnp.full((1, 1), goes_on))
        return _rest(phrases, unmet, jnp.zeros(unmet.shape, int))[:, :, None]

    needed = jnp.where(jnp.asarray(continues)[None, None], without(True), without(False))
    banned = needed + 1 > room[:, None, None]

    # Types that go on with a phrase may leave less to come. Of a long phrase that repeats itself
    # only the longest beginnings are looked at; the others' next types are judged as any other.
    said = jnp.where(at.matched, np.arange(length)[None, None, None], 0)
    said, _ = jax.lax.top_k(said, min(length, _BEGINNINGS))
    following = jnp.take_along_axis(phrases.tokens[:, None], said, axis=3).reshape(rows, -1)
    beam = jnp.repeat(jnp.arange(beams), count * said.shape[3])[None]
    at_each = at.of(jnp.broadcast_to(beam, following.shape))
    none_left = to_come(phrases, at_each, following, continues) + 1 > room[:, None]
    banned = banned.at[jnp.arange(rows)[:, None], beam, following].set(none_left)
    return banned.at[:, :, EOS].set(without(False)[..., 0] > 0)


def with_phrases(
    found: Found,
    logits: Logits,
    log_probs: LogProbs,
    may: Allowed,
    phrases: Phrases,
    at: Standing,
) -> Found:
    """The candidates `found` and, in rows with constraints, each hypothesis's best and the next
    token of each phrase that it hasn't met."""
    rows, beams, _ = logits.shape
    unmet = ~at.kept(jnp.full((1, 1), False))
    size = np.arange(phrases.tokens.shape[2])[None, None, None]
    under_way = jnp.where(at.matched & (size < phrases.lengths[..., None]), size, 0).max(axis=3)
    following = jnp.take_along_axis(phrases.tokens[:, None], under_way[..., None], axis=3)[..., 0]
    allowed = jnp.where(may.mask(beams), logits, -jnp.inf)
    likeliest = jnp.argmax(allowed, axis=2, keepdims=True)
    token = jnp.concatenate([likeliest, following], axis=2)
    constrained = jnp.broadcast_to(
        (phrases.lengths > 0).any(axis=2, keepdims=True), likeliest.shape
    )
    exists = jnp.concatenate([constrained, unmet], axis=2)
    # As `top_candidates` sums it.
    values = jnp.take_along_axis(allowed, token, axis=2)
    log_norm = jax.nn.logsumexp(logits, axis=-1)
    values = log_probs[:, :, None] + (values - log_norm[:, :, None])
    values = jnp.where(exists, values, -jnp.inf).reshape(rows, -1)
    token = token.reshape(rows, -1)
    beam = jnp.broadcast_to(np.repeat(np.arange(beams), following.shape[2] + 1)[None], token.shape)

    every = tuple(
        jnp.concatenate([old, new], axis=1)
        for old, new in zip(found, (values, beam, token), strict=True)
    )
    values, beam, token = every
    same = (beam[:, :, None] == beam[:, None]) & (token[:, :, None] == token[:, None])
    count = values.shape[1]
    again = same & np.tri(count, k=-1, dtype=bool)[None] & jnp.isfinite(values)[:, None]
    return jnp.where(again.any(axis=2), -jnp.inf, values), beam, token


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
    needed = jnp.where(exists, needed, jnp.iinfo(needed.dtype).max)
    same = needed[:, :, None] == needed[:, None]
    round_ = (before(needed, values) & same).sum(axis=2)
    first = (round_ == 0) & (needed == needed.min(axis=1, keepdims=True))
    round_ = jnp.where(first, -1, jnp.where(exists, round_, values.shape[1]))
    place = before(round_, values).sum(axis=2)
    return best(-place.astype(jnp.float32), count)[1]


def arranged(
    phrases: Sequence[Sequence[Phrase]],
    types: Int[np.ndarray, " kept"],
    rows: int,
    continues: Bool[np.ndarray, " vocab"],
) -> Phrases:
    """The phrases of a batch's rows as the search needs them, in its own ids of the `types`."""
    ordered = [_overlapping_first(own, continues) for own in phrases]
    # Sizes are compiled in: few of them.
    most = one_of_few(max(map(len, phrases)), 4)
    longest = one_of_few(max(len(each.tokens) for own in phrases for each in own), 8)
    tokens: Any = np.full((rows, most, longest), PAD, np.int32)
    may_go_on: Any = np.zeros((rows, most), bool)
    for row, (own, _) in enumerate(ordered):
        for place, each in enumerate(own):
            tokens[row, place, : len(each.tokens)] = np.searchsorted(types, each.tokens)
            may_go_on[row, place] = each.open

    overlapping = max(count for _, count in ordered)
    if not overlapping:
        return Phrases(tokens, may_go_on)
    together = min(MOST_TOGETHER, 4 if overlapping <= 4 else 8)
    tables = _tables([own for own, _ in ordered], rows, together, continues)
    return Phrases(tokens, may_go_on, tables)


def in_larger_arrays(
    phrases: Phrases, count: int, length: int, continues: Bool[np.ndarray, " vocab"]
) -> Phrases:
    """The same with room for `count` phrases of `length` tokens in each row. `shortest` is there
    even if no phrases overlap, so that the form doesn't depend on them."""
    rows, given, given_length = phrases.tokens.shape
    more = (0, 0), (0, count - given), (0, length - given_length)
    tokens: Any = np.pad(phrases.tokens, more, constant_values=PAD)
    may_go_on: Any = np.pad(phrases.open, more[:2])
    together = min(MOST_TOGETHER, count)
    of_rows = [
        [
            Phrase(tuple(own[own != PAD].tolist()), bool(is_open))
            for own, is_open in zip(of_row, open_of_row, strict=True)
            if (own != PAD).any()
        ]
        for of_row, open_of_row in zip(tokens, may_go_on, strict=True)
    ]
    return Phrases(tokens, may_go_on, _tables(of_rows, rows, together, continues))


def _tables(
    phrases: Sequence[Sequence[Phrase]],
    rows: int,
    together: int,
    continues: Bool[np.ndarray, " vocab"],
) -> Any:
    """`Phrases.shortest` for the first `together` phrases of each row; further rows have none."""
    shortest = np.zeros((rows, 1 << together, together), np.int32)
    for row, own in enumerate(phrases):
        table = shortest_texts(own[:together], continues)
        shortest[row, : len(table), : table.shape[1]] = table
        shortest[row, : len(table), table.shape[1] :] = _NEVER
    shortest[:, 0] = 0
    return shortest


def still_needed(
    phrases: Sequence[Phrase], said: Sequence[int], continues: Bool[np.ndarray, " vocab"]
) -> int:
    """How many more tokens an output that begins with the tokens `said` needs for all phrases."""
    said = tuple(said)
    ordered, _ = _overlapping_first(phrases, continues)
    unmet = [
        phrase
        for phrase in ordered
        if not _has(said, phrase, continues) and not (phrase.open and _ends_with(said, phrase))
    ]
    # As in `to_come`: the word that ends the prefix ends there, or goes on.
    kept = [phrase for phrase in unmet if not _ends_with(said, phrase)]
    whole_words = {phrase: _begun(said, phrase, continues) for phrase in kept}
    parts_of_words = {phrase: _begun(said, phrase) for phrase in unmet}
    return min(
        _needed(ordered, whole_words, continues), _needed(ordered, parts_of_words, continues)
    )


def _needed(
    ordered: Sequence[Phrase], begun: Mapping[Phrase, int], continues: Bool[np.ndarray, " vocab"]
) -> int:
    """As `_rest`: the tokens to come of all phrases in `begun`, which gives how many of each one's
    first tokens are there. `ordered` are these and the phrases that are met."""
    together = [place for place, phrase in enumerate(ordered[:MOST_TOGETHER]) if phrase in begun]
    apart = [phrase for phrase in ordered[MOST_TOGETHER:] if phrase in begun]
    table = shortest_texts(ordered[:MOST_TOGETHER], continues)
    if_first = table[sum(1 << place for place in together)]
    begun_apart = int(if_first.min()) if together else 0
    ways = [
        begun_apart,
        *(int(if_first[place]) - begun[ordered[place]] for place in together),
        *(begun_apart - begun[phrase] for phrase in apart),
    ]
    return min(ways) + sum(len(phrase.tokens) for phrase in apart)


def _begun(
    said: tuple[int, ...],
    phrase: Phrase,
    continues: Bool[np.ndarray, " vocab"] | None = None,
) -> int:
    """How many of a phrase's first tokens, but not all, end a text; with `continues`, only so many
    that they end a word."""
    tokens = phrase.tokens
    sizes = [
        size
        for size in range(1, min(len(tokens), len(said) + 1))
        if said[-size:] == tokens[:size] and not (continues is not None and continues[tokens[size]])
    ]
    return max(sizes, default=0)


def _ends_with(said: tuple[int, ...], phrase: Phrase) -> bool:
    return bool(phrase.tokens) and said[-len(phrase.tokens) :] == phrase.tokens


def _has(text: tuple[int, ...], phrase: Phrase, continues: np.ndarray) -> bool:
    """Whether a text has a phrase before its last token: one whose end shows in what follows."""
    size = len(phrase.tokens)
    return any(
        text[end - size : end] == phrase.tokens and (phrase.open or not continues[text[end]])
        for end in range(size, len(text))
    )


def _overlapping_first(
    phrases: Sequence[Phrase], continues: np.ndarray
) -> tuple[list[Phrase], int]:
    """The phrases, first those that share tokens with another one, and how many these are."""
    shared = [
        any(
            _overlap(first, other, continues)
            or _overlap(other, first, continues)
            or _within(first, other, continues)
            or _within(other, first, continues)
            for other in phrases
            if other is not first and not {*first.tokens}.isdisjoint(other.tokens)
        )
        for first in phrases
    ]
    order = sorted(range(len(phrases)), key=lambda number: not shared[number])
    return [phrases[number] for number in order], sum(shared)


def shortest_texts(
    phrases: Sequence[Phrase], continues: Bool[np.ndarray, " vocab"]
) -> Int[np.ndarray, "subsets first"]:
    """The tokens of the shortest text with all phrases of a subset, if it begins with one of them.

    Subsets are numbered by bits. Exact: a shortest common superstring is an order of the phrases
    that no other one has, each joined to the next by as many tokens as they share.
    """
    count = len(phrases)
    shares = [[_overlap(first, then, continues) for then in phrases] for first in phrases]
    without = [
        ~sum(1 << n for n, each in enumerate(phrases) if _within(each, first, continues))
        for first in phrases
    ]
    table = np.full((1 << count, count), _NEVER, np.int32)
    table[0] = 0
    # A subset's own subsets have smaller numbers.
    for subset in range(1, 1 << count):
        for first in range(count):
            if not subset >> first & 1:
                continue
            left = subset & without[first] & ~(1 << first)
            more = [
                table[left, then] - shares[first][then] for then in range(count) if left >> then & 1
            ]
            table[subset, first] = len(phrases[first].tokens) + min(more, default=0)
    return table


def _overlap(first: Phrase, then: Phrase, continues: np.ndarray) -> int:
    """How many of a phrase's last tokens may be another's first, neither having the other whole."""
    for size in range(min(len(first.tokens), len(then.tokens)) - 1, 0, -1):
        ends_word = first.open or not continues[then.tokens[size]]
        if ends_word and first.tokens[-size:] == then.tokens[:size]:
            return size
    return 0


def _within(phrase: Phrase, other: Phrase, continues: np.ndarray) -> bool:
    """Whether a text that has the other phrase has this one."""
    size = len(phrase.tokens)
    ends_with = other.tokens[len(other.tokens) - size :] == phrase.tokens
    return _has(other.tokens, phrase, continues) or (size <= len(other.tokens) and ends_with)
