"""Curves and formulas as pictures, and where pictures go."""

from argparse import Namespace
from pathlib import Path
from typing import cast

from flaxformer_mt.api import say
from flaxformer_mt.figures import Axis
from flaxformer_mt.figures.canvas import Form, Layout, Size, check_form, rendered
from flaxformer_mt.figures.curves import all_notes, curves, curves_page, panels, read_runs
from flaxformer_mt.rundir.paths import as_path, explained, is_remote, write_bytes, write_text


def curves_of(options: Namespace, form: str) -> Layout | str:
    """The runs' curves, as a picture or a page. Raises FigureError."""
    runs = read_runs(options.runs)
    chosen_panels = panels(runs, options.values or ())
    for note in all_notes(runs, chosen_panels):
        say(note)
    axis: Axis = options.against or "steps"
    if form == "html":
        return curves_page(runs, chosen_panels, axis=axis)
    return curves(runs, chosen_panels, axis=axis)


def formula_of(options: Namespace) -> Layout:
    """The paper's schedule or positions."""
    # These import JAX, which curves do without.
    from flaxformer_mt.figures import paper

    if options.what == "positions":
        return paper.positions(options.length or 100, d_model=options.d_model or 128)
    return paper.schedule(
        options.warmup or (1000, 4000, 16000),
        d_model=options.d_model or 512,
        steps=options.steps or 100_000,
    )


def make_folder(name: str) -> Path:
    folder = as_path(name)
    if not is_remote(folder):
        with explained(folder, "created"):
            folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_drawn(drawn: Layout | str, output: str, *, size: Size | None) -> None:
    """A picture in the form that the name says, or a page."""
    if isinstance(drawn, str):
        write_text(as_path(output), drawn)
    else:
        form = cast(Form, check_form(output))
        write_bytes(as_path(output), rendered(drawn, form, size=size, say=say))
    say(output)
