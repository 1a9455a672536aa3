"""Files of the asked form and size, in whatever script, and without matplotlib's global state."""

import re
import sys

import matplotlib
import pytest
from matplotlib.figure import Figure

from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import Layout, Size, rendered
from tests.figures.examples import png_size, svg_size, svg_texts


def layout(text: str = "text") -> Layout:
    def draw(figure: Figure, pixel: float) -> None:
        figure.text(0.1, 0.5, text)

    return Layout(natural=Size(200, 100), draw=draw)


def test_a_size_is_that_of_the_file_or_as_large_as_it_wants_to_be():
    assert png_size(rendered(layout(), "png", size=Size(641, 377))) == (641, 377)
    assert png_size(rendered(layout(), "png")) == (400, 200)
    assert svg_size(rendered(layout(), "svg", size=Size(640, 380))) == pytest.approx((640, 380))
    assert svg_size(rendered(layout(), "svg")) == pytest.approx((200, 100))
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", rendered(layout(), "pdf"))
    assert box is not None
    assert [float(side) * 96 / 72 for side in box.groups()] == pytest.approx([200, 100])


def test_the_same_picture_is_the_same_file():
    assert rendered(layout(), "pdf") == rendered(layout(), "pdf")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (Size(60, 100), "60x100 pixels is too small to read: use at least 80x40"),
        (Size(70000, 2000), "too large"),
        (Size(20000, 20000), "too large"),
    ],
)
def test_a_size_that_is_too_small_or_too_large_is_refused(size, message):
    with pytest.raises(FigureError, match=message):
        rendered(layout(), "png", size=size)


@pytest.mark.parametrize("text", ["$x^2$", "<b>&amp;", r"\frac{1}{2}"])
def test_text_stays_text(text):
    assert svg_texts(rendered(layout(text), "svg")) == [text]


def test_characters_that_no_font_has_are_told_of_a_png():
    messages: list[str] = []
    rendered(layout("a\U000e0fff猫"), "png", say=messages.append)
    assert len(messages) == 1 and "no font here has" in messages[0] and "\U000e0fff" in messages[0]
    rendered(layout("a\U000e0fff"), "svg", say=messages.append)
    rendered(layout("Größe, Ж, α, ‹end›"), "png", say=messages.append)
    assert len(messages) == 1


def test_the_user_s_own_style_neither_shows_nor_changes():
    plain = rendered(layout(), "svg")
    with matplotlib.rc_context({"savefig.transparent": True, "text.color": "red"}):
        assert rendered(layout(), "svg") == plain
        assert matplotlib.rcParams["text.color"] == "red"


def test_matplotlib_s_global_state_is_never_imported():
    before = "matplotlib.pyplot" in sys.modules
    rendered(layout(), "png")
    assert ("matplotlib.pyplot" in sys.modules) == before
