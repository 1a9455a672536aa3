"""The record of the study: test scores of each cell, and how many cells meet the two aims.

A cell's contestants are chosen by their dev scores. Its test outputs, written by the trials, are
scored only here.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

from benchmarks.own_data.corpora import CORPORA
from benchmarks.own_data.peers import PEERS
from benchmarks.own_data.queue_of_trials import PARTS, Part, Stage, Trial
from benchmarks.own_data.scoring import Scores, scores
from benchmarks.own_data.trial import EPOCH, FAILED, dev_scores
from flaxformer_mt.evaluation.metrics import Bleu, Chrf

NEAR, AHEAD = 1.0, 2.0  # BLEU
P_VALUE = 0.05
RESAMPLES = 1000

Records = Mapping[Trial, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Cell:
    corpus: str
    minutes: int

    @property
    def name(self) -> str:
        return f"{self.corpus}_{self.minutes}_minutes"

    def stage(self, part: Part) -> Stage:
        return Stage(self.corpus, part, self.minutes)


CELLS = tuple(
    Cell(corpus.name, minutes) for corpus in CORPORA.values() for minutes in corpus.minutes
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """The trials that stand for a cell's parts, by their dev scores; None: missing, or no peer that
    has finished an epoch. `apart` are peers that haven't."""

    ours: Trial | None
    own_best: Trial | None
    best_peer: Trial | None
    apart: tuple[Trial, ...]
    missing: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """A cell's test scores by who was scored: "ours", "own_best", "best_peer". `p_value` is of ours
    against the best peer."""

    cell: Cell
    chosen: Chosen
    scores: Mapping[str, Scores]
    hypotheses: Mapping[str, Sequence[str]]
    p_value: float | None

    @property
    def is_near_own_best(self) -> bool:
        return self._difference("own_best") >= -NEAR

    @property
    def is_ahead_of_peers(self) -> bool:
        is_significant = self.p_value is not None and self.p_value < P_VALUE
        return is_significant and self._difference("best_peer") >= AHEAD

    def compares_with(self, other: str) -> bool:
        return {"ours", other} <= self.scores.keys()

    def _difference(self, other: str) -> float:
        if not self.compares_with(other):
            return float("-inf")
        return self.scores["ours"].bleu - self.scores[other].bleu


def chosen(cell: Cell, records: Records) -> Chosen:
    """Who stands for each part of a cell. A part counts once all of its trials have ended."""
    dev = dev_scores(records)
    ended = {part: _ended(cell.stage(part), dev) for part in PARTS}
    whole = {
        part: trials if len(trials) == cell.stage(part).count else []
        for part, trials in ended.items()
    }
    trained = [trial for trial in whole["peers"] if records[trial]["epochs"] >= EPOCH]
    return Chosen(
        ours=_best(whole["ours"], dev),
        own_best=_best(whole["search"], dev),
        best_peer=_best(trained, dev),
        apart=tuple(trial for trial in whole["peers"] if trial not in trained),
        missing=tuple(
            f"{part} ({len(ended[part])} of {cell.stage(part).count} trials)"
            for part in PARTS
            if not whole[part]
        ),
    )


def _ended(stage: Stage, dev: Mapping[Trial, float]) -> list[Trial]:
    """The trials of a stage that have ended."""
    return [trial for trial in stage.trials(dev) or () if trial in dev]


def _best(trials: Sequence[Trial], dev: Mapping[Trial, float]) -> Trial | None:
    """The trial with the highest dev score; None if all have failed."""
    scored = [trial for trial in trials if dev[trial] > FAILED]
    return max(scored, key=lambda trial: dev[trial], default=None)


def judged(
    cell: Cell,
    chosen: Chosen,
    outputs: Mapping[Trial, Sequence[str]],
    sources: Sequence[str],
    references: Sequence[str],
) -> Judged:
    """The test scores of the chosen trials. Raises ScoringError."""
    trials = {"ours": chosen.ours, "own_best": chosen.own_best, "best_peer": chosen.best_peer}
    hypotheses = {name: outputs[trial] for name, trial in trials.items() if trial is not None}
    p_value = None
    if {"ours", "best_peer"} <= hypotheses.keys():
        p_value = bootstrap(hypotheses["best_peer"], hypotheses["ours"], references)
    return Judged(
        cell=cell,
        chosen=chosen,
        scores={name: scores(sources, lines, references) for name, lines in hypotheses.items()},
        hypotheses=hypotheses,
        p_value=p_value,
    )


def bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    resamples: int = RESAMPLES,
) -> float:
    """The p-value of sacreBLEU's own paired bootstrap: that the two BLEUs differ by chance.

    It doesn't say which is better.
    """
    systems: list[tuple[str, Sequence[str]]] = [("baseline", baseline), ("system", system)]
    test = PairedTest(
        systems,
        {"BLEU": BLEU()},
        [list(references)],
        test_type="bs",
        n_samples=resamples,
    )
    _, tested = test()
    result = tested["BLEU"][1]
    assert isinstance(result, Result) and result.p_value is not None
    return float(result.p_value)


def metrics(cells: Sequence[Judged]) -> dict[str, float]:
    """The counts, and each cell's figures under its name. What is missing has none."""
    compared = {
        other: [cell for cell in cells if cell.compares_with(other)]
        for other in ("own_best", "best_peer")
    }
    figures: dict[str, float] = {
        "cells": len(CELLS),
        "cells_whole": sum(not cell.chosen.missing for cell in cells),
        "cells_within_1_of_own_best": sum(cell.is_near_own_best for cell in cells),
        "cells_compared_with_own_best": len(compared["own_best"]),
        "cells_2_ahead_of_best_peer": sum(cell.is_ahead_of_peers for cell in cells),
        "cells_compared_with_a_peer": len(compared["best_peer"]),
    }
    shares = [cell.scores["ours"].short_share for cell in cells if "ours" in cell.scores]
    if shares:
        figures["most_short_outputs_share"] = max(shares)
    for cell in cells:
        figures |= {f"{cell.cell.name}_{name}": figure for name, figure in _figures(cell)}
    return figures


def _figures(cell: Judged) -> Iterator[tuple[str, float]]:
    for name, scored in cell.scores.items():
        yield f"{name}_bleu", scored.bleu
        yield f"{name}_chrf", scored.chrf
    if "ours" in cell.scores:
        yield "short_outputs", cell.scores["ours"].short
        yield "short_outputs_share", cell.scores["ours"].short_share
    if cell.p_value is not None:
        yield "p_value", cell.p_value


def signatures(figures: Mapping[str, float]) -> dict[str, str]:
    """How the scores among the figures are computed."""
    metrics_by_ending = {"_bleu": Bleu(), "_chrf": Chrf()}
    return {
        name: metric.signature
        for name in figures
        for ending, metric in metrics_by_ending.items()
        if name.endswith(ending)
    }


def details(cells: Sequence[Judged], records: Records) -> dict[str, str]:
    """In words: what is missing, who was chosen, and peers that haven't finished an epoch."""
    missing = [
        f"{cell.cell.name}: {', '.join(cell.chosen.missing)}"
        for cell in cells
        if cell.chosen.missing
    ]
    names = {
        cell.cell.name: {
            "own_best": _name(cell.chosen.own_best),
            "best_peer": _name(cell.chosen.best_peer),
        }
        for cell in cells
    }
    apart = {
        trial.name: {
            "epochs": round(records[trial]["epochs"], 3),
            "dev_bleu": None if records[trial]["dev"] is None else records[trial]["dev"]["bleu"],
        }
        for cell in cells
        for trial in cell.chosen.apart
    }
    clocks = sorted({record["limited_by"] for record in records.values()})
    return {
        "missing": "; ".join(missing) or "nothing",
        "chosen_by_dev": json.dumps(names),
        "peers_without_an_epoch": json.dumps(apart),
        "limited_by": ", ".join(clocks) or "nothing yet",
        "peers": ", ".join(peer.name for peer in PEERS),
    }


def _name(trial: Trial | None) -> str | None:
    return None if trial is None else trial.contestant


def write_trials(path: Path, records: Records) -> None:
    """All trials' records, a line of JSON each, by name."""
    lines = sorted((trial.name, json.dumps(record)) for trial, record in records.items())
    path.write_text("".join(f"{line}\n" for _, line in lines), "utf-8")
