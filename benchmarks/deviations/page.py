"""The table of docs/deviations.md, from `benchmarks/results/deviations.json`."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.deviations.forms import BLEU, PAPER, SEARCHED, TRAINED, Searched, Trained
from benchmarks.result_file import Result

UNKNOWN = "not measured yet"


def render(result: Result | None) -> str:
    """Tables of both kinds of deviations; without a result they say that none was measured."""
    metrics: Mapping[str, float] = {} if result is None else result.metrics
    lines = [_explained(result), "", *_head("trained with", "perplexity")]
    of_paper = _number(metrics, f"{PAPER}_{BLEU}") or UNKNOWN
    perplexity = _number(metrics, f"{PAPER}_perplexity")
    lines.append(f"| the paper's form | | | **{of_paper}** | | {perplexity} |")
    for trained in TRAINED:
        settings = "<br>".join(f"`{key} = {value}`" for key, value in trained.settings.items())
        perplexity = _number(metrics, f"{trained.name}_perplexity")
        lines.append(f"{_row(trained, settings, metrics)} {perplexity} |")
    lines += ["", *_head("translated with", "")]
    for searched in SEARCHED:
        settings = "<br>".join(f"`decoding.{key} = {v}`" for key, v in searched.settings.items())
        if not searched.averaged:
            settings = "`--weights latest`"
        lines.append(_row(searched, settings, metrics))
    return "\n".join(lines)


def _explained(result: Result | None) -> str:
    if result is None:
        return (
            f"The numbers are **{UNKNOWN}**: `python -m benchmarks.deviations --workdir DIR` "
            "makes them."
        )
    metrics = result.metrics
    lowest, highest = (metrics[f"{PAPER}_{BLEU}_{end}"] for end in ("lowest", "highest"))
    return (
        f"By `{result.command}` ({metrics['steps']:,.0f} steps a training; "
        f"[deviations.json](../benchmarks/results/deviations.json)). The paper's form, trained "
        f"from {metrics['paper_seeds']:.0f} seeds, has a mean BLEU of "
        f"{metrics[f'{PAPER}_{BLEU}']:.2f}, the lowest {lowest:.2f} and the highest {highest:.2f}: "
        "**what differs by less than these do has not been told apart.** Each deviation was "
        f"trained from {metrics['seeds']:.0f} of them. The same outputs score "
        f"{metrics[f'{PAPER}_bleu_paper']:.2f} by the paper's own BLEU."
    )


def _head(what: str, last: str) -> list[str]:
    cells = [what, "setting", "found in", "BLEU", "difference", *([last] if last else [])]
    return [f"| {' | '.join(cells)} |", "|---|---|---|---:|---:|" + "---:|" * bool(last)]


def _row(form: Trained | Searched, settings: str, metrics: Mapping[str, float]) -> str:
    found = metrics.get(f"{form.name}_{BLEU}")
    if found is None:
        diverged = f"{form.name}_diverged" in metrics
        return (
            f"| {form.what} | {settings} | {form.found_in} | "
            f"{'diverged' if diverged else UNKNOWN} | |"
        )
    difference = found - metrics[f"{PAPER}_{BLEU}"]
    return f"| {form.what} | {settings} | {form.found_in} | {found:.2f} | {difference:+.2f} |"


def _number(metrics: Mapping[str, float], name: str) -> str:
    return f"{metrics[name]:.2f}" if name in metrics else ""
