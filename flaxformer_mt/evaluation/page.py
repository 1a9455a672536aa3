"""One HTML file about an evaluation: scores, scores by length, worst and best translations."""

from __future__ import annotations

from collections.abc import Sequence

from flaxformer_mt.evaluation.examples import Example, Span
from flaxformer_mt.evaluation.scoring import Assessment
from flaxformer_mt.pages import asset, standalone, text

_ORDERS = {
    "chrf-ascending": "chrF, worst first",
    "chrf-descending": "chrF, best first",
    "bleu-ascending": "BLEU, worst first",
    "bleu-descending": "BLEU, best first",
    "words-descending": "longest first",
    "words-ascending": "shortest first",
    "line-ascending": "in the order of the file",
}


def page(name: str, assessment: Assessment, examples: Sequence[Example], *, origin: str) -> str:
    """The page of the evaluation `name`; `origin` says in words whose translations these are."""
    total = assessment.scores.sentences
    shown = f"all {total:,}" if len(examples) == total else f"{len(examples):,} of {total:,}"
    orders = "".join(f'<option value="{key}">{label}</option>' for key, label in _ORDERS.items())
    body = f"""<header>
<h1>{text(name)}</h1>
<p>{text(origin)}</p>
{_scores(assessment)}
{_lengths(assessment)}
</header>
<main>
<h2>Translations: {shown} sentences</h2>
<p class="legend">Marked: <del>words of the reference</del> that the translation lacks, and
<ins>words of the translation</ins> that the reference lacks. They need not be wrong.</p>
<form id="controls" hidden>
<label for="order">Order</label> <select id="order">{orders}</select>
<label for="filter">Containing</label> <input id="filter" type="search" autocomplete="off">
<output id="count" for="order filter"></output>
</form>
<ol id="examples">
{"".join(map(_example, examples))}</ol>
</main>"""
    package = "flaxformer_mt.evaluation"
    return standalone(
        f"{name}: worst and best translations",
        body=body,
        style=asset(package, "page.css"),
        script=asset(package, "page.js"),
    )


def _scores(assessment: Assessment) -> str:
    header, rows = assessment.score_rows()
    cells = [[*map(text, row[:-1]), f"<code>{text(row[-1])}</code>"] for row in rows]
    notes = "".join(f"<p>{text(note)}</p>" for note in assessment.scores.notes)
    return _table("Scores", header, cells) + notes


def _lengths(assessment: Assessment) -> str:
    if not assessment.buckets:
        return ""
    header, rows = assessment.length_rows()
    return _table("Scores by length of the source", header, [list(map(text, row)) for row in rows])


def _table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already. The box around it scrolls where a screen is narrow."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td>{cell}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" role="region" aria-label="{caption}" tabindex="0"><table>'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        "</div>"
    )


def _example(example: Example) -> str:
    sides = [] if example.source is None else [("source", text(example.source))]
    sides += [("reference", _spans(example.reference, "del"))]
    sides += [("translation", _spans(example.hypothesis, "ins"))]
    rows = "".join(
        f'<div><dt>{side}</dt><dd dir="auto">{content or "<em>(empty)</em>"}</dd></div>'
        for side, content in sides
    )
    return (
        f'<li data-line="{example.line}" data-chrf="{example.chrf:.4f}" '
        f'data-bleu="{example.bleu:.4f}" data-words="{example.words}">'
        f"<h3>Line {example.line:,}: chrF {example.chrf:.1f}, BLEU {example.bleu:.1f}</h3>"
        f"<dl>{rows}</dl></li>\n"
    )


def _spans(spans: Sequence[Span], mark: str) -> str:
    return " ".join(
        f"<{mark}>{text(span.text)}</{mark}>" if span.differs else text(span.text) for span in spans
    )
