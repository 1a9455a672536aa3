"""A search between two steps, and how it begins."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from flaxformer_mt.data.vocabulary import BOS, PAD
from flaxformer_mt.decoding.masks.base import Ban, Generated, Index, MaskArrays, Tokens
from flaxformer_mt.decoding.search.banks import PhraseProgress, Phrases, Required, at_start
from flaxformer_mt.decoding.search.settings import Rules, SearchNumbers

Cache = dict[str, Any]


class Hypotheses(NamedTuple):
    """The best finished hypotheses of each row, best first, group by group.

    `tokens` ends with the end mark and padding. An empty slot (in a row of padding, or if the
    vocabulary has too few outputs) has score -inf and length 0.
    """

    tokens: Int[Array, "rows slots length"]
    scores: Float[Array, "rows slots"]  # log_probs / length penalty + coverage penalty
    log_probs: Float[Array, "rows slots"]
    lengths: Int[Array, "rows slots"]  # tokens, the end mark included


class SearchRows(NamedTuple):
    """What each row is searched with."""

    limits: Int[Array, " rows"]  # tokens of an output, the end mark included; 0: a row of padding
    prefix: Int[Array, "rows prefix"]  # what outputs begin with, padded; may have width 0
    seeds: UInt[Array, "rows seed"]  # for sampling: two sentences with the same draw the same
    mask_rows: tuple[Any, ...] = ()  # `MaskArrays.rows` of each mask; None: it bans nothing
    phrases: Phrases | None = None  # that outputs must have


class State(NamedTuple):
    """A search between two steps; all but `position` and parts of the cache is by rows."""

    position: Index  # steps taken
    cache: Cache
    last: Int[Array, "rows beams"]
    tokens: Tokens
    log_probs: Float[Array, "rows beams"]  # of live hypotheses; -inf: none
    finished: Hypotheses
    ended: Int[Array, "rows groups"]  # hypotheses so far
    stopped: Bool[Array, " rows"]
    rows: SearchRows
    progress: PhraseProgress | None = None  # with phrases that must occur

    def generated(self, vocab: int) -> Generated:
        """What masks read, to choose among `vocab` types."""
        return Generated(self.tokens, self.position, self.rows.limits, vocab)

    def bans(self, numbers: SearchNumbers, rules: Rules) -> tuple[Ban, ...]:
        """All masks with their arrays. Rows are here, since they leave a batch with their
        sentences; what all rows share is with the numbers, which no step copies."""
        read = zip(rules.all_masks, self.rows.mask_rows, numbers.mask_shared, strict=True)
        return tuple(
            Ban(mask, None if rows is None else MaskArrays(rows, shared))
            for mask, rows, shared in read
        )

    def required(self, numbers: SearchNumbers, vocab: int) -> Required | None:
        """The phrases that outputs must have, if there are any."""
        if self.rows.phrases is None or self.progress is None:
            return None
        # A TPU's logits have columns that pad them.
        continues = jnp.pad(numbers.continues, (0, vocab - len(numbers.continues)))
        return Required(self.rows.phrases, self.progress, continues)


def begin(cache: Cache, rows: SearchRows, rules: Rules, *, length: int) -> State:
    """The state before the first step of a search for outputs of at most `length` tokens.

    Leaves of `cache["beams"]` have beams on axis 1 and follow their hypotheses; with
    `rules.coverage_penalty` it is a sequence of mappings with "coverage", each source token's
    attention.
    """
    count, beams = rows.limits.shape[0], rules.beam_size
    # One empty hypothesis per group: copies would fill it with the same continuations.
    alone = jnp.full((count, beams), -jnp.inf, jnp.float32).at[:, :: rules.width].set(0.0)
    return State(
        position=jnp.zeros((), jnp.int32),
        cache=cache,
        last=jnp.full((count, beams), BOS, jnp.int32),
        tokens=jnp.full((count, beams, length), PAD, jnp.int32),
        log_probs=jnp.zeros((count, beams)) if rules.sampling else alone,
        finished=Hypotheses(
            tokens=jnp.full((count, rules.slots, length), PAD, jnp.int32),
            scores=jnp.full((count, rules.slots), -jnp.inf, jnp.float32),
            log_probs=jnp.full((count, rules.slots), -jnp.inf, jnp.float32),
            lengths=jnp.zeros((count, rules.slots), jnp.int32),
        ),
        ended=jnp.zeros((count, rules.diverse_groups), jnp.int32),
        stopped=rows.limits == 0,
        rows=rows,
        progress=None if rows.phrases is None else at_start(rows.phrases, beams),
    )
