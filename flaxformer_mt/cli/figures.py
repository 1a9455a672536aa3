"""`figures`: training curves of runs; the paper's schedule and positions."""

import argparse
from collections.abc import Sequence
from typing import cast

from flaxformer_mt.api import say
from flaxformer_mt.cli.arguments import flags, make_parser
from flaxformer_mt.cli.pictures import add_size, write_page, write_picture
from flaxformer_mt.figures.canvas import Form, check_form, require_matplotlib
from flaxformer_mt.figures.curves import all_notes, curves, curves_page
from flaxformer_mt.figures.runs import AXES, panels, read_runs

_EPILOG = """RUN is a run directory; NAME=RUN gives it a name. The numbers come from its
metrics.jsonl (docs/observing.md). Pictures need the extra `figures`."""


_WHAT = {
    "what curves|schedule|positions": "curves: training curves; schedule: the paper's learning "
    "rate; positions: its sinusoids",
    f"--against {'|'.join(AXES)}": "curves: steps, target tokens, or hours of training steps "
    "without validation, checkpoints and pauses",
    "--values NAME...": "curves: names from metrics.jsonl to draw (default: loss, perplexity, "
    "bleu, learning_rate, tgt_tokens_per_second)",
    "--warmup N:int...": "schedule: warm-up steps, one curve each (paper: 4000)",
    "--steps N:int": "schedule: last step",
    "--length N:int": "positions: number of positions",
    "--d-model N:int": "schedule, positions: width (default: the paper's 512; positions: 128, "
    "narrow enough to tell columns apart)",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    flags(
        parser,
        _WHAT,
        against="steps",
        values=(),
        warmup=(1000, 4000, 16000),
        steps=100_000,
        length=100,
    )
    output = {"--output FILE": "FILE.png, .svg or .pdf; curves: or .html"}
    flags(parser, output, required=True)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="curves: runs to compare")
    add_size(parser)
    options = parser.parse_args(arguments)
    if options.what == "curves":
        return draw_curves(options, parser)
    return draw_formula(options, parser)


def draw_formula(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    form = check_form(options.output)
    if options.runs:
        parser.error(f"{options.what} draws a formula: leave out the run")
    # These import JAX, which curves do without.
    from flaxformer_mt.figures import paper

    if options.what == "schedule":
        layout = paper.schedule(options.warmup, d_model=options.d_model or 512, steps=options.steps)
    else:
        layout = paper.positions(options.length, d_model=options.d_model or 128)
    write_picture(layout, cast(Form, form), options.output, wanted=options.size)
    return 0


def draw_curves(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    form = check_form(options.output, others=("html",))
    require_matplotlib()
    if not options.runs:
        parser.error("curves: name at least one run directory")
    runs = read_runs(options.runs)
    chosen = panels(runs, options.values)
    for note in all_notes(runs, chosen):
        say(note)
    if form == "html":
        write_page(curves_page(runs, chosen, axis=options.against), options.output)
    else:
        layout = curves(runs, chosen, axis=options.against)
        write_picture(layout, cast(Form, form), options.output, wanted=options.size)
    return 0
