"""Tries steps on a batch of one shape: whether it fits, and how long a step takes."""

import dataclasses
import math
import statistics
import time
from typing import Any

import jax
import numpy as np

from flaxformer_mt.data.batch import Batch
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.vocabulary import UNK
from flaxformer_mt.errors import FlaxformerError
from flaxformer_mt.parallel.mesh import on_mesh, place_batch
from flaxformer_mt.parallel.process_settings import keep_freed_memory
from flaxformer_mt.training.program import Program


class TrialError(FlaxformerError):
    """A batch of the shape cannot be trained on here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """Seconds, and bytes of one device. A figure that the backend doesn't give is None."""

    shape: Shape
    compile_seconds: float
    step_seconds: float
    steps: int  # of which `step_seconds` is the best
    loss: float
    arguments: int  # state and batch
    temporary: int
    peak: int | None  # the compiler's
    in_use: int | None  # at most, as the device counts it
    limit: int | None
    mean_seconds: float = math.nan  # of a step


def try_step(
    program: Program, shape: Shape, *, longest: int, steps: int = 3, seconds: float = 0.0
) -> Trial:
    """Compiles the training step for `shape` and runs it on full rows, once and `steps` times more.

    More often, if that takes less than `seconds`. Raises TrialError if memory doesn't suffice.
    """
    compilation_start = time.perf_counter()
    try:
        compiled = program.lower_train_step(shape).compile()
        compile_seconds = time.perf_counter() - compilation_start
        state = program.init()
        batch = full_batch(shape, program, longest=longest)
        times = list[float]()
        while len(times) <= steps or sum(times[1:]) < seconds:
            start = time.perf_counter()
            with on_mesh(program.mesh):
                state, metrics = compiled(state, place_batch(batch, program.mesh))
            jax.block_until_ready((state, metrics))
            times.append(time.perf_counter() - start)
            if len(times) == 1:
                keep_freed_memory(jax.process_count())
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "out of memory" not in str(error).lower():
            raise
        raise TrialError(
            f"a batch of {shape.rows} rows of {shape.src_length} + {shape.tgt_length} positions "
            f"does not fit in device memory: {str(error).splitlines()[0]}; lower "
            "data.batch.tokens, raise training.optimizer.accumulation or mesh.fsdp, or set "
            "model.remat=true"
        ) from error

    memory: Any = compiled.memory_analysis()
    device_memory = jax.local_devices()[0].memory_stats() or {}
    # For CPUs, which count nothing themselves, the compiler's peak leaves temporary arrays out.
    peak = getattr(memory, "peak_memory_in_bytes", 0)
    return Trial(
        shape=shape,
        compile_seconds=compile_seconds,
        step_seconds=min(times[1:], default=math.inf),
        mean_seconds=statistics.fmean(times[1:] or [math.inf]),
        steps=len(times) - 1,
        loss=float(metrics["loss"]),
        arguments=memory.argument_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        peak=peak if peak >= memory.temp_size_in_bytes else None,
        in_use=device_memory.get("peak_bytes_in_use"),
        limit=device_memory.get("bytes_limit"),
    )


def full_batch(shape: Shape, program: Program, *, longest: int) -> Batch:
    """This process's rows of a batch without padding, of random tokens."""
    rows = shape.rows * len(program.share.numbers) // program.share.count
    random = np.random.default_rng(0)
    fields: dict[str, np.ndarray] = {}
    for side, length, vocab_size in (
        ("src", shape.src_length, program.model.src_vocab_size),
        ("tgt", shape.tgt_length, program.model.tgt_vocab_size),
    ):
        columns = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
        fields[side] = random.integers(UNK + 1, vocab_size, (rows, length), np.int32)
        fields[f"{side}_segment_ids"] = columns // longest + 1
        fields[f"{side}_positions"] = columns % longest
    if program.config.data.has_pair_weights:
        fields["tgt_weights"] = np.ones((rows, shape.tgt_length), np.float32)
    tgt = fields.pop("tgt")
    return Batch(tgt_in=tgt, tgt_out=tgt, **fields)
