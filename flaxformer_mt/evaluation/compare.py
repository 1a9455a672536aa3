"""Systems (files, or evaluations of runs) side by side, with significance tests against the
first."""

import dataclasses
import html
import itertools
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.evaluation import METHODS, TRIALS, Method, NBestChoice
from flaxformer_mt.evaluation.evaluate import System, kept_names, read_kept, read_segments
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.n_best import lists_in, remarks
from flaxformer_mt.evaluation.references import Given, References
from flaxformer_mt.evaluation.scoring import Assessment, Scoring, assess
from flaxformer_mt.evaluation.significance import (
    Outcome,
    approximate_randomization,
    paired_bootstrap,
    written,
)
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path, exists
from flaxformer_mt.text_table import aligned
from flaxformer_mt.wording import counted

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
                method: {metric: test.to_json() for metric, test in tests.items()}
                for method, tests in self.tests.items()
            }
        return content


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome of `compare`. The first system is the baseline."""

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
            for method, tests in system.tests.items():
                test = tests[metric]
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
    references: Given | None = None,
    *,
    sources: Sequence[str] | None = None,
    evaluation: str | None = None,
    scoring: Scoring | None = None,
    methods: Collection[Method] = METHODS,
    trials: int = TRIALS,
    from_n_best: NBestChoice | None = None,
    note: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Comparison:
    """Scores every system and tests the others against the first, metric by metric.

    A system is `[NAME=]PATH`: a file of hypotheses, a NAME.json written by `evaluate`, or a run
    directory (its `evaluation`, or its only one). By default the systems bring references and
    sources, and are scored as before; `note` gets reasons for doubt. `references` is one text per
    sentence, or several such sequences, with None for a missing text. `from_n_best` says which
    translation a file of n-best lists stands for: "first" (the default), or the one with the
    highest "score" in it.

    Raises ScoringError for fewer than two systems, a name used twice, no resamples, sides that
    aren't aligned, and missing or different references; CorpusError and RunDirectoryError for what
    can't be read.
    """
    loaded = [
        system
        if isinstance(system, System)
        else find_system(system, evaluation=evaluation, from_n_best=from_n_best, note=note)
        for system in systems
    ]
    common_references, sources = common_text(
        loaded,
        references=references,
        sources=sources,
        need_sources=scoring is not None and bool(scoring.comet),
        note=note,
    )
    for sentence in _different_searches(loaded):
        note(sentence)
    scoring = scoring or common_scoring(loaded)
    _check_names([system.name for system in loaded])
    _check_draws(methods, resamples=scoring.resamples, trials=trials)

    first, *others = [
        (system.name, _assessed(system, common_references, sources, scoring)) for system in loaded
    ]
    baseline_name, baseline = first
    ordered_methods = tuple(method for method in METHODS if method in methods)
    compared = [Compared(name=baseline_name, assessment=baseline, tests={})]
    for name, assessment in others:
        tests = {
            method: _tests(method, baseline, assessment, trials=trials)
            for method in ordered_methods
        }
        compared.append(Compared(name=name, assessment=assessment, tests=tests))
    return Comparison(
        systems=tuple(compared), methods=ordered_methods, scoring=scoring, trials=trials
    )


def _different_searches(systems: Sequence[System]) -> Iterator[str]:
    """A sentence for each system that was searched otherwise than the first one, if this is
    known."""
    first, *others = systems
    for system in others:
        differing = [
            f"{key} {system.search[key]}, not {first.search[key]}"
            for key in sorted(system.search.keys() & first.search.keys())
            if system.search[key] != first.search[key]
        ]
        if differing:
            yield f"{system.name}: was searched otherwise than {first.name}: {'; '.join(differing)}"


def _check_names(names: Sequence[str]) -> None:
    if len(names) < 2:
        raise ScoringError("give two or more systems to compare")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ScoringError(f"two systems are called {repeated[0]}: write NAME=PATH for one of them")


def _check_draws(methods: Collection[Method], *, resamples: int, trials: int) -> None:
    if "bootstrap" in methods and resamples < 1:
        raise ScoringError("resamples must be at least 1: bootstrap needs them")
    if "randomization" in methods and trials < 1:
        raise ScoringError("trials must be at least 1: randomization needs them")


def _assessed(
    system: System, references: References, sources: Sequence[str] | None, scoring: Scoring
) -> Assessment:
    try:
        return assess(system.hypotheses, references, sources=sources, scoring=scoring)
    except ScoringError as error:
        raise ScoringError(f"{system.name}: {error}") from error


def _tests(
    method: Method, baseline: Assessment, system: Assessment, *, trials: int
) -> dict[str, Outcome]:
    """The system's tests against the baseline, by metric."""
    pair = baseline.measured, system.measured
    scoring = system.scoring
    if method == "bootstrap":
        outcomes = paired_bootstrap(*pair, samples=scoring.resamples, seed=scoring.seed)
    else:
        outcomes = approximate_randomization(*pair, trials=trials, seed=scoring.seed)
    return {outcome.metric: outcome for outcome in outcomes}


