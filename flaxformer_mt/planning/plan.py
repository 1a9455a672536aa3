"""What a training step or beam search would take on chips you don't have."""

import dataclasses
import importlib.metadata
import math
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import SingleDeviceSharding

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.decoding.batch_search import lower_search
from flaxformer_mt.decoding.batch_shapes import plan_batches
from flaxformer_mt.decoding.segments import output_limit
from flaxformer_mt.errors import UserError
from flaxformer_mt.model.flops import TRAINING, forward_flops
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.planning.collectives import Collective, collectives, expected_bytes
from flaxformer_mt.planning.compiler import Compilation, Memory, TooLarge, Topology, compile_quietly
from flaxformer_mt.planning.cycles import Compute, compute_costs
from flaxformer_mt.training.program import build, with_dtype


class PlanningError(UserError):
    """A config that can't be planned for as it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """What is known of any program. Bytes, FLOPs and seconds are one device's."""

    config: str
    topology: str
    chip: str
    compiler: str
    compile_seconds: float
    hbm_bytes: int
    memory: Memory | None
    refused: TooLarge | None
    replications: tuple[str, ...]
    compute: Compute | None

    @property
    def fits(self) -> bool:
        return self.refused is None

    @property
    def needed_bytes(self) -> int:
        """Memory that it takes or would take."""
        if self.memory is not None:
            return self.memory.needed(self.hbm_bytes)
        assert self.refused is not None
        return self.refused.needed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Compiled):
    """One step of a config on a topology.

    `step_seconds` adds compute, with copies overlapping, and collectives, without. A real step may
    be shorter (overlap) or longer (launches, waiting for data).
    """

    chips: int
    devices: int
    mesh: dict[str, int]
    dtype: str
    scan_layers: bool
    remat: bool
    shape: Shape
    parameters: int
    steps: int
    recomputed: int
    forward_flops: dict[str, float]  # whole batch, by part
    step_flops: float  # one device
    collectives: tuple[Collective, ...]
    expected_collective_bytes: int | None
    step_seconds: float
    peak_share: float  # step_flops / (step_seconds * peak)
    compute_peak_share: float  # for the estimated compute only
    price_per_chip_hour: float | None

    @property
    def collective_bytes(self) -> float:
        return sum(item.sent for item in self.collectives)

    @property
    def collective_seconds(self) -> float:
        return sum(item.seconds for item in self.collectives)

    @property
    def positions_per_second(self) -> float:
        """Source and target positions of the whole batch, with padding."""
        return self.shape.positions / self.step_seconds if self.step_seconds else 0.0

    @property
    def hours(self) -> float:
        return self.steps * self.step_seconds / 3600

    @property
    def chip_hours(self) -> float:
        return self.hours * self.chips

    @property
    def cost(self) -> float | None:
        price = self.price_per_chip_hour
        return None if price is None else self.chip_hours * price


def plan(
    config: ExperimentConfig,
    topology: Topology,
    shape: Shape,
    *,
    src_vocab_size: int,
    tgt_vocab_size: int,
    price_per_chip_hour: float | None = None,
    save_hlo: str | None = None,
) -> Plan:
    """Compiles the config's `train_step`, writes `save_hlo`. Raises MeshError and HloError."""
    sizes = {"src_vocab_size": src_vocab_size, "tgt_vocab_size": tgt_vocab_size}
    program = build(config, **sizes, devices=topology.devices)
    compilation = compile_quietly(lambda: program.lower_train_step(shape))
    if save_hlo is not None:
        Path(save_hlo).write_text(compilation.text, encoding="utf-8")
    mesh, chip = program.mesh, topology.chip
    compute = None
    exchanged: tuple[Collective, ...] = ()
    seconds = 0.0
    if compilation.hlo is not None:
        compute = compute_costs(compilation.hlo, chip)
        exchanged = collectives(compilation.hlo, topology, mesh)
        seconds = compute.overlapped_seconds + sum(item.seconds for item in exchanged)
    forward = forward_flops(
        config.model,
        tgt_vocab_size,
        src_tokens=shape.rows * shape.src_length,
        tgt_tokens=shape.rows * shape.tgt_length,
        src_keys=shape.src_length,
        tgt_keys=shape.tgt_length,
    )
    flops = TRAINING * sum(forward.values()) / len(topology.devices)

    def share(seconds: float) -> float:
        return flops / (seconds * chip.bf16_flops) if seconds else 0.0

    params = program.abstract.params
    return Plan(
        **_known(config, topology, compilation, compute),
        chips=topology.chips,
        devices=len(topology.devices),
        mesh=dict(mesh.shape),
        dtype=program.config.model.dtype,
        scan_layers=config.model.scan_layers,
        remat=config.model.remat,
        shape=shape,
        parameters=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)),
        steps=config.training.steps,
        recomputed=compilation.recomputed,
        forward_flops=forward,
        step_flops=flops,
        collectives=exchanged,
        expected_collective_bytes=expected_bytes(params, mesh, config.training.exchange_dtype),
        step_seconds=seconds,
        peak_share=share(seconds),
        compute_peak_share=share(compute.seconds if compute else 0.0),
        price_per_chip_hour=price_per_chip_hour,
    )


