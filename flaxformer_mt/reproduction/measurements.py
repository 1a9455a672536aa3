"""The report's second half: every measurement, under its text and scale."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.orderings import group_of, overrides, setting
from flaxformer_mt.reproduction.paper import TABLES, Row, row_of, rows_of
from flaxformer_mt.reproduction.provenance import machine, mixture, short, training_commits
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.text_table import markdown

_NAMES = {
    "f1": "F1",
    "bleu_paper": "the paper's BLEU",
    "sacrebleu_13a": "sacreBLEU",
    "chrf": "chrF",
    "bleu_tokenized": "BLEU (tokenised)",
    "bleu_tokenized_lc": "BLEU (tokenised, lower-cased)",
}

# The same of what was trained on other text than the paper's.
OTHER_SCORES = {
    "bleu_paper": "the paper's BLEU",
    "bleu_tokenized_lc": "tokenised BLEU, lower case",
    "sacrebleu_13a": "sacreBLEU",
    "chrf": "chrF",
    "f1": "F1",
    "f1_at_most_40_words": "F1, 40 words at most",
}


def measurements(results: Sequence[Result]) -> list[str]:
    """A section a table and setting: a line a row, its seeds together."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        key = row_of(result.details["row"]).table, group_of(result)
        groups.setdefault(key, []).append(result)
    sections = []
    for name in TABLES:
        for (of_table, group), members in sorted(groups.items()):
            if of_table == name:
                sections += _section(name, group, members)
    return ["## Measured", *sections] if sections else []


def _section(name: str, group: str, results: Sequence[Result]) -> list[str]:
    """A table for each kind of measurement: what is said above it is so of all its rows."""
    kinds: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        said = (result.details[key] for key in ("status", "data", "test"))
        kind = (*said, json.dumps(dict(result.signatures), sort_keys=True))
        kinds.setdefault(kind, []).append(result)
    parts = [part for _, members in sorted(kinds.items()) for part in _measured(group, members)]
    return [f"### {name.replace('table', 'Table ')} on {setting(group)}", *parts]


def _measured(group: str, results: Sequence[Result]) -> list[str]:
    scores = [metric for metric in _NAMES if any(metric in one.metrics for one in results)]
    rows: dict[str, list[Result]] = {}
    for result in results:
        rows.setdefault(result.details["row"], []).append(result)
    first = results[0]  # all have its signatures
    names = {
        metric: _NAMES[metric] + protocol_note(first.signatures.get(metric, ""))
        for metric in scores
    }
    header = [
        *("row", "seeds", *names.values(), "perplexity", "steps", "pairs"),
        *("million parameters", "device-hours", "FLOPs", "machine", "commit"),
    ]
    table = rows_of(row_of(first.details["row"]).table)
    lines = [_line(row, rows[row.label], scores) for row in table if row.label in rows]
    mixed = [f"- `{one.name}`: {told}" for one in results if (told := mixture(one)) is not None]
    signatures = [
        f"- {names[metric]}: `{first.signatures[metric]}`"
        for metric in scores
        if metric in first.signatures
    ]
    return [
        f"{first.details['status'].capitalize()}. Trained on {first.details['data']}; scored on "
        f"{first.details['test']}.{overrides(group)} The first of the commands:",
        f"<!-- not run: hours of training -->\n```bash\n{first.command}\n```",
        markdown(header, lines, right=set(range(1, len(header) - 2))),
        "Signatures:\n\n" + "\n".join(signatures),
        *(["Trained by other code than measured it:\n\n" + "\n".join(mixed)] if mixed else []),
    ]


def _line(row: Row, results: Sequence[Result], scores: Sequence[str]) -> list[str]:
    def mean(metric: str) -> float:
        return statistics.mean(result.metrics[metric] for result in results)

    hours = sum(result.metrics["device_hours"] for result in results)
    return [
        f"`{row.name}`",
        ", ".join(f"{result.metrics['seed']:.0f}" for result in results),
        *(_score(metric, results) for metric in scores),
        _score("perplexity", results),
        f"{mean('steps'):,.0f}",
        f"{mean('pairs'):,.0f}",
        f"{mean('parameters') / 1e6:.2f}",
        f"{hours:,.1f}" if hours >= 10 else f"{hours:.2g}",
        f"{sum(result.metrics['training_flops'] for result in results):.1e}",
        ", ".join(dict.fromkeys(machine(result.machine) for result in results)),
        ", ".join(dict.fromkeys(short(result.commit) for result in results)),
    ]


def _score(metric: str, results: Sequence[Result]) -> str:
    """Mean and spread over seeds; of one seed the bootstrap interval over sentences."""
    values = [result.metrics[metric] for result in results if metric in result.metrics]
    if not values:
        return ""
    shown = f"{statistics.mean(values):.2f}"
    if len(values) > 1:
        return f"{shown} ± {statistics.stdev(values):.2f}"
    low, high = (results[0].metrics.get(f"{metric}_{end}") for end in ("low", "high"))
    return shown if low is None or high is None else f"{shown} ({low:.2f} to {high:.2f})"


def is_scored(result: Result) -> bool:
    """Whether a result has a score of translations or trees."""
    return bool(OTHER_SCORES.keys() & result.metrics)


def other_text(results: Sequence[Result]) -> list[str]:
    """A section of the report, a line for each result; nothing where there is none."""
    if not results:
        return []
    shown = [metric for metric in OTHER_SCORES if any(metric in one.metrics for one in results)]
    header = ["result", "config", *(OTHER_SCORES[metric] for metric in shown)]
    header += ["steps", "machine that scored", "scored by", "trained by", "command"]
    rows = [
        [
            f"`{one.name}`" + (f", mean of {seeds:.0f}" if seeds else ""),
            f"`{one.config}`",
            *(
                f"{one.metrics[each]:.2f}{protocol_note(one.signatures.get(each, ''))}"
                if each in one.metrics
                else ""
                for each in shown
            ),
            f"{one.metrics['steps']:,.0f}" if "steps" in one.metrics else "",
            machine(one.machine),
            short(one.commit),
            ", ".join(training_commits(one)) or "not told",
            f"`{one.command}`",
        ]
        for one, seeds in ((one, one.metrics.get("seeds")) for one in results)
    ]
    signatures = {
        f"- {OTHER_SCORES[metric]}: `{one.signatures[metric]}`"
        for one in results
        for metric in shown
        if metric in one.signatures
    }
    return [
        "## On other text",
        "What this project has trained beside the paper's rows. Each is scored on a test set of "
        "its own, and none is to be held against the paper's values, or against another line.",
        markdown(header, rows, right=set(range(2, 3 + len(shown)))),
        *(["Signatures:\n\n" + "\n".join(sorted(signatures))] if signatures else []),
    ]
