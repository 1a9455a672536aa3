"""Whether a configuration goes with this machine: its mesh, and what its state takes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.diagnosis.finding import Finding
from flaxformer_mt.training.program import build

_MIB = 1 << 20
_ROOM = 0.8  # of a device's memory: activations need the rest


def check_experiment(config: ExperimentConfig) -> Iterator[Finding]:
    """Builds its program, whose abstract state has every shard's size; nothing is computed."""
    src_types, tgt_types = expected_types(config.data.vocabulary)
    program = build(config, src_vocab_size=src_types, tgt_vocab_size=tgt_types)
    state = sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(program.abstract)
    )
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(program.abstract.params))
    mesh = " x ".join(f"{name} {size}" for name, size in program.mesh.shape.items())
    text = f"{config.name}: {count:,} parameters on {mesh}, state {state / _MIB:,.0f} MiB a device"
    values = {"parameters": count, "state": state}
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit and state > _ROOM * limit:
        advice = "spread the state with mesh.fsdp over more devices"
        yield Finding("config", "FAIL", f"{text} of {limit / _MIB:,.0f} MiB", advice, values)
        return
    yield Finding("config", "ok", text, "train --dry-run tries a step of its longest batch", values)
