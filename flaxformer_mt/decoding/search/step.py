"""Beam search with a length penalty (paper, section 6.1); with a beam of 1 it is greedy search.

Each step takes a row's 2 * beam_size best continuations. Those that end (and, with
`rules.ends_among`, are among that many best) compete for the finished set; the best beam_size
others live on. A beam of 1 takes the best continuation and is done at the end mark. At a row's
limit only the end mark is allowed, at the model's log-probability, so every hypothesis is complete.
A row stops when no live hypothesis can still enter its finished set, which doesn't change the
result, or with `rules.patience` once so many have ended (Kasai et al., 2022, arXiv 2204.05424).

With `rules.diverse_groups` this holds within each group, which has slots of its own and ranks
lower, by `numbers.diversity`, what earlier groups have chosen. With `rules.sampling` each of the
beam_size hypotheses is drawn independently and keeps its place; finished ones are sorted by score.

In shapes, `offered` is the number of continuations that a step looks at, and `width` that of a
group's hypotheses.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.decoding.masks.base import Allowed, Index
from flaxformer_mt.decoding.masks.trees import pooled
from flaxformer_mt.decoding.penalties import coverage_penalty
from flaxformer_mt.decoding.search.banks import Required
from flaxformer_mt.decoding.search.candidates import diverse_candidates, top_candidates
from flaxformer_mt.decoding.search.sampling import keys_of, sampled
from flaxformer_mt.decoding.search.settings import Rules, SearchNumbers
from flaxformer_mt.decoding.search.state import Cache, Hypotheses, State
from flaxformer_mt.decoding.top_k import Logits, Places, Values, largest, take

Step = Callable[[Int[Array, "rows beams"], Index, Cache], tuple[Logits, Cache]]


class Continuations(NamedTuple):
    """The continuations that a step chooses among."""

    ranked: Values  # what they are ranked by: `log_probs`, or less where groups shun a token
    log_probs: Values
    beam: Places  # the hypothesis that each continues
    token: Places
    tokens: Int[Array, "rows offered length"]  # with `token`

    @property
    def ends(self) -> Bool[Array, "rows offered"]:
        """Which of them are complete."""
        return self.token == EOS


class Survivors(NamedTuple):
    """The hypotheses that live on."""

    log_probs: Float[Array, "rows beams"]  # -inf: there is none
    token: Int[Array, "rows beams"]
    tokens: Int[Array, "rows beams length"]
    parents: Int[Array, "rows beams"] | None  # None: each continues the one in its place


def advance(
    step: Step,
    state: State,
    numbers: SearchNumbers,
    rules: Rules,
    *,
    until: Index | int,
    shards: int = 1,
    leave_at: Index | int = 0,
    stride: Index | int = 1,
) -> State:
    """Steps until position `until`, until no row is live, or until the next position that `stride`
    divides where each of `shards` equal shares of the rows has at most `leave_at` live rows.
    `step(tokens, index, cache)` gives the logits of token number `index`, and the cache."""
    begun = state.position

    def goes_on(state: State) -> Array:
        live = jnp.max(jnp.sum(~state.stopped.reshape(shards, -1), axis=1))
        stays = (live > leave_at) | (state.position % stride > 0) | (state.position == begun)
        return (state.position < until) & (live > 0) & stays

    return jax.lax.while_loop(goes_on, lambda state: take_step(step, state, numbers, rules), state)


def take_step(step: Step, state: State, numbers: SearchNumbers, rules: Rules) -> State:
    """One token more for every live hypothesis."""
    logits, cache = step(state.last, state.position, state.cache)
    required = state.required(numbers, logits.shape[-1])

    allowed = _allowed(state, numbers, rules, required, vocab=logits.shape[-1])
    continuations = _continuations(logits, state, allowed, numbers, rules, required)
    new = _completed(continuations, cache, state, numbers, rules)
    finished = _finished_after(state, new, rules)
    survivors = _survivors(continuations, rules, required)
    ended, settled = _settled(state, new, finished, survivors, numbers, rules)

    parents = survivors.parents
    if parents is not None:
        cache = cache | {"beams": jax.tree.map(lambda leaf: take(leaf, parents), cache["beams"])}
    progress = None if required is None else required.after(parents, survivors.token)
    length = state.position + 1
    return state._replace(
        position=length,
        cache=cache,
        last=survivors.token,
        tokens=survivors.tokens,
        log_probs=survivors.log_probs,
        finished=finished,
        ended=ended,
        progress=progress,
        stopped=state.stopped | (length >= state.rows.limits) | settled,
    )


def _allowed(
    state: State,
    numbers: SearchNumbers,
    rules: Rules,
    required: Required | None,
    *,
    vocab: int,
) -> Allowed:
    """Which types may be the next token: at a row's limit the end mark alone; before it, what its
    prefix has there, unless padding; else what no mask bans."""
    rows, position = state.rows, state.position
    free = np.ones(vocab, bool)
    free[[BOS, PAD, *rules.suppress]] = False
    free[EOS] = True
    only = jnp.full_like(rows.limits, -1)
    if width := rows.prefix.shape[1]:
        in_prefix = rows.prefix[:, jnp.minimum(position, width - 1)]  # --> [rows]
        only = jnp.where((position < width) & (in_prefix != PAD), in_prefix, only)
    allowed = Allowed(jnp.where(position + 1 >= rows.limits, EOS, only), free, None)

    generated = state.generated(vocab)
    for ban in state.bans(numbers, rules):
        allowed = allowed.without(ban.banned(generated))
    if required is not None:
        allowed = allowed.without(required.banned(rows.limits - position - 1))
    return allowed


def _continuations(
    logits: Logits,
    state: State,
    allowed: Allowed,
    numbers: SearchNumbers,
    rules: Rules,
    required: Required | None,
) -> Continuations:
    """A step's continuations: draws, or each group's best."""
    if rules.trees is not None and rules.trees.of_source:
        logits = pooled(rules.trees, logits, allowed.flags(rules.beam_size))

    if rules.sampling:
        drawn, token = sampled(
            logits,
            allowed.flags(rules.beam_size),
            keys_of(state.rows.seeds, state.position, beams=rules.beam_size),
            temperature=numbers.temperature,
            top_k=rules.top_k,
            top_p=numbers.top_p,
        )
        beam = jnp.broadcast_to(jnp.arange(rules.beam_size)[None], token.shape)
        log_probs = ranked = state.log_probs + drawn
    elif rules.diverse_groups > 1:
        ranked, (log_probs, beam, token) = diverse_candidates(
            logits,
            state.log_probs,
            allowed,
            groups=rules.diverse_groups,
            count=rules.candidates,
            diversity=numbers.diversity,
        )
    else:
        candidates = top_candidates(logits, state.log_probs, allowed, count=rules.candidates)
        if required is not None:
            candidates = required.among(candidates, logits, state.log_probs, allowed)
        log_probs, beam, token = candidates
        ranked = log_probs

    tokens = jax.lax.dynamic_update_slice_in_dim(
        take(state.tokens, beam), token[:, :, None], state.position, axis=2
    )
    return Continuations(ranked, log_probs, beam, token, tokens)


def _completed(
    continuations: Continuations, cache: Cache, state: State, numbers: SearchNumbers, rules: Rules
) -> Hypotheses:
    """The continuations that end and count, with their scores; others have the score -inf."""
    counts = continuations.ends
    if rules.ends_among:
        rank = np.arange(continuations.token.shape[1]) % (
            continuations.token.shape[1] // rules.diverse_groups
        )
        among = rank < rules.ends_among
        if state.rows.phrases is not None:
            # A hypothesis added by constraints may end if that is its best continuation.
            among = among | (rank >= rules.candidates)
        counts = counts & among[None]

    length = state.position + 1
    scores = continuations.log_probs / numbers.penalty(length)
    if rules.coverage_penalty:
        members = [leaves["coverage"] for leaves in cache["beams"]]
        covered = coverage_penalty(sum(members) / len(members))  # --> [rows, beams]
        scores = scores + numbers.coverage_penalty * take(covered, continuations.beam)
    return Hypotheses(
        tokens=continuations.tokens,
        scores=jnp.where(counts, scores, -jnp.inf),
        log_probs=continuations.log_probs,
        lengths=jnp.full_like(continuations.token, length),
    )


def _finished_after(state: State, new: Hypotheses, rules: Rules) -> Hypotheses:
    """Each group's best of the finished ones and the new."""
    finished = _best_of_both(
        _by_groups(state.finished, rules),
        _by_groups(new, rules),
        jnp.repeat(state.stopped, rules.diverse_groups),
    )
    return _by_rows(finished, rules)


