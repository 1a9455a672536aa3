"""The report's second half: every measurement under its text and scale, and the orderings."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence

from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.orderings import group_of, verdict
from flaxformer_mt.reproduction.paper import TABLES, Row, row_of, rows_of
from flaxformer_mt.reproduction.provenance import mixture
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.reproduction.tables import commit, hours, machine, table

_NAMES = {
    "f1": "F1",
    "bleu_paper": "the paper's BLEU",
    "sacrebleu_13a": "sacreBLEU",
    "chrf": "chrF",
    "bleu_tokenized": "BLEU (tokenised)",
    "bleu_tokenized_lc": "BLEU (tokenised, lower-cased)",
}


def measurements(results: Sequence[Result]) -> list[str]:
    """A section a table and setting: a line a row, its seeds together."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((row_of(result.details["row"]).table, group_of(result)), []).append(
            result
        )
    sections = []
    for name in TABLES:
        for (of_table, group), members in sorted(groups.items()):
            if of_table == name:
                sections += _section(name, group, members)
    return ["## Measured", *sections] if sections else []


def ordering_sections(orderings: Sequence[Result]) -> list[str]:
    """One for each comparison."""
    sections = [part for found in orderings for part in _ordering(found)]
    return ["## Which of Table 3's orderings hold", *sections] if sections else []


def compares(found: Result, measured: Sequence[Result]) -> bool:
    """Whether all results that were compared are still `measured`, as they were then."""
    digests = {result.name: result.details["digest"] for result in measured}
    compared: Mapping[str, str] = json.loads(found.details["experiments"])
    return all(digests.get(name) == digest for name, digest in compared.items())


def _section(name: str, group: str, results: Sequence[Result]) -> list[str]:
    """A table for each kind of measurement: what is said above it is so of all its rows."""
    kinds: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        kinds.setdefault(_kind(result), []).append(result)
    parts = [part for _, members in sorted(kinds.items()) for part in _measured(group, members)]
    return [f"### {name.replace('table', 'Table ')} on {_setting(group)}", *parts]


def _kind(result: Result) -> tuple[str, ...]:
    said = (result.details[key] for key in ("status", "data", "test"))
    return (*said, json.dumps(dict(result.signatures), sort_keys=True))


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
    lines = []
    for label in (row.label for row in rows_of(row_of(results[0].details["row"]).table)):
        if found := rows.get(label):
            lines.append(_line(row_of(label), found, scores))
    signatures = [
        f"- {names[metric]}: `{first.signatures[metric]}`"
        for metric in scores
        if metric in first.signatures
    ]
    return [
        f"{first.details['status'].capitalize()}. Trained on {first.details['data']}; scored on "
        f"{first.details['test']}.{_overrides(group)} The first of the commands:",
        f"<!-- not run: hours of training -->\n```bash\n{first.command}\n```",
        table(header, lines, right=set(range(1, len(header) - 2))),
        "Signatures:\n\n" + "\n".join(signatures),
        *_mixtures(results),
    ]


def _line(row: Row, results: Sequence[Result], scores: Sequence[str]) -> list[str]:
    def mean(metric: str) -> float:
        return statistics.mean(result.metrics[metric] for result in results)

    return [
        f"`{row.name}`",
        ", ".join(f"{result.metrics['seed']:.0f}" for result in results),
        *(_score(metric, results) for metric in scores),
        _score("perplexity", results),
        f"{mean('steps'):,.0f}",
        f"{mean('pairs'):,.0f}",
        f"{mean('parameters') / 1e6:.2f}",
        hours(sum(result.metrics["device_hours"] for result in results)),
        f"{sum(result.metrics['training_flops'] for result in results):.1e}",
        ", ".join(dict.fromkeys(machine(result.machine) for result in results)),
        ", ".join(dict.fromkeys(commit(result) for result in results)),
    ]


def _mixtures(results: Sequence[Result]) -> list[str]:
    """Of each run that other code trained than measured it, which."""
    lines = [
        f"- `{result.name}`: {mixed}"
        for result in results
        if (mixed := mixture(result)) is not None
    ]
    return ["Trained by other code than measured it:\n\n" + "\n".join(lines)] if lines else []


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


_BOOTSTRAP = (
    " Not decided: an earlier version recorded only the bootstrap's p, which is one-sided. Run "
    "`reproduce` again where the outputs are kept."
)


def _ordering(found: Result) -> list[str]:
    (base,) = rows_of("table3", ["base"])
    header = [
        *("row", "paper: BLEU against base", "ours", "95% interval", "p", "seeds that agree"),
        *("the paper's order", "paper: perplexity against base", "ours"),
    ]
    lines, verdicts = [], dict[str, list[str]]()
    for row in rows_of("table3"):
        prefix = row.name.lower()
        if f"{prefix}_difference" not in found.metrics:
            continue
        of_row = {
            key: found.metrics[f"{prefix}_{key}"]
            for key in ("difference", "low", "high", "agreeing", "seeds")
        }
        p = found.metrics.get(f"{prefix}_p_randomization")
        judged = verdict(row, found.metrics) or "the paper has none"
        verdicts.setdefault(judged, []).append(f"`{row.name}`")
        lines.append(
            [
                f"`{row.name}`",
                f"{row.values['bleu'] - base.values['bleu']:+.1f}",
                f"{of_row['difference']:+.2f}",
                f"{of_row['low']:+.2f} to {of_row['high']:+.2f}",
                f"{found.metrics[f'{prefix}_p']:.3f} (bootstrap)" if p is None else f"{p:.3f}",
                f"{of_row['agreeing']:.0f} of {of_row['seeds']:.0f}",
                judged,
                f"{row.values['perplexity'] - base.values['perplexity']:+.2f}",
                f"{found.metrics[f'{prefix}_perplexity_difference']:+.2f}",
            ]
        )
    told = "; ".join(f"{what}: {', '.join(names)}" for what, names in verdicts.items())
    signature = next(iter(found.signatures.values()))
    return [
        f"### On {_setting(found.details['group'])}",
        f"{told[:1].upper()}{told[1:]}. Scored on {found.details['test']}; commit {commit(found)}."
        f"{_overrides(found.details['group'])}",
        table(header, lines, right={1, 2, 4, 5, 7, 8}),
        "Differences are the row's score minus the base's, all seeds together, with paired "
        "bootstrap's interval over the sentences of the test set. p is approximate "
        "randomization's, two-sided; an order holds, or does not, where p is below 0.05 and every "
        "seed has it. Perplexity is shown without a test of its own. BLEU"
        f"{protocol_note(signature)}: `{signature}`."
        + (_BOOTSTRAP if "not decided" in verdicts else ""),
    ]


def _setting(group: str) -> str:
    settings = json.loads(group)
    corpus, scale = settings["corpus"], settings["scale"]
    what = "the paper's text" if corpus is None else f"the text `{corpus['name']}`"
    what += " as TensorFlow Datasets has it" if settings.get("text") == "tfds" else ""
    parts = [what, "full length" if scale == 1 else f"scale {scale:g}"]
    return ", ".join(parts) + (", other settings" if settings["overrides"] else "")


def _overrides(group: str) -> str:
    """Of the base, from which the rows differ as they do in the paper."""
    listed = json.loads(group)["overrides"]
    return f" The base has {', '.join(f'`{one}`' for one in listed)}." if listed else ""
