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

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.data.vocabulary import EOS, PAD
from flaxformer_mt.decoding.candidates import Found, LogProbs, Places, best, take
from flaxformer_mt.decoding.rules import Allowed, Index, Logits, Tokens, TypeMask

Continues = Bool[Array, " vocab"]


class Phrases(NamedTuple):
    """The phrases of each row's outputs, padded to few sizes."""

    tokens: Int[Array, "rows phrases length"]
    open: Bool[Array, "rows phrases"]  # its last word may go on; else it must end there

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


def standing(
    phrases: Phrases,
    tokens: Tokens,
    position: Index,
    continues: Continues,
) -> Standing:
    """For hypotheses with `position` tokens; `continues` marks types that don't begin a word."""
    said = tokens[:, :, None]
    lengths = phrases.lengths[..., None]
    places = np.arange(tokens.shape[2])[None, None, None]
    run = jnp.ones((*tokens.shape[:2], phrases.tokens.shape[1], tokens.shape[2]), bool)
    ends = (lengths == 0) & run
    matched = []
    for k in range(phrases.tokens.shape[2]):
        # `run`: the k tokens up to here are the phrase's first k.
        matched.append((run & (places == position - 1)).any(axis=3) if k else run[..., 0])
        before = jnp.roll(run, 1, axis=3) & (places > 0) if k else run
        run = before & (said == phrases.tokens[:, None, :, k, None])
        ends |= run & (lengths == k + 1)
    goes_on = jnp.roll(jnp.asarray(continues)[said], -1, axis=3) & (places < position - 1)
    whole = ends & (phrases.open[:, None, :, None] | ~goes_on)
    last = ~phrases.open[:, None, :, None] & (places == position - 1) & (lengths > 0)
    met = (whole & ~last).any(axis=3)
    return Standing(met, (whole & last).any(axis=3) & ~met, jnp.stack(matched, axis=3))


def _kept(at: Standing, goes_on: Bool[Array, "#rows #beams"]) -> Bool[Array, "rows beams phrases"]:
    """What is met after a token that is in no phrase and continues a word, or doesn't."""
    return at.met | (at.ending & ~goes_on[:, :, None])


def to_come(
    phrases: Phrases,
    at: Standing,
    token: Int[Array, "rows beams"],
    continues: Continues,
) -> Int[Array, "rows beams"]:
    """How many constraint tokens are to come after each hypothesis's next `token`: those of all
    unmet phrases, less the beginning of one that is under way. No phrase begins with a type that
    continues a word."""
    lengths, continues = phrases.lengths, jnp.asarray(continues)
    size = np.arange(1, phrases.tokens.shape[2] + 1)[None, None, None]
    longer = at.matched & (phrases.tokens[:, None] == token[:, :, None, None])
    complete = (longer & (size == lengths[..., None])).any(axis=3)
    met = _kept(at, continues[token])
    longer &= size < lengths[..., None]
    goes_on = jnp.roll(continues[phrases.tokens], -1, axis=2)[:, None]

    def rest(met: Array, longer: Array) -> Array:
        under_way = jnp.where(longer & ~met[..., None], size, 0).max(axis=(2, 3))
        return jnp.where(met, 0, lengths).sum(axis=2) - under_way

    # The next token may lengthen a word that ends a phrase now; then the phrase must come again.
    kept = rest(met | complete, longer & ~goes_on)
    broken = rest(met | (complete & phrases.open[:, None]), longer)
    return jnp.minimum(kept, broken)


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
        kept = _kept(at, jnp.full((1, 1), goes_on))
        return jnp.where(kept, 0, phrases.lengths).sum(axis=2, keepdims=True)

    needed = jnp.where(jnp.asarray(continues)[None, None], without(True), without(False))
    banned = needed + 1 > room[:, None, None]
    own = jnp.tile(phrases.tokens.reshape(rows, -1), (1, beams))
    beam = jnp.repeat(jnp.arange(beams), count * length)[None]
    at_each = at.of(jnp.broadcast_to(beam, own.shape))
    none_left = to_come(phrases, at_each, own, continues) + 1 > room[:, None]
    banned = banned.at[jnp.arange(rows)[:, None], beam, own].set(none_left)
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
    unmet = ~_kept(at, jnp.full((1, 1), False))
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
