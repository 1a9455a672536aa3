"""Plans of steps as `plan --json` writes them, for what compares with one."""

import dataclasses
import math
from typing import Any

import jax

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.planning.fit import largest_shape
from flaxformer_mt.training.program import build


def plan_of(config: ExperimentConfig, step_seconds: float, **changes: Any) -> dict[str, Any]:
    """Of a step of the config's longest batch that takes so long."""
    src_types, tgt_types = expected_types(config.data.vocabulary)
    program = build(config, src_vocab_size=src_types, tgt_vocab_size=tgt_types)
    parts = [{"name": "feed_forward", "seconds": step_seconds}]
    return {
        "config": config.name,
        "topology": "none",
        "compiler": "none",
        "devices": jax.device_count(),
        "mesh": dict(program.mesh.shape),
        "parameters": sum(
            math.prod(leaf.shape) for leaf in jax.tree.leaves(program.abstract_weights)
        ),
        "shape": dataclasses.asdict(largest_shape(config)),
        "scan_layers": config.model.scan_layers,
        "remat": config.model.remat,
        "fits": True,
        "step_seconds": step_seconds,
        "needed_bytes": 1 << 30,
        "hbm_bytes": 1 << 34,
        "positions_per_second": 1e3,
        "compute": {"parts": parts, "unestimated": []},
        "exposed": {"most": 0.0},
        **changes,
    }
