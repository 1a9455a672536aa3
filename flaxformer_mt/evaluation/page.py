"""One HTML file about an evaluation: scores, scores by length, worst and best translations.

It needs nothing else and asks for nothing: style and script stand inside, and its content security
policy allows these two by their digests and no other, so that a sentence can never become code.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
from collections.abc import Sequence

from flaxformer_mt.evaluation.examples import Example, Span
from flaxformer_mt.evaluation.scoring import Assessment

# C0 controls and DEL as their pictures; in HTML they are errors, and unseen in a browser.
_VISIBLE = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
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
    style, script = (_asset(file) for file in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    total = assessment.scores.sentences
    shown = f"all {total:,}" if len(examples) == total else f"{len(examples):,} of {total:,}"
    orders = "".join(f'<option value="{key}">{label}</option>' for key, label in _ORDERS.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{_text(name)}: worst and best translations</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{_text(name)}</h1>
<p>{_text(origin)}</p>
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
</main>
<script>{script}</script>
</body>
</html>
"""


def _scores(assessment: Assessment) -> str:
    header, rows = assessment.score_rows()
    cells = [[*map(_text, row[:-1]), f"<code>{_text(row[-1])}</code>"] for row in rows]
    notes = "".join(f"<p>{_text(note)}</p>" for note in assessment.scores.notes)
    return _table("Scores", header, cells) + notes


def _lengths(assessment: Assessment) -> str:
    if not assessment.buckets:
        return ""
    header, rows = assessment.length_rows()
    return _table("Scores by length of the source", header, [list(map(_text, row)) for row in rows])


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
    sides = [] if example.source is None else [("source", _text(example.source))]
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
        f"<{mark}>{_text(span.text)}</{mark}>" if span.differs else _text(span.text)
        for span in spans
    )


def _text(text: str) -> str:
    return html.escape(text.translate(_VISIBLE), quote=True)


def _asset(name: str) -> str:
    return importlib.resources.files("flaxformer_mt.evaluation").joinpath(name).read_text("utf-8")


def _digest(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
