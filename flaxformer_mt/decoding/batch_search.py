"""The compiled programs of a search, and the few shapes that a batch takes."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.stages import Lowered
from jaxtyping import Array, Int

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.processes import processors
from flaxformer_mt.data.vocabulary import PAD, UNK
from flaxformer_mt.decoding import search
from flaxformer_mt.decoding.constraints import Phrase
from flaxformer_mt.decoding.forbidden import Forbidden
from flaxformer_mt.decoding.rules import Brackets, Rules
from flaxformer_mt.decoding.sampling import SEED_WORDS, Sampling
from flaxformer_mt.decoding.search import Sentences, State, Step, Weights
from flaxformer_mt.decoding.segments import output_limit
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.embedding import CHUNK
from flaxformer_mt.model.transformer import grown

Params = tuple[Any, ...]  # a tree under "params" for each of the models
Models = tuple[Transformer, ...]  # several: an ensemble

# Token ids [rows, src_length], their lengths, and what each row is searched with.
BatchArrays = tuple[Any, Any, Sentences]

SHORTEST_ROOM = 32  # output positions of the smallest cache
# A batch moves to a shape of so many times fewer rows, though no fewer than the second number. An
# accelerator takes many seconds to compile each program, and a step of base, beam 4, is planned to
# take 0.39 ms on a TPU v5e with 8 rows and 0.30 with one.
FEWER, FEWEST = (4, 1), (32, 8)
SMALL = 1 << 23  # parameters up to which compiling takes longer than searching, on a CPU
BLOCK = 1024  # source tokens that a CPU encodes at a time: a layer's activations stay in its cache


@dataclasses.dataclass(frozen=True)
class Source:
    """Token ids (pieces + EOS), and what their outputs must be."""

    tokens: Sequence[int]
    number: tuple[int, int]  # of the line and its piece: draws depend on it
    prefix: Sequence[int] = ()  # what outputs begin with
    words: int = 0  # leaves of a tree, unless these are the source's own tokens
    forbidden: Sequence[Forbidden] = ()  # automata that read outputs
    phrases: Sequence[Phrase] = ()  # that outputs must have


def padding(rows: int, src_length: int, *, prefix: int = 0) -> BatchArrays:
    """Host arrays of an empty batch, to be filled in, with room for `prefix` tokens of a prefix."""
    src = np.full((rows, src_length), PAD, np.int32)
    sentences: Any = (
        np.zeros(rows, np.int32),
        np.full((rows, prefix), PAD, np.int32),
        np.zeros((rows, SEED_WORDS), np.uint32),
        np.zeros(rows, np.int32),
        src,
    )
    return src, np.zeros(rows, np.int32), Sentences(*sentences)


def suited(models: Models, params: Params, platform: str) -> tuple[Models, Params]:
    """The same models, for a TPU with tables padded to whole chunks for `top_candidates`; for a CPU
    with past keys and values in float32.

    XLA's CPU backend updates no bfloat16 array in place: at every step it would convert all of the
    cache, which takes a fifth of base's time.
    """
    if platform == "cpu":
        return tuple(model.clone(cache_dtype="float32") for model in models), params
    if platform != "tpu":
        return models, params
    wider, padded = [], []
    for model, own in zip(models, params, strict=True):
        multiple = math.lcm(model.config.vocab_multiple, CHUNK)
        config = dataclasses.replace(model.config, vocab_multiple=multiple)
        wider.append(model.clone(config=config))
        tables = {
            name: jnp.pad(leaf, [(0, -len(leaf) % multiple)] + [(0, 0)] * (leaf.ndim - 1))
            for name, leaf in own["embedding"].items()
            if not name.endswith("_positions")
        }
        padded.append({**own, "embedding": {**own["embedding"], **tables}})
    return tuple(wider), tuple(padded)


def rules_for(
    config: DecodingConfig,
    *,
    n_best: int = 1,
    spare: int = 0,
    suppress: tuple[int, ...] = (UNK,),
    sampling: Sampling | None = None,
    trees: Brackets | None = None,
) -> Rules:
    groups = 1 if sampling else config.diverse_groups  # draws differ by themselves
    width = config.beam_size // groups
    ended = max(round(config.patience * width), min(n_best, width))
    return Rules(
        beam_size=config.beam_size,
        n_best=n_best,
        spare=spare,
        suppress=suppress,
        ends_among=width if config.ends_among == "beam" else 0,
        patience=ended if config.patience and not sampling else 0,
        groups=groups,
        coverage=config.coverage_penalty > 0,
        no_repeat=config.no_repeat_ngram,
        sample=sampling is not None,
        top_k=0 if sampling is None else sampling.top_k,
        trees=trees,
    )


def weights_for(config: DecodingConfig, drawn: Sampling) -> Weights:
    return Weights(
        alpha=config.length_penalty,
        average=config.length_norm == "average",
        beta=config.coverage_penalty,
        diversity=config.diversity,
        temperature=drawn.temperature,
        top_p=drawn.top_p,
    )


def shrunk(rows: int, fewer: tuple[int, int]) -> int:
    """The next number of rows, by FEWER or FEWEST, at most a quarter; 0 if there is none."""
    less = max(rows // fewer[0], fewer[1])
    return less if 4 * less <= rows else 0


def more_room(room: int, length: int) -> int:
    """The next size of a cache (0: the first) for outputs of at most `length` tokens."""
    return min(max(2 * room, SHORTEST_ROOM), length)


def rooms_of_small(src_length: int, length: int) -> tuple[int, ...]:
    """A small model's cache sizes: two where sources are short, as most are."""
    return tuple(sorted({min(SHORTEST_ROOM, length), length}))[-2 if src_length <= 32 else -1 :]


