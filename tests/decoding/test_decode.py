"""Decoding with the real model: what the search reports is what the model says."""

import dataclasses
import functools
import itertools
import threading
from contextlib import nullcontext
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data import shortlist
from flaxformer_mt.data.shortlist import Shortlist, distinct
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.decoding.penalties import length_penalty
from flaxformer_mt.decoding.run import (
    background,
    kept_programs,
    output_reader,
    programs,
    schedules,
    shortlists,
    sizes,
)
from flaxformer_mt.decoding.run.arrays import ConstraintSizes
from flaxformer_mt.decoding.run.decoder import BatchDecoder
from flaxformer_mt.decoding.run.kept_programs import KeptPrograms
from flaxformer_mt.decoding.run.sizes import (
    even_shapes,
    plan_batches,
    plan_even_batches,
    shapes_among,
    with_batch_tokens,
)
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.text.decoded import Decoded
from flaxformer_mt.model.embedding import CHUNK
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.compile_cache import watch_compilations
from tests.decoding.examples import CONFIG, VOCAB, decoded, decoder, sentences, tiny, translate_ids
from tests.decoding.runs import parameters
from tests.model.examples import Rows, apply
from tests.training.test_compilations import logged_times


@pytest.fixture
def large(monkeypatch):
    """Models are searched as those of many parameters are."""
    monkeypatch.setattr(sizes, "SMALL", 0)


def full_logits(model, params, src, prefix):
    """Logits of a whole prefix [rows, length] at once, without a cache."""
    marks = (src != PAD).astype(jnp.int32), jnp.ones_like(prefix)
    places = (jnp.broadcast_to(jnp.arange(x.shape[1])[None], x.shape) for x in (src, prefix))
    hidden = apply(model, params, Rows(src, prefix, *marks, *places))
    return model.apply({"params": params}, hidden, method=Transformer.logits)


@pytest.mark.parametrize(("positions", "members"), [("learned", 1), ("sinusoidal", 2)])
def test_scores_are_the_full_models(positions, members):
    """Of an ensemble the mean probability's."""
    model, _ = tiny(positions)
    params = tuple(tiny(positions, seed=seed)[1] for seed in range(members))
    sources = sentences(6)
    forward = jax.jit(functools.partial(full_logits, model))
    translations = decoded(sources, n_best=3, members=(params, (model,) * members))
    for source, outputs in zip(sources, translations, strict=True):
        assert len(outputs) == 3
        assert [o.score for o in outputs] == sorted((o.score for o in outputs), reverse=True)
        src = np.pad(np.array([source], np.int32), ((0, 0), (0, 24 - len(source))))
        for output in outputs:
            tokens = [*output.tokens, EOS]
            prefix = np.full((1, 24), PAD, np.int32)  # one shape: later tokens change nothing
            prefix[0, : len(tokens)] = [BOS, *output.tokens]
            probs = [jax.nn.softmax(forward(member, src, prefix)[0]) for member in params]
            log_probs = np.log(sum(probs) / members)
            forced = sum(float(log_probs[i, token]) for i, token in enumerate(tokens))
            assert output.log_prob == pytest.approx(forced, abs=2e-5)
            expected = output.log_prob / length_penalty(len(tokens), 0.6)
            assert output.score == pytest.approx(expected, rel=1e-6)
            limit = min(len(source) + 6, 24)
            assert len(tokens) <= limit
            assert output.at_limit == (len(tokens) == limit)


class Shortlisted(NamedTuple):
    """A model that is searched greedily, with and without a shortlist."""

    shortlist: Shortlist
    prefix: tuple[int, ...]
    room: int  # types of the shortlist at most, if no more than 8 are needed; then twice as many
    settings: dict[str, Any]

    def best(self, source: list[int], **settings: Any) -> Decoded:
        return decoded([source], **self.settings, **settings)[0][0]

    def fitting_types(self, source: list[int]) -> set[int]:
        """Room for two thirds of the likely types."""
        types = self.shortlist.types([source])
        most = len(distinct(self.prefix, types)) * 2 // 3
        ranked = distinct(self.prefix, types, self.shortlist.ranked)
        return {*ranked[: 8 if most <= 8 else self.room].tolist()}


