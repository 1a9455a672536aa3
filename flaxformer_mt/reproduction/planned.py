"""The cost of training a row: by formula, and by the TPU's own compiler.

`benchmarks.plan` compiles whole steps of base and big. `plan_rows` compiles every row's step with
one and two layers, and extrapolates linearly to more.
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

SENTENCE = 25  # tokens of an average sentence: about newstest's in word-pieces
# The share of a batch's positions that hold tokens, of source and target: on Europarl's lengths,
# batches of 25,000 + 25,000 positions have 20,640 + 21,320 tokens, packed 23,380 + 24,140.
FILLED = {"bucket": (0.8256, 0.8528), "pack": (0.9352, 0.9656)}
LAYERS = (1, 2)
_STEP = re.compile(r"(?P<case>\w+)_(?P<chip>v\w+?)_(?P<chips>\d+)(?P<paper>_paper)?_step_ms")
# Settings that decide a step's program, with the vocabularies' sizes.
_STEP_SETTINGS = (
    "model.",
    "data.batch.",
    "data.filter.max_length",
    "mesh.",
    "training.optimizer.",
    "training.freeze",
    "training.label_smoothing",
    "training.loss_chunk",
)


def planned_flops(config: ExperimentConfig) -> float:
    """FLOPs of training by formula, for the tokens of its batches: padding does not count.

    The paper's batches have about 25,000 tokens, ours as many positions.
    """
    from flaxformer_mt.model.flops import training_flops

    src_filled, tgt_filled = FILLED[config.data.batch.form]
    positions = config.data.batch.tokens
    step = training_flops(
        config.model,
        expected_types(config.data.vocabulary)[1],
        src_tokens=positions * src_filled,
        tgt_tokens=positions * tgt_filled,
        src_keys=SENTENCE,
        tgt_keys=SENTENCE,
    )
    return step * config.training.steps


def planned_parameters(config: ExperimentConfig) -> int:
    """Parameters with vocabularies of the config's sizes."""
    from flaxformer_mt.model.parameters import count_by_formula

    return sum(count_by_formula(config.model, *expected_types(config.data.vocabulary)).values())


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
    """Whether it is a result of one of the two benchmarks."""
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
_ADDED = {"model.position_scale": "auto"}


def _step(config: ExperimentConfig) -> tuple[Any, ...]:
    """The settings that decide a step's program, and the vocabularies' sizes."""
    settings = {
        key: value
        for key, value in flatten(config).items()
        if key.startswith(_STEP_SETTINGS) and (key not in _ADDED or value != _ADDED[key])
    }
    settings["training.loss_chunk"] = loss_chunk(config.training, "tpu")
    return settings, expected_types(config.data.vocabulary)
