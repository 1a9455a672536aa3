"""Which quantities of a run are drawn, and how: one panel each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from flaxformer_mt.figures.errors import FigureError
from flaxformer_mt.figures.runs import Kind, RunLog


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """A quantity, the kinds of reports that have it, and the scale of its axis."""

    name: str
    title: str
    kinds: tuple[Kind, ...]
    logarithmic: bool = False


# Training's loss is smoothed and validation's is not: they share no panel. Perplexity is, in both,
# that of the unsmoothed likelihood.
KNOWN = (
    Panel(name="loss", title="training loss (nats a target token, smoothed)", kinds=("train",)),
    Panel(
        name="perplexity",
        title="perplexity (line: training, dots: validation)",
        kinds=("train", "valid"),
        logarithmic=True,
    ),
    Panel(name="bleu", title="validation BLEU", kinds=("valid",)),
    Panel(
        name="source_gain",
        title="what its source is worth (nats a target token)",
        kinds=("valid",),
    ),
    Panel(name="learning_rate", title="learning rate", kinds=("train",)),
    Panel(name="tgt_tokens_per_second", title="target tokens a second", kinds=("train",)),
)


def panels(runs: Sequence[RunLog], names: Sequence[str] = ()) -> list[Panel]:
    """The panels of these names, or the usual ones of which a run has a value.

    Raises FigureError for a name that no run has, and lists those that there are.
    """
    known = {panel.name: panel for panel in KNOWN}
    there = _names(runs)
    if not names:
        return [panel for panel in KNOWN if panel.name in there]
    for name in names:
        if name not in there:
            raise FigureError(f"no run has reported {name!r}; there are: {', '.join(there)}")
    return [known.get(name) or _plain(name, there[name]) for name in dict.fromkeys(names)]


def without(panel: Panel, runs: Sequence[RunLog]) -> list[str]:
    """The names of the runs that have nothing for a panel."""
    return [
        run.name for run in runs if not any(_has(run, kind, panel.name) for kind in panel.kinds)
    ]


def _names(runs: Sequence[RunLog]) -> dict[str, tuple[Kind, ...]]:
    kinds: tuple[Kind, ...] = ("train", "valid")
    found: dict[str, tuple[Kind, ...]] = {}
    for kind in kinds:
        for run in runs:
            for name in run.series[kind].values:
                if _has(run, kind, name) and kind not in found.get(name, ()):
                    found[name] = (*found.get(name, ()), kind)
    return found


def _has(run: RunLog, kind: Kind, name: str) -> bool:
    values = run.series[kind].values.get(name)
    return values is not None and bool(np.isfinite(values).any())


def _plain(name: str, kinds: tuple[Kind, ...]) -> Panel:
    both = " (line: training, dots: validation)" if len(kinds) > 1 else ""
    return Panel(name=name, title=f"{name.replace('_', ' ')}{both}", kinds=kinds)
