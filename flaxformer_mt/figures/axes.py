"""A panel with numbers on its axes, in the house's style."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flaxformer_mt.figures.canvas import INK, QUIET, Sheet, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID = "#e7e4dc"


def panel_axes(sheet: Sheet, x: float, y: float, size: Size) -> Axes:
    """Axes of a size at a place of the sheet, both in its layout's pixels."""
    room = sheet.room
    place = (x / room.width, 1 - (y + size.height) / room.height)
    axes = sheet.figure.add_axes((*place, size.width / room.width, size.height / room.height))
    axes.tick_params(
        colors=QUIET,
        labelsize=sheet.points(10),
        length=sheet.points(3),
        width=sheet.points(1),
        pad=sheet.points(3),
    )
    axes.grid(color=GRID, linewidth=sheet.points(1))
    axes.set_axisbelow(True)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_linewidth(sheet.points(1))
        spine.set_color(QUIET)
    return axes


def plain_numbers(axes: Axes, *, across: int = 5, up: int = 6) -> None:
    """At most so many numbers on either axis, as people write them."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for axis, most in ((axes.xaxis, across), (axes.yaxis, up)):
        axis.set_major_locator(MaxNLocator(most))
        axis.set_major_formatter(FuncFormatter(_formatted(compact)))


def _formatted(form: Callable[[float], str]) -> Callable[[float, int | None], str]:
    return lambda value, _: form(value)


def caption(axes: Axes, sheet: Sheet, text: str) -> None:
    """What the numbers below are of."""
    axes.set_xlabel(text, color=QUIET, fontsize=sheet.points(10))


def write(
    axes: Axes, sheet: Sheet, x: float, y: float, text: str, pixels: float, *, colour: str = INK
) -> None:
    """A line of text, its middle at a height, all in the layout's pixels."""
    axes.text(x, y, text, va="center", color=colour, fontsize=sheet.points(pixels))


def compact(value: float) -> str:
    """A number for an axis, such as 2.5 M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.6g} {name}"
    return f"{value:.6g}"
