"""The colour of each head, the same in pictures and pages."""

from __future__ import annotations

import colorsys

# Okabe and Ito's, told apart by colour-blind readers too, but for black and yellow.
_EIGHT = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7a4ea3",
    "#8a6d3b",
)


def head_colours(count: int) -> tuple[str, ...]:
    """`#rrggbb` of `count` heads; beyond eight, hues of even distance."""
    if count <= len(_EIGHT):
        return _EIGHT[:count]
    return tuple(
        "#" + "".join(f"{round(255 * part):02x}" for part in _hue(number, count))
        for number in range(count)
    )


def _hue(number: int, count: int) -> tuple[float, float, float]:
    # Neighbours differ in lightness as well.
    return colorsys.hls_to_rgb(number / count, 0.36 if number % 2 else 0.52, 0.75)
