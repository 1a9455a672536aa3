"""What every part of the rehearsal gets, and the text that it trains on."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from flaxformer_mt.config import ExperimentConfig, corpus, default_config, freeze, thaw
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.planning import PlanningError

STEPS = 60  # of the short training, which is stopped halfway
_PAIRS = 40_000
_VALIDATION_PAIRS = 64
_TYPES = 2_000
_POSITIONS = 512  # of a device's part of a batch, at most
_FEWEST_POSITIONS = 25_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What is rehearsed, for all `processes`: `config` in `folder`, which is the rehearsal's own.

    `plan` is what `plan --json` printed for the same step; None if there is none.
    """

    config: ExperimentConfig
    folder: Path
    plan: Mapping[str, Any] | None
    processes: Processes

    @property
    def run(self) -> Path:
        """The directory of the short training."""
        return self.folder / "run"

    @property
    def planned_seconds(self) -> float | None:
        """Of a step."""
        return None if self.plan is None else float(self.plan["step_seconds"])


def read_plan(path: str) -> Mapping[str, Any]:
    """The file that `plan --json` wrote. Raises PlanningError."""
    advice = "write it with `plan --config NAME --topology NAME --json > FILE`"
    try:
        plan = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise PlanningError(f"--plan {path}: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        raise PlanningError(f"--plan {path} is not JSON: {error}; {advice}") from error
    keys = {"compute", "exposed", "shape", "step_seconds", "devices", "fits"}
    if not isinstance(plan, dict) or not keys <= plan.keys():
        raise PlanningError(f"--plan {path} is not the plan of a step; {advice}")
    if not plan["fits"]:
        raise PlanningError(f"--plan {path}: its step does not fit in a device's memory")
    return plan


def check_plan(plan: Mapping[str, Any], config: ExperimentConfig, shape: Shape) -> None:
    """Raises PlanningError for the plan of another step than the one that runs here."""
    here = {
        "config": config.name,
        "devices": jax.device_count(),
        "shape": dataclasses.asdict(shape),
        "scan_layers": config.model.scan_layers,
        "remat": config.model.remat,
    }
    for name, value in here.items():
        if plan[name] != value:
            raise PlanningError(
                f"the plan is of another step: its {name} is {plan[name]}, here it is {value}"
            )


def on_built_in_text(config: ExperimentConfig) -> ExperimentConfig:
    """The config's model, mesh and optimizer on generated text, for a short training."""
    tree = thaw(config)
    own_data = default_config().data
    own_data.train.grammar = corpus(kind="synthetic", split="train", size=_PAIRS)
    own_data.valid = corpus(kind="synthetic", split="valid", size=_VALIDATION_PAIRS)
    own_data.vocabulary.size = _TYPES
    own_data.filter.max_length = config.data.filter.max_length
    own_data.workers = config.data.workers
    own_data.batch = tree.data.batch
    tree.data = own_data

    # A batch of the whole budget might have more pairs than there are.
    most = max(_FEWEST_POSITIONS, _POSITIONS * jax.device_count())
    tree.data.batch.tokens = min(config.data.batch.tokens, most)
    tree.data.batch.max_shapes = 1
    tree.training.update(
        {
            "steps": STEPS,
            "minutes": 0.0,
            "log_every": STEPS // 6,
            "save_every": STEPS,
            "validate_every": STEPS,
            "validate_bleu": True,
            "best_metric": "loss",
            "best_set": "",
            "keep_moments": False,
            "trackers": (),
        }
    )
    tree.training.adapters.rank = 0
    return freeze(tree, f"the rehearsal of {config.name}")
