"""Pictures as files: matplotlib without its global state, at a size in pixels, in fonts that fit.

A picture has a natural size in pixels, 96 to an inch as in browsers. Drawn larger it is the same
picture with larger type: lengths and type follow the sheet's scale.
"""

from __future__ import annotations

import colorsys
import dataclasses
import io
import math
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flaxformer_mt.figures import FigureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Form = Literal["png", "svg", "pdf"]
PICTURES: tuple[Form, ...] = ("png", "svg", "pdf")
INCH = 96  # pixels
SHARP = 2  # pixels of a PNG for one of the layout's, unless a size is asked for
FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and more
INK, QUIET, PAPER, GRID = "#1b2130", "#5d6577", "#ffffff", "#e7e4dc"

_MOST_PIXELS = 80_000_000
_SMALLEST_SCALE = 0.4  # of the layout: below, type is smaller than five pixels
# Okabe and Ito's, told apart by colour-blind readers too, but for black and yellow.
_EIGHT = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7"),
    *("#e69f00", "#56b4e9", "#7a4ea3", "#8a6d3b"),
)


@dataclasses.dataclass(frozen=True)
class Size:
    """Width and height in pixels."""

    width: float
    height: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """A picture before it has a size: how large it wants to be, and how it is drawn on a sheet."""

    natural: Size
    draw: Callable[[Sheet], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sheet:
    """What is drawn on: `room` in the layout's pixels, of which `scale` of the file's are one."""

    figure: Figure
    room: Size
    scale: float

    def axes(self) -> Axes:
        """Axes over the whole sheet with the layout's pixels as coordinates, y going down."""
        axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_autoscale_on(False)
        axes.set_xlim(0, self.room.width)
        axes.set_ylim(self.room.height, 0)
        return axes

    def panels(self, down: int, abreast: int) -> list[Axes]:
        """Panels with numbers on their axes, arranged by matplotlib with all that is around."""
        pad = self.points(9) / 72
        self.figure.set_layout_engine("constrained", w_pad=pad, h_pad=pad)
        found = self.figure.subplots(down, abreast, squeeze=False)
        return list(found.flat)

    def points(self, pixels: float) -> float:
        """A length in the layout's pixels as matplotlib's points."""
        return pixels * self.scale * 72 / INCH


def check_form(name: str, *, others: Collection[str] = ()) -> str:
    """The form that a file's name ends in: a picture's, or one of `others`. Raises FigureError."""
    form = Path(name).suffix.lower().removeprefix(".")
    known = (*PICTURES, *others)
    if form not in known:
        listed = ", ".join(f".{each}" for each in known[:-1])
        raise FigureError(f"{name}: name a file that ends in {listed} or .{known[-1]}")
    if form in PICTURES:
        require_matplotlib()
    return form


def require_matplotlib() -> Any:
    """The package. Raises FigureError where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise FigureError(
            "matplotlib is not installed: pip install 'flaxformer-mt[figures]', or "
            "FLAXFORMER_EXTRAS=figures before launch/local.sh; `attention` writes .html without it"
        ) from error
    return matplotlib


def rendered(
    layout: Layout,
    form: Form,
    *,
    size: Size | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> bytes:
    """The file's content: of exactly `size` pixels, or as large as it wants to be.

    A size of another shape gives it more room to one side. The same layout gives the same bytes.
    Characters that no font has are boxes, and are told to `say`; in SVG the viewer's fonts decide.

    Raises FigureError for a size at which nobody could read it, or too large to be drawn.
    """
    matplotlib = require_matplotlib()
    natural = layout.natural
    size = _default_size(natural, form) if size is None else size
    scale = min(size.width / natural.width, size.height / natural.height)
    asked = f"{size.width:.0f}x{size.height:.0f} pixels"
    if scale < _SMALLEST_SCALE:
        least = (math.ceil(side * _SMALLEST_SCALE) for side in (natural.width, natural.height))
        raise FigureError(f"{asked} are too few to read: at least {'x'.join(map(str, least))}")
    if size.width * size.height > _MOST_PIXELS or max(size.width, size.height) > 2**16 - 1:
        raise FigureError(
            f"{asked} are too many: up to {_MOST_PIXELS:,} in all, and 65,535 to a side"
        )
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()  # whatever style the user's own pictures have
        matplotlib.rcParams.update(_style(scale * 72 / INCH))
        from matplotlib.figure import Figure
        from matplotlib.text import Text

        figure = Figure(figsize=(size.width / INCH, size.height / INCH), dpi=INCH, facecolor=PAPER)
        room = Size(size.width / scale, size.height / scale)
        layout.draw(Sheet(figure=figure, room=room, scale=scale))
        texts = [each for each in figure.findobj(Text) if isinstance(each, Text)]
        families, missing = _fonts(each.get_text() for each in texts)
        for each in texts:
            each.set_fontfamily(families)
        if missing and form != "svg":
            say(
                f"no font here has {' '.join(sorted(missing)[:20])}: boxes in their place; install "
                "a font that has them, or name a file that ends in .svg or .html"
            )
        buffer = io.BytesIO()
        metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(buffer, format=form, dpi=INCH, metadata=metadata[form])
    return buffer.getvalue()


def _style(pixel: float) -> dict[str, Any]:
    """The house's settings for pictures in which `pixel` points are one of the layout's pixels."""
    sizes = {"major.size": 3 * pixel, "major.width": pixel, "major.pad": 3 * pixel}
    ticks: dict[str, Any] = {**sizes, "color": QUIET, "labelsize": "small"}
    return {
        "font.family": [FONT],
        "font.size": 12 * pixel,
        "text.color": INK,
        "text.parse_math": False,  # a dollar sign is one
        "axes.titlesize": "medium",
        "axes.titlelocation": "left",
        "axes.titlepad": 6 * pixel,
        "axes.labelsize": "small",
        "axes.labelcolor": QUIET,
        "axes.labelpad": 4 * pixel,
        "axes.edgecolor": QUIET,
        "axes.linewidth": pixel,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": GRID,
        "grid.linewidth": pixel,
        "legend.frameon": False,
        "svg.fonttype": "none",  # text that can be searched, in the viewer's fonts
        "svg.hashsalt": "flaxformer_mt",
        "pdf.fonttype": 42,
        **{f"{axis}tick.{name}": value for axis in "xy" for name, value in ticks.items()},
    }


def plain_numbers(axes: Axes) -> None:
    """Numbers on both axes as people write them."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: compact(value))


def compact(value: float) -> str:
    """A number for an axis, such as 2.5 M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.6g} {name}"
    return f"{value:.6g}"


def legend(sheet: Sheet, labels: Iterable[str], notes: Iterable[str] = ()) -> None:
    """Below the panels a line a label, in the colours of `head_colours`, and then the notes."""
    from matplotlib.lines import Line2D

    labels, notes = list(labels), list(notes)
    colours = head_colours(len(labels))
    handles = [Line2D([], [], color=colour, linewidth=sheet.points(3)) for colour in colours]
    handles += [Line2D([], [], linestyle="none") for _ in notes]
    sheet.figure.legend(
        handles,
        [*labels, *notes],
        loc="outside lower left",
        labelcolor=[INK] * len(labels) + [QUIET] * len(notes),
    )


def head_colours(count: int) -> tuple[str, ...]:
    """`#rrggbb` of `count` heads or runs, in pictures and pages; beyond eight, even hues."""
    if count <= len(_EIGHT):
        return _EIGHT[:count]
    # Neighbours differ in lightness as well.
    hues = [
        colorsys.hls_to_rgb(number / count, 0.36 if number % 2 else 0.52, 0.75)
        for number in range(count)
    ]
    return tuple("#" + "".join(f"{round(255 * part):02x}" for part in hue) for hue in hues)


def text_width(text: str, pixels: float) -> float:
    """About how wide a text is in type of a height, both in pixels."""
    require_matplotlib()
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        properties = FontProperties(family=FONT, size=pixels)
        width, *_ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width)


def widest(texts: Iterable[str], pixels: float) -> float:
    return max((text_width(text, pixels) for text in texts), default=0.0)


def _default_size(natural: Size, form: Form) -> Size:
    sharp = 1.0
    if form == "png":
        area = natural.width * natural.height
        longest = max(natural.width, natural.height)
        sharp = min(SHARP, (_MOST_PIXELS / area) ** 0.5, (2**16 - 2) / longest)
    return Size(math.floor(natural.width * sharp), math.floor(natural.height * sharp))


def _fonts(texts: Iterable[str]) -> tuple[list[str], set[str]]:
    """Families that have the texts' characters, the first of them FONT, and what none has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    def characters(path: str) -> set[str]:
        return {chr(code) for code in get_font(path).get_charmap()}

    families = [FONT]
    missing = {character for text in texts for character in text if not character.isspace()}
    missing -= characters(findfont(FontProperties(family=FONT)))
    for entry in sorted(fontManager.ttflist, key=lambda entry: (entry.name, entry.fname)):
        if not missing:
            break
        # The last resort has a box for every character, and comes last without being asked.
        wanted = entry.style == "normal" and not entry.name.startswith("Last Resort")
        if wanted and entry.name not in families:
            try:
                found = characters(entry.fname) & missing
            except (OSError, RuntimeError):  # a font file that is gone or broken
                continue
            if found:
                families.append(entry.name)
                missing -= found
    return [*families, "sans-serif"], missing