def find_system(
    argument: str | os.PathLike[str],
    *,
    evaluation: str | None = None,
    from_n_best: NBestChoice | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> System:
    """The system that `[NAME=]PATH` names; `note` is told about n-best lists. Raises ScoringError,
    CorpusError, RunDirectoryError."""
    argument = os.fspath(argument)
    match = re.fullmatch(r"([^=/]+)=(.+)", argument, re.DOTALL)
    if match is None or Path(argument).exists():
        name, text = "", argument
    else:
        name, text = match.groups()

    path = as_path(text)
    run = RunDirectory(path)
    if exists(run.config_file):
        chosen = _chosen_evaluation(run, evaluation)
        system = read_kept(run.evaluation, chosen)
        return dataclasses.replace(system, name=name or path.name, evaluation=chosen)
    if path.suffix == ".json":
        if not exists(path):
            raise ScoringError(f"{text}: does not exist")
        system = read_kept(path.parent, path.name.removesuffix(".json"))
        return dataclasses.replace(system, name=name or system.name)
    return _system_of(text, name or path.name, from_n_best, note)


def _system_of(
    path: str, name: str, from_n_best: NBestChoice | None, note: Callable[[str], None]
) -> System:
    """A file's lines or, of n-best lists, those that are chosen (default: the first)."""
    lines = read_segments(path)
    lists = lists_in(path, lines)
    if lists is None:
        return System(name=name, hypotheses=lines)
    for sentence in remarks(lists, from_n_best):
        note(f"{path}: {sentence}")
    return System(name=name, hypotheses=lists.chosen(from_n_best or "first"), has_n_best=True)


def _chosen_evaluation(run: RunDirectory, evaluation: str | None) -> str:
    """The name of the run's `evaluation`, or of its only one. Raises ScoringError."""
    names = kept_names(run.evaluation)
    if evaluation is not None and evaluation not in names:
        raise ScoringError(
            f"{run}: has no evaluation {evaluation!r} (it has: {', '.join(names) or 'none'})"
        )
    if not names:
        raise ScoringError(f"{run}: has no evaluation: run `evaluate` on it first")
    if evaluation is None and len(names) > 1:
        raise ScoringError(
            f"{run}: has several evaluations: choose one with --set: {', '.join(names)}"
        )
    return evaluation or names[0]


def common_text(
    systems: Sequence[System],
    *,
    references: Given | None = None,
    sources: Sequence[str] | None = None,
    need_sources: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[References, Sequence[str] | None]:
    """References and sources of all `systems`: as given, else those of the first that has them. If
    their sources differ, there are none, and `note` is told. Raises ScoringError."""
    common_references = _common_references(systems, references)
    if sources is not None:
        return common_references, sources

    translated = [(system.name, system.sources) for system in systems if system.sources is not None]
    for name, system_sources in translated:
        first_name, first_sources = translated[0]
        line = _first_difference(system_sources, first_sources)
        if line:
            problem = (
                f"{name}: translated a different source than {first_name} (line {line:,} differs)"
            )
            if need_sources:
                raise ScoringError(f"{problem}: choose one with --src FILE")
            note(f"{problem}: no scores by source length; choose one with --src FILE")
            return common_references, None
    return common_references, translated[0][1] if translated else None


def _common_references(systems: Sequence[System], references: Given | None) -> References:
    evaluated = [
        (system.name, References.of(system.references))
        for system in systems
        if system.references is not None
    ]
    if references is None and not evaluated:
        raise ScoringError("no reference to compare with: give --ref FILE")
    common = evaluated[0][1] if references is None else References.of(references)
    advice = "evaluate all systems on one test set, or give files of hypotheses with --ref"
    for name, of_system in evaluated:
        count, common_count = len(of_system.columns), len(common.columns)
        if count != common_count:
            raise ScoringError(
                f"{name}: was evaluated on {counted(count, 'reference')}, not {common_count}: "
                f"{advice}"
            )
        for texts, others in zip(of_system.columns, common.columns, strict=True):
            if line := _first_difference(texts, others):
                raise ScoringError(
                    f"{name}: was evaluated on a different reference (line {line:,} differs): "
                    f"{advice}"
                )
    return common


def common_scoring(
    systems: Sequence[System],
    *,
    tokenizer: str | None = None,
    lowercase: bool = False,
    language: str = "",
) -> Scoring:
    """The systems' former scoring, with the given settings. Raises ScoringError if they differ."""

    def common(field: str, problem: str) -> Any:
        """The systems' setting, None if it isn't known of any."""
        settings = {getattr(system, field) for system in systems} - {None}
        if len(settings) > 1:
            raise ScoringError(problem.format(", ".join(sorted(map(str, settings)))))
        return next(iter(settings), None)

    different_tokenizers = (
        "the systems were evaluated with different tokenisation ({}): choose one with --tokenize"
    )
    different_case = (
        "only some of the systems were evaluated with --lowercase: compare all with --lowercase, "
        "or evaluate them all the same way"
    )
    return Scoring(
        tokenizer=tokenizer or common("tokenizer", different_tokenizers) or "auto",
        lowercase=lowercase or bool(common("lowercase", different_case)),
        language=language or next((system.language for system in systems if system.language), ""),
    )


def _first_difference(texts: Sequence[str | None], other_texts: Sequence[str | None]) -> int:
    """The first line, from 1, in which they differ; 0 if there is none."""
    pairs = enumerate(itertools.zip_longest(texts, other_texts), start=1)
    return next((number for number, (text, other) in pairs if text != other), 0)
