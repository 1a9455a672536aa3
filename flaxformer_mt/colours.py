"""Colours that tell heads or runs apart, in pictures and on pages."""

import colorsys

# Okabe and Ito's, without black and yellow: colour-blind readers can tell them apart, too.
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
    """`#rrggbb` for `count` heads or runs; beyond eight, evenly spaced hues."""
    if count <= len(_EIGHT):
        return _EIGHT[:count]
    # Neighbours differ in lightness as well.
    hues = [
        colorsys.hls_to_rgb(number / count, 0.36 if number % 2 else 0.52, 0.75)
        for number in range(count)
    ]
    return tuple("#" + "".join(f"{round(255 * part):02x}" for part in hue) for hue in hues)
