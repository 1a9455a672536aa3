"""The table of docs/deviations.md, from `benchmarks/results/deviations.json`."""

from collections.abc import Mapping

from benchmarks.deviations.forms import BLEU, PAPER, SEARCHED, TRAINED, Searched, Trained
from flaxformer_mt.evaluation.paper_protocol import protocol_note
from flaxformer_mt.reproduction.result_file import Result

UNKNOWN = "not measured yet"


def render(result: Result | None) -> str:
    """Tables of both kinds of deviations; without a result they say that none was measured."""
    metrics: Mapping[str, float] = {} if result is None else result.metrics
    lines = [_introduction(result), "", *_head("trained with", "perplexity")]
    paper_score = _score(metrics, PAPER, PAPER)
    perplexity = _number(metrics, f"{PAPER}_perplexity")
    lines.append(f"| the paper's form | | | **{paper_score}** | | {perplexity} |")
    for trained in TRAINED:
        settings = "<br>".join(f"`{key} = {setting}`" for key, setting in trained.settings.items())
        perplexity = _number(metrics, f"{trained.name}_perplexity")
        lines.append(f"{_row(trained, settings, metrics)} {perplexity} |")
    lines += ["", *_head("translated with", "")]
    for searched in SEARCHED:
        settings = "<br>".join(f"`decoding.{key} = {v}`" for key, v in searched.settings.items())
        if not searched.averaged:
            settings = "`--weights latest`"
        lines.append(_row(searched, settings, metrics))
    return "\n".join(lines)


def _introduction(result: Result | None) -> str:
    if result is None:
        return (
            f"The numbers are **{UNKNOWN}**: `python -m benchmarks.deviations --workdir DIR` "
            "makes them."
        )
    metrics = result.metrics
    diverged = _diverged(PAPER, metrics)
    training = (
        f"By `{result.command}` ({metrics['steps']:,.0f} steps a training; "
        "[deviations.json](../benchmarks/results/deviations.json)). The paper's form, trained from "
        f"{metrics['paper_seeds']:.0f} seeds{diverged and f' ({diverged})'}, "
    )
    seeds = f"Each deviation was trained from {metrics['seeds']:.0f} of these seeds."
    if f"{PAPER}_{BLEU}" not in metrics:
        return f"{training}has no score: **there is nothing to compare with.** {seeds}"
    lowest, highest = (metrics[f"{PAPER}_{BLEU}_{end}"] for end in ("lowest", "highest"))
    return (
        f"{training}has a mean BLEU of {metrics[f'{PAPER}_{BLEU}']:.2f}, the lowest {lowest:.2f} "
        f"and the highest {highest:.2f}: "
        "**a smaller difference than between these means nothing.** "
        f"{seeds} The same outputs score {metrics[f'{PAPER}_bleu_paper']:.2f} by the "
        f"paper's own BLEU{protocol_note(result.signatures.get(f'{PAPER}_bleu_paper', ''))}."
    )


def _head(first: str, last: str) -> list[str]:
    cells = [first, "setting", "found in", "BLEU", "difference", *([last] if last else [])]
    return [f"| {' | '.join(cells)} |", "|---|---|---|---:|---:|" + "---:|" * bool(last)]


def _row(form: Trained | Searched, settings: str, metrics: Mapping[str, float]) -> str:
    # Another search has no runs of its own.
    score = _score(metrics, form.name, form.name if isinstance(form, Trained) else PAPER)
    bleu, paper_bleu = (metrics.get(f"{name}_{BLEU}") for name in (form.name, PAPER))
    difference = "" if bleu is None or paper_bleu is None else f" {bleu - paper_bleu:+.2f}"
    return f"| {form.description} | {settings} | {form.found_in} | {score} |{difference} |"


def _score(metrics: Mapping[str, float], name: str, trained: str) -> str:
    """The mean BLEU, and how many runs diverged, which it leaves out."""
    bleu, diverged = _number(metrics, f"{name}_{BLEU}"), _diverged(trained, metrics)
    if bleu:
        return f"{bleu} ({diverged})" if diverged else bleu
    return diverged or UNKNOWN


def _diverged(trained: str, metrics: Mapping[str, float]) -> str:
    """How many of the runs did, if any."""
    count = metrics.get(f"{trained}_diverged", 0)
    runs = count + metrics.get(f"{trained}_seeds_scored", 0)
    return f"{count:.0f} of {runs:.0f} diverged" if count else ""


def _number(metrics: Mapping[str, float], name: str) -> str:
    return f"{metrics[name]:.2f}" if name in metrics else ""