@pytest.fixture(params=[True, False], ids=["small", "large"])
def shortlisted(request, monkeypatch):
    """Makes a model that is searched as small ones are, or as large ones are."""
    monkeypatch.setattr(sizes, "SMALL", 1 << 23 if request.param else 0)
    monkeypatch.setattr(shortlists, "LEAST_TYPES", 8)
    monkeypatch.setattr(shortlist, "FREQUENT", 1)

    def make(**changes: Any) -> Shortlisted:
        config = dataclasses.replace(tiny()[0].config, vocab_multiple=7, **changes)
        model = Transformer(config, VOCAB, VOCAB)
        params = jax.tree.map(lambda leaf: leaf * 1.5, parameters(model, 0))
        best = np.random.default_rng(0).integers(4, VOCAB, (VOCAB, 2))
        return Shortlisted(
            shortlist=Shortlist(best, np.arange(VOCAB)[::-1], ""),
            prefix=(EOS + 7, EOS + 5),
            room=32 if request.param else 16,
            settings={"members": ((params,), (model,)), "beam_size": 1},
        )

    return make


TIES = pytest.mark.parametrize(
    "changes", [{"tie": "all"}, {"tie": "target"}, {"tie": "none", "logits_bias": True}]
)


@TIES
def test_a_shortlist_is_a_search_among_its_types(changes, shortlisted):
    """The likeliest token is the likeliest of them; a prefix's tokens are among them."""
    model = shortlisted(**changes)
    for source in sentences(5, longest=4):
        prefixes = [[*model.prefix]]
        among = model.best(source, prefixes=prefixes, shortlist=model.shortlist)
        suppress = (UNK, *sorted(set(range(VOCAB)) - model.fitting_types(source)))
        without = model.best(source, prefixes=prefixes, suppress=suppress)
        assert among.tokens == without.tokens and among.tokens[:2] == model.prefix
        assert among.log_prob >= without.log_prob


@TIES
def test_a_suppressed_type_of_a_shortlist_is_never_generated(changes, shortlisted):
    model = shortlisted(**changes)
    for source in sentences(5, longest=4):
        prefixes = [[*model.prefix]]
        tokens = model.best(source, prefixes=prefixes, shortlist=model.shortlist).tokens
        banned = (*tokens[2:], VOCAB - 1)[0]
        output = model.best(source, shortlist=model.shortlist, suppress=(UNK, banned))
        assert banned not in output.tokens


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.extended), 4])
def test_neighbours_and_batch_size_change_nothing(beam, monkeypatch):
    decode = functools.partial(decoded, seed=1, beam_size=beam)  # says things of many lengths
    sources = sentences(24, seed=2)
    together = decode(sources)
    assert len({len(item[0].tokens) for item in together}) > 3
    assert_same(decode(sources[::-1])[::-1], together)
    assert_same([decode([source])[0] for source in sources], together)
    monkeypatch.setattr(sizes, "SMALL", 0)
    monkeypatch.setattr(sizes, "BLOCK", 64)
    assert_same(decode(sources), together)


@pytest.fixture
def nothing_kept(monkeypatch):
    """As in a process that has compiled no search, where no files are."""
    monkeypatch.setattr(kept_programs, "kept_entries", lambda: None)
    monkeypatch.setattr(programs, "_KEPT", KeptPrograms())


def test_compiles_once_a_shape_whatever_the_parameters(nothing_kept):
    model, params = tiny()
    sources = sentences(16, seed=3, longest=12)
    config = dataclasses.replace(CONFIG, beam_size=2)
    first = translate_ids(params, model, sources, config)
    before = watch_compilations().programs
    assert translate_ids(params, model, sources, config) == first
    _, other_params = tiny(seed=1)
    again = Transformer(model.config, VOCAB, VOCAB)
    assert translate_ids(other_params, again, sources, config) != first
    translate_ids(params, model, sources, dataclasses.replace(config, length_penalty=1.0))
    assert watch_compilations().programs == before


