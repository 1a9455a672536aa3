"""Pictures as files: matplotlib without global state, with fitting fonts. A picture has a natural
size in pixels, 96 per inch as in browsers; lengths and type follow its scale."""

from __future__ import annotations

import dataclasses
import io
import math
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from flaxformer_mt.colours import head_colours
from flaxformer_mt.errors import install
from flaxformer_mt.figures import FigureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Form = Literal["png", "svg", "pdf"]
PICTURES: tuple[Form, ...] = get_args(Form)
INCH = 96  # pixels
SHARP = 2  # pixels of a PNG for one of the layout's, unless a size is asked for
FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and more
INK, QUIET, PAPER, GRID = "#1b2130", "#5d6577", "#ffffff", "#e7e4dc"

_MOST_PIXELS = 80_000_000
_SMALLEST_SCALE = 0.4  # of the layout: below, type is smaller than five pixels


@dataclasses.dataclass(frozen=True)
class Size:
    width: float
    height: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """A picture's natural size, and how it is drawn on a figure, given a layout pixel in points."""

    natural: Size
    draw: Callable[[Figure, float], None]


def check_form(name: str, *, others: Collection[str] = ()) -> str:
    """The form by a file name's ending: a picture's or one of `others`. Raises FigureError."""
    form = Path(name).suffix.lower().removeprefix(".")
    known = (*PICTURES, *others)
    if form not in known:
        listed = ", ".join(f".{ending}" for ending in known[:-1])
        raise FigureError(f"{name}: the name must end in {listed} or .{known[-1]}")
    if form in PICTURES:
        require_matplotlib()
    return form


def require_matplotlib() -> Any:
    """The package. Raises FigureError if it isn't installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise FigureError(f"matplotlib is not installed: {install('figures')}") from error
    return matplotlib


def rendered(
    layout: Layout,
    form: Form,
    *,
    size: Size | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> bytes:
    """The file's content: of exactly `size` pixels (default: the natural size); the same layout
    gives the same bytes.

    `say` gets characters that no font has; an SVG uses the viewer's fonts. Raises FigureError for a
    size that is too small to read or too large to draw.
    """
    matplotlib = require_matplotlib()
    if size is None:
        size = _default_size(layout.natural, form)
    pixel = _scale(layout.natural, size) * 72 / INCH
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()  # whatever style the user's own pictures have
        matplotlib.rcParams.update(_style(pixel))
        from matplotlib.figure import Figure
        from matplotlib.text import Text

        figure = Figure(figsize=(size.width / INCH, size.height / INCH), dpi=INCH, facecolor=PAPER)
        layout.draw(figure, pixel)
        texts = [artist for artist in figure.findobj(Text) if isinstance(artist, Text)]
        families, missing = _fonts(artist.get_text() for artist in texts)
        for artist in texts:
            artist.set_fontfamily(families)
        if missing and form != "svg":
            say(
                f"no font here has {' '.join(sorted(missing)[:20])}, which appear as boxes: "
                "install a font that has them, or write .svg or .html"
            )
        buffer = io.BytesIO()
        metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(buffer, format=form, dpi=INCH, metadata=metadata[form])
    return buffer.getvalue()


def _default_size(natural: Size, form: Form) -> Size:
    """The natural size; for a PNG SHARP times that, or as much as the limits allow."""
    sharpness = 1.0
    if form == "png":
        most_by_area = (_MOST_PIXELS / (natural.width * natural.height)) ** 0.5
        most_by_side = (2**16 - 2) / max(natural.width, natural.height)
        sharpness = min(SHARP, most_by_area, most_by_side)
    return Size(math.floor(natural.width * sharpness), math.floor(natural.height * sharpness))


def _scale(natural: Size, size: Size) -> float:
    """Of a layout that fits into `size`. Raises FigureError for one too small or too large."""
    scale = min(size.width / natural.width, size.height / natural.height)
    pixels = f"{size.width:.0f}x{size.height:.0f} pixels"
    if scale < _SMALLEST_SCALE:
        width = math.ceil(natural.width * _SMALLEST_SCALE)
        height = math.ceil(natural.height * _SMALLEST_SCALE)
        raise FigureError(f"{pixels} is too small to read: use at least {width}x{height}")
    if size.width * size.height > _MOST_PIXELS or max(size.width, size.height) > 2**16 - 1:
        raise FigureError(f"{pixels} is too large: at most {_MOST_PIXELS:,}, 65,535 per side")
    return scale


def _style(pixel: float) -> dict[str, Any]:
    sizes = {"major.size": 3 * pixel, "major.width": pixel, "major.pad": 3 * pixel}
    ticks: dict[str, Any] = {**sizes, "color": QUIET, "labelsize": "small"}
    return {
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 9 * pixel / 72,
        "figure.constrained_layout.h_pad": 9 * pixel / 72,
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
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: compact(value))


def compact(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / (1e3 if name == 'k' else unit):.6g} {name}"
    return f"{value:.6g}"


def legend(figure: Figure, pixel: float, labels: Sequence[str], notes: Sequence[str] = ()) -> None:
    """One line per label below the panels, in `head_colours`, and the notes."""
    from matplotlib.lines import Line2D

    colours = head_colours(len(labels))
    handles = [Line2D([], [], color=colour, linewidth=3 * pixel) for colour in colours]
    handles += [Line2D([], [], linestyle="none") for _ in notes]
    figure.legend(
        handles,
        [*labels, *notes],
        loc="outside lower left",
        labelcolor=[INK] * len(labels) + [QUIET] * len(notes),
    )


def widest(texts: Iterable[str], pixels: float) -> float:
    """The approximate width of the longest text in pixels, by the height of its type."""

    def ems(character: str) -> float:
        return 1.0 if unicodedata.east_asian_width(character) in "WF" else 0.62

    return pixels * max((sum(map(ems, text)) for text in texts), default=0.0)


def _fonts(texts: Iterable[str]) -> tuple[list[str], set[str]]:
    from matplotlib.font_manager import fontManager, get_font

    families = [FONT]
    missing = set("".join("".join(texts).split()))
    entries = [entry for entry in fontManager.ttflist if entry.style == "normal"]
    for entry in sorted(entries, key=lambda entry: (entry.name != FONT, entry.name, entry.fname)):
        # The last resort has a box for every character; matplotlib adds it by itself.
        if not missing or entry.name.startswith("Last Resort"):
            continue
        try:
            covered = missing & set(map(chr, get_font(entry.fname).get_charmap()))
        except (OSError, RuntimeError):  # a font file that is gone or broken
            continue
        if covered:
            families.append(entry.name)
            missing -= covered
    return [*dict.fromkeys(families), "sans-serif"], missing
