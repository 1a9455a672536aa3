"""Which of Table 3's orderings hold: each row against the base, on the same sentences."""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from flaxformer_mt.reproduction.records import known, read_records
from flaxformer_mt.reproduction.result_file import (
    Result,
    ResultError,
    read_hypotheses,
    short,
    write_result,
)
from flaxformer_mt.reproduction.settings import Settings
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.text_table import markdown

SIGNIFICANT = 0.05
_BASE = row_of("table3/base")
_ROWS = (_BASE, *(row for row in rows_of("table3") if row != _BASE))
Verdict = Literal["holds", "does not hold", "cannot be told apart"]


class Scored(NamedTuple):
    """A run's result, and its outputs by the first metric that applies to them."""

    experiment: Experiment
    result: Result
    measured: Measured


def write_orderings(
    settings: Settings, *, run_of: Callable[[Experiment], RunDirectory], results: Path
) -> Result | None:
    """Compares the recorded outputs of each row of Table 3 with the base's, over all seeds measured
    with these settings, and writes that; None if no row shares a seed with the base, or no run has
    kept references. Raises ConfigError, ScoringError and ResultError."""
    base, *others = (dict(_done(row, settings, results)) for row in _ROWS)
    others = [{seed: one for seed, one in row.items() if seed in base} for row in others]
    base = {seed: one for seed, one in base.items() if any(seed in row for row in others)}
    runs = [one for row in (base, *others) for one, _ in row.values()]
    kept = (files_of(run_of(one).evaluation, one.kept_as).references for one in runs)
    if (path := next(filter(Path.exists, kept), None)) is None:
        return None
    references = read_segments(str(path))

    def scored(experiment: Experiment, result: Result) -> Scored:
        outputs = read_hypotheses(result, experiment.test, results)
        # The paper's BLEU where that applies, else sacreBLEU.
        metrics = experiment.scoring.metrics(references)
        metric = next((one for one in metrics if isinstance(one, PaperBleu)), metrics[0])
        (measured,) = measure([metric], outputs, references)
        same = result.signatures.get(metric.name) == metric.signature
        if same and abs(measured.score - result.metrics[metric.name]) > 1e-6:
            why = f"with the references {path}, the score is {measured.score:.2f}, not as recorded"
            raise ResultError(f"{result.name}.json: {why}")
        return Scored(experiment, result, measured)

    of_base = {seed: scored(*one) for seed, one in base.items()}
    metrics: dict[str, float] = {}
    used: dict[str, str] = {}
    signatures: dict[str, str] = {}
    for of_row in others:
        if not (pairs := [(of_base[seed], scored(*one)) for seed, one in of_row.items()]):
            continue
        name = pairs[0][1].experiment.row.name.lower()
        used |= {one.experiment.name: one.experiment.digest for pair in pairs for one in pair}
        signatures[f"{name}_difference"] = pairs[0][0].measured.metric.signature
        metrics |= {f"{name}_{key}": value for key, value in _compared(pairs).items()}
    if not metrics:
        return None
    first, of_first = next(iter(base.values()))
    details = {"experiments": json.dumps(used), "group": group_of(of_first)}
    return write_result(
        results / f"{first.stem('orderings')}.json",
        command=settings.command("table3", seeds=sorted(base)),
        config=first.row.spec,
        seconds=sum(one.seconds for of_row in (base, *others) for _, one in of_row.values()),
        metrics=metrics,
        signatures=signatures,
        details=details | {"test": of_first.details["test"]},
        release=__version__,
    )


def _done(
    row: Row, settings: Settings, results: Path
) -> Iterator[tuple[int, tuple[Experiment, Result]]]:
    """A row's measured seeds."""
    for seed in sorted({int(one.metrics["seed"]) for one in read_records(results).of(row)}):
        try:
            experiment = resolve(row, dataclasses.replace(settings, seed=seed))
        except RowError:  # the row doesn't apply to these settings
            break
        before = known(experiment, results)
        if before.state == "done" and before.result is not None:
            yield seed, (experiment, before.result)


def group_of(result: Result) -> str:
    """The settings that comparable results share: all except row and seed."""
    settings = json.loads(result.details["settings"])
    settings.pop("seed")
    return json.dumps(settings, sort_keys=True)


def verdict(row: Row, metrics: Mapping[str, float]) -> Verdict | None:
    """Whether the paper's order of BLEU holds; None if the paper has none, or none was tested.
    Decided if all seeds agree and approximate randomization gives p < 0.05."""
    expected = row.values["bleu"] - _BASE.values["bleu"]
    ours = _of_row(row, metrics)
    if expected == 0 or not ours:
        return None
    found = ours["difference"]
    if not found or ours["agreeing"] < ours["seeds"] or ours["p_randomization"] >= SIGNIFICANT:
        return "cannot be told apart"
    return "holds" if (found > 0) == (expected > 0) else "does not hold"


