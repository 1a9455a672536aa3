"""How far a row of the paper has come, by the files that there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from flaxformer_mt.config import ExperimentConfig, load_config
from flaxformer_mt.reproduction.measuring import FULL
from flaxformer_mt.reproduction.paper import Row
from flaxformer_mt.reproduction.planned import Planned, planned_by_layers, planned_steps
from flaxformer_mt.reproduction.records import Failure, Records, stale
from flaxformer_mt.reproduction.result_file import Result

Status = Literal[
    "measured at full scale",
    "measured at reduced scale",
    "compiled and costed only",
    "failed",
    "not run",
]
MEANING: dict[Status, str] = {
    "measured at full scale": "the paper's recipe on as much data, all of its steps",
    "measured at reduced scale": "a share of it, or other text, or other sizes: its score is not "
    "to be held against the paper's",
    "compiled and costed only": "the TPU's own compiler has made its step, whole or with one and "
    "two of its layers; nothing is trained",
    "failed": "tried, and broken off: the reason stands below",
    "not run": "there is a config and a command, and no result",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """A row with all that is known of it."""

    row: Row
    config: ExperimentConfig  # the paper's
    full: tuple[Result, ...]
    reduced: tuple[Result, ...]
    failures: tuple[Failure, ...]
    planned: tuple[Planned, ...]  # whole steps
    by_layers: Planned | None

    @property
    def status(self) -> Status:
        if self.full:
            return "measured at full scale"
        if self.reduced:
            return "measured at reduced scale"
        if self.failures:
            return "failed"
        return "compiled and costed only" if self.planned or self.by_layers else "not run"


def standing(row: Row, records: Records, plans: Sequence[Result]) -> Standing:
    """Raises ConfigError if the row's own config is broken."""
    fresh = [result for result in records.of(row) if stale(result) is None]
    config = load_config(row.spec)
    return Standing(
        row=row,
        config=config,
        full=tuple(result for result in fresh if result.details.get("status") == FULL),
        reduced=tuple(result for result in fresh if result.details.get("status") != FULL),
        failures=tuple(failure for failure in records.failures if failure.label == row.label),
        planned=tuple(planned_steps(config, plans)),
        by_layers=planned_by_layers(row, config, plans),
    )