def _known(
    config: ExperimentConfig, topology: Topology, found: Compilation, compute: Compute | None
) -> dict[str, Any]:
    return {
        "config": config.name,
        "topology": str(topology),
        "chip": topology.chip.name,
        "compiler": f"libtpu {importlib.metadata.version('libtpu')}",
        "compile_seconds": found.seconds,
        "hbm_bytes": topology.chip.hbm_bytes,
        "memory": found.memory,
        "refused": found.refused,
        "replications": found.replications,
        "compute": compute,
    }


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan's fields and properties as JSON values."""
    followed = (
        *("fits", "needed_bytes", "collective_bytes", "collective_seconds"),
        *("positions_per_second", "hours", "chip_hours", "cost"),
    )
    return dataclasses.asdict(plan) | {name: getattr(plan, name) for name in followed}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodePlan(Compiled):
    """One batch of the longest sources on one device; `seconds` counts `max_length` passes of the
    search's loop, `step` and `seconds_per_token` one."""

    rows: int
    src_length: int
    beam_size: int
    max_length: int
    seconds: float
    seconds_per_token: float
    step: Compute | None


def plan_decoding(
    config: ExperimentConfig,
    topology: Topology,
    *,
    lengths: tuple[int, int] | None = None,
    src_vocab_size: int,
    tgt_vocab_size: int,
) -> DecodePlan:
    """Compiles the search for a full batch of sources and outputs of at most these `lengths`
    (default: the longest possible). Raises PlanningError."""
    longest, tgt_length = lengths or (config.model.max_length, config.model.max_length)
    check_length(config, longest)
    config = with_dtype(config, topology.devices[0])
    model = Transformer(config.model, src_vocab_size, tgt_vocab_size)
    sharding = SingleDeviceSharding(topology.devices[0])
    boxed = jax.eval_shape(lambda: nn.unbox(initial_params(model, jax.random.key(0))))
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), boxed
    )
    search = config.decoding
    batch = next(plan_batches([longest] * search.batch_tokens, search, longest))
    place: dict[str, Any] = {"rows": batch.rows, "src_length": batch.length, "sharding": sharding}
    max_length = min(tgt_length, output_limit(search, batch.length, config.model.max_length))
    compilation = compile_quietly(
        lambda: lower_search(params, model, search, **place, length=max_length)
    )
    compute = step = None
    if compilation.hlo is not None:
        compute = compute_costs(compilation.hlo, topology.chip, unknown_trips=max_length)
        step = compute_costs(compilation.hlo, topology.chip, one_pass=True)
    return DecodePlan(
        **_known(config, topology, compilation, compute),
        rows=batch.rows,
        src_length=batch.length,
        beam_size=search.beam_size,
        max_length=max_length,
        seconds=compute.overlapped_seconds if compute else 0.0,
        seconds_per_token=step.overlapped_seconds if step else 0.0,
        step=step,
    )


def check_length(config: ExperimentConfig, length: int) -> None:
    """Raises PlanningError."""
    if length > config.model.max_length:
        most = f"'model.max_length' = {config.model.max_length}"
        raise PlanningError(f"a sentence of {length} tokens is longer than {most}")