def test_plan_covers_every_source_once_in_few_shapes():
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.geometric(0.05, size=3000), 250).tolist()
    config = DecodingConfig(beam_size=4, batch_tokens=8192)
    planned = list(plan_batches(lengths, config, 250))
    assert sorted(n for batch in planned for n in batch.numbers) == list(range(3000))
    for batch in planned:
        assert len(batch.numbers) <= batch.rows
        assert max(lengths[n] for n in batch.numbers) <= batch.length <= 250
        assert batch.rows * batch.length * 4 <= 8192
    # 16, 32, 64, 128 and 250 positions, and the last batch's rows.
    assert len({(batch.rows, batch.length) for batch in planned}) <= 6
    assert list(plan_batches([], config, 250)) == []

    # A sentence that alone exceeds the budget still has its batch.
    small = dataclasses.replace(config, batch_tokens=10)
    assert [batch.rows for batch in plan_batches([200, 3], small, 250)] == [1, 1]


@pytest.mark.parametrize("split", [1, 3, 8])
@pytest.mark.parametrize("budget", [64, 256, 1024, 8192])
@pytest.mark.parametrize("count", [1, 5, 16])
def test_shapes_among_others_are_those_of_every_mixture(split, budget, count):
    config, kinds = DecodingConfig(beam_size=4, batch_tokens=budget), (10, 30, 60)

    def shapes(length: int, longest: int = 60) -> frozenset[tuple[int, int]]:
        return shapes_among([length] * count, config, 64, shards=split, longest=longest)

    foreseen = frozenset[tuple[int, int]]().union(*map(shapes, kinds))
    for lengths in itertools.combinations_with_replacement(kinds, count):
        planned = plan_batches(lengths, config, 64, shards=split)
        assert {(batch.rows, batch.length) for batch in planned} <= foreseen

    # Nothing is compiled in vain where all of the longest share a batch, or are no longer.
    fits = budget // (64 * 4) * split >= count
    assert len(shapes(60)) <= 2 and (len(shapes(10)) == 1 or not fits)
    assert shapes(10, longest=10) == shapes(10, longest=0)
    assert shapes_among([], config, 64, shards=split, longest=60) == frozenset()


def test_what_stands_for_no_type_is_never_generated_and_the_unknown_token_on_request():
    model, params = tiny()
    table = params["embedding"]["shared"]

    def generated(model, table, **settings) -> set[int]:
        changed = {**params, "embedding": {"shared": table}}
        outputs = decoded(
            sentences(4, seed=4), n_best=3, members=((changed,), (model,)), **settings
        )
        hypotheses = itertools.chain(*outputs)
        return {token for hypothesis in hypotheses for token in hypothesis.tokens}

    # A long row makes extreme logits: in some places it is the likeliest token by far.
    louder = table.at[UNK].multiply(8.0)
    assert UNK in generated(model, louder, suppress=()) and UNK not in generated(model, louder)
    padded = Transformer(dataclasses.replace(model.config, vocab_multiple=8), VOCAB, VOCAB)
    extra = jnp.concatenate([table, louder[UNK : UNK + 1], louder[UNK : UNK + 1]])
    assert max(generated(padded, extra)) < VOCAB


def test_refuses_what_the_model_cannot_take():
    model, params = tiny()
    with pytest.raises(DecodingError, match="source 1 has 25 tokens.*; the model takes 1 to 24"):
        translate_ids(params, model, [[EOS], [5] * 24 + [EOS]], CONFIG)
    with pytest.raises(DecodingError, match="source 0 has 0 tokens"):
        translate_ids(params, model, [[]], CONFIG)
    with pytest.raises(DecodingError, match="has a prefix of 24 tokens"):
        decoded([[5, EOS]], prefixes=[[5] * 24])
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    with pytest.raises(DecodingError, match="not finite"):
        translate_ids(broken, model, [[5, EOS]], CONFIG)
    assert translate_ids(params, model, [], CONFIG) == []


