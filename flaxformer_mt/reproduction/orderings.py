"""Which of Table 3's orderings hold: each row against the base, on the same sentences."""

import dataclasses
import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from flaxformer_mt import __version__
from flaxformer_mt.evaluation.evaluate import files_of, read_segments
from flaxformer_mt.evaluation.metrics import Measured, measure
from flaxformer_mt.evaluation.paper_protocol import PaperBleu, protocol_note
from flaxformer_mt.evaluation.significance import (
    approximate_randomization,
    paired_bootstrap,
    written,
)
from flaxformer_mt.reproduction.experiment import Experiment, resolve
from flaxformer_mt.reproduction.paper import Row, RowError, row_of, rows_of
from flaxformer_mt.reproduction.records import experiment_state, read_records
from flaxformer_mt.reproduction.result_file import (
    Result,
    ResultError,
    read_hypotheses,
    short,
    write_result,
)
from flaxformer_mt.reproduction.scoring import row_scoring
from flaxformer_mt.reproduction.settings import ReproductionSettings
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.text_table import markdown

SIGNIFICANT = 0.05
_BASE = row_of("table3/base")
_ROWS = (_BASE, *(row for row in rows_of("table3") if row != _BASE))
Verdict = Literal["holds", "does not hold", "cannot be told apart"]


class MeasuredRun(NamedTuple):
    """A run of a row with one seed, and its recorded result."""

    experiment: Experiment
    result: Result


SeedRuns = dict[int, MeasuredRun]  # a row's runs by seed


class ScoredRun(NamedTuple):
    """A measured run, and its outputs scored by the first metric that applies to them."""

    experiment: Experiment
    result: Result
    measured: Measured


@dataclasses.dataclass(frozen=True)
class _References:
    """The reference translations that a run has kept."""

    path: Path
    segments: Sequence[str]

    def score(self, run: MeasuredRun, results: Path) -> ScoredRun:
        """Scores a run's recorded outputs: by the paper's BLEU where that applies, else by
        sacreBLEU. Raises ScoringError, and ResultError if the score isn't the recorded one."""
        experiment, result = run
        outputs = read_hypotheses(result, experiment.test, results)

        metrics = row_scoring(experiment).metrics(self.segments)
        metric = next((metric for metric in metrics if isinstance(metric, PaperBleu)), metrics[0])
        (measured,) = measure([metric], outputs, self.segments)

        is_comparable = result.signatures.get(metric.name) == metric.signature
        if is_comparable and abs(measured.score - result.metrics[metric.name]) > 1e-6:
            raise ResultError(
                f"{result.name}.json: with the references {self.path}, "
                f"the score is {measured.score:.2f}, not as recorded"
            )
        return ScoredRun(experiment, result, measured)


def write_orderings(
    settings: ReproductionSettings,
    *,
    run_of: Callable[[Experiment], RunDirectory],
    results: Path,
) -> Result | None:
    """Compares the recorded outputs of each row of Table 3 with the base's, over all seeds measured
    with these settings, and writes that; None if no row shares a seed with the base, or no run has
    kept references. Raises ConfigError, ScoringError and ResultError."""
    base, rows = _comparable_runs(settings, results)
    runs = [run for row in (base, *rows) for run in row.values()]
    references = _kept_references(runs, run_of)
    if references is None:
        return None

    scored_base = {seed: references.score(run, results) for seed, run in base.items()}
    digests: dict[str, str] = {}
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}
    for row in rows:
        pairs = [(scored_base[seed], references.score(run, results)) for seed, run in row.items()]
        if not pairs:
            continue
        prefix = _prefix(pairs[0][1].experiment.row)
        for run in itertools.chain.from_iterable(pairs):
            digests[run.experiment.name] = run.experiment.digest
        for name, number in _compared(pairs).items():
            metrics[f"{prefix}{name}"] = number
        signatures[f"{prefix}difference"] = pairs[0][0].measured.metric.signature

    first = next(iter(base.values()))
    return write_result(
        results / f"{first.experiment.stem('orderings')}.json",
        command=settings.command("table3", seeds=sorted(base)),
        config=first.experiment.row.spec,
        seconds=sum(run.result.seconds for run in runs),
        metrics=metrics,
        signatures=signatures,
        details={
            "experiments": json.dumps(digests),
            "group": settings_group(first.result),
            "test": first.result.details["test"],
        },
        release=__version__,
    )


