"""The compiled programs of a search: begin, advance, and change a batch's shape."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled, Lowered
from jaxtyping import Array, Int

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.decoding.run.arrays import BatchArrays, empty_arrays
from flaxformer_mt.decoding.run.kept_programs import KeptPrograms
from flaxformer_mt.decoding.run.sizes import blocks_of, is_small, shards_of
from flaxformer_mt.decoding.search import state as search_state, step as search_step
from flaxformer_mt.decoding.search.settings import Rules, SearchNumbers, rules_for
from flaxformer_mt.decoding.search.state import Hypotheses, SearchRows, State
from flaxformer_mt.decoding.search.step import Step
from flaxformer_mt.decoding.text.limits import output_limit
from flaxformer_mt.decoding.top_k import take
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.embedding import CHUNK
from flaxformer_mt.model.parameters import variables_for_steps
from flaxformer_mt.model.transformer import grown
from flaxformer_mt.parallel.mesh import batch_sharding, on_mesh, place_batch, whole_on

Params = tuple[Any, ...]  # a tree under "params" for each of the models
Models = tuple[Transformer, ...]  # several: an ensemble
Group = TypeVar("Group")
_KEPT = KeptPrograms()  # of all searches: equal ones need the same programs


@dataclasses.dataclass(frozen=True, eq=False)
class SearchPrograms:
    """The three programs of a search with fixed models, rules and numbers, on a mesh.

    With `compiled_by` they are compiled, by that function, and not run, and give arrays without
    values; the mesh may then be of devices that aren't here.
    """

    params: Params
    models: Models
    rules: Rules
    numbers: SearchNumbers
    mesh: Mesh
    compiled_by: Callable[[Lowered], Compiled] | None = None

    @classmethod
    def of(
        cls, params: Params, models: Models, rules: Rules, numbers: SearchNumbers, mesh: Mesh
    ) -> SearchPrograms:
        """Of models as they were trained, or already suited (a second time changes nothing)."""
        params, models = suited(whole_on(params, mesh), models, mesh.devices.flat[0].platform)
        return cls(params, models, rules, numbers, mesh)

    @functools.cached_property
    def is_small(self) -> bool:
        """As `sizes.is_small`."""
        return is_small(self.params, self.mesh)

    @functools.cached_property
    def on_one_cpu(self) -> bool:
        """Whether they run on a CPU that is a single device."""
        return self.mesh.size == 1 and self.mesh.devices.flat[0].platform == "cpu"

    @functools.cached_property
    def shards(self) -> int:
        """How many shards, one per device, a batch's rows are split into."""
        return shards_of(self.mesh)

    @property
    def target_types(self) -> int:
        """The types among which the models choose."""
        return self.models[0].tgt_vocab_size

    def with_numbers(self, **changes: Any) -> SearchPrograms:
        """The same with other numbers, given as host arrays."""
        placed = {name: whole_on(arrays, self.mesh) for name, arrays in changes.items()}
        return dataclasses.replace(self, numbers=self.numbers._replace(**placed))

    def begin(self, batch: BatchArrays, *, length: int, room: int) -> State:
        """The state before the first step, for outputs of at most `length` tokens, with a cache for
        the first `room`."""
        return self._begun(self._program(begin_search), batch, length=length, room=room)

    def form_of_begin(self, batch: BatchArrays, *, length: int, room: int) -> State:
        """The shapes and shardings of `begin`'s result, to compile `advance` without waiting for
        it."""
        form = self._begun(begin_search.eval_shape, batch, length=length, room=room)
        by_rows, whole = batch_sharding(self.mesh), NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(
            lambda leaf: leaf.update(sharding=by_rows if leaf.ndim else whole), form
        )

    def _begun(
        self, begin: Callable[..., Any], batch: BatchArrays, *, length: int, room: int
    ) -> Any:
        blocks = blocks_of(*batch.src.shape) if self.on_one_cpu else 1
        placed = self._placed(batch)
        with on_mesh(self.mesh):
            return begin(
                self.params,
                *placed,
                models=self.models,
                rules=self.rules,
                length=length,
                room=room,
                blocks=blocks,
            )

    def advance(self, state: State, until: int, leave_at: int = 0, stride: int = 1) -> State:
        """The state some steps later: as `search.step.advance`."""
        if self.is_small:  # however a state is placed, it needs the same program
            state = whole_on(state, self.mesh)
        return self._advanced(self._program(advance_search), state, until, leave_at, stride)

    def _advanced(
        self, advance: Callable[..., Any], state: State, until: int, leave_at: int, stride: int
    ) -> Any:
        with on_mesh(self.mesh):
            return advance(
                self.params,
                state,
                self.numbers,
                np.int32(until),
                np.int32(leave_at),
                np.int32(stride),
                models=self.models,
                rules=self.rules,
                shards=self.shards,
            )

    def get_begin(self, batch: BatchArrays, *, length: int, room: int) -> State:
        """On one CPU, compiles `begin`, or reads it from its file; gives the form of its result."""
        compiled = self._begun(self._compiled(begin_search), batch, length=length, room=room)
        form: State = compiled.out_info
        return form

    def get_advance(self, begun: State, room: int) -> None:
        """The same for `advance` with a cache of this room, of a state that begins in this form."""
        state = jax.eval_shape(functools.partial(_with_room, room=room), begun)
        self._advanced(self._compiled(advance_search), state, room, 0, 1)

    def _compiled(self, program: Any) -> Callable[..., Any]:
        def compiled(*arguments: Any, **settings: Any) -> Compiled:
            return _KEPT.of(program, arguments, settings, self.mesh)

        return compiled

    def reshape(self, state: State, rows: np.ndarray, room: int) -> State:
        """The state with only these rows of each shard, [shards, rows], and a cache of `room`."""
        reshape = self._program(reshaped)
        placed = self._placed(rows.astype(np.int32))
        with on_mesh(self.mesh):
            return reshape(state, placed, shards=self.shards, room=room)

    def _program(self, program: Any) -> Callable[..., State]:
        if self.compiled_by is not None:
            return functools.partial(_form_of_result, program, self.compiled_by)
        if not self.on_one_cpu:
            return program

        def kept(*arguments: Any, **settings: Any) -> State:
            compiled = _KEPT.of(program, arguments, settings, self.mesh)
            return compiled(*arguments)

        return kept

    def _placed(self, host_arrays: Any) -> Any:
        """A batch's arrays on the mesh, or their forms there."""
        if self.compiled_by is None:
            return place_batch(host_arrays, self.mesh)
        sharding = batch_sharding(self.mesh)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            host_arrays,
        )


