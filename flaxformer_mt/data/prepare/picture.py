"""A picture of a store: how long its training sentences are, and what was dropped and why.

SVG written by hand: any browser shows it, and nothing has to be installed to draw it. Colours are
legible on light and on dark ground.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

PICTURE = "lengths.svg"

_WIDTH, _LEFT, _PLOT = 720, 64, 240
_COLOURS = {"src": "#3b82f6", "tgt": "#f97316", "dropped": "#a855f7"}
_NAMES = {"src": "source", "tgt": "target"}
_STYLE = (
    "text{font:13px sans-serif;fill:#57606a}line{stroke:#8b949e;stroke-width:1}"
    "@media(prefers-color-scheme:dark){text{fill:#b1bac4}}"
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
