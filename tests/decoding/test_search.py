"""Beam search against exhaustive search and against a plain loop with the same rules."""

import dataclasses
import functools
import itertools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.decoding.masks.base import Allowed
from flaxformer_mt.decoding.masks.trees import Brackets, breaks_tree, pooled
from flaxformer_mt.decoding.search.candidates import top_candidates
from flaxformer_mt.decoding.search.settings import Rules, SearchNumbers, rules_for
from flaxformer_mt.decoding.search.state import Hypotheses
from flaxformer_mt.model.embedding import CHUNK
from flaxformer_mt.parsing.linearization import rebuild
from tests.decoding import reference
from tests.decoding.examples import beam_search
from tests.decoding.reference import EOS, PAD, Automaton, Output


@functools.partial(jax.jit, static_argnames=("length", "rules", "prefix"))
def search_table(table, limits, weights, rules, *, length, prefix=(), words=0, phrases=None):
    rows, states, _ = table.shape

    def step(tokens, index, cache):
        # Two leaves that must follow their hypotheses, one that has no beam axis.
        state = (cache["beams"]["state"] * 31 + tokens + 1) % states
        seen = cache["beams"]["seen"].at[:, :, index].set(tokens)
        logits = cache["table"][jnp.arange(rows)[:, None], state]
        return logits, {"beams": {"state": state, "seen": seen}, "table": cache["table"]}

    beams = {
        "state": jnp.zeros((rows, rules.beam_size), jnp.int32),
        "seen": jnp.zeros((rows, rules.beam_size, length), jnp.int32),
    }
    cache = {"beams": beams, "table": table}
    sizes = {"length": length, "prefix": prefix, "words": words, "phrases": phrases}
    return beam_search(step, cache, limits, weights, rules, **sizes)


def searched(result: tuple[Hypotheses, jax.Array]) -> Any:
    """Hypotheses as host arrays, and the steps that finding them took."""
    hypotheses, steps = jax.tree.map(np.asarray, result)
    return types.SimpleNamespace(**hypotheses._asdict(), steps=int(steps))


def search(
    automaton: Automaton,
    limits: list[int],
    *,
    alpha: float,
    beam: int,
    length: int,
    groups: int = 1,
    diversity: float = 0.0,
    prefix: tuple[int, ...] = (),
    words: int = 0,
    **rules: Any,
) -> Any:
    """One row a limit."""
    weights = SearchNumbers(np.float32(alpha), diversity=diversity)
    table_rules = Rules(beam_size=beam, diverse_groups=groups, **rules)
    sizes: Any = {"length": length, "prefix": prefix, "words": words}
    limits = np.asarray(limits, np.int32)
    return searched(search_table(automaton.table, limits, weights, table_rules, **sizes))


def outputs_of(hypotheses: Any, row: int) -> list[Output]:
    items = []
    for slot, length in enumerate(hypotheses.lengths[row]):
        tokens = hypotheses.tokens[row, slot]
        scores = hypotheses.log_probs[row, slot], hypotheses.scores[row, slot]
        assert (tokens[length:] == PAD).all()
        if length == 0:
            assert scores == (-np.inf, -np.inf)
            continue
        items.append(Output(tuple(tokens[:length].tolist()), *scores))
    return items


def assert_same(actual: list[Output], expected: list[Output]) -> None:
    assert [item.tokens for item in actual] == [item.tokens for item in expected]
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose((a.log_prob, a.score), (e.log_prob, e.score), rtol=1e-5)


@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.6, 1.0, 2.0])
def test_a_beam_that_holds_everything_finds_the_best(alpha):
    # Two types besides the marks and outputs of at most 6 tokens: never more than 32 live.
    limits = [1, 2, 3, 4, 5, 6]
    for spread in (0.3, 3.0):
        automaton = Automaton(np.random.default_rng(1), rows=6, vocab=5, spread=spread)
        result = search(automaton, limits, alpha=alpha, beam=32, length=6, n_best=4)
        for row, limit in enumerate(limits):
            expected = reference.exhaustive(automaton, row, limit=limit, alpha=alpha)[:4]
            assert_same(outputs_of(result, row), expected)


