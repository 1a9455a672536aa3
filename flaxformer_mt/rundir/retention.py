"""Which checkpoints are kept: the newest, those to be averaged, and the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeepPolicy:
    """Keeps the `keep_latest` newest and the `keep_best` best steps, and what is to be averaged.

    To be averaged are the `keep_for_average` newest of those that were not saved for a start, a
    stop or an end alone: where a run was stopped or extended decides about no other checkpoint.
    Best is the highest (`mode` "max", as for BLEU) or lowest ("min", as for a loss) value of
    `metric` among the metrics saved with a checkpoint; those without it are never best.
    """

    keep_latest: int = 2
    keep_best: int = 1
    keep_for_average: int = 5
    metric: str = "bleu"
    mode: Literal["max", "min"] = "max"


def ranked(
    metrics: Mapping[int, Mapping[str, Any]], metric: str, mode: Literal["max", "min"]
) -> list[int]:
    """Steps from best to worst; of equal values the earlier step first, as patience counts.

    Steps without the metric, or with one that is not finite, are left out.
    """
    sign = -1.0 if mode == "max" else 1.0
    values = {
        step: sign * float(found[metric])
        for step, found in metrics.items()
        if isinstance(found.get(metric), (int, float)) and math.isfinite(found[metric])
    }
    return sorted(values, key=lambda step: (values[step], step))


def steps_to_keep(
    steps: Sequence[int],
    metrics: Mapping[int, Mapping[str, Any]],
    policy: KeepPolicy,
    *,
    irregular: Container[int] = (),
) -> set[int]:
    """The steps that `policy` keeps, out of `steps` with their `metrics`.

    `irregular` ones were saved because the run started, stopped or ended there.
    """
    present = {step: metrics.get(step, {}) for step in steps}
    best = ranked(present, policy.metric, policy.mode)[: policy.keep_best]
    newest_first = sorted(steps, reverse=True)
    regular = [step for step in newest_first if step not in irregular]
    # Never none: the newest checkpoint is what a resumed run continues from.
    newest = newest_first[: max(1, policy.keep_latest)]
    return {*newest, *regular[: policy.keep_for_average], *best}
