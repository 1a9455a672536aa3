"""Whether a device computes a step as the CPU does, and whether a configuration works on it."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from flaxformer_mt.config import ExperimentConfig, expected_types, freeze
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.diagnosis.machine import Finding, noted
from flaxformer_mt.training.program import Program, build
from flaxformer_mt.training.try_step import full_batch

VOCAB, LENGTH, ROWS = 256, 32, 8
_MIB = 1 << 20
_ROOM = 0.8  # of a device's memory for the state: activations need the rest

# The largest relative difference that rounding explains. bfloat16 has eight bits.
TOLERANCES = {"float32": 1e-3, "bfloat16": 5e-2}


def tiny_config(dtype: str) -> ExperimentConfig:
    """Every part of the model with dropout; an optimizer that doesn't amplify rounding."""
    return freeze(
        {
            "model": {
                **{"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "d_ff": 128},
                **{"num_heads": 4, "d_k": 16, "d_v": 16, "max_length": LENGTH, "dtype": dtype},
            },
            "data": {
                "vocabulary": {"size": VOCAB},
                "filter": {"max_length": LENGTH},
                "batch": {"tokens": ROWS * LENGTH, "multiple": ROWS},
            },
            "training": {
                **{"validate_bleu": False, "best_metric": "loss"},
                "schedule": {"kind": "peak", "peak": 1.0, "warmup_steps": 1},
                # Adam's first step is then nearly the gradient, not its sign.
                "optimizer": {"epsilon": 1.0},
            },
        },
        "the doctor's tiny model",
    )


@dataclasses.dataclass(frozen=True)
class Step:
    """One step's loss and the change of each parameter."""

    loss: float
    moved: list[np.ndarray]


def check_step(device: jax.Device) -> Iterator[Finding]:
    """A tiny model's training step on the device, in every type that the model computes in."""
    try:
        # The first CPU of all may be another process's.
        local = device.platform == "cpu"
        reference = device if local else jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        advice = "set JAX_PLATFORMS='' or, say, 'tpu,cpu'"
        yield noted("step", "no CPU to compare with", advice)
        return
    for dtype, tolerance in TOLERANCES.items():
        yield compared(dtype, tolerance, device, reference)


def compared(dtype: str, tolerance: float, device: jax.Device, reference: jax.Device) -> Finding:
    """The finding for one type, relative to the largest change of a parameter."""
    start = jax.device_get(_program(dtype, reference).init())
    wanted = one_step(_program(dtype, reference), start)
    found = one_step(_program(dtype, device), start)
    name = f"step {dtype}"
    difference = largest_difference(found, wanted)
    values = {"difference": difference, "tolerance": tolerance, "loss": found.loss}
    where = "its repetition" if device == reference else "the CPU"
    text = f"differs from {where} by {difference:.1e} (allowed {tolerance:.0e})"
    if device == reference and difference:
        return Finding(name, "FAIL", text, "the same step gives different bits: check the memory")
    if difference <= tolerance:
        return noted(name, text, values=values)
    advice = "the device computes a different result: check its driver and memory, other versions "
    return Finding(name, "FAIL", text, f"{advice}of jax, and XLA_FLAGS", values)


def one_step(program: Program, start: Any) -> Step:
    """A step from these host arrays, with float32 products at full precision."""
    with jax.default_matmul_precision("highest"):
        state = jax.device_put(start, jax.tree.map(lambda leaf: leaf.sharding, program.abstract))
        batch = full_batch(Shape(ROWS, LENGTH, LENGTH), program, longest=LENGTH // 2)
        state, metrics = program.train_step(state, batch)
    after, before = (jax.tree.leaves(jax.device_get(tree)) for tree in (state.params, start.params))
    moved = [np.asarray(a, np.float64) - b for a, b in zip(after, before, strict=True)]
    return Step(float(metrics["loss"]), moved)


def largest_difference(found: Step, wanted: Step) -> float:
    """Of the loss and the parameters' changes, relative to their size; NaN if any is."""
    size = max(float(np.abs(part).max()) for part in wanted.moved)
    each = zip(found.moved, wanted.moved, strict=True)
    parts = [float(np.abs(a - b).max()) / size for a, b in each]
    return float(np.max([abs(found.loss - wanted.loss) / abs(wanted.loss), *parts]))


def program_of(config: ExperimentConfig) -> Program:
    """For vocabularies of the sizes that `prepare` will make. Raises MeshError."""
    src_types, tgt_types = expected_types(config.data.vocabulary)
    return build(config, src_vocab_size=src_types, tgt_vocab_size=tgt_types)


def check_experiment(config: ExperimentConfig) -> Iterator[Finding]:
    """Builds its program, for every shard's size, without computing anything."""
    program = program_of(config)
    state = sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(program.abstract)
    )
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(program.abstract.params))
    mesh = " x ".join(f"{name} {size}" for name, size in program.mesh.shape.items())
    text = f"{config.name}: {count:,} parameters on {mesh}, {state / _MIB:,.0f} MiB per device"
    values = {"parameters": count, "state": state}
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit and state > _ROOM * limit:
        advice = "shard the state over more devices with mesh.fsdp"
        yield Finding("config", "FAIL", f"{text} of {limit / _MIB:,.0f} MiB", advice, values)
        return
    yield Finding("config", "ok", text, "train --dry-run tries a step of its longest batch", values)


def _program(dtype: str, device: jax.Device) -> Program:
    return build(tiny_config(dtype), src_vocab_size=VOCAB, tgt_vocab_size=VOCAB, devices=[device])
