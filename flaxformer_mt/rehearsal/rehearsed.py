"""What every stage of the rehearsal gets, and the text that it trains on."""

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
from flaxformer_mt.planning.describe import name_of
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import exists, is_remote, remove, write_text
from flaxformer_mt.training.program import Program

STEPS = 60  # of the short training, which is stopped halfway
_MARK = "rehearsal.txt"  # lies in a folder that a rehearsal may remove
_FEWEST_PAIRS = 5_000
_POSITIONS_A_PAIR = 2  # of one side of a batch: an epoch then has several batches
_VALIDATION_PAIRS = 64
_TYPES = 2_000
_POSITIONS = 512  # of a device's part of a batch, at most
_FEWEST_POSITIONS = 25_000
_GIB = 1 << 30
_KEYS = {
    *("config", "topology", "compiler", "devices", "mesh", "parameters", "shape"),
    *("scan_layers", "remat", "fits", "needed_bytes", "hbm_bytes", "compute", "exposed"),
    *("step_seconds", "positions_per_second"),
}  # of a plan, that are read


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

    def begin(self) -> None:
        """Makes an empty folder, and removes what an earlier rehearsal has left there.

        Raises RunDirectoryError if it holds anything else.
        """
        mark = self.folder / _MARK
        if exists(self.folder):
            if not exists(mark):
                raise RunDirectoryError(
                    f"{self.folder}: not a rehearsal's folder: move it, or give another --workdir"
                )
            remove(self.folder)
        if not is_remote(self.folder):
            self.folder.mkdir(parents=True)
        write_text(mark, "`doctor --tpu-hour` works in this folder; its next start removes it.\n")

    @property
    def planned_seconds(self) -> float | None:
        """Of a step."""
        return None if self.plan is None else float(self.plan["step_seconds"])


def end_rehearsal(folder: Path) -> None:
    """Removes a rehearsal's folder."""
    if exists(folder / _MARK):
        remove(folder)


def read_plan(path: str) -> Mapping[str, Any]:
    """The file that `plan --json` wrote. Raises PlanningError."""
    advice = "write it with `plan --config NAME --topology NAME --json > FILE`"
    try:
        plan = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise PlanningError(f"--plan {path}: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        raise PlanningError(f"--plan {path} is not JSON: {error}; {advice}") from error
    if not isinstance(plan, dict) or not _KEYS <= plan.keys():
        raise PlanningError(f"--plan {path} is not the plan of a step; {advice}")
    if not plan["fits"]:
        needed, available = (plan[key] / _GIB for key in ("needed_bytes", "hbm_bytes"))
        raise PlanningError(
            f"--plan {path}: the step does not fit: it needs {needed:.2f} of {available:.2f} GiB"
        )
    return plan


def check_plan(plan: Mapping[str, Any], program: Program, shape: Shape) -> None:
    """Raises PlanningError for the plan of another step than the one that runs here."""
    model = program.config.model
    here = {
        "config": program.config.name,
        "devices": jax.device_count(),
        "mesh": dict(program.mesh.shape),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(program.abstract_weights)),
        "shape": dataclasses.asdict(shape),
        "scan_layers": model.scan_layers,
        "remat": model.remat,
    }
    if topology := name_of(jax.devices()):
        here["topology"] = str(topology)
    for key, value in here.items():
        if plan[key] != value:
            raise PlanningError(
                f"--plan is of another step: its {key} is {plan[key]}, here it is {value}; plan "
                "this step, or leave out --plan"
            )


def on_built_in_text(config: ExperimentConfig) -> ExperimentConfig:
    """The config's model, mesh and optimizer on generated text, for a short training."""
    tree = thaw(config)
    own_data = default_config().data
    own_data.valid = corpus(kind="synthetic", split="valid", size=_VALIDATION_PAIRS)
    own_data.vocabulary.size = _TYPES
    own_data.vocabulary.soft_size = True
    own_data.vocabulary.kind = config.data.vocabulary.kind
    own_data.vocabulary.sampling = config.data.vocabulary.sampling  # done for every batch
    own_data.filter.max_length = config.data.filter.max_length
    own_data.workers = config.data.workers
    own_data.batch = tree.data.batch
    tree.data = own_data

    # A batch of the whole budget might have more pairs than there are.
    batch = config.data.batch
    longest = max(batch.src_length, batch.tgt_length, config.data.filter.max_length)
    most = max(_FEWEST_POSITIONS, _POSITIONS * jax.device_count(), batch.multiple * longest)
    tokens = min(batch.tokens, most)
    pairs = max(_FEWEST_PAIRS, tokens // _POSITIONS_A_PAIR)
    tree.data.train.grammar = corpus(kind="synthetic", split="train", size=pairs)
    tree.data.batch.tokens = tokens
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