def _form_of_result(
    program: Any, compiled_by: Callable[[Lowered], Compiled], *arguments: Any, **settings: Any
) -> State:
    """What one of these programs gives, without values, once it is compiled."""
    lowered = program.lower(*arguments, **settings)
    shardings = compiled_by(lowered).output_shardings
    form: State = jax.tree.map(
        lambda leaf, sharding: leaf.update(sharding=sharding), lowered.out_info, shardings
    )
    return form


def suited(params: Params, models: Models, platform: str) -> tuple[Params, Models]:
    """The same models as `suited_models`, with their parameters."""
    suitable = suited_models(models, platform)
    padded = [
        _with_padded_tables(tree, model.config.vocab_multiple, other.config.vocab_multiple)
        for tree, model, other in zip(params, models, suitable, strict=True)
    ]
    return tuple(padded), suitable


def suited_models(models: Models, platform: str) -> Models:
    """The same models, for a TPU with tables padded to whole chunks for `top_candidates`; for a CPU
    with past keys and values in float32.

    XLA's CPU backend updates no bfloat16 array in place: at every step it would convert all of the
    cache, which takes a fifth of base's time.
    """
    if platform == "cpu":
        return tuple(model.clone(cache_dtype="float32") for model in models)
    if platform != "tpu":
        return models
    configs = [
        dataclasses.replace(
            model.config, vocab_multiple=math.lcm(model.config.vocab_multiple, CHUNK)
        )
        for model in models
    ]
    return tuple(model.clone(config=config) for model, config in zip(models, configs, strict=True))


