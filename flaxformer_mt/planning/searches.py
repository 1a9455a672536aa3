"""What a search compiles on an accelerator for a file of any lengths."""

import dataclasses
import operator
import time
from typing import Literal

import flax.linen as nn
import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import NamedSharding, PartitionSpec
from jax.stages import Compiled, Lowered

from flaxformer_mt.config import DecodingConfig, ExperimentConfig, MeshConfig
from flaxformer_mt.decoding.run.arrays import BatchArrays, empty_arrays
from flaxformer_mt.decoding.run.programs import Params, SearchPrograms, suited, suited_models
from flaxformer_mt.decoding.run.schedules import AcceleratorSchedule, Padding, Shape, Stage
from flaxformer_mt.decoding.run.sizes import even_shapes, with_batch_tokens
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.search.settings import numbers_for, rules_for
from flaxformer_mt.decoding.text.limits import OutputLimits
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import make_mesh
from flaxformer_mt.planning.compiler import captured, too_large
from flaxformer_mt.planning.costs import Compute
from flaxformer_mt.planning.hlo import parse
from flaxformer_mt.planning.plan import estimated_compute
from flaxformer_mt.planning.topology import Topology
from flaxformer_mt.training.program import with_dtype


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchProgram:
    """One program of a search on one device."""

    name: Literal["begin", "advance", "reshape"]
    rows: int
    src_length: int
    room: int  # positions of its cache
    compile_seconds: float
    fits: bool
    step: Compute | None  # one pass of its loop, if it has one
    least_bytes: int | None  # that such a pass reads: the decoder's weights and the cache, once


def plan_search_programs(
    config: ExperimentConfig, topology: Topology, *, src_vocab_size: int, tgt_vocab_size: int
) -> list[SearchProgram]:
    """Compiles all that a file of any lengths needs, one program after another, for one device."""
    config = with_dtype(config, topology.devices[0])
    search = with_batch_tokens(config.decoding, topology.platform)
    model = Transformer(config.model.for_search, src_vocab_size, tgt_vocab_size)
    programs = _programs(model, search, topology)
    mask_count = len(programs.rules.all_masks)

    def padding(rows: int, src_length: int) -> BatchArrays:
        return empty_arrays(rows, src_length, mask_count=mask_count)

    limits = OutputLimits(search, config.model.max_length)
    schedule = AcceleratorSchedule(search, limits, shards=1)
    most = search.batch_tokens  # no batch has as many rows
    possible = range(1, limits.max_length + 1)
    shapes = even_shapes(most, possible, search, limits.max_length)

    planned = []
    for shape in sorted(shapes, reverse=True, key=operator.itemgetter(1)):
        for stage in schedule.course(shape).stages:
            start = time.perf_counter()
            compiled = _compiled(schedule, programs, padding, shape, stage)
            seconds = time.perf_counter() - start
            step = least_bytes = None
            if compiled is not None and stage.program == "advance":
                hlo = parse(compiled.as_text() or "")
                step = estimated_compute(hlo, topology, one_pass=True)
                least_bytes = _least_bytes(config, stage, shape[1], tgt_vocab_size)
            planned.append(
                SearchProgram(
                    name=stage.program,
                    rows=stage.rows,
                    src_length=shape[1],
                    room=stage.room,
                    compile_seconds=seconds,
                    fits=compiled is not None,
                    step=step,
                    least_bytes=least_bytes,
                )
            )
    return planned


def _programs(model: Transformer, search: DecodingConfig, topology: Topology) -> SearchPrograms:
    """The programs for parameters without values."""

    def drawn() -> Params:
        params = nn.unbox(initial_params(model, jax.random.key(0)))
        return suited((params,), (model,), topology.platform)[0]

    mesh = make_mesh(MeshConfig(), topology.devices[:1])
    whole = NamedSharding(mesh, PartitionSpec())
    params = jax.tree.map(lambda leaf: leaf.update(sharding=whole), jax.eval_shape(drawn))
    models = suited_models((model,), topology.platform)
    rules = rules_for(search)
    return SearchPrograms(params, models, rules, numbers_for(search, Sampling(), rules), mesh)


def _compiled(
    schedule: AcceleratorSchedule,
    programs: SearchPrograms,
    padding: Padding,
    shape: Shape,
    stage: Stage,
) -> Compiled | None:
    """One program; None if the compiler refuses its size."""
    compiled: list[Compiled] = []

    def compiled_by(lowered: Lowered) -> Compiled:
        compiled.append(lowered.compile())
        return compiled[-1]

    tasks = {
        of_stage: task
        for (_, of_stage), task in schedule.tasks(programs, padding, shape, compiled_by).items()
    }
    with captured():
        try:
            tasks[stage]()
        except JaxRuntimeError as error:
            if too_large(error) is None:
                raise
            return None
    return compiled[-1]


def _least_bytes(config: ExperimentConfig, stage: Stage, src_length: int, types: int) -> int:
    """The decoder's weights, the softmax matrix and the cache, all in the config's type."""
    model, beams = config.model, config.decoding.beam_size
    of_heads = model.num_heads * (model.d_k + model.d_v)
    # Query, key, value and output of self-attention; of the other, keys and values are cached.
    attention = model.d_model * model.num_heads * 3 * (model.d_k + model.d_v)
    weights = model.decoder_layers * (attention + 2 * model.d_model * model.d_ff)
    weights += types * model.d_model
    cache = model.decoder_layers * stage.rows * of_heads * (stage.room * beams + src_length)
    return (weights + cache) * np.dtype(model.dtype).itemsize