def blocks_of(rows: int, src_length: int) -> int:
    """Into how many equal parts of some BLOCK tokens that many rows can be split."""
    blocks = 1
    while rows % (2 * blocks) == 0 and rows * src_length > blocks * BLOCK:
        blocks *= 2
    return blocks


def _encoded(model: Transformer, params: Any, *sources: Array, blocks: int) -> Array:
    """The encoder's output for token ids, segment ids and positions, [rows, src_length]."""

    def encode(block: tuple[Array, ...]) -> Any:
        src, segment_ids, positions = block
        return model.apply(
            {"params": params},
            src,
            src_segment_ids=segment_ids,
            src_positions=positions,
            deterministic=True,
            method="encode",
        )

    if blocks == 1:
        return encode(sources)
    cut = tuple(part.reshape(blocks, -1, part.shape[1]) for part in sources)
    return jax.lax.map(encode, cut).reshape(*sources[0].shape, -1)


@functools.partial(jax.jit, static_argnames=("models", "rules", "length", "room", "blocks"))
def begin_search(
    params: Params,
    src: Int[Array, "rows src_length"],
    src_lengths: Int[Array, " rows"],
    sentences: Sentences,
    *,
    models: Models,
    rules: Rules,
    length: int,
    room: int,
    blocks: int = 1,
) -> State:
    """Encodes the sources, `blocks` equal parts one after another, and begins their searches."""
    positions = jnp.broadcast_to(jnp.arange(src.shape[1]), src.shape)
    segment_ids = (positions < src_lengths[:, None]).astype(jnp.int32)
    caches = []
    for model, own in zip(models, params, strict=True):
        encoded = _encoded(model, own, src, segment_ids, positions * segment_ids, blocks=blocks)
        cache = model.apply(
            {"params": own},
            encoded,
            segment_ids,
            beams=rules.beam_size,
            length=room,
            coverage=rules.coverage,
            method="start_cache",
        )
        caches.append(cache)
    return _by_rows(search.begin(_together(caches), sentences, rules, length=length))


@functools.partial(
    jax.jit, static_argnames=("models", "rules", "parts"), donate_argnames=("state",)
)
def advance_search(
    params: Params,
    state: State,
    weights: Weights,
    until: Int[Array, ""],
    leave_at: Int[Array, ""],
    stride: Int[Array, ""],
    *,
    models: Models,
    rules: Rules,
    parts: int,
) -> State:
    """`search.advance` until position `until`, for which the cache has room."""
    given: Any = {"until": until, "leave_at": leave_at, "stride": stride, "parts": parts}
    return search.advance(step_of(models, params), state, weights, rules, **given)


