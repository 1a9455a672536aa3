"""What training a row would take: by formula, and by the TPU's own compiler.

`benchmarks.plan` compiles whole steps of base and big; `plan_rows` compiles every row's step with
one and two layers, which gives the line that more layers lie on.
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
LAYERS = (1, 2)
_WHOLE = re.compile(r"(?P<size>base|big)_(?P<chip>v\w+?)_(?P<chips>\d+)_paper_step_ms")
# Settings that decide a step's program, with the vocabularies' sizes.
_OF_A_STEP = (
    *("model.", "data.batch.", "data.filter.max_length", "mesh.", "training.optimizer."),
    *("training.freeze", "training.label_smoothing", "training.loss_chunk"),
)


def planned_flops(config: ExperimentConfig) -> float:
    """FLOPs of training by formula, if every batch is full on both sides: an upper bound."""
    from flaxformer_mt.model.flops import training_flops

    tokens = config.data.batch.tokens
    step = training_flops(
        config.model,
        expected_types(config.data.vocabulary)[1],
        src_tokens=tokens,
        tgt_tokens=tokens,
        src_keys=SENTENCE,
        tgt_keys=SENTENCE,
    )
    return step * config.training.steps


def planned_parameters(config: ExperimentConfig) -> int:
    """Parameters with vocabularies of the config's sizes."""
    from flaxformer_mt.model.parameters import count_by_formula

    return sum(count_by_formula(config.model, *expected_types(config.data.vocabulary)).values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """A step of the paper's batch; `whole` if it was compiled with all of its layers."""

    chip: str
    chips: int
    step_ms: float
    gib: float  # of a chip's memory
    whole: bool
    command: str
    commits: tuple[str, ...]  # of the programs that asked the compiler

    def chip_hours(self, steps: int) -> float:
        return self.step_ms * steps * self.chips / 3.6e6


def planned_steps(config: ExperimentConfig, plans: Sequence[Result]) -> Iterator[Planned]:
    """The whole steps among `plans` that are this config's."""
    wanted = _step(config)
    for plan in plans:
        for name in plan.metrics:
            found = _WHOLE.fullmatch(name)
            if found and _step(paper_config(f"wmt14_en_de:{found['size']}")) == wanted:
                case = found[0].removesuffix("_step_ms")
                commit = plan.details.get(case, plan.commit)
                yield _planned(plan, found, [commit], whole=True)


def planned_by_layers(
    row: Row, config: ExperimentConfig, plans: Sequence[Result]
) -> Planned | None:
    """The row's step from one and two layers; None if it wasn't compiled or has changed."""
    wanted = re.compile(rf"{key_of(row)}_(?P<chip>v\w+?)_(?P<chips>\d+)_step_ms")
    for plan in plans:
        digest, *commits = plan.details.get(key_of(row), "none").split()
        for found in filter(None, map(wanted.fullmatch, plan.metrics)):
            if digest == step_digest(config):
                whole = len(compiled_layers(config)) == 1
                return _planned(plan, found, commits, whole=whole)
    return None


def _planned(plan: Result, found: re.Match[str], commits: Sequence[str], *, whole: bool) -> Planned:
    return Planned(
        chip=found["chip"],
        chips=int(found["chips"]),
        step_ms=plan.metrics[found[0]],
        gib=plan.metrics[found[0].replace("_step_ms", "_gib")],
        whole=whole,
        command=plan.command,
        commits=tuple(commits),
    )


def is_plan(result: Result) -> bool:
    """Whether it is a result of one of the two benchmarks."""
    rows = tuple(f"{key_of(row)}_" for row in ROWS)
    return any(
        _WHOLE.fullmatch(name) or (name.startswith(rows) and name.endswith("_step_ms"))
        for name in result.metrics
    )


def key_of(row: Row) -> str:
    """What the row's metrics begin with."""
    return row.label.replace("/", "_").lower()


def step_digest(config: ExperimentConfig) -> str:
    """Sixteen digits of what decides the step's program."""
    text = json.dumps(_step(config), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compiled_layers(config: ExperimentConfig) -> tuple[int, ...]:
    """Layers per stack that the step is compiled with. Raises ValueError."""
    encoder, decoder = config.model.encoder_layers, config.model.decoder_layers
    if encoder != decoder:
        raise ValueError(f"{config.name}: {encoder} + {decoder} layers: the stacks must be alike")
    return (encoder,) if encoder <= max(LAYERS) else LAYERS


def _step(config: ExperimentConfig) -> tuple[Any, ...]:
    of_a_step = {k: v for k, v in flatten(config).items() if k.startswith(_OF_A_STEP)}
    of_a_step["training.loss_chunk"] = loss_chunk(config.training, "tpu")
    return of_a_step, expected_types(config.data.vocabulary)
