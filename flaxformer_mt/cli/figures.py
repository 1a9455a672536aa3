"""`figures`: training curves of runs; the paper's schedule and positions."""

import argparse
import re
from collections.abc import Sequence

from flaxformer_mt.cli.arguments import Flag, flags, make_parser, million, positive, utf8_text
from flaxformer_mt.figures import AXES
from flaxformer_mt.figures.canvas import Size, check_form, require_matplotlib
from flaxformer_mt.rundir.paths import check_output

_EPILOG = """RUN is a run directory; NAME=RUN gives it a name. The numbers come from its
metrics.jsonl (docs/observing.md). Pictures need the extra `figures`."""


_WHAT = {
    "what": Flag(
        "curves: training curves; schedule: the paper's learning rate; positions: its sinusoids",
        choices=("curves", "schedule", "positions"),
    ),
    "--against": Flag(
        "curves: steps (default), target tokens, or hours of "
        "training steps without validation, checkpoints and pauses",
        choices=AXES,
    ),
    "--values": Flag(
        "curves: names from metrics.jsonl to draw (default: loss, perplexity, "
        "bleu, learning_rate, tgt_tokens_per_second)",
        takes="NAME",
        several=True,
        read=utf8_text,
    ),
    "--warmup": Flag(
        "schedule: warm-up steps, one curve each (default: 1000 4000 16000)",
        takes="N",
        several=True,
        read=million,
    ),
    "--steps": Flag("schedule: last step (default: 100,000)", takes="N", read=million),
    "--length": Flag("positions: number of positions (default: 100)", takes="N", read=million),
    "--d-model": Flag(
        "schedule, positions: width (default: the paper's 512; positions: 128, "
        "narrow enough to tell columns apart)",
        takes="N",
        read=positive,
    ),
}

_OF = {
    "curves": {"against", "values"},
    "schedule": {"warmup", "steps", "d_model"},
    "positions": {"length", "d_model"},
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    flags(parser, _WHAT)
    output = {"--output": Flag("FILE.png, .svg or .pdf; curves: or .html", takes="FILE")}
    flags(parser, output, required=True)
    parser.add_argument("runs", metavar="RUN", nargs="*", help="curves: runs to compare")
    add_size(parser)
    options = parser.parse_args(arguments)
    for name in sorted(set().union(*_OF.values()) - _OF[options.what]):
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            parser.error(f"{flag} has no effect on {options.what}: leave it out")
    check_output(options.output)
    is_of_runs = options.what == "curves"
    if is_of_runs and not options.runs:
        parser.error("curves: name at least one run directory")
    if options.runs and not is_of_runs:
        parser.error(f"{options.what} draws a formula: leave out the run")
    form = check_form(options.output, others=("html",) if is_of_runs else ())
    require_matplotlib()
    from flaxformer_mt.cli.actions.figures import curves_of, formula_of, write_drawn

    drawn = curves_of(options, form) if is_of_runs else formula_of(options)
    write_drawn(drawn, options.output, size=options.size)
    return 0


def add_size(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--size",
        type=size,
        metavar="WxH",
        help="size in pixels, such as 1200x800 (SVG and PDF: 96 per inch; default: fits the "
        "content, doubled for PNG)",
    )


def size(text: str) -> Size:
    match = re.fullmatch(r"([1-9][0-9]{0,5})[x×]([1-9][0-9]{0,5})", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write one such as 1200x800")
    return Size(int(match[1]), int(match[2]))