def _survivors(continuations: Continuations, rules: Rules, required: Required | None) -> Survivors:
    """The best beam_size continuations that don't end, group by group; each draw in its place."""
    log_probs = jnp.where(continuations.ends, -jnp.inf, continuations.log_probs)
    if rules.sampling:  # a draw's noise belongs to its place
        return Survivors(log_probs, continuations.token, continuations.tokens, None)

    if required is None:
        ranked = jnp.where(continuations.ends, -jnp.inf, continuations.ranked)
        _, chosen = largest(_by_groups(ranked, rules), rules.width)  # --> [rows * groups, width]
    else:
        chosen = required.survivors(log_probs, continuations.beam, continuations.token, rules.width)
    live = (log_probs, continuations.token, continuations.tokens, continuations.beam)
    log_probs, token, tokens, parents = (
        _by_rows(take(_by_groups(leaf, rules), chosen), rules) for leaf in live
    )
    return Survivors(log_probs, token, tokens, parents if rules.beam_size > 1 else None)


def _settled(
    state: State,
    new: Hypotheses,
    finished: Hypotheses,
    survivors: Survivors,
    numbers: SearchNumbers,
    rules: Rules,
) -> tuple[Int[Array, "rows groups"], Bool[Array, " rows"]]:
    """How many hypotheses have ended in each group, and which rows are done: no live hypothesis can
    change them, or enough have ended."""
    # Log-probabilities only fall, so a live hypothesis's best possible score is its present one
    # under the largest penalty to come: at the limit for alpha > 0, at once for alpha < 0. The
    # coverage penalty is at best 0.
    next_length = state.position + 2
    largest_penalty = jnp.maximum(numbers.penalty(next_length), numbers.penalty(state.rows.limits))
    likeliest = _by_groups(survivors.log_probs, rules).max(axis=1)  # --> [rows * groups]
    bound = likeliest / jnp.repeat(largest_penalty, rules.diverse_groups)
    worst_finished = _by_groups(finished.scores, rules)[:, -1]
    settled = (worst_finished >= bound).reshape(-1, rules.diverse_groups)

    ended = state.ended
    if rules.patience:
        newly = _by_groups(new.scores > -jnp.inf, rules).sum(axis=1, dtype=jnp.int32)
        ended += newly.reshape(-1, rules.diverse_groups)
        settled |= ended >= rules.patience
    return ended, settled.all(axis=1)


