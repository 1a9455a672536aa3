"""Writes the README's results from `benchmarks/results/*.json`.

python -m benchmarks.readme_tables            rewrites the part between the markers
python -m benchmarks.readme_tables --check    exit status 1 if the README says something else
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.result_file import RESULTS, Machine, Result, ResultError, read_results

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

# Metrics that have a name of their own. Others are shown under their plain name.
LABELS = {
    "bleu_tokenized_lc": "BLEU (tokenised, lower-cased)",
    "sacrebleu_13a": "sacreBLEU (13a)",
    "chrf": "chrF",
    "parameters": "parameters",
    "source_tokens_per_second": "source tokens/s",
    "target_tokens_per_second": "target tokens/s",
    "train_seconds": "training",
}


def render(results: Sequence[Result]) -> str:
    """A Markdown table, one row a result, and below it how each was measured."""
    if not results:
        return "No results have been recorded yet."
    rows = ["| experiment | measured | machine | time |", "|---|---|---|---|"]
    for result in results:
        measured = "<br>".join(show_metric(*metric) for metric in result.metrics.items())
        rows.append(
            f"| `{result.name}` | {measured} | {show_machine(result.machine)} "
            f"| {show_seconds(result.seconds)} |"
        )
    sources = [show_source(result) for result in results]
    return "\n".join([*rows, "", *sources])


def show_metric(name: str, value: float) -> str:
    """Label and number: times as times, large numbers as whole ones, scores with two decimals."""
    label = LABELS.get(name, name.replace("_", " "))
    if name.endswith("_seconds"):
        return f"{label} {show_seconds(value)}"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{label} {value:,.0f}"
    # Scores are compared to two decimals; a small number keeps three significant digits instead.
    return f"{label} {value:.2f}" if abs(value) >= 1 else f"{label} {value:.3g}"


def show_machine(machine: Machine) -> str:
    cores = f"{machine.cores} CPU core{'s' if machine.cores != 1 else ''}"
    memory = f"{machine.memory_gib:.0f} GiB"
    if machine.accelerator == "none":
        return f"{cores}, {memory}"
    return f"{machine.accelerator}, {cores}, {memory}"


def show_seconds(seconds: float) -> str:
    """Wall-clock time in the unit that keeps two digits before or one after the point."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def show_source(result: Result) -> str:
    """The line that lets a reader repeat a result: file, commit, command, signatures."""
    line = (
        f"- [`{result.name}`](benchmarks/results/{result.name}.json), commit "
        f"{result.commit[:10]}{'-dirty' if result.commit.endswith('-dirty') else ''}: "
        f"`{result.command}`"
    )
    signatures = [f"{LABELS.get(m, m)} `{text}`" for m, text in result.signatures.items()]
    return line + "".join(f"; {signature}" for signature in signatures)


def replace_between_markers(text: str, content: str) -> str:
    """`text` with what stands between the two markers exchanged. Raises ValueError without them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"the lines {BEGIN} and {END} must stand in it once each, in this order")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Writes the README's results from result files.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is stale")
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    old = options.readme.read_text(encoding="utf-8")
    try:
        new = replace_between_markers(old, render(read_results(options.results)))
    except (ResultError, ValueError) as error:
        where = "" if isinstance(error, ResultError) else f"{options.readme}: "
        print(f"{where}{error}", file=sys.stderr)
        return 1
    if new == old:
        return 0
    if options.check:
        print(
            f"{options.readme}: its results are not those of {options.results}; "
            "run `python -m benchmarks.readme_tables`",
            file=sys.stderr,
        )
        return 1
    options.readme.write_text(new, encoding="utf-8")
    print(f"{options.readme}: results rewritten", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