def _comparable_runs(
    settings: ReproductionSettings, results: Path
) -> tuple[SeedRuns, list[SeedRuns]]:
    """The base's runs and each other row's: only with seeds that the base shares with a row."""
    base, *rows = (_measured_runs(row, settings, results) for row in _ROWS)
    rows = [{seed: run for seed, run in row.items() if seed in base} for row in rows]
    base = {seed: run for seed, run in base.items() if any(seed in row for row in rows)}
    return base, rows


def _measured_runs(row: Row, settings: ReproductionSettings, results: Path) -> SeedRuns:
    """A row's measured runs, with seeds in ascending order."""
    runs: SeedRuns = {}
    for seed in sorted({int(result.metrics["seed"]) for result in read_records(results).of(row)}):
        try:
            experiment = resolve(row, dataclasses.replace(settings, seed=seed))
        except RowError:  # the row doesn't apply to these settings
            break
        recorded = experiment_state(experiment, results)
        if recorded.state == "done" and recorded.result is not None:
            runs[seed] = MeasuredRun(experiment, recorded.result)
    return runs


def _kept_references(
    runs: Iterable[MeasuredRun], run_of: Callable[[Experiment], RunDirectory]
) -> _References | None:
    """Those of the first run that has kept any: all runs have the same."""
    for experiment, _ in runs:
        path = files_of(run_of(experiment).evaluation, experiment.kept_as).references
        if path.exists():
            return _References(path, read_segments(str(path)))
    return None


def settings_group(result: Result) -> str:
    """The settings that comparable results share: all except row and seed."""
    settings = json.loads(result.details["settings"])
    settings.pop("seed")
    return json.dumps(settings, sort_keys=True)


def verdict(row: Row, metrics: Mapping[str, float]) -> Verdict | None:
    """Whether the paper's order of BLEU holds; None if the paper has none, or none was tested.
    Decided if all seeds agree and approximate randomization gives p < 0.05."""
    expected = row.values["bleu"] - _BASE.values["bleu"]
    ours = _row_metrics(row, metrics)
    if expected == 0 or not ours:
        return None

    difference = ours["difference"]
    is_significant = ours["p_randomization"] < SIGNIFICANT
    if difference == 0 or ours["agreeing"] < ours["seeds"] or not is_significant:
        return "cannot be told apart"
    return "holds" if (difference > 0) == (expected > 0) else "does not hold"


def _prefix(row: Row) -> str:
    """Names of the row's metrics begin with this."""
    return f"{row.name.lower()}_"


def _row_metrics(row: Row, metrics: Mapping[str, float]) -> dict[str, float]:
    prefix = _prefix(row)
    return {
        name.removeprefix(prefix): number
        for name, number in metrics.items()
        if name.startswith(prefix)
    }


def _compared(pairs: Sequence[tuple[ScoredRun, ScoredRun]]) -> dict[str, float]:
    """Base and row over all seeds; tests draw or exchange a sentence with all its outputs."""
    base, row = (_pooled(runs) for runs in zip(*pairs, strict=True))
    (bootstrap,) = paired_bootstrap([base], [row])
    (randomization,) = approximate_randomization([base], [row])
    assert bootstrap.interval is not None  # bootstrap has one

    signs = [np.sign(row.measured.score - base.measured.score) for base, row in pairs]
    return {
        "seeds": len(pairs),
        "difference": bootstrap.difference,
        "low": bootstrap.interval.low,
        "high": bootstrap.interval.high,
        "p_randomization": randomization.p_value,
        "agreeing": signs.count(np.sign(bootstrap.difference)),
        "perplexity_difference": statistics.mean(
            row.result.metrics["perplexity"] - base.result.metrics["perplexity"]
            for base, row in pairs
        ),
    }


def _pooled(runs: Sequence[ScoredRun]) -> Measured:
    """The sum of all seeds' counts, sentence by sentence: BLEU of their outputs taken together."""
    counts = np.sum([run.measured.counts for run in runs], axis=0)
    return Measured(runs[0].measured.metric, counts)


