"""Systems (files, or evaluations of runs) side by side, with significance tests against the
first."""

import dataclasses
import html
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from flaxformer_mt.evaluation.evaluate import System, kept_names, read_kept, read_segments
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.scoring import Assessment, Scoring, assess
from flaxformer_mt.evaluation.significance import (
    TRIALS,
    Method,
    Outcome,
    approximate_randomization,
    paired_bootstrap,
    written,
)
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path, exists
from flaxformer_mt.text_table import aligned

METHODS: tuple[Method, ...] = get_args(Method)
SIGNIFICANT = 0.05
_COLUMNS: dict[Method, list[str]] = {
    "bootstrap": ["its 95% interval", "better in", "p (bootstrap)"],
    "randomization": ["p (randomization)"],
}
_LEGEND = f"""\
* p (randomization) below {SIGNIFICANT}. Differences are from the first system; "better in" is the
  share of resampled test sets in which the system beats it. p is the probability of a difference
  this large by chance: two-sided for randomization, one-sided for (sacreBLEU's) bootstrap."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """One system's scores and, by method and metric, its tests against the baseline."""

    name: str
    assessment: Assessment
    tests: Mapping[Method, Mapping[str, Outcome]]

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"name": self.name, **self.assessment.to_json()}
        if self.tests:
            content["against_baseline"] = {
                method: {metric: test.to_json() for metric, test in found.items()}
                for method, found in self.tests.items()
            }
        return content


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `compare` found. The first system is the baseline."""

    systems: tuple[Compared, ...]
    methods: tuple[Method, ...]
    scoring: Scoring
    trials: int

    def to_json(self) -> dict[str, Any]:
        return {
            "baseline": self.systems[0].name,
            "seed": self.scoring.seed,
            "resamples": self.scoring.resamples,
            "trials": self.trials,
            "systems": [system.to_json() for system in self.systems],
        }

    def __repr__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.table())}</pre>"

    def table(self) -> str:
        metrics = self.systems[0].assessment.scores.metrics
        return "\n\n".join([*map(self._block, metrics), _LEGEND])

    def _block(self, metric: str) -> str:
        header = [metric, "score", "95% interval", "difference"]
        header += [column for method in self.methods for column in _COLUMNS[method]]
        rows = []
        for system in self.systems:
            scores = system.assessment.scores
            spread = system.assessment.intervals.get(metric)
            row = [system.name, f"{scores.metrics[metric]:.2f}"]
            row.append(f"{spread.low:.2f} to {spread.high:.2f}" if spread else "-")
            for method, found in system.tests.items():
                test = found[metric]
                if len(row) == 3:
                    row.append(f"{test.difference:+.2f}")
                if test.interval is not None:
                    row.append(f"{test.interval.low:+.2f} to {test.interval.high:+.2f}")
                    row.append(f"{test.better:.1%}")
                # The bootstrap's p is one-sided: it calls too many equal systems different.
                star = method == "randomization" and test.p_value < SIGNIFICANT
                row.append(f"{written(test.p_value)}{'*' if star else ' '}")
            # The first system, the baseline, has no tests.
            rows.append(row + ["-"] * (len(header) - len(row)))
        signature = self.systems[0].assessment.scores.signatures[metric]
        return f"{aligned(header, rows)}\n{signature}"


def compare(
    systems: Sequence[System | str | os.PathLike[str]],
    references: Sequence[str] | None = None,
    *,
    sources: Sequence[str] | None = None,
    evaluation: str | None = None,
    scoring: Scoring | None = None,
    methods: Collection[Method] = METHODS,
    trials: int = TRIALS,
    note: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Comparison:
    """Scores every system and tests the others against the first, metric by metric.

    A system is `[NAME=]PATH`: a file of hypotheses, a NAME.json written by `evaluate`, or a run
    directory (its `evaluation`, or its only one). By default the systems bring references and
    sources, and are scored as before; `note` gets reasons for doubt.

    Raises ScoringError for fewer than two systems, a name used twice, no resamples, sides that
    aren't aligned, and missing or different references; CorpusError and RunDirectoryError for what
    can't be read.
    """
    found = [
        system if isinstance(system, System) else find_system(system, evaluation=evaluation)
        for system in systems
    ]
    references, sources = common_text(
        found,
        references=references,
        sources=sources,
        need_sources=scoring is not None and bool(scoring.comet),
        note=note,
    )
    scoring = scoring or common_scoring(found)
    names = [system.name for system in found]
    if len(names) < 2:
        raise ScoringError("give two or more systems to compare")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ScoringError(f"two systems are called {twice[0]}: write NAME=PATH for one of them")
    draws_of = {"bootstrap": ("resamples", scoring.resamples), "randomization": ("trials", trials)}
    for method, (name, draws) in draws_of.items():
        if method in methods and draws < 1:
            raise ScoringError(f"{name} must be at least 1: {method} needs them")
    assessed = []
    for system in found:
        try:
            assessed.append(assess(system.hypotheses, references, sources=sources, scoring=scoring))
        except ScoringError as error:
            raise ScoringError(f"{system.name}: {error}") from error
    first = assessed[0]
    chosen = tuple(method for method in METHODS if method in methods)
    compared = [Compared(name=names[0], assessment=first, tests={})]
    for name, other in zip(names[1:], assessed[1:], strict=True):
        tests = {}
        for method in chosen:
            pair = first.measured, other.measured
            if method == "bootstrap":
                outcomes = paired_bootstrap(*pair, samples=scoring.resamples, seed=scoring.seed)
            else:
                outcomes = approximate_randomization(*pair, trials=trials, seed=scoring.seed)
            tests[method] = {test.metric: test for test in outcomes}
        compared.append(Compared(name=name, assessment=other, tests=tests))
    return Comparison(systems=tuple(compared), methods=chosen, scoring=scoring, trials=trials)


def find_system(argument: str | os.PathLike[str], *, evaluation: str | None = None) -> System:
    """The system that `[NAME=]PATH` names. Raises ScoringError, CorpusError, RunDirectoryError."""
    argument = os.fspath(argument)
    match = re.fullmatch(r"([^=/]+)=(.+)", argument, re.DOTALL)
    name, path = ("", argument) if match is None or Path(argument).exists() else match.groups()
    place = as_path(path)
    run = RunDirectory(place)
    if exists(run.config_file):
        names = kept_names(run.evaluation)
        there = ", ".join(names)
        if evaluation is not None and evaluation not in names:
            problem = f"has no evaluation {evaluation!r} (it has: {there or 'none'})"
            raise ScoringError(f"{run}: {problem}")
        if not names:
            raise ScoringError(f"{run}: has no evaluation: run `evaluate` on it first")
        if evaluation is None and len(names) > 1:
            raise ScoringError(f"{run}: has several evaluations: choose one with --set: {there}")
        chosen = evaluation or names[0]
        kept = read_kept(run.evaluation, chosen)
        return dataclasses.replace(kept, name=name or place.name, evaluation=chosen)
    if place.suffix == ".json":
        if not exists(place):
            raise ScoringError(f"{path}: does not exist")
        kept = read_kept(place.parent, place.name.removesuffix(".json"))
        return dataclasses.replace(kept, name=name or kept.name)
    return System(name=name or place.name, hypotheses=read_segments(path))


def common_text(
    systems: Sequence[System],
    *,
    references: Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    need_sources: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[Sequence[str], Sequence[str] | None]:
    """References and sources of all `systems`: as given, else those of the first that has them. If
    their sources differ, there are none, and `note` is told. Raises ScoringError."""
    brought = [(one.name, one.references) for one in systems if one.references is not None]
    if references is None and not brought:
        raise ScoringError("no reference to compare with: give --ref FILE")
    references = brought[0][1] if references is None else references
    for name, others in brought:
        if line := _first_difference(others, references):
            raise ScoringError(
                f"{name}: was evaluated on a different reference (line {line:,} differs): "
                "evaluate all systems on one test set, or give files of hypotheses with --ref"
            )
    if sources is not None:
        return references, sources
    translated = [(one.name, one.sources) for one in systems if one.sources is not None]
    for name, others in translated:
        first, own = translated[0]
        if line := _first_difference(others, own):
            problem = f"{name}: translated a different source than {first} (line {line:,} differs)"
            if need_sources:
                raise ScoringError(f"{problem}: choose one with --src FILE")
            note(f"{problem}: no scores by source length; choose one with --src FILE")
            return references, None
    return references, translated[0][1] if translated else None


def common_scoring(
    systems: Sequence[System],
    *,
    tokenizer: str | None = None,
    lowercase: bool = False,
    language: str = "",
) -> Scoring:
    """How they were scored before, except for what is given. Raises ScoringError if they differ."""

    def before(name: str, problem: str) -> Any:
        found = {getattr(each, name) for each in systems if getattr(each, name) is not None}
        if len(found) > 1:
            raise ScoringError(problem.format(", ".join(sorted(map(str, found)))))
        return next(iter(found), None)

    different = "the systems were evaluated with different tokenisation ({}): choose one with "
    some = "only some of the systems were evaluated with --lowercase: compare all with "
    same = "--lowercase, or evaluate them all the same way"
    return Scoring(
        tokenizer=tokenizer or before("tokenizer", f"{different}--tokenize") or "auto",
        lowercase=lowercase or bool(before("lowercase", some + same)),
        language=language or next((each.language for each in systems if each.language), ""),
    )


def _first_difference(ones: Sequence[str], others: Sequence[str]) -> int:
    pairs = enumerate(itertools.zip_longest(ones, others), start=1)
    return next((number for number, (one, other) in pairs if one != other), 0)
