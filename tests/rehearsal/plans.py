"""Plans of steps as `plan --json` writes them, for what compares with one."""

import dataclasses
from typing import Any

import jax

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.planning.fit import largest_shape


def plan_of(config: ExperimentConfig, step_seconds: float, **changes: Any) -> dict[str, Any]:
    """Of a step of the config's longest batch that takes so long."""
    parts = [{"name": "feed_forward", "seconds": step_seconds}]
    return {
        "config": config.name,
        "devices": jax.device_count(),
        "shape": dataclasses.asdict(largest_shape(config)),
        "scan_layers": config.model.scan_layers,
        "remat": config.model.remat,
        "fits": True,
        "step_seconds": step_seconds,
        "needed_bytes": 1 << 30,
        "positions_per_second": 1e3,
        "compute": {"parts": parts, "unestimated": []},
        "exposed": {"most": 0.0},
        **changes,
    }
