"""The report: the paper's values, ours, and their costs, from result files only."""

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
from flaxformer_mt.reproduction.planned import (
    SENTENCE,
    PlannedStep,
    planned_flops,
    planned_parameters,
)
from flaxformer_mt.reproduction.records import MEANING, Records, RowRecords, row_records, stale
from flaxformer_mt.reproduction.result_file import Result, mixture, short, training_commits
from flaxformer_mt.reproduction.settings import RULE, ReproductionSettings, Text
from flaxformer_mt.text_table import markdown

_HEAD = """\
# The paper, row by row

`flaxformer-mt reproduce report` writes this page from result files. The paper's values come from
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


def report(records: Records, plans: Sequence[Result] = (), others: Sequence[Result] = ()) -> str:
    """The whole page as Markdown; `plans` are results of `benchmarks.plan` and `plan_rows`,
    `others` scores on other text. Raises ConfigError."""
    return "\n\n".join(_sections(records, plans, others)) + "\n"


def _sections(records: Records, plans: Sequence[Result], others: Sequence[Result]) -> Iterator[str]:
    rows = [row_records(row, records, plans) for row in ROWS]
    measured = [result for row in rows for result in row.results]
    orderings, outdated_orderings = _current_orderings(records, measured)

    yield _HEAD
    yield _status_counts(rows)
    for table, title in TITLES.items():
        yield f"## {title}"
        yield _table(table, [row for row in rows if row.paper.table == table])
    yield "## Reading the tables"
    yield _REMARKS
    yield from _compiled(rows)
    yield from _measurements(measured)
    if orderings:
        yield "## Which of Table 3's orderings hold"
    for ordering in orderings:
        yield from ordering_section(ordering)
    if others:
        yield from _other_text(others)
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


def _compiled(rows: Sequence[RowRecords]) -> Iterator[str]:
    models = {"table2/en_de_base": "base", "table2/en_de_big": "big"}
    model_steps: list[_Step] = []
    row_steps: list[_Step] = []
    deviations: dict[str, str] = {}  # of extrapolated steps that were also compiled in full
    for row in rows:
        label = row.paper.label
        count = row.config.training.steps
        for step in row.planned:
            if step.of_row:
                name = f"`{label}` (whole)" if step.whole else f"`{label}`"
                row_steps.append((name, step, count))
            elif label in models:
                model_steps.append((models[label], step, count))
            deviations |= {text: label for text in _deviations(step, row.planned)}

    yield from _steps(
        "Compiled without TPUs",
        "The step on the paper's batch of 25,000 tokens per side, English to German, by the "
        "compiler's estimates, without validation and checkpoints. Table 3's `base` and `big` "
        "have the same step.",
        "model",
        model_steps,
    )
    yield from _steps(
        "Every row's step",
        "On the paper's batch of 25,000 tokens per side, in rows of the longest sentences "
        "that the row's config allows, by the TPU compiler's estimates. Steps are "
        "extrapolated linearly from models compiled with one and with two layers per stack; "
        "(whole) marks steps compiled in full.",
        "row",
        row_steps,
        "".join(f" Against the full step, `{label}` is {by}." for by, label in deviations.items()),
    )


_Step = tuple[str, PlannedStep, int]  # its name, what it takes, and how many there are


def _deviations(step: PlannedStep, steps: Sequence[PlannedStep]) -> Iterator[str]:
    """How far an extrapolated step is off the steps compiled in full for the same chips."""
    for full in steps:
        if (full.chip, full.chips) == (step.chip, step.chips) and full.whole > step.whole:
            time = step.step_ms / full.step_ms - 1
            memory = step.gib / full.gib - 1
            yield f"{time:+.1%} of its time and {memory:+.1%} of its memory"


def _steps(
    title: str, introduction: str, first_column: str, steps: Sequence[_Step], remark: str = ""
) -> Iterator[str]:
    if not steps:
        return
    commands = sorted({f"`{step.command}`" for _, step, _ in steps})
    commits = sorted({short(commit) for _, step, _ in steps for commit in step.commits})
    header = [first_column, "chips", "ms per step", "GiB per chip", "steps", "chip-hours"]
    lines = [
        [
            name,
            f"{step.chips} {step.chip}",
            f"{step.step_ms:.1f}",
            f"{step.gib:.1f}",
            f"{count:,}",
            f"{step.chip_hours(count):,.1f}",
        ]
        for name, step, count in steps
    ]
    yield f"## {title}"
    yield f"{introduction} {', '.join(commands)}, commit {', '.join(commits)}.{remark}"
    yield markdown(header, lines, right=set(range(2, 6)))


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
        for metric in _scores_of(results)
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


def _scores_of(results: Sequence[Result]) -> list[str]:
    """Metrics among SCORES that a result has."""
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


def _other_text(results: Sequence[Result]) -> Iterator[str]:
    metrics = _scores_of(results)
    header = [
        "result",
        "config",
        *(SCORES[metric] for metric in metrics),
        "steps",
        "machine that scored",
        "scored by",
        "trained by",
        "command",
    ]
    yield "## On other text"
    yield (
        "Other models this project has trained. Each has its own test set: don't compare it with "
        "the paper's values or with another line."
    )
    lines = [_other_text_line(result, metrics) for result in results]
    yield markdown(header, lines, right=set(range(2, 3 + len(metrics))))

    signatures = {
        f"- {SCORES[metric]}: `{result.signatures[metric]}`"
        for result in results
        for metric in metrics
        if result.signatures.get(metric)
    }
    if signatures:
        yield "Signatures:"
        yield "\n".join(sorted(signatures))


def _other_text_line(result: Result, metrics: Sequence[str]) -> list[str]:
    seeds = result.metrics.get("seeds")
    steps = result.metrics.get("steps")
    return [
        f"`{result.name}`" + (f", mean of {seeds:.0f}" if seeds else ""),
        f"`{result.config}`",
        *(_other_text_score(result, metric) for metric in metrics),
        "" if steps is None else f"{steps:,.0f}",
        str(result.machine),
        short(result.commit),
        ", ".join(training_commits(result)) or "not told",
        f"`{result.command}`",
    ]


def _other_text_score(result: Result, metric: str) -> str:
    if metric not in result.metrics:
        return ""
    return f"{result.metrics[metric]:.2f}{protocol_note(result.signatures.get(metric, ''))}"