def assert_same(together, others, number="score"):
    """The same hypotheses; of each this number to rounding."""
    for ours, theirs in zip(together, others, strict=True):
        for our, their in zip(ours, theirs, strict=True):
            assert our.tokens == their.tokens
            assert getattr(our, number) == pytest.approx(getattr(their, number), abs=1e-5)


def test_finished_sentences_leave_and_the_cache_grows(monkeypatch, large):
    """Whatever the batch goes through, each output is what it is in one that stays as it was."""
    # Ten that have to end soon, three later, and three that may go on.
    lengths = [1] * 10 + [7] * 3 + [22] * 3
    sources = [[5 + (n + i) % 20 for i in range(size)] + [EOS] for n, size in enumerate(lengths)]
    monkeypatch.setattr(sizes, "SHRINKS", 32)
    decode = functools.partial(decoded, n_best=3, seed=1, max_extra_tokens=2, batch_tokens=2048)
    shapes = []
    reshape = programs.SearchPrograms.reshape

    def watched(self, state, rows, room):
        shapes.append((rows.size, room))
        return reshape(self, state, rows, room)

    monkeypatch.setattr(programs.SearchPrograms, "reshape", watched)
    undisturbed = decode(sources)
    assert not shapes
    finished = []
    search = schedules.LargeModelSchedule.search

    def recorded(self, *arguments, **settings):
        for numbers, hypotheses in search(self, *arguments, **settings):
            finished.extend(numbers[numbers >= 0].tolist())
            yield numbers, hypotheses

    monkeypatch.setattr(schedules.LargeModelSchedule, "search", recorded)
    monkeypatch.setattr(sizes, "SHORTEST_ROOM", 4)
    monkeypatch.setattr(sizes, "SHRINKS", 4)
    assert_same(decode(sources), undisturbed)
    assert sorted(finished) == list(range(16))  # each once
    assert {rows for rows, _ in shapes} >= {16, 4} and max(room for _, room in shapes) == 24


def test_members_of_an_ensemble_may_pad_their_tables_differently():
    """`model.vocab_multiple` is for the hardware, and not the same everywhere."""
    (model, first), (_, second) = tiny(), tiny(seed=1)
    wider = Transformer(dataclasses.replace(model.config, vocab_multiple=16), VOCAB, VOCAB)
    table = second["embedding"]["shared"]
    padding = 9.0 * jnp.ones((32 - VOCAB, table.shape[1]))
    padded = {**second, "embedding": {"shared": jnp.concatenate([table, padding])}}
    sources = sentences(6, seed=8, longest=12)
    expected = decoded(sources, n_best=2, members=((second, first), (model, model)))
    with_padding = decoded(sources, n_best=2, members=((padded, first), (wider, model)))
    assert_same(with_padding, expected, "log_prob")


def for_tpu(*arguments: Any, default: Any, tpu: Any = None, **_: Any) -> Any:
    """As `jax.lax.platform_dependent` where programs are compiled for a TPU."""
    return (tpu or default)(*arguments)


def test_a_tpu_searches_with_tables_of_whole_chunks_and_finds_the_same(monkeypatch, nothing_kept):
    sizes: dict[str, Any] = {"positions": "learned", "tie": "none", "logits_bias": True}
    model, _ = tiny()
    model = model.clone(config=dataclasses.replace(model.config, **sizes))
    params = parameters(model, 2)
    params["embedding"]["softmax_bias"] = jnp.linspace(-1.0, 1.0, VOCAB)
    padded, models = programs.suited((params,), (model,), "tpu")
    assert padded[0]["embedding"]["softmax"].shape[0] == CHUNK
    sources = sentences(6, seed=9)
    for settings in ({}, {"no_repeat_ngram": 1}, {"diverse_groups": 2, "diversity": 0.5}):
        expected = decoded(sources, members=((params,), (model,)), n_best=2, **settings)
        with monkeypatch.context() as patch:
            patch.setattr(jax.lax, "platform_dependent", for_tpu)
            patch.setattr(programs, "_KEPT", KeptPrograms())
            on_tpu = decoded(sources, members=(padded, models), n_best=2, **settings)
        assert_same(on_tpu, expected)


