"""Beam search with a length penalty (paper, section 6.1); with a beam of 1 it is greedy search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.decoding.candidates import top_candidates

Cache = dict[str, Any]
Step = Callable[
    [Int[Array, "rows beams"], Int[Array, ""], Cache],
    tuple[Float[Array, "rows beams vocab"], Cache],
]


class Hypotheses(NamedTuple):
    """The best finished hypotheses of each row, best first.

    `tokens` ends with the end mark and is padded after it. A slot that no hypothesis fills (a row
    of padding, or a vocabulary with fewer possible outputs) has score -inf and length 0.
    """

    tokens: Int[Array, "rows n_best length"]
    scores: Float[Array, "rows n_best"]  # log_probs / length penalty
    log_probs: Float[Array, "rows n_best"]
    lengths: Int[Array, "rows n_best"]  # tokens, the end mark included
    steps: Int[Array, ""]  # decoding steps that the whole batch took


class _State(NamedTuple):
    position: Int[Array, ""]
    cache: Cache
    last: Int[Array, "rows beams"]
    tokens: Int[Array, "rows beams length"]
    log_probs: Float[Array, "rows beams"]  # of live hypotheses; -inf: none
    finished: Hypotheses
    stopped: Bool[Array, " rows"]


def length_penalty(length: Any, alpha: Any) -> Any:
    """((5 + |Y|) / 6)^alpha (Wu et al., 2016, equation 14).

    |Y| counts the end mark, as in tensor2tensor, whose settings the paper's are.
    """
    return ((5.0 + length) / 6.0) ** alpha


def beam_search(
    step: Step,
    cache: Cache,
    *,
    source_lengths: Int[Array, " rows"],
    beam_size: int,
    alpha: Float[Array, ""] | float,
    max_extra_tokens: Int[Array, ""] | int,
    max_length: int,
    bos: int,
    eos: int,
    pad: int,
    n_best: int = 1,
    suppress: tuple[int, ...] = (),
) -> Hypotheses:
    """The `n_best` outputs of highest length-normalised log-probability that a beam finds.

    `step(tokens [rows, beams], index, cache)` returns the logits of token number `index`, given the
    token before it, and the cache after it. The leaves of `cache["self"]` have the beam axis at 1
    and follow their hypotheses; the rest of the cache has none and stays as it is.

    A row's output has at most `min(source_lengths + max_extra_tokens, max_length)` tokens, the end
    mark included (source lengths count theirs): at that length the end mark is the only token
    allowed, at the model's log-probability, so that every hypothesis is a complete one. A row
    whose source length is 0 is padding and has no hypothesis.

    Each step takes the 2 * beam_size best continuations of a row: those that end compete for the
    finished set, and the best beam_size of the others live on. A beam of 1 takes the single best
    continuation and is done when that is the end mark: greedy search. `bos`, `pad` and `suppress`
    are never generated. A row stops when no live hypothesis can still enter its finished set, and
    the search ends with the last row; the result is the same as without that rule.

    Raises ValueError for sizes that contradict each other.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best = {n_best} must lie between 1 and beam_size = {beam_size}")
    if max_length < 1:
        raise ValueError(f"max_length = {max_length} must be at least 1")
    if eos in (bos, pad, *suppress):
        raise ValueError(f"the end mark {eos} is among the tokens never generated")
    rows = source_lengths.shape[0]
    alpha = jnp.asarray(alpha, jnp.float32)
    limits = jnp.minimum(source_lengths + max_extra_tokens, max_length)
    limits = jnp.where(source_lengths > 0, limits, 0)
    candidates = 1 if beam_size == 1 else 2 * beam_size

    def advance(state: _State) -> _State:
        logits, cache = step(state.last, state.position, state.cache)
        length = state.position + 1
        at_limit = length >= limits
        types = jnp.arange(logits.shape[-1])[None, :]
        banned = jnp.isin(types, jnp.array((bos, pad, *suppress)))
        allowed = (types == eos) | ~(banned | at_limit[:, None])
        log_probs, beam, token = top_candidates(logits, state.log_probs, allowed, count=candidates)
        tokens = _take(state.tokens, beam).at[:, :, state.position].set(token)

        ended = token == eos
        new = Hypotheses(
            tokens=tokens,
            scores=jnp.where(ended, log_probs / length_penalty(length, alpha), -jnp.inf),
            log_probs=log_probs,
            lengths=jnp.full_like(token, length),
            steps=length,
        )
        finished = _merge(state.finished, new, state.stopped)

        live, chosen = jax.lax.top_k(jnp.where(ended, -jnp.inf, log_probs), beam_size)
        # Log-probabilities only fall, so the best a live hypothesis can reach is its present one
        # under the largest penalty to come: at the limit for alpha > 0, at once for alpha < 0.
        largest = jnp.maximum(length_penalty(length + 1, alpha), length_penalty(limits, alpha))
        settled = finished.scores[:, -1] >= live[:, 0] / largest
        if beam_size > 1:
            parents = _take(beam, chosen)
            cache = cache | {"self": jax.tree.map(lambda leaf: _take(leaf, parents), cache["self"])}
        return _State(
            position=length,
            cache=cache,
            last=_take(token, chosen),
            tokens=_take(tokens, chosen),
            log_probs=live,
            finished=finished,
            stopped=state.stopped | at_limit | settled,
        )

    start = _State(
        position=jnp.zeros((), jnp.int32),
        cache=cache,
        last=jnp.full((rows, beam_size), bos, jnp.int32),
        tokens=jnp.full((rows, beam_size, max_length), pad, jnp.int32),
        # One empty hypothesis: equal copies would fill the beam with the same continuations.
        log_probs=jnp.full((rows, beam_size), -jnp.inf).at[:, 0].set(0.0),
        finished=Hypotheses(
            tokens=jnp.full((rows, n_best, max_length), pad, jnp.int32),
            scores=jnp.full((rows, n_best), -jnp.inf),
            log_probs=jnp.full((rows, n_best), -jnp.inf),
            lengths=jnp.zeros((rows, n_best), jnp.int32),
            steps=jnp.zeros((), jnp.int32),
        ),
        stopped=limits == 0,
    )
    return jax.lax.while_loop(lambda state: ~jnp.all(state.stopped), advance, start).finished


def _merge(old: Hypotheses, new: Hypotheses, stopped: Bool[Array, " rows"]) -> Hypotheses:
    """The best of both, as many as `old` has; a row that has stopped keeps its own.

    Of equal scores the older hypothesis comes first.
    """
    n_best = old.scores.shape[1]
    every = jnp.concatenate([old.scores, jnp.where(stopped[:, None], -jnp.inf, new.scores)], axis=1)
    scores, chosen = jax.lax.top_k(every, n_best)

    def pick(a: Array, b: Array) -> Array:
        return _take(jnp.concatenate([a, b], axis=1), chosen)

    exists = scores > -jnp.inf
    return Hypotheses(
        tokens=jnp.where(exists[:, :, None], pick(old.tokens, new.tokens), old.tokens),
        scores=scores,
        log_probs=jnp.where(exists, pick(old.log_probs, new.log_probs), -jnp.inf),
        lengths=jnp.where(exists, pick(old.lengths, new.lengths), 0),
        steps=new.steps,
    )


def _take(x: Array, index: Int[Array, "rows chosen"]) -> Array:
    """x[row, index[row]]: the chosen entries of axis 1."""
    return jnp.take_along_axis(x, index.reshape(index.shape + (1,) * (x.ndim - 2)), axis=1)