# Of the beam, the n-best list and the groups.
ALONE = [(1, 1, 1), (2, 1, 1), (2, 2, 1), (3, 1, 1), (5, 1, 1), (5, 4, 1)]
IN_GROUPS = [(2, 1, 2), (4, 1, 2), (4, 3, 2), (6, 2, 3), (3, 3, 3)]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.sampled_from(ALONE) | st.sampled_from(IN_GROUPS),
    diversity=st.sampled_from([0.0, 0.5, 3.0]),
    alpha=st.sampled_from([-0.5, 0.0, 0.6, 1.0, 2.0]),
    spread=st.sampled_from([0.2, 1.0, 4.0]),
    limits=st.lists(st.integers(1, 9), min_size=4, max_size=4),
)
def test_equals_a_plain_loop_that_never_stops_early(seed, sizes, diversity, alpha, spread, limits):
    beam, n_best, groups = sizes
    automaton = Automaton(np.random.default_rng(seed), rows=4, vocab=9, spread=spread)
    rules = {"alpha": alpha, "beam": beam, "groups": groups, "suppress": (3,)}
    rules["diversity"] = np.float32(diversity)
    result = search(automaton, limits, length=9, n_best=n_best, **rules)
    per_group = min(n_best, beam // groups)
    for row, limit in enumerate(limits):
        expected = reference.beam_search(automaton, row, limit=limit, n_best=per_group, **rules)
        assert_same(outputs_of(result, row), expected)
    assert result.steps <= max(limits)


def distinct(tokens, n):
    grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
    return len(set(grams)) == len(grams)


TREES = Brackets(pairs=((4, 5), (6, 7)), leaves=(8,))  # (A )A (B )B XX
OF_SOURCE = dataclasses.replace(TREES, leaves=(8, 9), within=(9,))
TYPES = ["", "", "", "", " (A", " )A", " (B", " )B", " XX", "x"]


def is_tree(body: tuple[int, ...], words: int, source: tuple[int, ...] = ()) -> bool:
    """By the reader of outputs: nothing to repair, and leaves are the source's words if given."""
    tokens, source_words = (
        "".join(TYPES[token_id] for token_id in ids).split() for ids in (body, source)
    )
    leaves = [token for token in tokens if token[0] not in "()"]
    has_known_brackets = all(f" {token}" in TYPES for token in tokens if token[0] in "()")
    sound = has_known_brackets and not rebuild(source_words or ["w"] * words, tokens).repairs
    return sound and (leaves == source_words or not source)


@pytest.mark.parametrize(
    "trees, words, source",
    [(TREES, words, ()) for words in (1, 2, 3)]
    + [(OF_SOURCE, len(source), source) for source in ((8, 8), (8, 9), (8, 9, 8))],
)
def test_every_tree_of_the_source_s_words_can_be_generated_and_nothing_else(trees, words, source):
    limit = 7
    unfinished, every = [()], set()
    for position in range(limit):
        tokens = np.full((1, len(unfinished), limit), PAD, np.int32)
        for beam, body in enumerate(unfinished):
            tokens[0, beam, :position] = body
        spare = np.array([limit - position - 1])
        arrays = [jnp.array(column) for column in (tokens, [words], [[*source, EOS]], spare)]
        bad = breaks_tree(trees, *arrays, vocab=10)
        going = [
            (body, int(t))
            for beam, body in enumerate(unfinished)
            for t in np.flatnonzero(~bad[0, beam])
        ]
        assert {body for body, _ in going} == set(unfinished), "a dead end"
        every |= {body for body, token in going if token == EOS}
        unfinished = [(*body, token) for body, token in going if token != EOS]
    assert not unfinished
    plain = range(4, 10 if source else 9)
    bodies = (b for n in range(limit) for b in itertools.product(plain, repeat=n))
    assert every == {body for body in bodies if is_tree(body, words, source)}


def test_of_a_known_leaf_the_search_knows_the_probability_of_any_leaf():
    logits = jnp.asarray(np.random.default_rng(5).normal(size=(1, 2, 10)), jnp.float32)
    may = np.ones((1, 2, 10), bool)
    may[0, :, [5, 8]] = False  # )A and XX
    may[0, 1, 7] = False  # nothing closes
    before = np.asarray(jax.nn.softmax(logits))[0]
    after = np.asarray(jax.nn.softmax(pooled(OF_SOURCE, logits, may)))[0]
    np.testing.assert_allclose(
        after[0, [7, 9]], [before[0, [5, 7]].sum(), before[0, [8, 9]].sum()], rtol=1e-5
    )
    np.testing.assert_allclose(after[0, :5], before[0, :5], rtol=1e-5)
    of_leaves = 1 - before[1, [5, 7]].sum()
    np.testing.assert_allclose(after[1, [2, 4, 6]], before[1, [2, 4, 6]] / of_leaves, rtol=1e-5)
    np.testing.assert_allclose(after[1, 9], before[1, [8, 9]].sum() / of_leaves, rtol=1e-5)
    assert not after[:, [5, 8]].any() and not after[1, 7]


def test_a_search_says_a_known_leaf_that_the_model_does_not_expect():
    """Any other leaf is likelier than a bracket, and the right one least likely of all."""
    table = jnp.log(jnp.array([1e-9, 1e-9, 0.01, 1e-9, 0.1, 0.05, 0.02, 0.02, 1e-6, 0.8]))

    def step(tokens, index, cache):
        return jnp.broadcast_to(table, (*tokens.shape, 10)), cache

    arguments = [12], SearchNumbers(0.0), Rules(beam_size=2, trees=OF_SOURCE)
    sizes = {"length": 12, "words": 2, "source": (8, 8, EOS)}
    (best,) = outputs_of(searched(beam_search(step, {"beams": {}}, *arguments, **sizes)), 0)
    assert best.tokens == (8, 8, EOS) and best.log_prob > -6


@pytest.mark.parametrize(
    "asked", [{"beam": 1}, {"beam": 4, "n_best": 3}, {"beam": 3, "sampling": True}]
)
def test_outputs_are_trees_up_to_the_limit(asked):
    automaton = Automaton(np.random.default_rng(6), rows=8, vocab=9, spread=2.0)
    limits = [4, 5, 6, 7, 8, 12, 16, 24]
    result = search(automaton, limits, alpha=0.6, length=24, trees=TREES, words=3, **asked)
    for row, limit in enumerate(limits):
        for item in outputs_of(result, row):
            assert len(item.tokens) <= limit
            assert item.tokens[-1] == EOS and is_tree(item.tokens[:-1], 3)


@pytest.mark.parametrize(
    ("vocab", "rules", "meets"),
    [
        *((5, {"no_repeat_ngram": n}, lambda body, n=n: distinct(body, n)) for n in (1, 2, 3)),
        (5, {"min_length": 3}, lambda body: len(body) >= 3),
        (6, {"prefix": (5, 3)}, lambda body: body[:2] == (5, 3)),
        (9, {"trees": TREES, "words": 2}, lambda body: is_tree(body, 2)),
    ],
)
def test_the_best_that_meet_a_rule_are_found(vocab, rules, meets):
    automaton = Automaton(np.random.default_rng(3), rows=1, vocab=vocab, spread=1.0)
    if "no_repeat_ngram" in rules:
        automaton.table[:, :, EOS] -= 3  # long outputs, which would say the same again
    never = (3,) if "trees" in rules else ()
    every = reference.exhaustive(automaton, 0, limit=6, alpha=0.6, suppress=never)
    expected = [item for item in every if meets(item.tokens[:-1])]
    assert expected[:4] != every[:4]
    result = search(automaton, [6], alpha=0.6, beam=128, length=6, n_best=4, **rules)
    assert_same(outputs_of(result, 0), expected[:4])


def test_contradictory_rules_are_errors():
    with pytest.raises(ValueError, match="n_best = 3 must be 1 to beam_size = 2"):
        Rules(beam_size=2, n_best=3)
    with pytest.raises(ValueError, match="at least 0"):
        Rules(beam_size=2, no_repeat_ngram=-1)


def test_stops_as_soon_as_nothing_live_can_win():
    # After the first token the end mark is all but certain: what lives on has at most e^-7, and
    # under the largest penalty, (45 / 6)^0.6 = 3.35, that is below the finished one's score.
    table = jnp.log(jnp.array([[1e-13] * 4 + [1.0], [1e-13, 1e-13, 0.999, 0.001, 1e-13]]))

    def step(tokens, index, cache):
        return jnp.broadcast_to(table[jnp.minimum(index, 1)], (1, 2, 5)), cache

    arguments = [40], SearchNumbers(0.6), Rules(beam_size=2)
    result = searched(beam_search(step, {"beams": {}}, *arguments, length=40))
    assert result.tokens[0, 0, :2].tolist() == [4, EOS]
    assert result.steps == 2


def test_padding_rows_have_no_hypothesis_and_cost_no_step():
    automaton = Automaton(np.random.default_rng(4), rows=3, vocab=9, spread=2.0)
    alone = search(automaton, [3, 3, 3], alpha=0.6, beam=2, length=9)
    padded = search(automaton, [3, 0, 3], alpha=0.6, beam=2, length=9)
    assert outputs_of(padded, 1) == []
    assert [outputs_of(padded, row) for row in (0, 2)] == [outputs_of(alone, row) for row in (0, 2)]
    assert search(automaton, [0, 0, 0], alpha=0.6, beam=2, length=9).steps == 0


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_ties_go_to_the_older_then_to_the_lower(alpha):
    automaton = Automaton(np.random.default_rng(7), rows=2, vocab=9, spread=0.0)
    result = search(automaton, [9, 4], alpha=alpha, beam=3, length=9, n_best=3)
    for row, limit in enumerate((9, 4)):
        expected = reference.beam_search(automaton, row, limit=limit, beam=3, alpha=alpha, n_best=3)
        assert_same(outputs_of(result, row), expected)


@pytest.mark.parametrize("rule", [{"ends_among": 3}, *({"patience": n} for n in (1, 3, 5))])
@pytest.mark.parametrize("groups", [1, 2])
def test_few_may_end_a_hypothesis_and_a_few_ended_ones_the_search(rule, groups):
    automaton = Automaton(np.random.default_rng(8), rows=6, vocab=9, spread=1.5)
    settings = {"alpha": 0.6, "beam": 3 * groups, "n_best": 3, "groups": groups}
    usual = search(automaton, [30] * 6, length=30, **settings)
    ruled = search(automaton, [30] * 6, length=30, **settings, **rule)
    for row in range(6):
        expected = reference.beam_search(automaton, row, limit=30, **settings, **rule)
        assert_same(outputs_of(ruled, row), expected)
    assert any(outputs_of(ruled, row) != outputs_of(usual, row) for row in range(6))
    assert ruled.steps < usual.steps or "patience" not in rule


def test_patience_is_enough_for_all_that_are_asked_for():
    config = DecodingConfig(beam_size=6, diverse_groups=2, patience=0.3)
    assert [rules_for(config, n_best=n).patience for n in (1, 2, 6)] == [1, 2, 3]


@pytest.mark.parametrize("vocab", [4, CHUNK - 1, CHUNK, CHUNK + 3, 12 * CHUNK, 5 * CHUNK + 40])
@pytest.mark.parametrize("levels", [0, 5])
@pytest.mark.parametrize("ban", [True, False])
def test_equals_sorting_everything(vocab, levels, ban):
    rows, beams, count = 6, 3, 6
    rng = np.random.default_rng(vocab + levels)
    logits = rng.normal(size=(rows, beams, vocab)).astype(np.float32)
    log_probs = -rng.exponential(size=(rows, beams)).astype(np.float32)
    if levels:
        # Few different values: many ties, within chunks and between them.
        logits = rng.integers(0, levels, size=logits.shape).astype(np.float32)
        # One is above all of its beam's: what ties below it must still go by beam and token.
        logits[np.arange(rows), 0, rng.integers(vocab, size=rows)] = levels
        logits[:, 1:] = logits[:, :1]
        log_probs = np.full_like(log_probs, -1.0)
    log_probs[0, 1:] = -np.inf
    allowed = rng.random((rows, vocab)) < 0.7
    allowed[:, :2] = True
    allowed[1] = False
    allowed[1, 2] = True

    free = rng.random(vocab) < 0.9
    free[:3] = True
    logits[:, :, ~free] += 9
    only = np.full(rows, -1, np.int32)
    only[2] = vocab - 1

    @jax.jit
    def function(logits, log_probs, banned, only):
        return top_candidates(logits, log_probs, Allowed(only, free, banned), count=count)

    repeated = np.broadcast_to(~allowed[:, None], logits.shape) if ban else None
    values, beam, token = map(np.asarray, function(logits, log_probs, repeated, only))
    allowed = (allowed | (not ban)) & free
    allowed[2] = np.arange(vocab) == only[2]

    # In float32 as well: float64 would break ties that float32 has.
    log_norm = np.asarray(jax.nn.logsumexp(logits, axis=-1, keepdims=True))
    every = log_probs[:, :, None] + (np.where(allowed[:, None], logits, -np.inf) - log_norm)
    every = every.reshape(rows, -1)
    order = np.argsort(-every, axis=1, kind="stable")[:, :count]
    expected = np.take_along_axis(every, order, axis=1)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert values.shape == (rows, count)
    assert (token < vocab).all() and (beam < beams).all()
    exists = expected > -np.inf
    assert exists[3:].all() and exists[2].sum() == beams
    assert not ban or exists[1].sum() == beams
    np.testing.assert_array_equal((beam * vocab + token)[exists], order[exists])
