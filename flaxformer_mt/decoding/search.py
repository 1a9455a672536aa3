"""Beam search with a length penalty (paper, section 6.1); with a beam of 1 it is greedy search.

Each step takes a row's 2 * beam_size best continuations. Those that end (and, with
`rules.ends_among`, are among that many best) compete for the finished set; the best beam_size
others live on. A beam of 1 takes the best continuation and is done at the end mark. At a row's
limit only the end mark is allowed, at the model's log-probability, so every hypothesis is complete.
A row stops when no live hypothesis can still enter its finished set, which doesn't change the
result, or with `rules.patience` once so many have ended (Kasai et al., 2022, arXiv 2204.05424).

With `rules.groups` this holds within each group, which has slots of its own and ranks lower, by
`weights.diversity`, what earlier groups have chosen. With `rules.sample` each of the beam_size
hypotheses is drawn independently and keeps its place; finished ones are sorted by score.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.decoding.candidates import best, diverse_candidates, take, top_candidates
from flaxformer_mt.decoding.constraints import (
    Phrases,
    Standing,
    after,
    at_start,
    from_banks,
    leaves_no_room,
    to_come,
    with_phrases,
)
from flaxformer_mt.decoding.forbidden import completes_phrase
from flaxformer_mt.decoding.rules import (
    Allowed,
    Index,
    Logits,
    Rules,
    Tokens,
    breaks_tree,
    pooled,
    repeats,
)
from flaxformer_mt.decoding.sampling import keys_of, sampled

Cache = dict[str, Any]
Step = Callable[[Int[Array, "rows beams"], Index, Cache], tuple[Logits, Cache]]


class Hypotheses(NamedTuple):
    """The best finished hypotheses of each row, best first, group by group.

    `tokens` ends with the end mark and padding. An empty slot (in a row of padding, or if the
    vocabulary has too few outputs) has score -inf and length 0.
    """

    tokens: Int[Array, "rows slots length"]
    scores: Float[Array, "rows slots"]  # log_probs / length penalty + coverage penalty
    log_probs: Float[Array, "rows slots"]
    lengths: Int[Array, "rows slots"]  # tokens, the end mark included


class Sentences(NamedTuple):
    """What each row is searched with."""

    limits: Int[Array, " rows"]  # tokens of an output, the end mark included; 0: a row of padding
    prefix: Int[Array, "rows prefix"]  # what outputs begin with, padded; may have width 0
    seeds: UInt[Array, "rows seed"]  # for sampling: two sentences with the same draw the same
    words: Int[Array, " rows"]  # leaves of a tree, as `rules.breaks_tree` takes them
    source: Int[Array, "rows src_length"]
    forbidden: Int[Array, "rows automata"] | None = None  # states of `Weights.forbidden`
    phrases: Phrases | None = None  # that outputs must have


class Weights(NamedTuple):
    """Numbers that change without a compilation."""

    alpha: Any = 0.6  # of the length penalty
    average: Any = False  # the penalty is |Y|^alpha instead
    beta: Any = 0.0  # of the coverage penalty
    diversity: Any = 0.0  # between groups
    temperature: Any = 1.0  # of sampling
    top_p: Any = 1.0
    forbidden: Any = None  # the table of `forbidden.table_of`, if there are such phrases
    continues: Any = None  # with phrases that must occur: the types that don't begin a word


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
    sentences: Sentences
    standing: Standing | None = None  # with phrases that must occur


def length_penalty(length: Any, alpha: Any, *, average: Any = False) -> Any:
    """((5 + |Y|) / 6)^alpha (Wu et al., 2016, equation 14), or |Y|^alpha if `average`.

    |Y| counts the end mark, as in tensor2tensor, whose settings the paper uses.
    """
    return ((length + 5.0 * (1.0 - average)) / (6.0 - 5.0 * average)) ** alpha


def coverage_penalty(coverage: Any) -> Any:
    """sum_i log min(sum_j p_ij, 1) over source tokens i (Wu et al., 2016, equation 14); axis -1.

    p_ij is output token j's attention to source token i. At least 1e-6 is counted, so that even a
    hypothesis of only the end mark isn't ruled out.
    """
    return jnp.log(jnp.clip(coverage, 1e-6, 1.0)).sum(axis=-1)


def begin(cache: Cache, sentences: Sentences, rules: Rules, *, length: int) -> State:
    """The state before the first step of a search for outputs of at most `length` tokens.

    Leaves of `cache["beams"]` have beams on axis 1 and follow their hypotheses; with
    `rules.coverage` it is a sequence of mappings with "coverage", each source token's attention.
    """
    rows, beams = sentences.limits.shape[0], rules.beam_size
    # One empty hypothesis per group: copies would fill it with the same continuations.
    alone = jnp.full((rows, beams), -jnp.inf, jnp.float32).at[:, :: beams // rules.groups].set(0.0)
    return State(
        position=jnp.zeros((), jnp.int32),
        cache=cache,
        last=jnp.full((rows, beams), BOS, jnp.int32),
        tokens=jnp.full((rows, beams, length), PAD, jnp.int32),
        log_probs=jnp.zeros((rows, beams)) if rules.sample else alone,
        finished=Hypotheses(
            tokens=jnp.full((rows, rules.slots, length), PAD, jnp.int32),
            scores=jnp.full((rows, rules.slots), -jnp.inf, jnp.float32),
            log_probs=jnp.full((rows, rules.slots), -jnp.inf, jnp.float32),
            lengths=jnp.zeros((rows, rules.slots), jnp.int32),
        ),
        ended=jnp.zeros((rows, rules.groups), jnp.int32),
        stopped=sentences.limits == 0,
        sentences=sentences,
        standing=None if sentences.phrases is None else at_start(sentences.phrases, beams),
    )


def advance(
    step: Step,
    state: State,
    weights: Weights,
    rules: Rules,
    *,
    until: Index | int,
    parts: int = 1,
    leave_at: Index | int = 0,
    stride: Index | int = 1,
) -> State:
    """Steps until position `until`, until no row is live, or until the next position that `stride`
    divides where each of `parts` equal parts has at most `leave_at` live rows.
    `step(tokens, index, cache)` gives the logits of token number `index`, and the cache."""
    begun = state.position

    def more(state: State) -> Array:
        live = jnp.max(jnp.sum(~state.stopped.reshape(parts, -1), axis=1))
        stays = (live > leave_at) | (state.position % stride > 0) | (state.position == begun)
        return (state.position < until) & (live > 0) & stays

    return jax.lax.while_loop(more, lambda state: _step(step, state, weights, rules), state)


def _step(step: Step, state: State, weights: Weights, rules: Rules) -> State:
    beams, limits = rules.beam_size, state.sentences.limits
    logits, cache = step(state.last, state.position, state.cache)
    length = state.position + 1
    may = _allowed(state, rules, vocab=logits.shape[-1])
    if state.sentences.forbidden is not None:
        begins, table = state.sentences.forbidden, weights.forbidden
        banned = completes_phrase(begins, table, state.tokens, state.position, limits)
        # A TPU's logits have columns that pad them.
        more = logits.shape[-1] - table.shape[1]
        may = may.without(jnp.pad(banned, ((0, 0), (0, 0), (0, more))))
    phrases, at = state.sentences.phrases, state.standing
    if phrases is not None and at is not None:
        more = logits.shape[-1] - len(weights.continues)
        continues = jnp.pad(weights.continues, (0, more))
        may = may.without(leaves_no_room(phrases, at, limits - length, continues))
    if rules.trees is not None and rules.trees.of_source:
        logits = pooled(rules.trees, logits, may.mask(beams))
    # A group of one hypothesis needs one continuation.
    width = beams // rules.groups
    count = 1 if width == 1 else 2 * width
    if rules.sample:
        drawn, token = sampled(
            logits,
            may.mask(beams),
            keys_of(state.sentences.seeds, state.position, beams=beams),
            temperature=weights.temperature,
            top_k=rules.top_k,
            top_p=weights.top_p,
        )
        beam = jnp.broadcast_to(jnp.arange(beams)[None], token.shape)
        log_probs = ranked = state.log_probs + drawn
    elif rules.groups > 1:
        ranked, log_probs, beam, token = diverse_candidates(
            logits,
            state.log_probs,
            may,
            groups=rules.groups,
            count=count,
            diversity=weights.diversity,
        )
    else:
        found = top_candidates(logits, state.log_probs, may, count=count)
        if phrases is not None and at is not None:
            found = with_phrases(found, logits, state.log_probs, may, phrases, at)
        log_probs, beam, token = found
        ranked = log_probs
    tokens = jax.lax.dynamic_update_slice_in_dim(
        take(state.tokens, beam), token[:, :, None], state.position, axis=2
    )

    def penalty(length: Any) -> Any:
        return length_penalty(length, weights.alpha, average=weights.average)

    def apart(x: Array) -> Array:
        return x.reshape(x.shape[0] * rules.groups, x.shape[1] // rules.groups, *x.shape[2:])

    def whole(x: Array) -> Array:
        return x.reshape(limits.shape[0], -1, *x.shape[2:])

    ended = token == EOS
    counts = ended
    if rules.ends_among:
        rank = jnp.arange(token.shape[1]) % (token.shape[1] // rules.groups)
        # A hypothesis added by constraints may end if that is its best continuation.
        among = rank < rules.ends_among
        counts = ended & (among if phrases is None else among | (rank >= count))[None]
    scores = log_probs / penalty(length)
    if rules.coverage:
        members = [leaves["coverage"] for leaves in cache["beams"]]
        covered = coverage_penalty(sum(members) / len(members))
        scores = scores + weights.beta * take(covered, beam)
    new = Hypotheses(
        tokens=tokens,
        scores=jnp.where(counts, scores, -jnp.inf),
        log_probs=log_probs,
        lengths=jnp.full_like(token, length),
    )
    finished = _merge(
        jax.tree.map(apart, state.finished),
        jax.tree.map(apart, new),
        jnp.repeat(state.stopped, rules.groups),
    )

    live = jnp.where(ended, -jnp.inf, log_probs)
    if not rules.sample:  # a draw's noise belongs to its place
        if phrases is None or at is None:
            _, chosen = best(apart(jnp.where(ended, -jnp.inf, ranked)), width)
        else:
            chosen = from_banks(live, to_come(phrases, at.of(beam), token, continues), width)
        live, tokens, token = (whole(take(apart(each), chosen)) for each in (live, tokens, token))
    # Log-probabilities only fall, so a live hypothesis's best possible score is its present one
    # under the largest penalty to come: at the limit for alpha > 0, at once for alpha < 0. The
    # coverage penalty is at best 0.
    largest = jnp.maximum(penalty(length + 1), penalty(limits))
    likeliest = apart(live).max(axis=1) / jnp.repeat(largest, rules.groups)
    settled = (finished.scores[:, -1] >= likeliest).reshape(-1, rules.groups)
    all_ended = state.ended
    if rules.patience:
        more = apart(new.scores > -jnp.inf).sum(axis=1, dtype=jnp.int32)
        all_ended += more.reshape(-1, rules.groups)
        settled |= all_ended >= rules.patience
    if beams > 1 and not rules.sample:
        parents = whole(take(apart(beam), chosen))
        at = None if at is None else at.of(parents)
        cache = cache | {"beams": jax.tree.map(lambda leaf: take(leaf, parents), cache["beams"])}
    standing = None
    if phrases is not None and at is not None:
        standing = after(phrases, at, token, continues)
    return state._replace(
        position=length,
        cache=cache,
        last=token,
        tokens=tokens,
        log_probs=live,
        finished=jax.tree.map(whole, finished),
        ended=all_ended,
        standing=standing,
        stopped=state.stopped | (length >= limits) | settled.all(axis=1),
    )


def _allowed(state: State, rules: Rules, *, vocab: int) -> Allowed:
    """Which types may be the next token: at a row's limit the end mark alone; before it, what its
    prefix has there, unless padding."""
    sentences, tokens, position = state.sentences, state.tokens, state.position
    free = np.ones(vocab, bool)
    free[[BOS, PAD, *rules.suppress]] = False
    free[EOS] = True
    only = jnp.full_like(sentences.limits, -1)
    if width := sentences.prefix.shape[1]:
        now = sentences.prefix[:, jnp.minimum(position, width - 1)]
        only = jnp.where((position < width) & (now != PAD), now, only)
    may = Allowed(jnp.where(position + 1 >= sentences.limits, EOS, only), free, None)
    if 0 < rules.no_repeat < tokens.shape[2]:  # a longer n-gram cannot occur twice
        again = repeats(tokens, position, rules.no_repeat, vocab=vocab)
        may = may.without(again.at[:, :, EOS].set(False))
    if rules.trees is not None:
        words = sentences.words
        source = sentences.source
        spare = sentences.limits - position - 1
        may = may.without(breaks_tree(rules.trees, tokens, words, source, spare, vocab=vocab))
    return may


def _merge(old: Hypotheses, new: Hypotheses, stopped: Bool[Array, " rows"]) -> Hypotheses:
    """The best of both, as many as `old` has, older ones first; a stopped row keeps its own."""
    n_best = old.scores.shape[1]
    every = jnp.concatenate([old.scores, jnp.where(stopped[:, None], -jnp.inf, new.scores)], axis=1)
    scores, chosen = jax.lax.top_k(every, n_best)

    def pick(a: Array, b: Array) -> Array:
        return take(jnp.concatenate([a, b], axis=1), chosen)

    exists = scores > -jnp.inf
    return Hypotheses(
        tokens=jnp.where(exists[:, :, None], pick(old.tokens, new.tokens), old.tokens),
        scores=scores,
        log_probs=jnp.where(exists, pick(old.log_probs, new.log_probs), -jnp.inf),
        lengths=jnp.where(exists, pick(old.lengths, new.lengths), 0),
    )