def _of_row(row: Row, metrics: Mapping[str, float]) -> dict[str, float]:
    start = f"{row.name.lower()}_"
    return {k.removeprefix(start): v for k, v in metrics.items() if k.startswith(start)}


def _compared(pairs: Sequence[tuple[Scored, Scored]]) -> dict[str, float]:
    """Base and row over all seeds; tests draw or exchange a sentence with all its outputs."""
    # Per sentence, the counts of all seeds: BLEU of their outputs taken together.
    together = [
        [Measured(each[0].measured.metric, np.sum([one.measured.counts for one in each], axis=0))]
        for each in zip(*pairs, strict=True)
    ]
    (outcome,), (exchanged,) = paired_bootstrap(*together), approximate_randomization(*together)
    assert outcome.interval is not None  # bootstrap has one
    singly = [np.sign(row.measured.score - base.measured.score) for base, row in pairs]
    return {
        "seeds": len(pairs),
        "difference": outcome.difference,
        "low": outcome.interval.low,
        "high": outcome.interval.high,
        "p_randomization": exchanged.p_value,
        "agreeing": singly.count(np.sign(outcome.difference)),
        "perplexity_difference": statistics.mean(
            row.result.metrics["perplexity"] - base.result.metrics["perplexity"]
            for base, row in pairs
        ),
    }


def setting(group: str) -> str:
    """Text and scale of a group, for a heading."""
    settings = json.loads(group)
    corpus, scale = settings["corpus"], settings["scale"]
    what = "the paper's text" if corpus is None else f"the text `{corpus['name']}`"
    what += " as TensorFlow Datasets has it" if settings.get("text") == "tfds" else ""
    what += ", full length" if scale == 1 else f", scale {scale:g}"
    return what + (", other settings" if settings["overrides"] else "")


def overrides(group: str) -> str:
    listed = json.loads(group)["overrides"]
    return f" The base has {', '.join(f'`{one}`' for one in listed)}." if listed else ""


def still_compared(found: Result, digests: Mapping[str, str]) -> tuple[Result | None, list[str]]:
    """The comparisons whose runs are as in `digests`, by name, and the rows whose runs are not.

    Without the base's runs, none is left.
    """
    compared: dict[str, str] = json.loads(found.details["experiments"])
    changed = {name for name, digest in compared.items() if digests.get(name) != digest}

    def runs_of(row: Row) -> set[str]:
        return {name for name in compared if name.startswith(f"table3_{row.name.lower()}_")}

    outdated = [row for row in _ROWS if runs_of(row) & changed]
    names = [f"`{row.name}`" for row in outdated]
    metrics = {
        name: value
        for name, value in found.metrics.items()
        if not any(name.startswith(f"{row.name.lower()}_") for row in outdated)
    }
    if not metrics or _BASE in outdated:
        return None, names
    return dataclasses.replace(found, metrics=metrics), names


def described(found: Result) -> Iterator[str]:
    """The comparison, as a section of the page."""
    header = [
        *("row", "paper: BLEU against base", "ours", "95% interval", "p", "seeds that agree"),
        *("the paper's order", "paper: perplexity against base", "ours"),
    ]
    lines, verdicts = [], dict[str, list[str]]()
    for row in rows_of("table3"):
        ours = _of_row(row, found.metrics)
        if not ours:
            continue
        bleu, perplexity = (row.values[of] - _BASE.values[of] for of in ("bleu", "perplexity"))
        judged = verdict(row, found.metrics) or "the paper has none"
        verdicts.setdefault(judged, []).append(f"`{row.name}`")
        lines.append(
            [
                f"`{row.name}`",
                f"{bleu:+.1f}",
                f"{ours['difference']:+.2f}",
                f"{ours['low']:+.2f} to {ours['high']:+.2f}",
                written(ours["p_randomization"], digits=3),
                f"{ours['agreeing']:.0f} of {ours['seeds']:.0f}",
                judged,
                f"{perplexity:+.2f}",
                f"{ours['perplexity_difference']:+.2f}",
            ]
        )
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in verdicts.items())
    signature = next(iter(found.signatures.values()))
    group = found.details["group"]
    yield f"### On {setting(group)}"
    yield (
        f"{told[:1].upper()}{told[1:]}. Scored on {found.details['test']}; "
        f"commit {short(found.commit)}.{overrides(group)}"
    )
    yield markdown(header, lines, right={1, 2, 4, 5, 7, 8})
    yield (
        "Differences are the row's score minus the base's, over all seeds, with a paired "
        "bootstrap interval over the test set's sentences. p is from approximate randomization, "
        "two-sided; an order holds or fails if p is below 0.05 and every seed agrees. Perplexity "
        f"is shown without a test. BLEU{protocol_note(signature)}: `{signature}`."
    )
