"""The report: the paper's values, ours, and what each number cost, from result files alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.measurements import measurements, other_text
from flaxformer_mt.reproduction.orderings import compares, ordering_sections
from flaxformer_mt.reproduction.paper import ROWS, TABLES, TITLES, Table
from flaxformer_mt.reproduction.planned import (
    SENTENCE,
    Planned,
    planned_flops,
    planned_parameters,
)
from flaxformer_mt.reproduction.provenance import short
from flaxformer_mt.reproduction.records import MEANING, Records, Standing, stale, standing
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.reproduction.scaling import RULE
from flaxformer_mt.reproduction.settings import Settings
from flaxformer_mt.text_table import markdown

_HEAD = """\
# The paper, row by row

Written by `flaxformer-mt reproduce report` from result files; nothing here is typed by hand but the
paper's values, which stand once, in `flaxformer_mt/reproduction/paper.py`. What was not run says
so. How to run a row: docs/reproducing.md of the project."""


def report(records: Records, plans: Sequence[Result] = (), others: Sequence[Result] = ()) -> str:
    """The whole page as Markdown.

    `plans` are results of `benchmarks.plan` and of `plan_rows`; `others` scores of what was trained
    on other text, and is no row of the paper.

    Raises ConfigError for a row whose config is broken.
    """
    rows = {row.label: standing(row, records, plans) for row in ROWS}
    sections = [_HEAD, _summary(rows.values())]
    for name, title in TITLES.items():
        standings = [one for one in rows.values() if one.row.table == name]
        sections += [f"## {title}", _table(name, standings)]
    sections += _remarks()
    sections += _planned(rows["table2/en_de_base"], rows["table2/en_de_big"])
    sections += _planned_rows(rows.values())
    measured = [one for each in rows.values() for one in (*each.full, *each.reduced)]
    sections += measurements(measured)
    sections += ordering_sections(
        [found for found in records.orderings if compares(found, measured)]
    )
    sections += other_text(others)
    sections += [*_failures(rows.values()), *_outdated(records, measured)]
    return "\n\n".join(sections) + "\n"


def _summary(standings: Iterable[Standing]) -> str:
    standings = list(standings)
    header = ["status", *(name.replace("table", "Table ") for name in TABLES), "what it means"]
    rows = []
    for status, meaning in MEANING.items():
        counts = [
            sum(one.row.table == name and one.status == status for one in standings)
            for name in TABLES
        ]
        rows.append([status, *map(str, counts), meaning])
    return markdown(header, rows, right={1, 2, 3})


def _table(name: Table, standings: Sequence[Standing]) -> str:
    """The paper's values, ours at full scale and what the row takes by formula."""
    header = ["row", "", "config", *_COLUMNS[name], "FLOPs, formula", "status"]
    rows = [
        [
            *(f"`{one.row.name}`", one.row.what, f"`{one.row.spec}`"),
            *(cell(one) for cell in _COLUMNS[name].values()),
            *(f"{planned_flops(one.config):.1e}", one.status),
        ]
        for one in standings
    ]
    return markdown(header, rows, right=set(range(3, len(header) - 1)))


def _value(name: str, digits: int) -> Callable[[Standing], str]:
    """The paper's, where it has one."""
    return lambda one: f"{one.row.values[name]:.{digits}f}" if name in one.row.values else ""


def _ours(metric: str) -> Callable[[Standing], str]:
    """The mean over seeds, with their spread, of each form of the text; a dash where there is none.

    What TensorFlow Datasets has is nearly the paper's text, and no seed of the same experiment;
    nor is a score of an earlier protocol, which is marked.
    """

    def cell(one: Standing) -> str:
        groups: dict[tuple[str, str], list[float]] = {}
        for result in one.full:
            if metric in result.metrics:
                text = Settings.from_json(result.details["settings"]).text
                note = protocol_note(result.signatures.get(metric, ""))
                groups.setdefault((text, note), []).append(result.metrics[metric])
        shown = [
            _mean(values) + ("" if text == "files" else f" ({text})") + note
            for (text, note), values in sorted(groups.items())
        ]
        return ", ".join(shown) or "–"

    return cell


def _mean(values: Sequence[float]) -> str:
    shown = f"{statistics.mean(values):.2f}"
    if len(values) > 1:
        shown += f" ± {statistics.stdev(values):.2f} ({len(values)} seeds)"
    return shown


_COLUMNS: dict[Table, dict[str, Callable[[Standing], str]]] = {
    "table2": {
        "BLEU, paper": _value("bleu", 1),
        "ours, the paper's BLEU": _ours("bleu_paper"),
        "ours, sacreBLEU": _ours("sacrebleu_13a"),
        "steps": lambda one: f"{one.config.training.steps:,}",
        "checkpoints averaged": lambda one: str(one.row.average),
        "FLOPs, paper": lambda one: f"{one.row.values['flops']:.1e}",
    },
    "table3": {
        "perplexity, paper": _value("perplexity", 2),
        "ours": _ours("perplexity"),
        "BLEU, paper": _value("bleu", 1),
        "ours, the paper's BLEU": _ours("bleu_paper"),
        "million parameters, paper": _value("millions", 0),
        "formula": lambda one: f"{planned_parameters(one.config) / 1e6:.1f}",
    },
    "table4": {
        "F1, paper": _value("f1", 1),
        "ours": _ours("f1"),
        "training sentences, paper": lambda one: f"{sum(one.row.pairs.values()):,}",
        "steps": lambda one: f"{one.config.training.steps:,}",
    },
}


