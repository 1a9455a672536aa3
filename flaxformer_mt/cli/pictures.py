"""Shared by commands that draw: a size in pixels, and a file format from its name."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from flaxformer_mt.api import say
from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import Form, Layout, Size, rendered
from flaxformer_mt.figures.drawings import heat_maps, line_drawing
from flaxformer_mt.figures.maps import Picked, weights_of
from flaxformer_mt.rundir.paths import as_path, is_remote, write_bytes, write_text

if TYPE_CHECKING:
    from flaxformer_mt.decoding.teacher_forcing import Attention

_Parser = argparse.ArgumentParser | argparse._ArgumentGroup


def add_size(parser: _Parser) -> None:
    parser.add_argument(
        "--size",
        type=size,
        metavar="WxH",
        help="size in pixels, such as 1200x800 (SVG and PDF: 96 per inch; default: fits the "
        "content, doubled for PNG)",
    )


def size(text: str) -> Size:
    """An argument such as 1200x800."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})[x×]([1-9][0-9]{0,5})", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write one such as 1200x800")
    return Size(int(found[1]), int(found[2]))


def drawn(picked: Picked, attention: Attention, *, style: str) -> Layout:
    """A picture in the style "lines" or "heat"."""
    if style == "heat":
        return heat_maps(picked)
    return line_drawing(picked, heads=weights_of(attention, picked.kind).shape[1])


def make_folder(name: str) -> Path:
    """A folder, made if it is not there; in a bucket there are none to make."""
    folder = as_path(name)
    if not is_remote(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FigureError(f"{name}: cannot be created: {error.strerror}") from error
    return folder


def write_picture(layout: Layout, form: Form, output: str, *, wanted: Size | None) -> None:
    write_bytes(as_path(output), rendered(layout, form, size=wanted, say=say))
    say(output)


def write_page(text: str, output: str) -> None:
    write_text(as_path(output), text)
    say(output)
