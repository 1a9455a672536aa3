"""Compiles a config's own training step for a topology, without running anything."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import jax
from jax.stages import Compiled, Lowered

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.plan import Shape, longest
from flaxformer_mt.errors import UserError
from flaxformer_mt.planning.compiler_log import captured
from flaxformer_mt.planning.hlo import Program as Hlo, parse
from flaxformer_mt.planning.memory import Memory, TooLarge, memory_of, too_large


class PlanningError(UserError):
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

    That is the longest one: without data the filter's longest pair (`data.filter.max_length`), or
    the row of a packed batch, if the config says how long that is. Raises PlanningError.
    """
    if shapes:
        return longest(shapes)
    batch, length = config.data.batch, config.data.filter.max_length
    if batch.form == "bucket":
        return shape_of(config, length, length)
    if not batch.src_length:
        raise PlanningError(
            "the length of a packed row ('data.batch.form' = 'pack') is chosen for the data, and "
            "there is none: name a prepared run with --workdir, give --lengths SRC,TGT, or set "
            "data.batch.src_length and .tgt_length"
        )
    return shape_of(config, batch.src_length, batch.tgt_length)


def shape_of(config: ExperimentConfig, src_length: int, tgt_length: int) -> Shape:
    """Rows of these lengths, as many as the config's budget holds.

    Raises PlanningError for rows that training would not make: without packing a row is one pair.
    """
    batch = config.data.batch
    if batch.form == "bucket":
        check_length(config, max(src_length, tgt_length))
    rows = batch.tokens // max(src_length, tgt_length) // batch.multiple * batch.multiple
    if rows == 0:
        raise PlanningError(
            f"data.batch.multiple = {batch.multiple} rows of {max(src_length, tgt_length)} "
            f"positions exceed data.batch.tokens = {batch.tokens:,}: raise it, or lower "
            "data.filter.max_length or data.batch.multiple"
        )
    return Shape(rows, src_length, tgt_length)


def check_length(config: ExperimentConfig, length: int) -> None:
    """Raises PlanningError for a sentence that the model does not take."""
    if length > config.model.max_length:
        raise PlanningError(
            f"a sentence of {length} tokens is longer than 'model.max_length' = "
            f"{config.model.max_length} lets in: give shorter --lengths, or raise it"
        )