def _with_padded_tables(params: Any, multiple: int, new_multiple: int) -> Any:
    if multiple == new_multiple:  # a copy would take as much memory again
        return params
    tables = {
        name: jnp.pad(leaf, [(0, -len(leaf) % new_multiple)] + [(0, 0)] * (leaf.ndim - 1))
        for name, leaf in params["embedding"].items()
        if not name.endswith("_positions")
    }
    return {**params, "embedding": {**params["embedding"], **tables}}


def _encoded(params: Any, model: Transformer, *sources: Array, blocks: int) -> Array:
    """The encoder's output for token ids, segment ids and positions, [rows, src_length]."""

    def encode(block: tuple[Array, ...]) -> Any:
        src, segment_ids, positions = block
        return model.apply(
            {"params": params},
            src,
            src_segment_ids=segment_ids,
            src_positions=positions,
            dropout_key=None,
            method="encode",
        )

    if blocks == 1:
        return encode(sources)
    cut = tuple(array.reshape(blocks, -1, array.shape[1]) for array in sources)
    return jax.lax.map(encode, cut).reshape(*sources[0].shape, -1)


@functools.partial(jax.jit, static_argnames=("models", "rules", "length", "room", "blocks"))
def begin_search(
    params: Params,
    src: Int[Array, "rows src_length"],
    src_lengths: Int[Array, " rows"],
    rows: SearchRows,
    *,
    models: Models,
    rules: Rules,
    length: int,
    room: int,
    blocks: int = 1,
) -> State:
    """Encodes the sources, `blocks` equal blocks one after another, and begins their searches."""
    positions = jnp.broadcast_to(jnp.arange(src.shape[1]), src.shape)
    segment_ids = (positions < src_lengths[:, None]).astype(jnp.int32)
    caches = []
    for tree, model in zip(params, models, strict=True):
        encoded = _encoded(tree, model, src, segment_ids, positions * segment_ids, blocks=blocks)
        cache = model.apply(
            {"params": tree},
            encoded,
            segment_ids,
            beams=rules.beam_size,
            length=room,
            coverage=rules.coverage_penalty,
            method="start_cache",
        )
        caches.append(cache)
    return _sharded_by_rows(search_state.begin(_joined_caches(caches), rows, rules, length=length))


@functools.partial(
    jax.jit, static_argnames=("models", "rules", "shards"), donate_argnames=("state",)
)
def advance_search(
    params: Params,
    state: State,
    numbers: SearchNumbers,
    until: Int[Array, ""],
    leave_at: Int[Array, ""],
    stride: Int[Array, ""],
    *,
    models: Models,
    rules: Rules,
    shards: int,
) -> State:
    """`search.step.advance` until position `until`, for which the cache has room."""
    return search_step.advance(
        step_of(params, models),
        state,
        numbers,
        rules,
        until=until,
        shards=shards,
        leave_at=leave_at,
        stride=stride,
    )


