"""Writes docs/reproduction.md: `reproduce report`, compiled steps, and results on other text.

python -m benchmarks.reproduction_page            rewrites the page
python -m benchmarks.reproduction_page --check    exit status 1 if it says something else
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.planned_steps import PlannedStep, is_plan, planned_steps
from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.paper import ROWS, row_of
from flaxformer_mt.reproduction.records import read_records
from flaxformer_mt.reproduction.report import SCORES, Additions, report, shown_scores
from flaxformer_mt.reproduction.result_file import (
    Result,
    ResultError,
    read_result,
    short,
    training_commits,
)
from flaxformer_mt.reproduction.settings import paper_config
from flaxformer_mt.text_table import markdown

PAGE = Path(__file__).parent.parent / "docs" / "reproduction.md"
COMMAND = "python -m benchmarks.reproduction_page"
PLANS = ("plan", "plan_rows")
# Results on other text, in the order of the page.
OTHERS = (
    "multi30k_tiny",
    "multi30k_tiny_seeds",
    "multi30k_tiny_raw",
    "tatoeba",
    "craft",
    "europarl_newstest2014",
    "quickstart",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    plans = [RESULTS / f"{name}.json" for name in PLANS]
    others = [RESULTS / f"{name}.json" for name in OTHERS]
    text = report(read_records(RESULTS / "reproduction"), additions(plans, others))
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE}: out of date with {RESULTS}: run `{COMMAND}`", file=sys.stderr)
        return 1
    return 0


def additions(plans: Sequence[Path], others: Sequence[Path]) -> Additions:
    """What results of `plan` and `plan_rows`, and scores on `others`' text, add to the report.

    Raises ResultError for a file that is neither.
    """
    planned = [read_result(path) for path in plans]
    on_other_text = [read_result(path) for path in others]
    for path, plan in zip(plans, planned, strict=True):
        if not is_plan(plan):
            raise ResultError(f"{path}: has no steps of benchmarks.plan or benchmarks.plan_rows")
    for path, measured in zip(others, on_other_text, strict=True):
        if not SCORES.keys() & measured.metrics:
            raise ResultError(f"{path}: has none of the scores {', '.join(SCORES)}")

    steps = {row.label: [*planned_steps(row, paper_config(row.spec), planned)] for row in ROWS}
    return Additions(
        writer=COMMAND,
        costed_rows=frozenset(label for label, row_plan in steps.items() if row_plan),
        before_results=tuple(_compiled(steps)),
        after_results=tuple(other_text(on_other_text)) if on_other_text else (),
    )


def _compiled(steps_of_rows: Mapping[str, Sequence[PlannedStep]]) -> Iterator[str]:
    models = {"table2/en_de_base": "base", "table2/en_de_big": "big"}
    model_steps: list[_NamedStep] = []
    row_steps: list[_NamedStep] = []
    deviations: dict[str, str] = {}  # of extrapolated steps that were also compiled in full
    for label, row_plan in steps_of_rows.items():
        count = paper_config(row_of(label).spec).training.steps
        for step in row_plan:
            if step.of_row:
                name = f"`{label}` (whole)" if step.whole else f"`{label}`"
                row_steps.append((name, step, count))
            elif label in models:
                model_steps.append((models[label], step, count))
            deviations |= {text: label for text in deviations_of(step, row_plan)}

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


_NamedStep = tuple[str, PlannedStep, int]  # its name, what it takes, and how many there are


def deviations_of(step: PlannedStep, steps: Sequence[PlannedStep]) -> Iterator[str]:
    """How far an extrapolated step is off the steps compiled in full for the same chips.

    Steps of different commits may be different programs, and their times mean something else.
    """
    place = step.chip, step.chips, step.commits
    for full in steps:
        if (full.chip, full.chips, full.commits) == place and full.whole > step.whole:
            time = step.step_ms / full.step_ms - 1
            memory = step.gib / full.gib - 1
            yield f"{time:+.1%} of its time and {memory:+.1%} of its memory"


def _steps(
    title: str, introduction: str, first_column: str, steps: Sequence[_NamedStep], remark: str = ""
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


def other_text(results: Sequence[Result]) -> Iterator[str]:
    """A section of results on text that isn't the paper's."""
    metrics = shown_scores(results)
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


if __name__ == "__main__":
    sys.exit(main())