def test_a_gpu_sums_exponents_by_the_maxima_of_chunks_and_finds_the_same(monkeypatch, nothing_kept):
    sources = sentences(6, seed=9)

    def on_gpu(*arguments: Any, default: Any, cuda: Any = None, **_: Any) -> Any:
        """As `jax.lax.platform_dependent` where programs are compiled for a GPU."""
        return (cuda or default)(*arguments)

    for settings in ({}, {"no_repeat_ngram": 1}, {"diverse_groups": 2, "diversity": 0.5}):
        expected = decoded(sources, n_best=2, **settings)
        with monkeypatch.context() as patch:
            patch.setattr(jax.lax, "platform_dependent", on_gpu)
            patch.setattr(programs, "_KEPT", KeptPrograms())
            jax.clear_caches()  # or it would be the program of before
            outputs = decoded(sources, n_best=2, **settings)
        jax.clear_caches()
        assert_same(outputs, expected)


def test_length_rules_are_settings():
    sources = [[5, 6, 7, 8, EOS]]
    limits = {(1.0, 6): 11, (2.0, 1): 11, (0.0, 3): 3, (9.0, 50): 24}
    for (ratio, extra), limit in limits.items():
        rules = {"max_ratio": ratio, "max_extra_tokens": extra, "length_penalty": 9.0}
        output = decoded(sources, seed=1, **rules)[0][0]
        assert len(output.tokens) + 1 <= limit
        assert output.at_limit == (len(output.tokens) + 1 == limit)


def test_no_sentences_need_more_than_was_compiled(monkeypatch, large, nothing_kept):
    longest, count, beams = 14, 4, 3  # of which no other test compiles a search
    monkeypatch.setattr(sizes, "SHORTEST_ROOM", 4)
    with logged_times("backend_compile_duration") as compiled:
        decoder(beam_size=beams).compile([longest] * count)
    # Four sizes of cache, and 4 and 1 rows: begin, 7 times advance, reshape them.
    assert len(compiled) > 1 + 7 + 7
    rng = np.random.default_rng(1)
    with logged_times("backend_compile_duration") as compiled:
        for _ in range(20):
            # The first is the longest that the batch takes; the limits spread the others' ends.
            lengths = [longest, *rng.integers(1, longest + 1, count - 1)]
            sources = [[*rng.integers(UNK + 1, VOCAB, n - 1).tolist(), EOS] for n in lengths]
            decoded(sources, beam_size=beams)
    assert not compiled


@pytest.fixture
def accelerator(monkeypatch, large, nothing_kept):
    """Models are searched as on an accelerator, in batches of 4 positions and more, of one row if
    the sources are no more."""
    monkeypatch.setattr(sizes, "COMPILES_FAST", ())
    monkeypatch.setattr(sizes, "ACCELERATOR_SHORTEST", 4)
    monkeypatch.setattr(sizes, "ACCELERATOR_FEW", 1)


def of_lengths(lengths, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(UNK + 1, VOCAB, n - 1).tolist(), EOS] for n in lengths]


