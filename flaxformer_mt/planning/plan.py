"""What a training step or beam search would take on chips that are not there: compile, read."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh, SingleDeviceSharding

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.decoding.batch_search import lower_search, output_limit
from flaxformer_mt.decoding.batches import plan_batches
from flaxformer_mt.errors import UserError
from flaxformer_mt.model import Transformer
from flaxformer_mt.model.flops import TRAINING, forward_flops
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.planning.collectives import Collective, collectives, expected_bytes
from flaxformer_mt.planning.compile import Memory, TooLarge, compile_quietly
from flaxformer_mt.planning.cycles import Compute, compute_costs
from flaxformer_mt.planning.topology import Topology
from flaxformer_mt.training.program import Program, build, with_dtype


class PlanningError(UserError):
    """A config that cannot be planned for as it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One step of a config on a topology. Bytes, FLOPs and seconds are those of one device.

    `step_seconds` is estimated compute and unestimated operations, then the collectives; of
    asynchronous copies it has what they take longer than the compute they run beside. Collectives
    that overlap make the real step shorter, what no estimate knows (the start of each operation,
    waiting for data) makes it longer. Only a run on the chips can show which.
    """

    config: str
    topology: str
    chip: str
    chips: int
    devices: int
    mesh: dict[str, int]
    dtype: str
    scan_layers: bool
    remat: bool
    shape: Shape
    parameters: int
    steps: int
    compile_seconds: float
    hbm_bytes: int
    memory: Memory | None
    refused: TooLarge | None
    replications: tuple[str, ...]
    recomputed: int
    forward_flops: dict[str, float]  # of the whole batch, by part
    step_flops: float  # of one device
    compute: Compute | None
    collectives: tuple[Collective, ...]
    expected_collective_bytes: int | None
    step_seconds: float
    peak_share: float  # step_flops / (step_seconds * peak)
    compute_peak_share: float  # the same for the estimated compute alone
    price_per_chip_hour: float | None

    @property
    def fits(self) -> bool:
        return self.refused is None

    @property
    def needed_bytes(self) -> int:
        """Memory that the program takes or would take."""
        if self.memory is not None:
            return self.memory.needed(self.hbm_bytes)
        assert self.refused is not None
        return self.refused.needed

    @property
    def collective_bytes(self) -> float:
        return sum(item.sent for item in self.collectives)

    @property
    def collective_seconds(self) -> float:
        return sum(item.seconds for item in self.collectives)

    @property
    def positions_per_second(self) -> float:
        """Source and target positions of the whole batch, padding included."""
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
    """Compiles the config's `train_step` for the topology. Raises MeshError and HloError.

    `save_hlo` names a file for the compiled program's text.
    """
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
    params = program.abstract.params
    return Plan(
        config=config.name,
        topology=str(topology),
        chip=chip.name,
        chips=topology.chips,
        devices=len(topology.devices),
        mesh=dict(mesh.shape),
        dtype=program.config.model.dtype,
        scan_layers=config.model.scan_layers,
        remat=config.model.remat,
        shape=shape,
        parameters=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)),
        steps=config.training.steps,
        compile_seconds=compilation.seconds,
        hbm_bytes=chip.hbm_bytes,
        memory=compilation.memory,
        refused=compilation.refused,
        replications=compilation.replications,
        recomputed=compilation.recomputed,
        forward_flops=forward,
        step_flops=flops,
        compute=compute,
        collectives=exchanged,
        expected_collective_bytes=expected_bytes(params, mesh),
        step_seconds=seconds,
        peak_share=flops / (seconds * chip.bf16_flops) if seconds else 0.0,
        compute_peak_share=(
            flops / (compute.seconds * chip.bf16_flops) if compute and compute.seconds else 0.0
        ),
        price_per_chip_hour=price_per_chip_hour,
    )


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values, with what follows from its fields."""
    followed = (
        *("fits", "needed_bytes", "collective_bytes", "collective_seconds"),
        *("positions_per_second", "hours", "chip_hours", "cost"),
    )
    return dataclasses.asdict(plan) | {name: getattr(plan, name) for name in followed}


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
    search = config.decoding
    batch = next(plan_batches([longest] * search.batch_tokens, search, longest))
    place: dict[str, Any] = {"rows": batch.rows, "src_length": batch.length, "sharding": sharding}
    compilation = compile_quietly(lambda: lower_search(params, model, search, **place))
    max_length = output_limit(search, batch.length, config.model.max_length)
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
        beam_size=search.beam_size,
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


def check_length(config: ExperimentConfig, length: int) -> None:
    """Raises PlanningError for a sentence that the model does not take."""
    if length > config.model.max_length:
        raise PlanningError(
            f"a sentence of {length} tokens is longer than 'model.max_length' = "
            f"{config.model.max_length} lets in: give shorter --lengths, or raise it"
        )


@dataclasses.dataclass(frozen=True)
class Sharding:
    """How one array of the parameters lies on the mesh."""

    name: str
    shape: tuple[int, ...]
    spec: str
    shard: tuple[int, ...]


def shardings(program: Program) -> list[Sharding]:
    """Every parameter's sharding, in the order of the tree. Compiles nothing."""
    rows = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(program.abstract.params):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        spec = ", ".join(
            "-" if axis is None else axis if isinstance(axis, str) else "+".join(axis)
            for axis in leaf.sharding.spec
        )
        rows.append(Sharding(name, leaf.shape, spec, leaf.sharding.shard_shape(leaf.shape)))
    return rows


def whole_share(rows: list[Sharding], mesh: Mesh) -> float:
    """Share of the parameters that each device holds whole, where the mesh would split them."""
    if mesh.shape["fsdp"] * mesh.shape["tensor"] == 1:
        return 0.0
    total = sum(math.prod(row.shape) for row in rows)
    return sum(math.prod(row.shape) for row in rows if row.shape == row.shard) / total
