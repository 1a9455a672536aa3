"""A report on a store: lengths and dropped pairs as table and SVG picture; batches as text."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from flaxformer_mt.data.batch import Batch
from flaxformer_mt.data.corpus.pairs import ELSEWHERE
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.planner import Planner, planned_batches
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.data.training_text import TrainingText
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.text_table import aligned

BINS = 60  # bars of a histogram, at most
PICTURE = "lengths.svg"

_WIDTH, _LEFT, _PLOT = 720, 64, 240
_STYLE = (
    "text{font:13px sans-serif;fill:#57606a}line{stroke:#8b949e;stroke-width:1}"
    "@media(prefers-color-scheme:dark){text{fill:#b1bac4}}"
)


def describe(manifest: dict[str, Any]) -> str:
    """Pairs read, kept and dropped by each rule, with examples and their lines, and lengths."""
    lines = [*_drops(manifest["corpora"]), "", _lengths(manifest["lengths"])]
    if unknown := _unknown_tokens(manifest):
        lines += ["", unknown]
    together = TrainingText.of(manifest).together
    if together is not None:
        lines += ["", _sentences(together)]
    return "\n".join(lines)


def _sentences(together: int) -> str:
    if together == 1:
        return (
            "nearly all source lines are single sentences: a line of several will be translated "
            "sentence by sentence"
        )
    return (
        f"source lines have up to {together} sentences: a line of more will be translated sentence "
        "by sentence"
    )


def _drops(accounts: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A table of the corpora and their dropped pairs; examples are below their reason."""
    rows: list[list[str]] = []
    examples: dict[int, list[str]] = {}  # by the line of the table, which has a header
    for account in accounts:
        reasons = account["dropped"].items()
        # A pair of the other split is not dropped, though its reason is listed.
        dropped = sum(count for reason, count in reasons if reason not in ELSEWHERE)
        counts = (account["read"], account["kept"], dropped)
        rows.append([account["key"], *(f"{count:,}" for count in counts)])
        for reason, count in reasons:
            if reason in ELSEWHERE:
                rows.append([f"  ({count:,} {reason})", "", "", ""])
                continue
            rows.append([f"  {reason}", "", "", f"{count:,}"])
            examples[len(rows)] = [
                f"    {example['file']}:{example['line']}: {example['detail']}"
                for example in account["examples"]
                if example["reason"] == reason
            ]
    table = aligned(["corpus", "read", "kept", "dropped"], rows)
    for number, line in enumerate(table.split("\n")):
        yield line
        yield from examples.get(number, ())


def _lengths(lengths: dict[str, Any]) -> str:
    """A table of the figures of `lengths_of`, by split and side."""
    rows = [
        [
            f"{split} {side}",
            f"{figures['tokens']:,}",
            f"{figures['mean']:.1f}",
            *(f"{figures[name]:.0f}" for name in ("median", "p95", "p99", "max")),
        ]
        for split, sides in lengths.items()
        for side, figures in sides.items()
    ]
    return aligned(["tokens", "total", "mean", "median", "p95", "p99", "max"], rows)


def _unknown_tokens(manifest: dict[str, Any]) -> str:
    """A table of the sides with tokens that the vocabulary doesn't know, if there are any."""
    rows = []
    for account in manifest["corpora"]:
        # Early manifests don't count them.
        for side, counts in account.get("unknown", {}).items():
            if counts["unknown"]:
                share = counts["unknown"] / counts["tokens"]
                texts = " ".join(repr(example["text"]) for example in counts["examples"])
                name = f"{account['key']} {side}"
                rows.append([name, f"{counts['unknown']:,}", f"{share:.2%}", texts])
    if not rows:
        return ""
    return aligned(["unknown tokens", "number", "share", "examples"], rows, left=(0, 3))


def lengths_of(pairs: TokenPairs) -> dict[str, Any]:
    """Each side's figures of its lengths and their histogram, for the manifest.

    `counts[i]` sentences have a length from `i * width + 1` to `(i + 1) * width`.
    """
    src, tgt, counts = pairs.length_counts()
    longest = int(max(src.max(), tgt.max()))
    # 1, 2, 5, 10, 20, ...: the smallest with which the bars suffice, for both sides.
    widths = (first * 10**power for power in range(20) for first in (1, 2, 5))
    width = next(width for width in widths if width * BINS >= longest)
    figures = {}
    for side, lengths in (("src", src), ("tgt", tgt)):
        percentiles = np.percentile(lengths, (50, 95, 99), weights=counts, method="inverted_cdf")
        tokens = int((lengths * counts).sum())
        in_bins = np.bincount((lengths - 1) // width, weights=counts)
        figures[side] = {
            "tokens": tokens,
            "mean": round(tokens / len(pairs), 2),
            **dict(zip(("median", "p95", "p99"), percentiles.tolist(), strict=True)),
            "max": int(lengths.max()),
            "histogram": {"width": width, "counts": in_bins.astype(np.int64).tolist()},
        }
    return figures


def picture(manifest: dict[str, Any]) -> str:
    """The training lengths of both sides as a histogram."""
    train = [account for account in manifest["corpora"] if account["split"] == "train"]
    pairs = sum(account["kept"] for account in train)
    title = f"{pairs:,} training pairs by length in tokens, end mark included"
    body = [_text(_LEFT, 22, title), *_histograms(manifest["lengths"]["train"], top=40)]
    height = _PLOT + 70
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}"><style>{_STYLE}</style>'
    )
    return "\n".join([begin, *body, "</svg>\n"])