def _remarks() -> list[str]:
    remarks = [f"- `{row.label}`: {row.remark}." for row in ROWS if row.remark]
    rule = RULE.replace("\n", " ")
    return [
        "## Reading the tables",
        "\n".join(
            [
                *remarks,
                "- Ours stands in these tables for measurements at full scale alone; others are "
                "below, under their own text and scale. What (tfds) follows was measured on the "
                "sets of TensorFlow Datasets that come nearest to the paper's text.",
                "- FLOPs by formula are those of the model's matrix products, forward and "
                f"backward, as if every batch were full, in sentences of {SENTENCE} tokens. The "
                "paper's are another thing: training time, times the number of GPUs, times an "
                "estimate of what such a GPU sustains.",
                "- Device-hours are the wall time of all starts of a run times the devices of the "
                "process that measured it: how many earlier starts had is not known. Machine and "
                "commit are that process's as well; where other code trained, a line says so.",
                "- Parameters by formula are with vocabularies of the config's size; the paper's "
                "column is that of no one vocabulary (configs/table3.py).",
                "- The paper's BLEU is tokenised, with compounds split in German; sacreBLEU of the "
                "same output is lower, and the two are not to be compared. (protocol 1) marks "
                "scores of an earlier tokenisation (docs/evaluating.md).",
                f"- `--scale S` is this rule: {rule}",
            ]
        ),
    ]


def _planned(base: Standing, big: Standing) -> list[str]:
    if not (base.planned or big.planned):
        return []
    rows = [
        _planned_row(name, found, one.config.training.steps)
        for name, one in (("base", base), ("big", big))
        for found in one.planned
    ]
    return [
        "## Compiled for TPUs that were not there",
        "The step on the paper's batch of 25,000 tokens a side, English to German, by the "
        "compiler's own estimates; validation and checkpoints come on top. It is the step of "
        f"Table 3's `base` and `big`, too. {_source([*base.planned, *big.planned])}",
        markdown(["model", *_PLANNED], rows, right=set(range(2, 6))),
    ]


def _planned_rows(standings: Iterable[Standing]) -> list[str]:
    found = [(one, one.by_layers) for one in standings if one.by_layers is not None]
    if not found:
        return []
    rows = [
        _planned_row(
            f"`{one.row.label}`" + (" (whole)" if step.whole else ""),
            step,
            one.config.training.steps,
        )
        for one, step in found
    ]
    # Of steps that were compiled whole as well it is known how far the line is off.
    off = {
        f"{step.step_ms / whole.step_ms - 1:+.1%} of its time and "
        f"{step.gib / whole.gib - 1:+.1%} of its memory": one.row.label
        for one, step in found
        for whole in one.planned
        if not step.whole and (whole.chip, whole.chips) == (step.chip, step.chips)
    }
    return [
        "## Every row's step",
        "On the paper's batch of 25,000 tokens a side, in rows of the longest sentences that the "
        "row's config allows, by the TPU compiler's own estimates. The compiler has made the steps "
        "of models with one and with two layers in each stack, and a row's number of layers is on "
        "the line through both; (whole) is a step that it has made as it is. "
        f"{_source([step for _, step in found])}"
        + "".join(f" Against the whole step `{label}` is {by}." for by, label in off.items()),
        markdown(["row", *_PLANNED], rows, right=set(range(2, 6))),
    ]


_PLANNED = ("chips", "ms a step", "GiB a chip", "steps", "chip-hours")


def _planned_row(name: str, found: Planned, steps: int) -> list[str]:
    return [
        name,
        f"{found.chips} {found.chip}",
        f"{found.step_ms:.1f}",
        f"{found.gib:.1f}",
        f"{steps:,}",
        f"{found.chip_hours(steps):,.1f}",
    ]


def _source(found: Sequence[Planned]) -> str:
    commands = sorted({f"`{each.command}`" for each in found})
    commits = sorted({short(commit) for each in found for commit in each.commits})
    return f"{', '.join(commands)}, commit {', '.join(commits)}."


def _failures(standings: Iterable[Standing]) -> list[str]:
    lines = [
        f"- `{one.row.label}`: {failure.message} (`{failure.command}`)"
        for one in standings
        for failure in one.failures
    ]
    return ["## Failed", "\n".join(lines)] if lines else []


def _outdated(records: Records, measured: Sequence[Result]) -> list[str]:
    """Whatever is in the files and has no place on the page."""
    found = [(result, reason) for result in records.rows if (reason := stale(result)) is not None]
    found += [
        (result, "compares runs that are no longer those")
        for result in records.orderings
        if not compares(result, measured)
    ]
    lines = [
        f"- `{result.name}`: stale: {reason}; measured at commit {short(result.commit)}, "
        "and not shown"
        for result, reason in found
    ]
    labels = {row.label for row in ROWS}
    lines += [
        f"- `{failure.name}`: failed, and the paper has no row '{failure.label}': {failure.message}"
        for failure in records.failures
        if failure.label not in labels
    ]
    return ["## Stale", "\n".join(lines)] if lines else []