def test_an_accelerator_compiles_few_programs_and_finds_the_same(monkeypatch, accelerator):
    # Outputs have a token more than their sources, so those of four tokens don't end in the first
    # cache: all eight of a batch, or one of the next.
    lengths = [*range(5, 25), *[4] * 9, *[1] * 7]
    sources = of_lengths(np.random.default_rng(0).permutation(lengths))
    # Settings of no other test.
    settings = {"beam_size": 5, "n_best": 2, "batch_tokens": 160, "max_extra_tokens": 1}
    monkeypatch.setattr(sizes, "ACCELERATOR_FEW", 2)
    # JAX's own small programs, such as for random parameters, are compiled before.
    decoded(sources, **settings | {"beam_size": 4})
    stages, run = [], schedules.Course.run
    finished, search = [], schedules.AcceleratorSchedule.search

    def recorded(self, stage, of_search, *arguments):
        if of_search.compiled_by is None:
            stages.append((stage.program, stage.rows, stage.room))
        return run(self, stage, of_search, *arguments)

    def finishing(self, *arguments):
        for numbers, hypotheses in search(self, *arguments):
            finished.extend(numbers[numbers >= 0].tolist())
            yield numbers, hypotheses

    monkeypatch.setattr(schedules.Course, "run", recorded)
    monkeypatch.setattr(schedules.AcceleratorSchedule, "search", finishing)
    with logged_times("backend_compile_duration") as compiled:
        outputs = decoded(sources, **settings)
    # Sources of up to 4, 16 and 24 tokens; those of up to 4 move from a cache of 4 positions to one
    # of 5, alone or with the others.
    moved = {stage for stage in stages if stage[2] == 5}
    assert moved == {(name, rows, 5) for name in ("reshape", "advance") for rows in (2, 8)}
    assert sorted(finished) == [*range(len(sources))]  # each once
    assert len(compiled) == 6 + 2 + 2
    with logged_times("backend_compile_duration") as compiled:
        assert_same(decoded(sources[::-1], **settings), outputs[::-1])
        assert_same(decoded(sources[2:], **settings), outputs[2:])
    assert not compiled
    monkeypatch.setattr(sizes, "COMPILES_FAST", ("cpu",))
    assert_same(decoded(sources, **settings), outputs)


def test_the_rows_that_stay_are_the_live_ones_of_each_shard_and_keep_their_numbers():
    stopped = np.array([True, True, False, True, True, False, True, True])
    numbers = np.arange(10, 18)
    staying = schedules._staying(stopped, 2, 1)
    assert staying.tolist() == [[2], [1]]
    assert schedules._numbers_of(staying, numbers).tolist() == [12, 15]
    stopped[0] = False  # two live rows in a shard: all stay, live ones first
    staying = schedules._staying(stopped, 2, 1)
    assert staying.tolist() == [[0, 2, 1, 3], [1, 0, 2, 3]]
    assert schedules._numbers_of(staying, numbers).tolist() == [10, 12, 11, 13, 15, 14, 16, 17]


@pytest.mark.parametrize(
    "settings",
    [{}, {"coverage_penalty": 0.3}, {"min_length": 2, "no_repeat_ngram": 2}, {"patience": 1.0}],
    ids=str,
)
def test_what_is_compiled_beside_is_what_is_run(accelerator, settings):
    """A weak type in a state would make it another program."""
    searches = decoder(beam_size=3, batch_tokens=96, max_extra_tokens=2, **settings)
    with logged_times("backend_compile_duration") as compiled:
        assert searches.compile([4] * 9) == {(8, 4)}
    assert 3 <= len(compiled) <= 6  # other settings may share some


def test_programs_for_phrases_are_compiled_at_once_too(monkeypatch, accelerator):
    begun, beside = [], schedules.BackgroundCompiler.beside

    def recorded(self, tasks):
        begun.append([key for key in tasks if key not in self._begun])
        return beside(self, tasks)

    monkeypatch.setattr(schedules.BackgroundCompiler, "beside", recorded)
    model, params = tiny()
    sizes_of_phrases = (ConstraintSizes(1, 2, 8),)
    searches = BatchDecoder((params,), (model,), CONFIG, constraint_sizes=sizes_of_phrases)
    for constrained in (False, True):
        searches.compile([2], constrained=constrained)
    assert [len(keys) for keys in begun] == [4, 4]