@functools.partial(jax.jit, static_argnames=("parts", "room"))
def reshaped(state: State, rows: Int[Array, "parts kept"], *, parts: int, room: int) -> State:
    """`state` with only these rows of each part, and room for so many positions."""

    def kept(leaf: Array) -> Array:
        if leaf.ndim == 0:
            return leaf
        # Part by part: where parts are devices, no row moves to another one.
        split = leaf.reshape(parts, leaf.shape[0] // parts, *leaf.shape[1:])
        return search.take(split, rows).reshape(rows.size, *leaf.shape[1:])

    if rows.size != state.stopped.size:
        state = jax.tree.map(kept, state)
    return _by_rows(_with_room(state, room))


def compiled(program: Any) -> Callable[..., State]:
    """One of these three programs, compiled but not run: gives its output without values."""

    def compile_for(*arguments: Any, **settings: Any) -> State:
        lowered = program.lower(*arguments, **settings)
        shardings = lowered.compile().output_shardings
        found: State = jax.tree.map(
            lambda leaf, sharding: leaf.update(sharding=sharding), lowered.out_info, shardings
        )
        return found

    return compile_for


def rows_of(state: State, chosen: np.ndarray) -> State:
    return jax.tree.map(lambda leaf: leaf[chosen] if leaf.ndim else leaf, state)


def merged(
    one: tuple[np.ndarray, State], other: tuple[np.ndarray, State]
) -> tuple[np.ndarray, State]:
    """Two groups of sentences (numbers and host states) at the same position, as one."""

    def both(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.concatenate([a, b]) if a.ndim else a

    found: tuple[np.ndarray, State] = jax.tree.map(both, one, other)
    return found


def filled(state: State, rows: int, *, room: int) -> State:
    """The first `rows` rows of a state of host arrays, padded if there are fewer."""

    def fitted(leaf: np.ndarray) -> np.ndarray:
        if leaf.ndim == 0 or len(leaf) >= rows:
            return leaf[:rows] if leaf.ndim else leaf
        return np.concatenate([leaf, np.zeros((rows - len(leaf), *leaf.shape[1:]), leaf.dtype)])

    found: State = jax.tree.map(fitted, state)
    found.stopped[state.stopped.size :] = True
    return _with_room(found, room)


def _with_room(state: State, room: int) -> State:
    return state._replace(cache=_together([grown(cache, room) for cache in _apart(state.cache)]))


def step_of(models: Models, params: Params) -> Step:
    """One step of all models: the log of their mean probability, or a single model's logits."""

    def step(tokens: Array, index: Array, cache: Any) -> tuple[Array, Any]:
        caches, logits = [], []
        for model, own, its in zip(models, params, _apart(cache), strict=True):
            out, its = model.apply({"params": own}, tokens, index, its, method="decode_step")
            logits.append(out)
            caches.append(its)
        if len(models) == 1:
            return logits[0], _together(caches)
        # Without the rows that pad tables, whose number may differ between members.
        types = models[0].tgt_vocab_size
        each = jnp.stack([jax.nn.log_softmax(out[..., :types], axis=-1) for out in logits])
        return jax.nn.logsumexp(each, axis=0) - np.log(len(models)), _together(caches)

    return step


def _together(caches: Any) -> Any:
    return {
        "beams": tuple(cache["beams"] for cache in caches),
        "models": tuple({k: v for k, v in cache.items() if k != "beams"} for cache in caches),
    }


def _apart(cache: Any) -> list[Any]:
    return [
        {**rest, "beams": beams}
        for rest, beams in zip(cache["models"], cache["beams"], strict=True)
    ]


def _by_rows(state: State) -> State:
    """Splits everything by rows: what depends on no input would be whole on each device."""

    def split(leaf: Array) -> Array:
        return nn.with_logical_constraint(leaf, ("batch", *[None] * (leaf.ndim - 1)))

    return jax.tree.map(lambda leaf: split(leaf) if leaf.ndim else leaf, state)


def is_small(params: Params, mesh: Mesh) -> bool:
    """Whether compiling fewer programs saves more time than searching then costs."""
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return size <= SMALL and mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"


def threads_for(sentences: int, rows: int) -> int:
    """How many threads search a small model's batch, whose products leave cores idle."""
    return min(processors(), -(-sentences // rows))


def parts_of(mesh: Mesh) -> int:
    """How many parts, one per device, a batch's rows are split into."""
    return int(mesh.shape["data"] * mesh.shape["fsdp"])


def lower_search(
    params: Mapping[str, Any],
    model: Transformer,
    config: DecodingConfig,
    *,
    rows: int,
    src_length: int,
    length: int | None = None,
    sharding: jax.sharding.Sharding,
    platforms: tuple[str, ...] | None = None,
) -> Lowered:
    """One batch shape's search as a single program for `sharding`, with outputs of `length` tokens
    (default: the most that the settings allow).

    `params` may be abstract (`jax.ShapeDtypeStruct`). `platforms`, such as ("cuda",), replace the
    sharding's own as targets.
    """
    length = length or output_limit(config, src_length, model.config.max_length)
    rules = rules_for(config)
    device: jax.Device = next(iter(sharding.device_set))
    target = platforms[0] if platforms else device.platform

    def search(params: Any, weights: Any, *sources: Any) -> Any:
        models, own = suited((model,), (params,), target)
        static: Any = {"models": models, "rules": rules}
        state = begin_search(own, *sources, length=length, room=length, **static)
        numbers = length, np.int32(0), np.int32(1)
        return advance_search(own, state, weights, *numbers, parts=1, **static).finished

    def abstract(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf), sharding=sharding)

    arguments = jax.tree.map(abstract, (Weights(), *padding(rows, src_length)))
    return jax.jit(search).trace(params, *arguments).lower(lowering_platforms=platforms)
