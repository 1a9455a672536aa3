"""A store for people: lengths and what was dropped and why, as figures, a table and a picture.

The picture is SVG written by hand: any browser shows it, and nothing has to be installed to draw
it. Its colours are legible on light and on dark ground.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from jaxtyping import Float64, Int64

from flaxformer_mt.data.store import TokenPairs

BINS = 60
"""Bars of a histogram, at most."""
PICTURE = "lengths.svg"

_WIDTH, _LEFT, _PLOT = 720, 64, 240
_COLOURS = {"src": "#3b82f6", "tgt": "#f97316", "dropped": "#a855f7"}
_NAMES = {"src": "source", "tgt": "target"}
_STYLE = (
    "text{font:13px sans-serif;fill:#57606a}line{stroke:#8b949e;stroke-width:1}"
    "@media(prefers-color-scheme:dark){text{fill:#b1bac4}}"
)


def describe(manifest: dict[str, Any]) -> str:
    """Pairs read, kept and dropped by each rule, with examples and their lines, and lengths."""
    lines = [f"{'corpus':<32}{'read':>12}{'kept':>12}{'dropped':>12}"]
    for account in manifest["corpora"]:
        dropped = sum(account["dropped"].values())
        lines.append(
            f"{account['key']:<32}{account['read']:>12,}{account['kept']:>12,}{dropped:>12,}"
        )
        for reason, count in account["dropped"].items():
            lines.append(f"  {reason:<54}{count:>12,}")
            for example in account["examples"]:
                if example["reason"] == reason:
                    lines.append(f"    {example['file']}:{example['line']}: {example['detail']}")
    lines.append("")
    lines.append(
        f"{'tokens':<14}{'total':>14}{'mean':>9}{'median':>9}{'p95':>9}{'p99':>9}{'max':>7}"
    )
    for split, sides in manifest["lengths"].items():
        for side, summary in sides.items():
            lines.append(
                f"{split + ' ' + side:<14}{summary['tokens']:>14,}{summary['mean']:>9.1f}"
                f"{summary['median']:>9.0f}{summary['p95']:>9.0f}{summary['p99']:>9.0f}"
                f"{summary['max']:>7}"
            )
    return "\n".join(lines)


def lengths_of(pairs: TokenPairs) -> dict[str, Any]:
    """For each side the figures of `summary` and its histogram, as they stand in the manifest."""
    src, tgt, counts = pairs.length_counts()
    # One width for both sides, so that they can be laid over each other.
    width = _bin_width(int(max(src.max(), tgt.max())))
    return {
        side: summary(lengths, counts) | {"histogram": histogram(lengths, counts, width)}
        for side, lengths in (("src", src), ("tgt", tgt))
    }


def summary(
    lengths: Int64[np.ndarray, " kinds"], counts: Int64[np.ndarray, " kinds"]
) -> dict[str, Any]:
    """Total, mean and percentiles of lengths that occur `counts` times each."""
    median, p95, p99 = percentiles(lengths, counts, (50, 95, 99))
    tokens = int((lengths * counts).sum())
    return {
        "tokens": tokens,
        "mean": round(tokens / int(counts.sum()), 2),
        "median": round(float(median), 1),
        "p95": round(float(p95), 1),
        "p99": round(float(p99), 1),
        "max": int(lengths.max()),
    }


def percentiles(
    lengths: Int64[np.ndarray, " kinds"],
    counts: Int64[np.ndarray, " kinds"],
    percent: tuple[float, ...],
) -> Float64[np.ndarray, " percent"]:
    """As `np.percentile` of each length written `counts` times, which might not fit in memory."""
    order = np.argsort(lengths)
    ends = np.cumsum(counts[order])
    places = np.array(percent) / 100 * (ends[-1] - 1)
    below, above = (
        lengths[order][np.searchsorted(ends, place, "right")].astype(np.float64)
        for place in (np.floor(places), np.ceil(places))
    )
    return below + (above - below) * (places - np.floor(places))


def histogram(
    lengths: Int64[np.ndarray, " kinds"], counts: Int64[np.ndarray, " kinds"], width: int
) -> dict[str, Any]:
    """`counts[i]` sentences have a length from `i * width + 1` to `(i + 1) * width`."""
    in_bins = np.bincount((lengths - 1) // width, weights=counts)
    return {"width": width, "counts": in_bins.astype(np.int64).tolist()}


def _bin_width(longest: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... with which `BINS` bars suffice."""
    return next(
        width
        for power in range(20)
        for width in (10**power, 2 * 10**power, 5 * 10**power)
        if width * BINS >= longest
    )


