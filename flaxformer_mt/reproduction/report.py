"""The report: the paper's values, ours, and their costs, from result files only."""

import json
import statistics
from collections.abc import Callable, Iterator, Sequence

from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.orderings import (
    described,
    group_of,
    overrides,
    setting,
    still_compared,
)
from flaxformer_mt.reproduction.paper import ROWS, TABLES, TITLES, Row, Table, row_of, rows_of
from flaxformer_mt.reproduction.planned import (
    SENTENCE,
    Planned,
    planned_flops,
    planned_parameters,
)
from flaxformer_mt.reproduction.records import MEANING, Records, Standing, stale, standing
from flaxformer_mt.reproduction.result_file import Result, mixture, short, training_commits
from flaxformer_mt.reproduction.settings import RULE, Settings
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
    rows = [standing(row, records, plans) for row in ROWS]
    yield _HEAD
    has = [(one.status, one.row.table) for one in rows]
    header = ["status", *(name.replace("table", "Table ") for name in TABLES), "what it means"]
    counts = [
        [status, *(str(has.count((status, name))) for name in TABLES), meaning]
        for status, meaning in MEANING.items()
    ]
    yield markdown(header, counts, right={1, 2, 3})
    for name, title in TITLES.items():
        yield f"## {title}"
        yield _table(name, [one for one in rows if one.row.table == name])
    yield "## Reading the tables"
    yield _REMARKS
    yield from _compiled(rows)
    measured = [one for each in rows for one in each.results]
    yield from _measurements(measured)
    digests = {result.name: result.details["digest"] for result in measured}
    outdated = [(result, reason) for result in records.rows if (reason := stale(result))]
    compared = []
    for found in records.orderings:
        current, changed = still_compared(found, digests)
        if current is not None:
            compared.append(current)
        if changed:
            outdated.append((found, f"compares runs of {', '.join(changed)} that have changed"))
    if compared:
        yield "## Which of Table 3's orderings hold"
        for found in compared:
            yield from described(found)
    if others:
        yield from _other_text(others)
    failed = [
        f"- `{one.row.label}`: {failure.message} (`{failure.command}`)"
        for one in rows
        for failure in one.failures
    ]
    unknown = [
        f"- `{result.name}`: stale: {reason}; measured at commit {short(result.commit)}, "
        "and not shown"
        for result, reason in outdated
    ]
    unknown += [
        f"- `{failure.name}`: failed, but the paper has no row '{failure.label}': {failure.message}"
        for failure in records.failures
        if failure.label not in {row.label for row in ROWS}
    ]
    for title, lines in {"Failed": failed, "Stale": unknown}.items():
        if lines:
            yield f"## {title}"
            yield "\n".join(lines)


def _table(name: Table, standings: Sequence[Standing]) -> str:
    header = ["row", "", "config", *_COLUMNS[name], "FLOPs, formula", "status"]
    rows = []
    for one in standings:
        cells = (cell(one) for cell in _COLUMNS[name].values())
        ends = f"{planned_flops(one.config):.1e}", one.status
        rows.append([f"`{one.row.name}`", one.row.what, f"`{one.row.spec}`", *cells, *ends])
    return markdown(header, rows, right=set(range(3, len(header) - 1)))


def _value(name: str, digits: int) -> Callable[[Standing], str]:
    return lambda one: f"{one.row.values[name]:.{digits}f}" if name in one.row.values else ""


def _ours(metric: str) -> Callable[[Standing], str]:

    def cell(one: Standing) -> str:
        groups: dict[tuple[str, str], list[float]] = {}
        for result in one.full:
            if metric in result.metrics:
                text = Settings.from_json(result.details["settings"]).text
                note = protocol_note(result.signatures.get(metric, ""))
                groups.setdefault((text, note), []).append(result.metrics[metric])
        shown = []
        for (form, note), values in sorted(groups.items()):
            seeds = f" ({len(values)} seeds)" if len(values) > 1 else ""
            shown.append(_mean(values) + seeds + ("" if form == "files" else f" ({form})") + note)
        return ", ".join(shown) or "–"

    return cell


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


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


def _compiled(standings: Sequence[Standing]) -> Iterator[str]:
    models = {"table2/en_de_base": "base", "table2/en_de_big": "big"}
    whole: list[_Step] = []
    of_rows: list[_Step] = []
    off: dict[str, str] = {}  # how far the line is off for steps that were also compiled whole
    for one in standings:
        row, count = one.row.label, one.config.training.steps
        for step in one.planned:
            if step.of_row:
                of_rows.append((f"`{row}`" + (" (whole)" if step.whole else ""), step, count))
            elif row in models:
                whole.append((models[row], step, count))
            for full in one.planned:
                if (full.chip, full.chips) == (step.chip, step.chips) and full.whole > step.whole:
                    time = step.step_ms / full.step_ms - 1
                    memory = step.gib / full.gib - 1
                    off[f"{time:+.1%} of its time and {memory:+.1%} of its memory"] = row
    yield from _steps(
        "Compiled without TPUs",
        "The step on the paper's batch of 25,000 tokens per side, English to German, by the "
        "compiler's estimates, without validation and checkpoints. Table 3's `base` and `big` "
        "have the same step.",
        "model",
        whole,
    )
    yield from _steps(
        "Every row's step",
        "On the paper's batch of 25,000 tokens per side, in rows of the longest sentences "
        "that the row's config allows, by the TPU compiler's estimates. Steps are "
        "extrapolated linearly from models compiled with one and with two layers per stack; "
        "(whole) marks steps compiled in full.",
        "row",
        of_rows,
        "".join(f" Against the full step, `{label}` is {by}." for by, label in off.items()),
    )