def test_a_server_on_an_accelerator_compiles_all_that_it_needs(accelerator):
    settings = {"beam_size": 6, "batch_tokens": 192}  # as no other test
    with logged_times("backend_compile_duration") as compiled:
        shapes = decoder(**settings).compile([2] * 5, longest=14)
    assert shapes == {(8, 4), (2, 16)} and compiled
    with logged_times("backend_compile_duration") as compiled:
        for seed in range(5):
            lengths = np.random.default_rng(seed).integers(1, 15, 5)
            decoded(of_lengths(lengths, seed), **settings)
    assert not compiled


def test_an_accelerator_compiles_a_larger_cache_ahead_only_for_several_batches(
    monkeypatch, accelerator
):
    """Most outputs need none, and a process doesn't end while it compiles."""
    begun = []

    def beside(_: Any, tasks: Any) -> Any:
        begun.append([stage for _, stage in tasks])
        return nullcontext()

    monkeypatch.setattr(schedules.BackgroundCompiler, "beside", beside)
    for count in (8, 9):
        decoded([[5, EOS]] * count, beam_size=5, batch_tokens=160)
    single, several = begun
    assert single == [("begin", 8, 4, 0), ("advance", 8, 4, 1)]
    few, all_rows = ([("reshape", n, 10, 0), ("advance", n, 10, 0)] for n in (1, 8))
    assert several == [*single, *few, *all_rows]


def test_the_smallest_batch_on_an_accelerator_is_for_few_sources():
    config = DecodingConfig(beam_size=4, batch_tokens=8192)

    def shapes(lengths: list[int], shards: int = 1) -> list[tuple[int, int]]:
        batches = list(plan_even_batches(lengths, config, 250, shards=shards))
        assert sorted(n for batch in batches for n in batch.numbers) == [*range(len(lengths))]
        return [(batch.rows, batch.length) for batch in batches]

    assert shapes([3]) == [(8, 64)] and shapes([200]) == [(8, 250)]
    assert shapes([30] * 8) == [(8, 64)] and shapes([30] * 9) == [(32, 64)]
    assert shapes([30] * 40) == [(32, 64)] * 2  # the last one, too, is of full rows
    assert shapes([30] * 16, shards=2) == [(16, 64)]
    assert shapes([200, *[30] * 40]) == [(8, 250), (32, 64), (32, 64)]
    larger = dataclasses.replace(config, batch_tokens=65_536)
    counts = (8, 9, 64, 65, 999)
    rows = {n: next(iter(plan_even_batches([30] * n, larger, 250))).rows for n in counts}
    assert rows == {8: 8, 9: 64, 64: 64, 65: 256, 999: 256}
    assert shapes([]) == []


def test_a_batch_is_larger_on_a_gpu_unless_it_is_given():
    usual, given = DecodingConfig(), DecodingConfig(batch_tokens=512)
    tokens = {
        platform: (
            with_batch_tokens(usual, platform).batch_tokens,
            with_batch_tokens(given, platform).batch_tokens,
        )
        for platform in ("cpu", "gpu", "tpu")
    }
    assert tokens == {"cpu": (8192, 512), "gpu": (65_536, 512), "tpu": (8192, 512)}


@pytest.mark.parametrize("count", [1, 5, 16])
def test_even_shapes_are_those_of_every_mixture(count):
    config = DecodingConfig(beam_size=4, batch_tokens=512)
    foreseen = even_shapes(count, range(60, 301), config, 512)
    assert len(foreseen) == 3 and len(even_shapes(count, [60], config, 512)) == 1
    for lengths in itertools.combinations_with_replacement((60, 200, 300), count):
        planned = plan_even_batches(lengths, config, 512)
        assert {(batch.rows, batch.length) for batch in planned} <= foreseen
    assert even_shapes(0, [], config, 512) == frozenset()