def _by_groups(tree: Any, rules: Rules) -> Any:
    """[rows, groups * n, ...] --> [rows * groups, n, ...]"""

    def split(x: Array) -> Array:
        return x.reshape(
            x.shape[0] * rules.diverse_groups, x.shape[1] // rules.diverse_groups, *x.shape[2:]
        )

    return jax.tree.map(split, tree)


def _by_rows(tree: Any, rules: Rules) -> Any:
    """[rows * groups, n, ...] --> [rows, groups * n, ...]"""

    def join(x: Array) -> Array:
        return x.reshape(
            x.shape[0] // rules.diverse_groups, x.shape[1] * rules.diverse_groups, *x.shape[2:]
        )

    return jax.tree.map(join, tree)


def _best_of_both(old: Hypotheses, new: Hypotheses, stopped: Bool[Array, " rows"]) -> Hypotheses:
    """The best of both, as many as `old` has, older ones first; a stopped row keeps its own."""
    n_best = old.scores.shape[1]
    new_scores = jnp.where(stopped[:, None], -jnp.inf, new.scores)
    scores, chosen = jax.lax.top_k(jnp.concatenate([old.scores, new_scores], axis=1), n_best)

    def pick(a: Array, b: Array) -> Array:
        return take(jnp.concatenate([a, b], axis=1), chosen)

    exists = scores > -jnp.inf
    return Hypotheses(
        tokens=jnp.where(exists[:, :, None], pick(old.tokens, new.tokens), old.tokens),
        scores=scores,
        log_probs=jnp.where(exists, pick(old.log_probs, new.log_probs), -jnp.inf),
        lengths=jnp.where(exists, pick(old.lengths, new.lengths), 0),
    )
