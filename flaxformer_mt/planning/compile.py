"""Compiles a config's own training step for a topology, without running anything."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import jax
from jax.stages import Compiled, Lowered

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.planning.compiler_log import captured
from flaxformer_mt.planning.hlo import Program as Hlo, parse
from flaxformer_mt.planning.memory import Memory, TooLarge, memory_of, too_large


class PlanningError(ValueError):
    """A config that cannot be planned for as it is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
    """A program that the compiler has accepted, or its reason for not doing so."""

    seconds: float
    memory: Memory | None
    hlo: Hlo | None
    refused: TooLarge | None
    replications: tuple[str, ...]  # complaints of the partitioner
    recomputed: int  # instructions that the compiler repeats to save memory
    text: str = dataclasses.field(default="", repr=False)


def compile_quietly(lower: Callable[[], Lowered]) -> Compilation:
    """Lowers and compiles. Too little memory is a result; any other failure is raised."""
    start = time.perf_counter()
    compiled: Compiled | None = None
    refused: TooLarge | None = None
    with captured() as log:
        try:
            compiled = lower().compile()
        except jax.errors.JaxRuntimeError as error:
            refused = too_large(error)
            if refused is None:
                raise
    seconds = time.perf_counter() - start
    text = (compiled.as_text() or "") if compiled else ""
    hlo = parse(text) if compiled else None
    return Compilation(
        seconds=seconds,
        memory=memory_of(compiled.memory_analysis()) if compiled else None,
        hlo=hlo,
        refused=refused,
        replications=log.replications,
        recomputed=_recomputed(hlo) if hlo else 0,
        text=text,
    )


def _recomputed(hlo: Hlo) -> int:
    # XLA names the copies that its own rematerialisation makes NAME.remat, NAME.remat2, ...
    return sum(".remat" in item.name for item in hlo.computations[hlo.entry])


def largest_shape(config: ExperimentConfig, shapes: Sequence[Shape] = ()) -> Shape:
    """The shape that takes the most memory: of `shapes`, or without data of what the config allows.

    Attention's weights grow with rows times length squared and the rest with their product, so it
    is the longest one. Without data that is the filter's longest pair (`data.filter.max_length`),
    or the row of a packed batch. Raises PlanningError.
    """
    if shapes:
        return max(shapes, key=lambda shape: (shape.src_length + shape.tgt_length, shape.rows))
    batch, longest = config.data.batch, config.data.filter.max_length
    src, tgt = batch.src_length or longest, batch.tgt_length or longest
    return shape_of(config, src, tgt)


def shape_of(config: ExperimentConfig, src_length: int, tgt_length: int) -> Shape:
    """Rows of these lengths, as many as the config's budget holds. Raises PlanningError."""
    batch = config.data.batch
    rows = batch.tokens // max(src_length, tgt_length) // batch.multiple * batch.multiple
    if rows == 0:
        raise PlanningError(
            f"data.batch.multiple = {batch.multiple} rows of {max(src_length, tgt_length)} "
            f"positions exceed data.batch.tokens = {batch.tokens:,}: raise it, or lower "
            "data.filter.max_length or data.batch.multiple"
        )
    return Shape(rows, src_length, tgt_length)
