"""Pictures as files: matplotlib without its global state, at a size in pixels, in fonts that fit.

Drawing functions lay out in pixels of their own and are given a scale, so that a larger picture is
the same one with larger type. 96 of these pixels are an inch, as in browsers.
"""

from __future__ import annotations

import dataclasses
import io
import math
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flaxformer_mt.figures.errors import FigureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Form = Literal["png", "svg", "pdf"]
PICTURES: tuple[Form, ...] = ("png", "svg", "pdf")
INCH = 96  # pixels
SHARP = 2  # pixels of a PNG for one of the layout's, unless a size is asked for
FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, Hebrew and more
INK, QUIET, PAPER = "#1b2130", "#5d6577", "#ffffff"

_MOST_PIXELS = 80_000_000
_SMALLEST_SCALE = 0.4  # of the layout: below, type is smaller than five pixels


@dataclasses.dataclass(frozen=True)
class Size:
    """Width and height in pixels."""

    width: float
    height: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """A picture before it has a size: how large it wants to be, its texts, and how it is drawn.

    `draw(sheet)` draws with the sheet's room and scale.
    """

    natural: Size
    texts: tuple[str, ...]
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
            "FLAXFORMER_EXTRAS=figures before launch/local.sh; files that end in .html need none"
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
    if size is None:
        size = _default_size(natural, form)
    scale = min(size.width / natural.width, size.height / natural.height)
    if scale < _SMALLEST_SCALE:
        least = "x".join(
            str(math.ceil(length * _SMALLEST_SCALE)) for length in (natural.width, natural.height)
        )
        raise FigureError(
            f"{size.width:.0f}x{size.height:.0f} pixels are too few to read: at least {least}"
        )
    if size.width * size.height > _MOST_PIXELS or max(size.width, size.height) > 2**16 - 1:
        raise FigureError(
            f"{size.width:.0f}x{size.height:.0f} pixels are too many: up to {_MOST_PIXELS:,} in "
            "all, and 65,535 to a side"
        )
    families, missing = _fonts(layout.texts)
    if missing and form != "svg":
        say(
            f"no font here has {' '.join(sorted(missing)[:20])}: boxes in their place; install a "
            "font that has them, or name a file that ends in .svg or .html"
        )
    settings = {
        "font.family": families,
        "text.parse_math": False,  # a dollar sign is one
        "svg.fonttype": "none",  # text that can be searched, in the viewer's fonts
        "svg.hashsalt": "flaxformer_mt",
        "pdf.fonttype": 42,
    }
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()  # whatever style the user's own pictures have
        matplotlib.rcParams.update(settings)
        from matplotlib.figure import Figure

        figure = Figure(figsize=(size.width / INCH, size.height / INCH), dpi=INCH, facecolor=PAPER)
        room = Size(size.width / scale, size.height / scale)
        layout.draw(Sheet(figure=figure, room=room, scale=scale))
        buffer = io.BytesIO()
        metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure.savefig(buffer, format=form, dpi=INCH, metadata=metadata[form])
    return buffer.getvalue()


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