def group_heading(group: str) -> str:
    """Text and scale of a group."""
    settings = json.loads(group)
    corpus, scale = settings["corpus"], settings["scale"]

    heading = "the paper's text" if corpus is None else f"the text `{corpus['name']}`"
    if settings.get("text") == "tfds":
        heading += " as TensorFlow Datasets has it"
    heading += ", full length" if scale == 1 else f", scale {scale:g}"
    if settings["overrides"]:
        heading += ", other settings"
    return heading


def overrides_note(group: str) -> str:
    """A sentence, after a space, that lists a group's overrides; empty without any."""
    overrides = json.loads(group)["overrides"]
    if not overrides:
        return ""
    listed = ", ".join(f"`{override}`" for override in overrides)
    return f" The base has {listed}."


def still_compared(
    orderings: Result, digests: Mapping[str, str]
) -> tuple[Result | None, list[str]]:
    """The comparisons of runs whose digest is still that in `digests`, by name of the run, and the
    rows with changed runs. If the base's runs have changed, no comparison is left."""
    outdated = _outdated_rows(json.loads(orderings.details["experiments"]), digests)
    names = [f"`{row.name}`" for row in outdated]
    if _BASE in outdated:
        return None, names

    prefixes = tuple(_prefix(row) for row in outdated)
    metrics = {
        name: number for name, number in orderings.metrics.items() if not name.startswith(prefixes)
    }
    if not metrics:
        return None, names
    return dataclasses.replace(orderings, metrics=metrics), names


def _outdated_rows(compared: Mapping[str, str], digests: Mapping[str, str]) -> list[Row]:
    """The rows with a compared run, given as names and digests, that isn't as in `digests`."""
    changed = [name for name, digest in compared.items() if digests.get(name) != digest]
    return [
        row for row in _ROWS if any(name.startswith(f"table3_{_prefix(row)}") for name in changed)
    ]


_HEADER = (
    "row",
    "paper: BLEU against base",
    "ours",
    "95% interval",
    "p",
    "seeds that agree",
    "the paper's order",
    "paper: perplexity against base",
    "ours",
)


def ordering_section(orderings: Result) -> Iterator[str]:
    """The comparison, as a section of the page."""
    rows = [row for row in rows_of("table3") if _row_metrics(row, orderings.metrics)]
    names: dict[str, list[str]] = {}  # by verdict
    for row in rows:
        names.setdefault(_judgement(row, orderings), []).append(f"`{row.name}`")
    summary = "; ".join(f"{judgement}: {', '.join(named)}" for judgement, named in names.items())

    group = orderings.details["group"]
    yield f"### On {group_heading(group)}"
    yield (
        f"{summary[:1].upper()}{summary[1:]}. Scored on {orderings.details['test']}; "
        f"commit {short(orderings.commit)}.{overrides_note(group)}"
    )
    lines = [_ordering_line(row, orderings) for row in rows]
    yield markdown(_HEADER, lines, right={1, 2, 4, 5, 7, 8})

    signature = next(iter(orderings.signatures.values()))
    yield (
        "Differences are the row's score minus the base's, over all seeds, with a paired "
        "bootstrap interval over the test set's sentences. p is from approximate randomization, "
        "two-sided; an order holds or fails if p is below 0.05 and every seed agrees. Perplexity "
        f"is shown without a test. BLEU{protocol_note(signature)}: `{signature}`."
    )


def _judgement(row: Row, orderings: Result) -> str:
    return verdict(row, orderings.metrics) or "the paper has none"


def _ordering_line(row: Row, orderings: Result) -> list[str]:
    ours = _row_metrics(row, orderings.metrics)
    return [
        f"`{row.name}`",
        f"{row.values['bleu'] - _BASE.values['bleu']:+.1f}",
        f"{ours['difference']:+.2f}",
        f"{ours['low']:+.2f} to {ours['high']:+.2f}",
        written(ours["p_randomization"], digits=3),
        f"{ours['agreeing']:.0f} of {ours['seeds']:.0f}",
        _judgement(row, orderings),
        f"{row.values['perplexity'] - _BASE.values['perplexity']:+.2f}",
        f"{ours['perplexity_difference']:+.2f}",
    ]
