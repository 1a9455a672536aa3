"""One HTML file about an evaluation: scores, scores by length, worst and best translations."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from flaxformer_mt.evaluation import SHOWN
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Measured
from flaxformer_mt.evaluation.scoring import Assessment
from flaxformer_mt.pages import asset, standalone, table, text

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
    return next(measured for measured in assessment.measured if isinstance(measured.metric, kind))


def differences(first: str, second: str) -> tuple[Spans, Spans]:
    """Both texts as stretches of blank-separated words that the other has or lacks."""
    first_words, second_words = first.split(), second.split()
    if len(first_words) * len(second_words) > _COMPARABLE:
        return [(first, False)], [(second, False)]
    common = list(_common(first_words, second_words))
    return (
        _spans_of(first_words, {index for index, _ in common}),
        _spans_of(second_words, {index for _, index in common}),
    )


def _common(first_words: Sequence[str], second_words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Indices of a longest common subsequence, from the end.

    Time and memory are proportional to the product of the lengths. (difflib takes cubic time where
    words repeat.)
    """
    types = dict.fromkeys([*first_words, *second_words])
    number_of = {word: number for number, word in enumerate(types)}
    second_numbers = np.array([number_of[word] for word in second_words], np.int32)
    # Row i, column j: the length for the first i and j words.
    lengths = np.zeros((len(first_words) + 1, len(second_words) + 1), np.int32)
    for row, word in enumerate(first_words, start=1):
        above = lengths[row - 1]
        extended = np.maximum(above[1:], above[:-1] + (second_numbers == number_of[word]))
        np.maximum.accumulate(extended, out=lengths[row, 1:])

    row, column = len(first_words), len(second_words)
    while row and column:
        length = lengths[row, column]
        if length == lengths[row - 1, column]:
            row -= 1
        elif length == lengths[row, column - 1]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            yield row, column


def _spans_of(words: Sequence[str], common: set[int]) -> Spans:
    marked = ((word, index not in common) for index, word in enumerate(words))
    grouped = itertools.groupby(marked, key=lambda pair: pair[1])
    return [(" ".join(word for word, _ in pairs), differs) for differs, pairs in grouped]


def page(name: str, assessment: Assessment, *, origin: str, shown: int = SHOWN) -> str:
    """The page of the evaluation `name` with the `shown` worst and best sentences of `origin`."""
    examples = [_example(assessment, number) for number in worst_and_best(assessment, shown)]
    total = assessment.scores.sentences
    count = f"all {total:,}" if len(examples) == total else f"{len(examples):,} of {total:,}"
    orders = "".join(f'<option value="{key}">{label}</option>' for key, label in _ORDERS.items())
    notes = "".join(f"<p>{text(note)}</p>" for note in assessment.scores.notes)
    several = ""
    if assessment.references.are_several:
        several = " Of several references, the one with the highest chrF is marked."
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
<ins>translation words</ins> missing from the reference. They need not be wrong.{several}</p>
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
    hypothesis, references = assessment.hypotheses[number], assessment.references[number]
    columns = enumerate(assessment.references.columns, start=1)
    names = [f"reference {index}" for index, column in columns if column[number] is not None]
    if not assessment.references.are_several:
        names = ["reference"]
    nearest = _nearest(hypothesis, references)
    of_reference, of_hypothesis = differences(references[nearest], hypothesis)
    chrf, bleu = (_measured(assessment, kind).sentence_scores[number] for kind in (Chrf, Bleu))
    sides = [] if source is None else [("source", text(source))]
    shown = [text(reference) for reference in references]
    shown[nearest] = _spans(of_reference, "del")
    sides += zip(names, shown, strict=True)
    sides += [("translation", _spans(of_hypothesis, "ins"))]
    rows = "".join(
        f'<div><dt>{side}</dt><dd dir="auto">{content or "<em>(empty)</em>"}</dd></div>'
        for side, content in sides
    )
    words = len((references[0] if source is None else source).split())
    return (
        f'<li data-line="{number + 1}" data-chrf="{chrf:.4f}" data-bleu="{bleu:.4f}" '
        f'data-words="{words}">'
        f"<h3>Line {number + 1:,}: chrF {chrf:.1f}, BLEU {bleu:.1f}</h3>"
        f"<dl>{rows}</dl></li>\n"
    )


def _nearest(hypothesis: str, references: Sequence[str]) -> int:
    """The index of the reference that the hypothesis shares most with, by chrF."""
    if len(references) == 1:
        return 0
    counts = Chrf().counts([hypothesis] * len(references), references)
    return int(Chrf().sentence_scores(counts).argmax())


def _spans(spans: Spans, mark: str) -> str:
    return " ".join(
        f"<{mark}>{text(words)}</{mark}>" if differs else text(words) for words, differs in spans
    )
