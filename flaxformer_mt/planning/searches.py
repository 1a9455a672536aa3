"""What a search compiles on an accelerator for a file of any lengths."""

import dataclasses
import time

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.stages import Compiled, Lowered

from flaxformer_mt.config import ExperimentConfig, MeshConfig
from flaxformer_mt.decoding.run.arrays import BatchArrays, empty_arrays
from flaxformer_mt.decoding.run.programs import SearchPrograms
from flaxformer_mt.decoding.run.schedules import AcceleratorSchedule
from flaxformer_mt.decoding.run.sizes import alike_shapes_among
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.search.settings import numbers_for, rules_for
from flaxformer_mt.decoding.text.limits import OutputLimits
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import make_mesh
from flaxformer_mt.planning.compiler import captured
from flaxformer_mt.planning.costs import Compute
from flaxformer_mt.planning.hlo import parse
from flaxformer_mt.planning.plan import costs
from flaxformer_mt.planning.topology import Topology
from flaxformer_mt.training.program import with_dtype


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchProgram:
    """One program of a search on one device. `step` is one pass of its loop, if it has one, and
    `least_bytes` what that pass has to read: the decoder's weights and the cache, once."""

    name: str  # begin, advance or grow
    rows: int
    src_length: int
    room: int  # positions of its cache
    compile_seconds: float
    step: Compute | None
    least_bytes: int


def plan_search_programs(
    config: ExperimentConfig, topology: Topology, *, src_vocab_size: int, tgt_vocab_size: int
) -> list[SearchProgram]:
    """Compiles all that a file of any lengths needs, one program after another, on one device."""
    config = with_dtype(config, topology.devices[0])
    model = Transformer(config.model.for_search, src_vocab_size, tgt_vocab_size)
    mesh = make_mesh(MeshConfig(), topology.devices[:1])
    whole = NamedSharding(mesh, PartitionSpec())
    params = jax.tree.map(
        lambda leaf: leaf.update(sharding=whole),
        jax.eval_shape(lambda: nn.unbox(initial_params(model, jax.random.key(0)))),
    )

    rules = rules_for(config.decoding)
    numbers = numbers_for(config.decoding, Sampling(), rules)
    programs = SearchPrograms((params,), (model,), rules, numbers, mesh)
    limits = OutputLimits(config.decoding, config.model.max_length)
    schedule = AcceleratorSchedule(config.decoding, limits, shards=1)

    def padding(rows: int, src_length: int) -> BatchArrays:
        return empty_arrays(rows, src_length, mask_count=len(rules.all_masks))

    # More sentences than any batch has rows, of all lengths.
    lengths = [1] * (config.decoding.batch_tokens + 1)
    shapes = alike_shapes_among(
        lengths, config.decoding, limits.max_length, longest=limits.max_length
    )
    planned = []
    for shape in sorted(shapes, key=lambda shape: -shape[1]):
        texts: list[tuple[str, float]] = []

        def compiled_by(lowered: Lowered, texts: list[tuple[str, float]] = texts) -> Compiled:
            start = time.perf_counter()
            compiled = lowered.compile()
            texts.append((compiled.as_text() or "", time.perf_counter() - start))
            return compiled

        for (_, stage), task in schedule.tasks(programs, padding, shape, compiled_by).items():
            start = time.perf_counter()
            with captured():
                task()
            seconds = time.perf_counter() - start
            text, _ = texts.pop()
            is_loop = stage.program == "advance"
            planned.append(
                SearchProgram(
                    name=stage.program,
                    rows=shape[0],
                    src_length=shape[1],
                    room=stage.room,
                    compile_seconds=seconds,
                    step=costs(parse(text), topology, one_pass=True) if is_loop else None,
                    least_bytes=_least_bytes(config, shape, stage.room, tgt_vocab_size),
                )
            )
    return planned


def _least_bytes(config: ExperimentConfig, shape: tuple[int, int], room: int, types: int) -> int:
    """The decoder's weights, the softmax matrix and the cache, all in the config's type."""
    model, beams = config.model, config.decoding.beam_size
    rows, src_length = shape
    of_heads = model.num_heads * (model.d_k + model.d_v)
    # Query, key, value and output of self-attention; of the other, keys and values are cached.
    attention = model.d_model * model.num_heads * 3 * (model.d_k + model.d_v)
    weights = model.decoder_layers * (attention + 2 * model.d_model * model.d_ff)
    weights += types * model.d_model
    cache = model.decoder_layers * rows * of_heads * (room * beams + src_length)
    return (weights + cache) * np.dtype(model.dtype).itemsize
