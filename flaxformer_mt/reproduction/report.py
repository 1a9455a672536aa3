"""The report: the paper's values, ours, and their costs, from result files only."""

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator, Sequence

from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.orderings import (
    group_heading,
    ordering_section,
    overrides_note,
    settings_group,
    still_compared,
)
from flaxformer_mt.reproduction.paper import ROWS, TABLES, TITLES, Row, Table, row_of, rows_of
from flaxformer_mt.reproduction.planned import SENTENCE, planned_flops, planned_parameters
from flaxformer_mt.reproduction.records import MEANING, Records, RowRecords, row_records, stale
from flaxformer_mt.reproduction.result_file import Result, mixture, short
from flaxformer_mt.reproduction.settings import RULE, ReproductionSettings, Text
from flaxformer_mt.text_table import markdown

_HEAD = """\
# The paper, row by row

`{}` writes this page from result files. The paper's values come from
`flaxformer_mt/reproduction/paper.py`. Rows that were not run say so. To run one, see
docs/reproducing.md."""

SCORES = {
    "f1": "F1",
    "f1_at_most_40_words": "F1, at most 40 words",
    "bleu_paper": "the paper's BLEU",
    "bleu_tokenized": "BLEU (tokenised)",
    "bleu_tokenized_lc": "BLEU (tokenised, lower-cased)",
    "sacrebleu_13a": "sacreBLEU",
    "chrf": "chrF",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Additions:
    """What a page has beside the results of `reproduce`, such as docs/reproduction.md; paragraphs
    are Markdown."""

    writer: str = "flaxformer-mt reproduce report"  # the command that writes the page
    costed_rows: frozenset[str] = frozenset()  # labels of rows whose step was compiled for TPUs
    before_results: tuple[str, ...] = ()
    after_results: tuple[str, ...] = ()


def report(records: Records, additions: Additions = Additions()) -> str:
    """The whole page as Markdown. Raises ConfigError."""
    return "\n\n".join(_sections(records, additions)) + "\n"


def _sections(records: Records, additions: Additions) -> Iterator[str]:
    costed = additions.costed_rows
    rows = [row_records(row, records, is_costed=row.label in costed) for row in ROWS]
    measured = [result for row in rows for result in row.results]
    orderings, outdated_orderings = _current_orderings(records, measured)

    yield _HEAD.format(additions.writer)
    yield _status_counts(rows)
    for table, title in TITLES.items():
        yield f"## {title}"
        yield _table(table, [row for row in rows if row.paper.table == table])
    yield "## Reading the tables"
    yield _REMARKS
    yield from additions.before_results
    yield from _measurements(measured)
    if orderings:
        yield "## Which of Table 3's orderings hold"
    for ordering in orderings:
        yield from ordering_section(ordering)
    yield from additions.after_results
    yield from _bullets("Failed", _failures(rows))
    outdated = [*_stale_results(records.rows), *outdated_orderings]
    yield from _bullets("Stale", [*_outdated(outdated), *_failures_of_no_row(records)])


def _stale_results(results: Sequence[Result]) -> Iterator[tuple[Result, str]]:
    """The rows' results that no longer match their rows, and why."""
    for result in results:
        reason = stale(result)
        if reason is not None:
            yield result, reason


def _current_orderings(
    records: Records, measured: Sequence[Result]
) -> tuple[list[Result], list[tuple[Result, str]]]:
    """The comparisons of runs as they are now, and those with changed runs and why."""
    digests = {result.name: result.details["digest"] for result in measured}
    current: list[Result] = []
    outdated: list[tuple[Result, str]] = []
    for ordering in records.orderings:
        compared, changed = still_compared(ordering, digests)
        if compared is not None:
            current.append(compared)
        if changed:
            outdated.append((ordering, f"compares runs of {', '.join(changed)} that have changed"))
    return current, outdated


def _status_counts(rows: Sequence[RowRecords]) -> str:
    """How many rows of each table have each status."""
    statuses = [(row.status, row.paper.table) for row in rows]
    header = ["status", *(name.replace("table", "Table ") for name in TABLES), "what it means"]
    lines = [
        [status, *(str(statuses.count((status, table))) for table in TABLES), meaning]
        for status, meaning in MEANING.items()
    ]
    return markdown(header, lines, right={1, 2, 3})


def _bullets(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"## {title}"
        yield "\n".join(f"- {line}" for line in lines)


def _failures(rows: Sequence[RowRecords]) -> list[str]:
    return [
        f"`{row.paper.label}`: {failure.message} (`{failure.command}`)"
        for row in rows
        for failure in row.failures
    ]


def _outdated(results: Sequence[tuple[Result, str]]) -> list[str]:
    return [
        f"`{result.name}`: stale: {reason}; measured at commit {short(result.commit)}, "
        "and not shown"
        for result, reason in results
    ]


def _failures_of_no_row(records: Records) -> list[str]:
    labels = {row.label for row in ROWS}
    return [
        f"`{failure.name}`: failed, but the paper has no row '{failure.label}': {failure.message}"
        for failure in records.failures
        if failure.label not in labels
    ]


def _table(table: Table, rows: Sequence[RowRecords]) -> str:
    columns = _COLUMNS[table]
    header = ["row", "", "config", *columns, "FLOPs, formula", "status"]
    lines = [
        [
            f"`{row.paper.name}`",
            row.paper.description,
            f"`{row.paper.spec}`",
            *(cell(row) for cell in columns.values()),
            f"{planned_flops(row.config):.1e}",
            row.status,
        ]
        for row in rows
    ]
    return markdown(header, lines, right=set(range(3, len(header) - 1)))


def _value(name: str, digits: int) -> Callable[[RowRecords], str]:
    """A column of the paper's values."""

    def cell(row: RowRecords) -> str:
        values = row.paper.values
        return f"{values[name]:.{digits}f}" if name in values else ""

    return cell


def _ours(metric: str) -> Callable[[RowRecords], str]:
    """A column of means at full scale, one per form of the text and protocol."""

    def cell(row: RowRecords) -> str:
        scores: dict[tuple[Text, str], list[float]] = {}
        for result in row.full:
            if metric in result.metrics:
                form = ReproductionSettings.from_json(result.details["settings"]).text
                note = protocol_note(result.signatures.get(metric, ""))
                scores.setdefault((form, note), []).append(result.metrics[metric])

        means = []
        for (form, note), seeds in sorted(scores.items()):
            count = f" ({len(seeds)} seeds)" if len(seeds) > 1 else ""
            source = "" if form == "files" else f" ({form})"
            means.append(_mean(seeds) + count + source + note)
        return ", ".join(means) or "–"

    return cell


def _mean(scores: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.2f}{spread}"


_COLUMNS: dict[Table, dict[str, Callable[[RowRecords], str]]] = {
    "table2": {
        "BLEU, paper": _value("bleu", 1),
        "ours, the paper's BLEU": _ours("bleu_paper"),
        "ours, sacreBLEU": _ours("sacrebleu_13a"),
        "steps": lambda row: f"{row.config.training.steps:,}",
        "checkpoints averaged": lambda row: str(row.paper.average),
        "FLOPs, paper": lambda row: f"{row.paper.values['flops']:.1e}",
    },
    "table3": {
        "perplexity, paper": _value("perplexity", 2),
        "ours": _ours("perplexity"),
        "BLEU, paper": _value("bleu", 1),
        "ours, the paper's BLEU": _ours("bleu_paper"),
        "million parameters, paper": _value("millions", 0),
        "formula": lambda row: f"{planned_parameters(row.config) / 1e6:.1f}",
    },
    "table4": {
        "F1, paper": _value("f1", 1),
        "ours": _ours("f1"),
        "training sentences, paper": lambda row: f"{sum(row.paper.pairs.values()):,}",
        "steps": lambda row: f"{row.config.training.steps:,}",
    },
}


_REMARKS = "\n".join(
    [
        *(f"- `{row.label}`: {row.remark}." for row in ROWS if row.remark),
        "- These tables show only our full-scale measurements; others are below, under their "
        "text and scale. (tfds) marks measurements on the TensorFlow Datasets sets closest to "
        "the paper's text.",
        "- FLOPs by formula count the model's matrix products, forward and backward, for the "
        f"tokens of a batch, in sentences of {SENTENCE} tokens. On Europarl's lengths, 25,000 + "
        "25,000 positions hold 20,640 + 21,320 tokens; the rest is padding, which doesn't count. "
        "The paper's are an estimate: training time, times GPUs, times each GPU's sustained "
        "FLOP/s.",
        "- Device-hours are the wall time of all starts of a run, times the devices of the "
        "process that measured it (earlier starts' devices are unknown). Machine and commit "
        "are that process's too; a line says if other code trained the model.",
        "- Parameters by formula use the config's vocabulary size; no single vocabulary gives "
        "the paper's column (configs/table3.py).",
        "- The paper's BLEU is tokenised, with German compounds split; sacreBLEU of the same "
        "output is lower, so don't compare the two. (protocol 1) marks an earlier "
        "tokenisation (docs/evaluating.md).",
        f"- `--scale S` means: {RULE}".replace("\n", " "),
    ]
)


def _measurements(results: Sequence[Result]) -> Iterator[str]:
    # A heading for each table and group of settings; below it a table for each kind of score.
    groups: dict[tuple[int, str], dict[tuple[str, ...], list[Result]]] = {}
    for result in results:
        table = TABLES.index(row_of(result.details["row"]).table)
        details = (result.details[key] for key in ("status", "data", "test"))
        kind = (*details, json.dumps(dict(result.signatures), sort_keys=True))
        kinds = groups.setdefault((table, settings_group(result)), {})
        kinds.setdefault(kind, []).append(result)

    if groups:
        yield "## Measured"
    for (table, group), kinds in sorted(groups.items()):
        yield f"### {TABLES[table].replace('table', 'Table ')} on {group_heading(group)}"
        for _, members in sorted(kinds.items()):
            yield from _measured(rows_of(TABLES[table]), group, members)


def _measured(table: Sequence[Row], group: str, results: Sequence[Result]) -> Iterator[str]:
    first = results[0]  # all have its signatures
    names = {
        metric: SCORES[metric] + protocol_note(first.signatures.get(metric, ""))
        for metric in shown_scores(results)
    }
    header = [
        "row",
        "seeds",
        *names.values(),
        "perplexity",
        "steps",
        "pairs",
        "million parameters",
        "device-hours",
        "FLOPs",
        "machine",
        "commit",
    ]
    seeds_of_rows = [
        [result for result in results if result.details["row"] == row.label] for row in table
    ]
    lines = [_line(seeds, [*names, "perplexity"]) for seeds in seeds_of_rows if seeds]

    yield (
        f"{first.details['status'].capitalize()}. Trained on {first.details['data']}; scored on "
        f"{first.details['test']}.{overrides_note(group)} The first command:"
    )
    yield f"<!-- not run: hours of training -->\n```bash\n{first.command}\n```"
    yield markdown(header, lines, right=set(range(1, len(header) - 2)))
    yield "Signatures:"
    signed = [metric for metric in names if metric in first.signatures]
    yield "\n".join(f"- {names[metric]}: `{first.signatures[metric]}`" for metric in signed)
    yield from _mixtures(results)


def shown_scores(results: Sequence[Result]) -> list[str]:
    """The metrics among SCORES that any of the results has."""
    return [metric for metric in SCORES if any(metric in result.metrics for result in results)]


def _mixtures(results: Sequence[Result]) -> Iterator[str]:
    mixtures = {result.name: mixture(result) for result in results}
    lines = [f"- `{name}`: {commits}" for name, commits in mixtures.items() if commits]
    if lines:
        yield "Trained by different code than measured it:"
        yield "\n".join(lines)


def _line(seeds: Sequence[Result], scores: Sequence[str]) -> list[str]:
    """A row of the table of measurements: one of the paper's rows, with all its seeds."""

    def numbers(metric: str) -> list[float]:
        return [result.metrics[metric] for result in seeds if metric in result.metrics]

    def score(metric: str) -> str:
        scores = numbers(metric)
        if not scores:
            return ""
        low, high = numbers(f"{metric}_low"), numbers(f"{metric}_high")
        if len(scores) == 1 and low and high:
            return f"{_mean(scores)} ({low[0]:.2f} to {high[0]:.2f})"
        return _mean(scores)

    hours = sum(numbers("device_hours"))
    return [
        f"`{row_of(seeds[0].details['row']).name}`",
        ", ".join(f"{seed:.0f}" for seed in numbers("seed")),
        *map(score, scores),
        f"{statistics.mean(numbers('steps')):,.0f}",
        f"{statistics.mean(numbers('pairs')):,.0f}",
        f"{statistics.mean(numbers('parameters')) / 1e6:.2f}",
        f"{hours:,.1f}" if hours >= 10 else f"{hours:.2g}",
        f"{sum(numbers('training_flops')):.1e}",
        ", ".join(dict.fromkeys(str(result.machine) for result in seeds)),
        ", ".join(dict.fromkeys(short(result.commit) for result in seeds)),
    ]