def picture(manifest: dict[str, Any]) -> str:
    """The training lengths of both sides as a histogram, and a bar for each reason of dropping."""
    dropped: dict[str, int] = {}
    for account in manifest["corpora"]:
        for reason, count in account["dropped"].items() if account["split"] == "train" else ():
            dropped[reason] = dropped.get(reason, 0) + count
    pairs = sum(account["kept"] for account in manifest["corpora"] if account["split"] == "train")
    height = _PLOT + 110 + 24 * max(1, len(dropped))
    body = [
        _text(_LEFT, 22, f"{pairs:,} training pairs by length in tokens, end mark included"),
        *_histograms(manifest["lengths"]["train"], top=40),
        _text(_LEFT, _PLOT + 96, f"{sum(dropped.values()):,} pairs dropped"),
        *_bars(dropped, top=_PLOT + 106),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}"><style>{_STYLE}</style>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _histograms(sides: dict[str, Any], top: int) -> Iterator[str]:
    """Both sides' histograms over one axis: `top` is where the highest bar ends."""
    counts = {side: sides[side]["histogram"]["counts"] for side in _NAMES}
    width = sides["src"]["histogram"]["width"]
    bins, highest = max(map(len, counts.values())), max(map(max, counts.values()))
    bottom, across = top + _PLOT, (_WIDTH - _LEFT - 20) / bins
    for side, in_bins in counts.items():
        # One outline: the height of bin 0, along it, up or down to bin 1, ...
        path = [f"M{_LEFT} {bottom}"]
        for count in in_bins:
            path.append(f"V{bottom - _PLOT * count / highest:.1f}h{across:.2f}")
        path.append(f"V{bottom}Z")
        colour = _COLOURS[side]
        yield (f'<path d="{"".join(path)}" fill="{colour}" fill-opacity=".35" stroke="{colour}"/>')
    for row, side in enumerate(_NAMES):
        mean, longest = sides[side]["mean"], sides[side]["max"]
        label = (
            f"{_NAMES[side]}: mean {mean:.1f}, 95% up to {sides[side]['p95']:.0f}, all {longest}"
        )
        y = top + 18 + 20 * row
        yield _bar(_WIDTH - 300, y - 11, 12, 12, _COLOURS[side])
        yield _text(_WIDTH - 282, y, label)
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - 20}" y2="{bottom}"/>'
    for mark in range(0, bins + 1, max(1, round(bins / 8))):
        yield _text(_LEFT + mark * across, bottom + 18, f"{mark * width:,}", "middle")
    yield _text(_LEFT - 6, top + 10, f"{highest:,}", "end")
    yield _text(_LEFT - 6, bottom, "0", "end")


def _bars(dropped: dict[str, int], top: int) -> Iterator[str]:
    """A bar for each reason, the longest first."""
    longest = max(dropped.values(), default=1)
    for row, (reason, count) in enumerate(sorted(dropped.items(), key=lambda item: -item[1])):
        y, across = top + 24 * row, 300 * count / longest
        yield _text(_LEFT, y + 13, reason)
        yield _bar(_LEFT + 190, y + 2, max(1, across), 14, _COLOURS["dropped"])
        yield _text(_LEFT + 198 + across, y + 13, f"{count:,}")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'
