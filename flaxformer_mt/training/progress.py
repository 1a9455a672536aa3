"""What, besides the train state, must survive a restart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from flaxformer_mt.data.position import Position
from flaxformer_mt.training.window import Sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands, apart from parameters and moments. Plain JSON in a checkpoint.

    `position` is the next batch; `left_out` names the batches that made updates non-finite before
    a rollback; `stale` counts validations since the best one; `window` holds the sums of the
    report to come; `seconds` of training so far.
    """

    position: Position = dataclasses.field(default_factory=Position)
    left_out: tuple[Position, ...] = ()
    rollbacks: int = 0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    seconds: float = 0.0
    window: Sums = dataclasses.field(default_factory=Sums)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        return cls(
            **{
                **values,
                "position": Position(**values["position"]),
                "left_out": tuple(Position(**item) for item in values["left_out"]),
                "window": Sums(**values.get("window", {})),
            }
        )
