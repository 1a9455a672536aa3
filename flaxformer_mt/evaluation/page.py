"""One HTML file about an evaluation: scores, scores by length, worst and best translations."""

import difflib

import numpy as np

from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Measured
from flaxformer_mt.evaluation.scoring import Assessment
from flaxformer_mt.pages import asset, standalone, table, text

SHOWN = 50  # of the worst, and of the best
_COMPARABLE = 4_000_000  # pairs of words beyond which a difference is not looked for
_ORDERS = {
    "chrf-ascending": "chrF, worst first",
    "chrf-descending": "chrF, best first",
    "bleu-ascending": "BLEU, worst first",
    "bleu-descending": "BLEU, best first",
    "words-descending": "longest first",
    "words-ascending": "shortest first",
    "line-ascending": "file order",
}


Spans = list[tuple[str, bool]]  # stretches of words, and whether the other side lacks them


def worst_and_best(assessment: Assessment, shown: int) -> list[int]:
    """The `shown` lowest and highest by chrF: a sentence's BLEU mostly depends on one 4-gram."""
    order = np.argsort(_measured(assessment, Chrf).sentence_scores, kind="stable")
    if len(order) > 2 * shown:
        order = np.concatenate([order[:shown], order[len(order) - shown :]])
    return order.tolist()


def _measured(assessment: Assessment, kind: type) -> Measured:
    return next(one for one in assessment.measured if isinstance(one.metric, kind))


def differences(one: str, other: str) -> tuple[Spans, Spans]:
    """Both texts as stretches of blank-separated words that the other has or lacks."""
    ours, theirs = one.split(), other.split()
    if len(ours) * len(theirs) > _COMPARABLE:
        return [(one, False)], [(other, False)]
    matcher = difflib.SequenceMatcher(a=ours, b=theirs, autojunk=False)
    sides: tuple[Spans, Spans] = ([], [])
    for kind, start, end, their_start, their_end in matcher.get_opcodes():
        parts = (ours[start:end], theirs[their_start:their_end])
        for side, words in zip(sides, parts, strict=True):
            if words:
                side.append((" ".join(words), kind != "equal"))
    return sides


def page(name: str, assessment: Assessment, *, origin: str, shown: int = SHOWN) -> str:
    """The page of the evaluation `name` with the `shown` worst and best sentences of `origin`."""
    examples = [_example(assessment, number) for number in worst_and_best(assessment, shown)]
    total = assessment.scores.sentences
    count = f"all {total:,}" if len(examples) == total else f"{len(examples):,} of {total:,}"
    orders = "".join(f'<option value="{key}">{label}</option>' for key, label in _ORDERS.items())
    notes = "".join(f"<p>{text(note)}</p>" for note in assessment.scores.notes)
    lengths = ""
    if assessment.buckets:
        lengths = table("Scores by source length", *assessment.length_rows())
    body = f"""<header>
<h1>{text(name)}</h1>
<p>{text(origin)}</p>
{table("Scores", *assessment.score_rows())}{notes}
{lengths}
</header>
<main>
<h2>Translations: {count} sentences</h2>
<p class="legend">Marked: <del>reference words</del> missing from the translation, and
<ins>translation words</ins> missing from the reference. They need not be wrong.</p>
<form id="controls" hidden>
<label for="order">Order</label> <select id="order">{orders}</select>
<label for="filter">Containing</label> <input id="filter" type="search" autocomplete="off">
<output id="count" for="order filter"></output>
</form>
<ol id="examples">
{"".join(examples)}</ol>
</main>"""
    package = "flaxformer_mt.evaluation"
    return standalone(
        f"{name}: worst and best translations",
        body=body,
        style=asset(package, "page.css"),
        script=asset(package, "page.js"),
    )


def _example(assessment: Assessment, number: int) -> str:
    source = None if assessment.sources is None else assessment.sources[number]
    reference = assessment.references[number]
    of_reference, of_hypothesis = differences(reference, assessment.hypotheses[number])
    chrf, bleu = (_measured(assessment, kind).sentence_scores[number] for kind in (Chrf, Bleu))
    sides = [] if source is None else [("source", text(source))]
    sides += [("reference", _spans(of_reference, "del"))]
    sides += [("translation", _spans(of_hypothesis, "ins"))]
    rows = "".join(
        f'<div><dt>{side}</dt><dd dir="auto">{content or "<em>(empty)</em>"}</dd></div>'
        for side, content in sides
    )
    words = len((reference if source is None else source).split())
    return (
        f'<li data-line="{number + 1}" data-chrf="{chrf:.4f}" data-bleu="{bleu:.4f}" '
        f'data-words="{words}">'
        f"<h3>Line {number + 1:,}: chrF {chrf:.1f}, BLEU {bleu:.1f}</h3>"
        f"<dl>{rows}</dl></li>\n"
    )


def _spans(spans: Spans, mark: str) -> str:
    return " ".join(
        f"<{mark}>{text(words)}</{mark}>" if differs else text(words) for words, differs in spans
    )
