"""Files of the asked form and size, in whatever script, and without matplotlib's global state."""

from __future__ import annotations

import ast
import re
import sys

import matplotlib
import pytest
from matplotlib.figure import Figure

from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import Form, Layout, Size, check_form, rendered
from tests.conftest import ROOT
from tests.figures.examples import png_size, svg_size, svg_texts


def layout(text: str = "text", width: float = 200, height: float = 100) -> Layout:
    def draw(figure: Figure, pixel: float) -> None:
        figure.text(0.1, 0.5, text)

    return Layout(natural=Size(width, height), draw=draw)


def test_a_size_is_that_of_the_file_or_as_large_as_it_wants_to_be() -> None:
    assert png_size(rendered(layout(), "png", size=Size(641, 377))) == (641, 377)
    assert png_size(rendered(layout(), "png")) == (400, 200)
    assert svg_size(rendered(layout(), "svg", size=Size(640, 380))) == pytest.approx((640, 380))
    assert svg_size(rendered(layout(), "svg")) == pytest.approx((200, 100))
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", rendered(layout(), "pdf"))
    assert box is not None
    assert [float(side) * 96 / 72 for side in box.groups()] == pytest.approx([200, 100])


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_the_same_picture_is_the_same_file(form: Form) -> None:
    assert rendered(layout(), form) == rendered(layout(), form)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (Size(60, 100), "60x100 pixels are too few to read: at least 80x40"),
        (Size(70000, 2000), "too many"),
        (Size(20000, 20000), "too many"),
    ],
)
def test_sizes_nobody_could_use_are_refused(size: Size, message: str) -> None:
    with pytest.raises(FigureError, match=message):
        rendered(layout(), "png", size=size)


def test_text_stays_text() -> None:
    for text in ("$x^2$", "a_b %", "<b>&amp;", r"\frac{1}{2}"):
        assert svg_texts(rendered(layout(text), "svg")) == [text]
        assert rendered(layout(text), "png")


def test_characters_that_no_font_has_are_told() -> None:
    told: list[str] = []
    rendered(layout("a\U000e0fff猫"), "png", say=told.append)
    assert len(told) == 1 and "no font here has" in told[0] and "\U000e0fff" in told[0]
    rendered(layout("a\U000e0fff"), "svg", say=told.append)
    assert len(told) == 1
    rendered(layout("Größe, Ж, α, ‹end›"), "png", say=told.append)
    assert len(told) == 1


def test_the_user_s_own_style_neither_shows_nor_changes() -> None:
    plain = rendered(layout(), "svg")
    with matplotlib.rc_context({"savefig.transparent": True, "text.color": "red"}):
        assert rendered(layout(), "svg") == plain
        assert matplotlib.rcParams["text.color"] == "red"


def test_names_say_the_form() -> None:
    assert check_form("a/b.PNG") == "png" and check_form("x.html", others=("html",)) == "html"
    for name in ("x.jpg", "x", "x.html", "png"):
        message = re.escape(f"{name}: name a file that ends in .png, .svg or .pdf")
        with pytest.raises(FigureError, match=message):
            check_form(name)


def test_matplotlib_is_imported_when_it_is_needed_and_never_its_global_state() -> None:
    for path in (ROOT / "flaxformer_mt").rglob("*.py"):
        text = path.read_text()
        assert "pyplot" not in text, path
        for node in ast.parse(text).body:
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith("matplotlib") for each in node.names), path
            elif isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("matplotlib"), path
    before = "matplotlib.pyplot" in sys.modules
    rendered(layout(), "png")
    assert ("matplotlib.pyplot" in sys.modules) == before