@functools.partial(jax.jit, static_argnames=("shards", "room"))
def reshaped(state: State, rows: Int[Array, "shards kept"], *, shards: int, room: int) -> State:
    """`state` with only these rows of each shard, and room for so many positions."""

    def chosen(leaf: Array) -> Array:
        if leaf.ndim == 0:
            return leaf
        # Shard by shard: where shards are devices, no row moves to another one.
        split = leaf.reshape(shards, leaf.shape[0] // shards, *leaf.shape[1:])
        return take(split, rows).reshape(rows.size, *leaf.shape[1:])

    if rows.size != state.stopped.size:
        state = jax.tree.map(chosen, state)
    return _sharded_by_rows(_with_room(state, room))


def rows_of(state: State, chosen: np.ndarray) -> State:
    return jax.tree.map(lambda leaf: leaf[chosen] if leaf.ndim else leaf, state)


def concatenated(first: Group, second: Group) -> Group:
    """Two groups of sentences (numbers and host states) at the same position, as one."""

    def both(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.concatenate([a, b]) if a.ndim else a

    joined: Group = jax.tree.map(both, first, second)
    return joined


def padded_to(state: State, rows: int, *, room: int) -> State:
    """The first `rows` rows of a state of host arrays, padded if there are fewer."""

    def fitted(leaf: np.ndarray) -> np.ndarray:
        if leaf.ndim == 0 or len(leaf) >= rows:
            return leaf[:rows] if leaf.ndim else leaf
        return np.concatenate([leaf, np.zeros((rows - len(leaf), *leaf.shape[1:]), leaf.dtype)])

    full: State = jax.tree.map(fitted, state)
    full.stopped[state.stopped.size :] = True
    return _with_room(full, room)


def _with_room(state: State, room: int) -> State:
    return state._replace(
        cache=_joined_caches([grown(cache, room) for cache in _member_caches(state.cache)])
    )


def step_of(params: Params, models: Models) -> Step:
    """One step of all models: the log of their mean probability, or a single model's logits."""
    variables = [
        variables_for_steps(tree, model.config) for tree, model in zip(params, models, strict=True)
    ]

    def step(tokens: Array, index: Array, cache: Any) -> tuple[Array, Any]:
        caches, logits = [], []
        for own, model, member in zip(variables, models, _member_caches(cache), strict=True):
            output, member = model.apply(own, tokens, index, member, method="decode_step")
            logits.append(output)
            caches.append(member)
        if len(models) == 1:
            return logits[0], _joined_caches(caches)
        # Without the rows that pad tables, whose number may differ between members.
        types = models[0].tgt_vocab_size
        log_probs = jnp.stack(
            [jax.nn.log_softmax(output[..., :types], axis=-1) for output in logits]
        )  # --> [members, rows, beams, types]
        mean = jax.nn.logsumexp(log_probs, axis=0) - np.log(len(models))
        return mean, _joined_caches(caches)

    return step


def _joined_caches(caches: Any) -> Any:
    return {
        "beams": tuple(cache["beams"] for cache in caches),
        "models": tuple(
            {name: leaf for name, leaf in cache.items() if name != "beams"} for cache in caches
        ),
    }


def _member_caches(cache: Any) -> list[Any]:
    return [
        {**of_model, "beams": beams}
        for of_model, beams in zip(cache["models"], cache["beams"], strict=True)
    ]


def _sharded_by_rows(state: State) -> State:
    """Shards everything by rows: what depends on no input would be whole on each device."""

    def split(leaf: Array) -> Array:
        return nn.with_logical_constraint(leaf, ("batch", *[None] * (leaf.ndim - 1)))

    return jax.tree.map(lambda leaf: split(leaf) if leaf.ndim else leaf, state)


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

    def search(params: Any, numbers: SearchNumbers, batch: BatchArrays) -> Hypotheses:
        placed, models = suited((params,), (model,), target)
        begun = begin_search(
            placed,
            batch.src,
            batch.src_lengths,
            batch.rows,
            models=models,
            rules=rules,
            length=length,
            room=length,
        )
        # To the end in one go: no row leaves before all have stopped.
        until, leave_at, stride = length, np.int32(0), np.int32(1)
        done = advance_search(
            placed, begun, numbers, until, leave_at, stride, models=models, rules=rules, shards=1
        )
        return done.finished

    def abstract(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf), sharding=sharding)

    mask_count = len(rules.all_masks)
    numbers = jax.tree.map(abstract, SearchNumbers(mask_shared=(None,) * mask_count))
    batch = jax.tree.map(abstract, empty_arrays(rows, src_length, mask_count=mask_count))
    return jax.jit(search).trace(params, numbers, batch).lower(lowering_platforms=platforms)