_Step = tuple[str, Planned, int]  # its name, what it takes, and how many there are


def _steps(
    title: str, said: str, what: str, steps: Sequence[_Step], added: str = ""
) -> Iterator[str]:
    if not steps:
        return
    commands = sorted({f"`{step.command}`" for _, step, _ in steps})
    commits = sorted({short(commit) for _, step, _ in steps for commit in step.commits})
    header = [what, "chips", "ms per step", "GiB per chip", "steps", "chip-hours"]
    rows = [
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
    yield f"{said} {', '.join(commands)}, commit {', '.join(commits)}.{added}"
    yield markdown(header, rows, right=set(range(2, 6)))


def _measurements(results: Sequence[Result]) -> Iterator[str]:
    groups: dict[tuple[int, str], dict[tuple[str, ...], list[Result]]] = {}
    for result in results:
        table = TABLES.index(row_of(result.details["row"]).table)
        said = (result.details[key] for key in ("status", "data", "test"))
        kind = (*said, json.dumps(dict(result.signatures), sort_keys=True))
        kinds = groups.setdefault((table, group_of(result)), {})
        kinds.setdefault(kind, []).append(result)
    if groups:
        yield "## Measured"
    for (table, group), kinds in sorted(groups.items()):
        yield f"### {TABLES[table].replace('table', 'Table ')} on {setting(group)}"
        for _, members in sorted(kinds.items()):
            yield from _measured(rows_of(TABLES[table]), group, members)


def _measured(table: Sequence[Row], group: str, results: Sequence[Result]) -> Iterator[str]:
    first = results[0]  # all have its signatures
    names = {
        metric: name + protocol_note(first.signatures.get(metric, ""))
        for metric, name in SCORES.items()
        if any(metric in one.metrics for one in results)
    }
    header = [
        *("row", "seeds", *names.values(), "perplexity", "steps", "pairs"),
        *("million parameters", "device-hours", "FLOPs", "machine", "commit"),
    ]
    of_rows = ([one for one in results if one.details["row"] == row.label] for row in table)
    lines = [_line(seeds, [*names, "perplexity"]) for seeds in of_rows if seeds]
    yield (
        f"{first.details['status'].capitalize()}. Trained on {first.details['data']}; scored on "
        f"{first.details['test']}.{overrides(group)} The first command:"
    )
    yield f"<!-- not run: hours of training -->\n```bash\n{first.command}\n```"
    yield markdown(header, lines, right=set(range(1, len(header) - 2)))
    yield "Signatures:"
    signed = [metric for metric in names if metric in first.signatures]
    yield "\n".join(f"- {names[metric]}: `{first.signatures[metric]}`" for metric in signed)
    if mixed := [f"- `{one.name}`: {told}" for one in results if (told := mixture(one))]:
        yield "Trained by different code than measured it:"
        yield "\n".join(mixed)


def _line(seeds: Sequence[Result], scores: Sequence[str]) -> list[str]:
    """A row's."""

    def all_of(metric: str) -> list[float]:
        return [one.metrics[metric] for one in seeds if metric in one.metrics]

    def score(metric: str) -> str:
        values = all_of(metric)
        ends = [all_of(f"{metric}_{end}") for end in ("low", "high")]
        alone = len(values) == 1 and all(ends)
        interval = f" ({ends[0][0]:.2f} to {ends[1][0]:.2f})" if alone else ""
        return _mean(values) + interval if values else ""

    steps, pairs, size = (statistics.mean(all_of(of)) for of in ("steps", "pairs", "parameters"))
    hours = sum(all_of("device_hours"))
    return [
        f"`{row_of(seeds[0].details['row']).name}`",
        ", ".join(f"{seed:.0f}" for seed in all_of("seed")),
        *map(score, scores),
        f"{steps:,.0f}",
        f"{pairs:,.0f}",
        f"{size / 1e6:.2f}",
        f"{hours:,.1f}" if hours >= 10 else f"{hours:.2g}",
        f"{sum(all_of('training_flops')):.1e}",
        ", ".join(dict.fromkeys(str(one.machine) for one in seeds)),
        ", ".join(dict.fromkeys(short(one.commit) for one in seeds)),
    ]


def _other_text(results: Sequence[Result]) -> Iterator[str]:
    shown = [metric for metric in SCORES if any(metric in one.metrics for one in results)]
    header = ["result", "config", *(SCORES[metric] for metric in shown)]
    header += ["steps", "machine that scored", "scored by", "trained by", "command"]
    rows, signatures = [], set()
    for one in results:
        scores = []
        for metric in shown:
            signature = one.signatures.get(metric, "")
            score = f"{one.metrics[metric]:.2f}" if metric in one.metrics else ""
            scores.append(score + (protocol_note(signature) if score else ""))
            signatures |= {f"- {SCORES[metric]}: `{signature}`"} if signature else set()
        seeds = one.metrics.get("seeds")
        steps = one.metrics.get("steps")
        named = f"`{one.name}`" + (f", mean of {seeds:.0f}" if seeds else "")
        code = [short(one.commit), ", ".join(training_commits(one)) or "not told"]
        counted = "" if steps is None else f"{steps:,.0f}"
        ends = [counted, str(one.machine), *code, f"`{one.command}`"]
        rows.append([named, f"`{one.config}`", *scores, *ends])
    yield "## On other text"
    yield (
        "Other models this project has trained. Each has its own test set: don't compare it with "
        "the paper's values or with another line."
    )
    yield markdown(header, rows, right=set(range(2, 3 + len(shown))))
    if signatures:
        yield "Signatures:"
        yield "\n".join(sorted(signatures))
