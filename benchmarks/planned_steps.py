"""What the TPU's compiler says of each row's step, from the results of `plan` and `plan_rows`.

`plan` compiles whole steps of base and big. `plan_rows` compiles every row's step with one and two
layers, and extrapolates linearly to more.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from flaxformer_mt.config import ExperimentConfig, expected_types, flatten, loss_chunk
from flaxformer_mt.reproduction.paper import ROWS, Row
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.reproduction.settings import paper_config

LAYERS = (1, 2)
_STEP = re.compile(r"(?P<case>\w+)_(?P<chip>v\w+?)_(?P<chips>\d+)(?P<paper>_paper)?_step_ms")
# Settings that decide a step's program, with the vocabularies' sizes.
_STEP_SETTINGS = (
    "model.",
    "data.batch.",
    "data.filter.max_length",
    "mesh.",
    "training.optimizer.",
    "training.adapters.",
    "training.freeze",
    "training.label_smoothing",
    "training.loss_chunk",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """A step of the paper's batch; `whole` if it was compiled with all of its layers, `of_row` if
    as one of all rows."""

    chip: str
    chips: int
    step_ms: float
    gib: float  # of a chip's memory
    whole: bool
    of_row: bool
    command: str
    commits: tuple[str, ...]  # of the programs that called the compiler

    def chip_hours(self, steps: int) -> float:
        return self.step_ms * steps * self.chips / 3.6e6


def planned_steps(
    row: Row, config: ExperimentConfig, plans: Sequence[Result]
) -> Iterator[PlannedStep]:
    """The steps among `plans` that are this config's, and the row's unless it has changed."""
    for plan in plans:
        for metric in _steps(plan):
            case = metric["case"]
            is_whole_plan = metric["paper"] is not None
            if is_whole_plan:
                matches = _step(paper_config(f"wmt14_en_de:{case}")) == _step(config)
                commits = [plan.details.get(metric[0].removesuffix("_step_ms"), plan.commit)]
            else:
                digest, *commits = plan.details.get(case, "none").split()
                matches = case == key_of(row) and digest == step_digest(config)
            if matches:
                yield PlannedStep(
                    chip=metric["chip"],
                    chips=int(metric["chips"]),
                    step_ms=plan.metrics[metric[0]],
                    gib=plan.metrics[metric[0].replace("_step_ms", "_gib")],
                    whole=is_whole_plan or len(compiled_layers(config)) == 1,
                    of_row=not is_whole_plan,
                    command=plan.command,
                    commits=tuple(commits),
                )


def is_plan(result: Result) -> bool:
    """Whether it is a result of `plan` or `plan_rows`."""
    return any(_steps(result))


def _steps(plan: Result) -> Iterator[re.Match[str]]:
    """The metrics of a plan that are a step's time, taken apart by _STEP."""
    rows = {key_of(row) for row in ROWS}
    for metric in filter(None, map(_STEP.fullmatch, plan.metrics)):
        if metric["case"] in (("base", "big") if metric["paper"] else rows):
            yield metric


def key_of(row: Row) -> str:
    """The row's metrics begin with this."""
    return row.label.replace("/", "_").lower()


def step_digest(config: ExperimentConfig) -> str:
    """Sixteen digits of a digest of the settings that decide the step's program."""
    text = json.dumps(_step(config), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compiled_layers(config: ExperimentConfig) -> tuple[int, ...]:
    """Layers per stack that the step is compiled with. Raises ValueError."""
    encoder, decoder = config.model.encoder_layers, config.model.decoder_layers
    if encoder != decoder:
        raise ValueError(f"{config.name}: {encoder} + {decoder} layers: the stacks must be alike")
    return (encoder,) if encoder <= max(LAYERS) else LAYERS


# Settings that recorded plans may not know, with the value that leaves their step as it is.
_ADDED = {
    "model.position_scale": "auto",
    "model.activation_dtype": "auto",
    "model.attention_kernel": "auto",
    "training.optimizer.kind": "adam",
    "training.optimizer.momentum": 0.95,
    "training.optimizer.decay_exponent": 0.8,
    "training.optimizer.parameter_scale": True,
    "training.adapters.rank": 0,
    "training.adapters.scale": 2.0,
    "training.adapters.matrices": ["*"],
}


def _step(config: ExperimentConfig) -> tuple[Any, ...]:
    """The settings that decide a step's program, and the vocabularies' sizes."""
    settings = {
        key: value
        for key, value in flatten(config).items()
        if key.startswith(_STEP_SETTINGS) and (key not in _ADDED or value != _ADDED[key])
    }
    settings["training.loss_chunk"] = loss_chunk(config.training, "tpu")
    return settings, expected_types(config.data.vocabulary)
