"""What a call would do: its experiments, how they stand, and what they are likely to cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from flaxformer_mt.reproduction.cost import planned_flops, planned_parameters
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.records import known
from flaxformer_mt.text_table import aligned


def listing(experiments: Iterable[Experiment], results: Path) -> str:
    """Lines for people. FLOPs are `planned_flops`. Raises ResultError for a foreign result file."""
    rows: list[Sequence[str]] = []
    notes: list[str] = []
    total, left = 0.0, 0.0
    for experiment in experiments:
        found = known(experiment, results)
        config = experiment.config
        flops = planned_flops(config)
        total += flops
        left += flops if found.state != "done" else 0
        averaged = config.training.keep_for_average
        pairs = sum((experiment.pairs or experiment.row.pairs).values())
        rows.append(
            [
                experiment.row.name,
                experiment.row.spec,
                str(experiment.seed),
                found.state,
                f"{config.training.steps:,}",
                f"{pairs:,}" if experiment.settings.corpus is None else f"<= {pairs:,}",
                str(averaged) if averaged else "last alone",
                f"{planned_parameters(config) / 1e6:.2f}",
                f"{flops:.1e}",
            ]
        )
        if found.note:
            notes.append(f"{experiment.row.name}: {found.state}: {found.note}")
    header = ["row", "config", "seed", "state", "steps", "pairs", "averaged", "M params", "FLOPs"]
    return "\n".join(
        [
            aligned(header, rows, left={0, 1, 3}),
            f"all: {total:.1e} FLOPs, of which {left:.1e} are to be done (by formula, every batch "
            "full)",
            *notes,
        ]
    )