def _histograms(sides: dict[str, Any], top: int) -> Iterator[str]:
    """Both sides' histograms over one axis; the highest bar ends at `top`."""
    counts = {side: sides[side]["histogram"]["counts"] for side in ("src", "tgt")}
    bins = max(map(len, counts.values()))
    highest = max(map(max, counts.values()))
    bottom = top + _PLOT
    bar = (_WIDTH - _LEFT - 20) / bins

    labels: list[str] = []
    colours = (("src", "source", "#3b82f6"), ("tgt", "target", "#f97316"))
    for row, (side, name, colour) in enumerate(colours):
        steps = (f"V{bottom - _PLOT * count / highest:.1f}h{bar:.2f}" for count in counts[side])
        outline = f"M{_LEFT} {bottom}{''.join(steps)}V{bottom}Z"
        yield f'<path d="{outline}" fill="{colour}" fill-opacity=".35" stroke="{colour}"/>'
        figures = sides[side]
        label = f"mean {figures['mean']:.1f}, 95% up to {figures['p95']:.0f}, all {figures['max']}"
        x, y = _WIDTH - 300, top + 7 + 20 * row
        labels.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        labels.append(_text(x + 18, y + 11, f"{name}: {label}"))
    yield from labels

    # The axes.
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - 20}" y2="{bottom}"/>'
    width = sides["src"]["histogram"]["width"]
    for mark in range(0, bins + 1, max(1, round(bins / 8))):
        yield _text(_LEFT + mark * bar, bottom + 18, f"{mark * width:,}", "middle")
    yield _text(_LEFT - 6, top + 10, f"{highest:,}", "end")
    yield _text(_LEFT - 6, bottom, "0", "end")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


BORDER = " ‖ "  # between two pairs of a row


def shapes_table(planner: Planner) -> str:
    """The shapes of all batches, and the first window's use of them."""
    window = planner.window(0, 0)
    plan = window.plan
    times = np.bincount(plan.shape_of, minlength=len(planner.shapes))
    rows = [
        [str(shape.rows), str(shape.src_length), str(shape.tgt_length), f"{count:,}"]
        for shape, count in zip(planner.shapes, times, strict=True)
    ]
    table = aligned(["rows", "source", "target", "batches"], rows, left=())
    return (
        f"{table}\n{len(plan):,} batches in the first of {planner.order.windows:,} windows of an "
        f"epoch; {window.padding:.1%} of their positions are padding"
    )


def batches_as_text(
    planner: Planner, vocabularies: Vocabularies, *, batches: int = 10, rows: int = 2
) -> Iterator[str]:
    """The first rows of the first training batches, one text per batch."""
    planned = planned_batches(planner, Position())
    for number, positioned in enumerate(itertools.islice(planned, batches), 1):
        batch, shape = positioned.batch(), positioned.shape
        src_fill = batch.src_tokens / batch.src.size
        tgt_fill = batch.tgt_tokens / batch.tgt_out.size
        lines = [
            f"batch {number}: {shape.rows} rows of {shape.src_length} source and "
            f"{shape.tgt_length} target positions; {batch.sentences} pairs; filled "
            f"{src_fill:.1%} and {tgt_fill:.1%}"
        ]
        for row in range(min(rows, shape.rows)):
            lines += _row_as_text(row, batch, vocabularies)
        yield "\n".join(lines)


def _row_as_text(row: int, batch: Batch, vocabularies: Vocabularies) -> Iterator[str]:
    """A line for each side."""
    sides = (
        ("source", vocabularies.src, batch.src[row], batch.src_segment_ids[row]),
        ("target", vocabularies.tgt, batch.tgt_out[row], batch.tgt_segment_ids[row]),
    )
    for name, vocabulary, ids, segments in sides:
        sentences = [ids[segments == pair].tolist() for pair in range(1, segments.max() + 1)]
        texts = BORDER.join(vocabulary.decode(sentences))
        filled = int((segments > 0).sum())
        yield f"  row {row} {name}, {filled} of {len(ids)}: {texts}"
