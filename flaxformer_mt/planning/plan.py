"""Memory and time of a training step or beam search on chips you don't have."""

import dataclasses
import functools
import math
from pathlib import Path

import flax.linen as nn
import jax
from jax.sharding import Mesh, SingleDeviceSharding
from jax.stages import Lowered

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.decoding.run.programs import lower_search
from flaxformer_mt.decoding.run.sizes import plan_even_batches, with_batch_tokens
from flaxformer_mt.decoding.text.limits import output_limit
from flaxformer_mt.model.flops import TRAINING, forward_flops
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.collectives import (
    Collective,
    collectives,
    communications,
    expected_bytes,
)
from flaxformer_mt.planning.compiler import Compiled, compile_quietly
from flaxformer_mt.planning.costs import Compute
from flaxformer_mt.planning.cycles import costs_by_cycles, seconds_by_cycles
from flaxformer_mt.planning.hlo import HloProgram
from flaxformer_mt.planning.overlap import Exposed, exposed
from flaxformer_mt.planning.roofline import costs_by_roofline, seconds_by_roofline
from flaxformer_mt.planning.topology import Topology
from flaxformer_mt.training.program import Program, build, with_dtype


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepPlan(Compiled):
    """One step of a config on a topology.

    `step_seconds` adds compute, with copies overlapping, and what its schedule doesn't hide of the
    collectives; `least_step_seconds` hides all that are asynchronous, `unoverlapped_step_seconds`
    none. A real step may be longer (launches, waiting for data).
    """

    compute: Compute | None
    chips: int
    devices: int
    mesh: dict[str, int]
    dtype: str
    scan_layers: bool
    remat: bool
    shape: Shape
    parameters: int
    steps: int
    forward_flops: dict[str, float]  # whole batch, by part
    step_flops: float  # one device
    collectives: tuple[Collective, ...]
    expected_collective_bytes: int | None
    exposed: Exposed  # of the collectives
    step_seconds: float
    least_step_seconds: float
    unoverlapped_step_seconds: float
    peak_share: float  # step_flops / (step_seconds * peak)
    unoverlapped_peak_share: float
    compute_peak_share: float  # for the estimated compute only
    price_per_chip_hour: float | None
    collective_bytes: float
    collective_seconds: float
    positions_per_second: float  # source and target, of the whole batch, with padding
    hours: float
    chip_hours: float
    cost: float | None


def plan(
    config: ExperimentConfig,
    topology: Topology,
    shape: Shape,
    *,
    src_vocab_size: int,
    tgt_vocab_size: int,
    price_per_chip_hour: float | None = None,
    save_hlo: str | None = None,
) -> StepPlan:
    """Compiles the config's `train_step`, writes `save_hlo`. Raises MeshError and PlanningError."""
    sizes = {"src_vocab_size": src_vocab_size, "tgt_vocab_size": tgt_vocab_size}
    program = build(config, **sizes, devices=topology.devices)
    facts, hlo = _compiled_step(program, topology, shape, save_hlo)
    compute = estimated_compute(hlo, topology) if hlo else None
    communication, waiting = _communication(hlo, topology, program.mesh)
    collective_seconds = sum(collective.seconds for collective in communication)
    computing = compute.overlapped_seconds if compute else 0.0
    step_seconds = computing + waiting.most

    forward = _forward_flops(config, tgt_vocab_size, shape)
    devices = len(topology.devices)
    flops = TRAINING * sum(forward.values()) / devices

    def share_of_peak(seconds: float) -> float:
        return flops / (seconds * topology.chip.bf16_flops) if seconds else 0.0

    hours = config.training.steps * step_seconds / 3600
    chip_hours = hours * topology.chips
    return StepPlan(
        **vars(facts),
        compute=compute,
        chips=topology.chips,
        devices=devices,
        mesh=dict(program.mesh.shape),
        dtype=program.config.model.dtype,
        scan_layers=config.model.scan_layers,
        remat=config.model.remat,
        shape=shape,
        parameters=sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(program.abstract_weights)),
        steps=config.training.steps,
        forward_flops=forward,
        step_flops=flops,
        collectives=communication,
        expected_collective_bytes=_expected_bytes(program),
        exposed=waiting,
        step_seconds=step_seconds,
        least_step_seconds=max(computing + waiting.least, collective_seconds),
        unoverlapped_step_seconds=computing + collective_seconds,
        peak_share=share_of_peak(step_seconds),
        unoverlapped_peak_share=share_of_peak(computing + collective_seconds),
        compute_peak_share=share_of_peak(compute.seconds if compute else 0.0),
        price_per_chip_hour=price_per_chip_hour,
        collective_bytes=sum(collective.sent for collective in communication),
        collective_seconds=collective_seconds,
        positions_per_second=shape.positions / step_seconds if step_seconds else 0.0,
        hours=hours,
        chip_hours=chip_hours,
        cost=None if price_per_chip_hour is None else chip_hours * price_per_chip_hour,
    )