def test_an_error_leaves_out_what_was_to_be_compiled(monkeypatch, accelerator):
    calls = []

    def failing(*_: Any, **__: Any) -> None:
        calls.append(threading.current_thread())
        raise MemoryError

    monkeypatch.setattr(programs, "_form_of_result", failing)
    monkeypatch.setattr(background, "processors", lambda: 1)
    with pytest.raises(MemoryError):
        decoded(of_lengths(range(1, 25)), beam_size=2, batch_tokens=64)
    for thread in calls:
        thread.join()
    assert 1 <= len(calls) <= 2


def threads_that_stay() -> int:
    """How many threads there are once those have ended that nobody waits for: they compile."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(60)
    return threading.active_count()


def test_a_small_model_needs_few_programs_whatever_the_lengths(monkeypatch, nothing_kept):
    model, params = tiny()
    longer = Transformer(dataclasses.replace(model.config, max_length=300), VOCAB, VOCAB)
    settings = {"members": ((params,), (longer,)), "beam_size": 5, "max_extra_tokens": 40}
    rng = np.random.default_rng(2)
    lengths = [*rng.integers(1, 32, 130), *rng.integers(33, 100, 9), 290]
    sources = [[*rng.integers(UNK + 1, VOCAB, n - 1).tolist(), EOS] for n in lengths]
    monkeypatch.setattr(schedules, "processors", lambda: 3)  # threads that search side by side
    with logged_times("backend_compile_duration") as compiled:
        outputs = decoded(sources, **settings)
    assert 0 < len(compiled) <= 8
    with logged_times("backend_compile_duration") as compiled:
        assert decoded(sources, **settings) == outputs
    assert not compiled
    with monkeypatch.context() as patch:
        patch.setattr(sizes, "SMALL", 0)
        assert_same(decoded(sources, **settings), outputs)
    threads = threads_that_stay()
    monkeypatch.setattr(output_reader, "decoded_of", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt) as raised:  # with its frames, and what they hold
        decoded(sources, **settings)
    assert threads_that_stay() == threads and raised


def test_groups_give_different_outputs_each_once_and_best_first():
    sources = sentences(8, seed=5, longest=12)

    def searched(groups, n_best, **changes):
        settings = {"diverse_groups": groups, "diversity": 5.0, **changes}
        return decoded(sources, seed=5, n_best=n_best, beam_size=6, **settings)

    def first_tokens(groups):
        """The number of different first tokens, summed over sentences."""
        count = 0
        for hypotheses in searched(groups, 6):
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({hypothesis.tokens for hypothesis in hypotheses}) == len(hypotheses)
            count += len({hypothesis.tokens[:1] for hypothesis in hypotheses})
        return count

    assert first_tokens(6) > first_tokens(1)
    with pytest.raises(ValueError, match="beam_size = 6 must be divisible by 4 groups"):
        first_tokens(4)

    # Draws have no groups.
    drawn = searched(3, 2, sampling=Sampling(seed=3))
    assert drawn == searched(1, 2, sampling=Sampling(seed=3), diversity=0.0)


@pytest.mark.parametrize(
    ("groups", "count", "expected"),
    [
        # The best of all is its group's turn: the next is of the other group.
        ([{"a": -1.0, "b": -1.1}, {"c": -2.0, "d": -3.0}], 2, "ac"),
        ([{"c": -2.0, "d": -3.0}, {"a": -1.0, "b": -1.1}], 2, "ac"),
        # What another group has come to as well costs a group no turn.
        ([{"a": -1.0, "b": -1.1}, {"a": -1.5, "c": -2.0}, {"e": -4.0}], 3, "ace"),
        ([{"a": -1.0, "b": -1.1}, {"a": -1.5}], 3, "ab"),
        ([{}, {"a": -1.0}], 2, "a"),
    ],
)
def test_groups_take_turns(groups, count, expected):
    def output(name: str, score: float) -> Decoded:
        return Decoded(tokens=(ord(name),), log_prob=score, score=score, at_limit=False)

    outputs = [[output(name, score) for name, score in group.items()] for group in groups]
    chosen = output_reader._by_turns(outputs, count, tuple)
    assert "".join(chr(hypothesis.tokens[0]) for hypothesis in chosen) == expected
