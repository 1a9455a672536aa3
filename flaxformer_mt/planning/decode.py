"""What beam search takes on one device of a topology: the search of `translate`, compiled."""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax
from jax.sharding import SingleDeviceSharding

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.decoding.batch_search import lower_search, output_limit
from flaxformer_mt.decoding.batches import plan_batches
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.planning.compile import Memory, TooLarge, compile_quietly
from flaxformer_mt.planning.cycles import Compute, compute_costs
from flaxformer_mt.planning.fit import check_length
from flaxformer_mt.planning.topology import Topology
from flaxformer_mt.training.program import with_dtype


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodePlan:
    """One batch of the longest sources on one device. Seconds are of the whole search at most.

    How many tokens a search decodes depends on the sentences: `seconds` counts `max_length` passes
    of its loop, `seconds_per_token` one.
    """

    config: str
    topology: str
    chip: str
    rows: int
    src_length: int
    beam_size: int
    max_length: int
    compile_seconds: float
    hbm_bytes: int
    memory: Memory | None
    refused: TooLarge | None
    replications: tuple[str, ...]
    compute: Compute | None
    seconds: float
    seconds_per_token: float

    @property
    def fits(self) -> bool:
        return self.refused is None


def plan_decoding(
    config: ExperimentConfig,
    topology: Topology,
    *,
    src_length: int | None = None,
    src_vocab_size: int,
    tgt_vocab_size: int,
) -> DecodePlan:
    """Compiles the search for a full batch of sources of `src_length` (default: the longest).

    Raises PlanningError for a source longer than the model takes.
    """
    longest = src_length or config.model.max_length
    check_length(config, longest)
    config = with_dtype(config, topology.devices[0])
    model = Transformer(config.model, src_vocab_size, tgt_vocab_size)
    sharding = SingleDeviceSharding(topology.devices[0])
    boxed = jax.eval_shape(lambda: nn.unbox(initial_params(model, jax.random.key(0))))
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), boxed
    )
    batch = next(plan_batches([longest] * config.decoding.batch_tokens, config.decoding, longest))
    compilation = compile_quietly(
        lambda: lower_search(
            params,
            model,
            config.decoding,
            rows=batch.rows,
            src_length=batch.length,
            sharding=sharding,
        )
    )
    max_length = output_limit(config.decoding, batch.length, config.model.max_length)
    compute, whole, once = None, 0.0, 0.0
    if compilation.hlo is not None:
        compute = compute_costs(compilation.hlo, topology.chip, unknown_trips=max_length)
        whole = compute.overlapped_seconds
        without = compute_costs(compilation.hlo, topology.chip, unknown_trips=0)
        once = (whole - without.overlapped_seconds) / max_length
    return DecodePlan(
        config=config.name,
        topology=str(topology),
        chip=topology.chip.name,
        rows=batch.rows,
        src_length=batch.length,
        beam_size=config.decoding.beam_size,
        max_length=max_length,
        compile_seconds=compilation.seconds,
        hbm_bytes=topology.chip.hbm_bytes,
        memory=compilation.memory,
        refused=compilation.refused,
        replications=compilation.replications,
        compute=compute,
        seconds=whole,
        seconds_per_token=once,
    )