def _communication(
    hlo: HloProgram | None, topology: Topology, mesh: Mesh
) -> tuple[tuple[Collective, ...], Exposed]:
    """A step's collectives, and what its schedule doesn't hide of them; none if it doesn't fit."""
    if hlo is None:
        return (), Exposed(0.0, 0.0)
    found = communications(hlo, topology, mesh)
    seconds_by = seconds_by_cycles if topology.platform == "tpu" else seconds_by_roofline
    seconds_of = functools.partial(seconds_by, hlo, topology.chip)
    return collectives(found), exposed(hlo, found, seconds_of)


def estimated_compute(
    hlo: HloProgram, topology: Topology, *, unknown_trips: int = 1, one_pass: bool = False
) -> Compute:
    """Of one run of a program, or `one_pass` of its unbounded loop."""
    estimated = costs_by_cycles if topology.platform == "tpu" else costs_by_roofline
    return estimated(hlo, topology.chip, unknown_trips=unknown_trips, one_pass=one_pass)


def _expected_bytes(program: Program) -> int | None:
    """As `expected_bytes`; None for adapters, beside which frozen weights may be gathered too."""
    if program.abstract.base is not None:
        return None
    dtype = program.config.training.exchange_dtype
    return expected_bytes(program.abstract.params, program.mesh, dtype)


def _forward_flops(config: ExperimentConfig, tgt_vocab_size: int, shape: Shape) -> dict[str, float]:
    """Of a batch of full rows, by part."""
    return forward_flops(
        config.model,
        tgt_vocab_size,
        src_tokens=shape.rows * shape.src_length,
        tgt_tokens=shape.rows * shape.tgt_length,
        src_keys=shape.src_length,
        tgt_keys=shape.tgt_length,
    )


def _compiled_step(
    program: Program, topology: Topology, shape: Shape, save_hlo: str | None
) -> tuple[Compiled, HloProgram | None]:
    """The compiled training step, its text written to `save_hlo`. Raises PlanningError."""
    if save_hlo is not None and not Path(save_hlo).parent.is_dir():
        raise PlanningError(f"--save-hlo {save_hlo}: create its folder first")
    facts, hlo, text = compile_quietly(
        program.config.name, topology, lambda: program.lower_train_step(shape)
    )
    if save_hlo is not None:
        Path(save_hlo).write_text(text, "utf-8")
    return facts, hlo


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodePlan(Compiled):
    """One batch of the longest sources on one device.

    `seconds` counts `max_length` passes of the search's loop, `step` and `seconds_per_token` one.
    """

    compute: Compute | None
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
    model = Transformer(config.model.for_search, src_vocab_size, tgt_vocab_size)
    sharding = SingleDeviceSharding(topology.devices[0])
    key = jax.random.key(0)
    draw = jax.jit(lambda: nn.unbox(initial_params(model, key)), out_shardings=sharding)
    params = draw.eval_shape()

    search = with_batch_tokens(config.decoding, topology.platform)
    longest_of_all = [longest] * search.batch_tokens
    batch = next(plan_even_batches(longest_of_all, search, config.model.max_length))
    max_length = min(tgt_length, output_limit(search, batch.length, config.model.max_length))

    def lower() -> Lowered:
        return lower_search(
            params,
            model,
            search,
            rows=batch.rows,
            src_length=batch.length,
            sharding=sharding,
            length=max_length,
        )

    facts, hlo, _ = compile_quietly(config.name, topology, lower)
    compute = step = None
    if hlo is not None:
        compute = estimated_compute(hlo, topology, unknown_trips=max_length)
        step = estimated_compute(hlo, topology, one_pass=True)
    return DecodePlan(
        **vars(facts),
        compute=compute,
        rows=batch.rows,
        src_length=batch.length,
        beam_size=search.beam_size,
        max_length=max_length,
        seconds=compute.overlapped_seconds if compute else 0.0,
        seconds_per_token=step.overlapped_seconds if step else 0.0,
        step=step,
    )


def check_length(config: ExperimentConfig, length: int) -> None:
    """Raises PlanningError for a sentence that is too long for the model."""
    if length > config.model.max_length:
        raise PlanningError(
            f"a sentence of {length} tokens is longer than 'model.max_length' = "
            f"{config.model.max_length}"
        )
