"""`attention`: what each head attends to, drawn; and which heads are worth drawing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, cast

from flaxformer_mt.cli.arguments import (
    add_decoding,
    add_workdir,
    make_parser,
    positive,
    say,
    weights,
)
from flaxformer_mt.cli.attention_find import add_find, find
from flaxformer_mt.cli.pictures import add_size, drawn, write_page, write_picture
from flaxformer_mt.cli.searching import as_asked
from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.decoding import Translator
from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.attention_page import attention_page
from flaxformer_mt.figures.canvas import Form, check_form
from flaxformer_mt.figures.maps import KINDS, Kind, pick
from flaxformer_mt.figures.sentences import attend, sentence_of

_EPILOG = """Rows are queries, the pieces that attend; in the decoder, the piece about to be said.
`-ing` is a piece that goes on with a word, ‹end› the end mark. An HTML file holds all kinds, layers
and heads: --kind, --layer, --head and --query say what it opens with."""
# What one of the two ways to call it has no use for.
_OF_PICTURES = ("src", "tgt", "layer", "head", "query")
_OF_FIND = ("input", "target", "draw", "pronouns")


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    parser.epilog = _EPILOG
    add_workdir(parser)
    add_decoding(parser)
    _add_picture(parser)
    add_find(parser)
    options = parser.parse_args(arguments)
    _check(options, parser)
    which = weights(options.weights, parser)
    return find(options, which) if options.find else draw(options, which)


def draw(options: argparse.Namespace, which: Any) -> int:
    """Writes one picture or page."""
    form = check_form(options.output, others=("html",))
    if is_blank(options.src):
        raise FigureError("--src is empty: give a sentence")
    kind: Kind = options.kind or "cross"
    translator = as_asked(options, Translator.load(options.workdir, which=which))
    needed = form == "html" or kind != "encoder"  # the encoder knows of no translation
    sentence = sentence_of(translator, options.src, options.tgt, translated=needed)
    attention = attend(translator, sentence)
    picked = pick(
        attention, kind=kind, layer=options.layer, heads=options.head or (), query=options.query
    )
    if form == "html":
        page = attention_page(
            attention,
            picked,
            src=sentence.src,
            tgt=sentence.tgt,
            origin=f"{options.workdir}, weights: {translator.name}",
            whose="the model's" if options.tgt is None else "given",
        )
        write_page(page, options.output)
    else:
        layout = drawn(picked, attention, style=options.style)
        write_picture(layout, cast(Form, form), options.output, wanted=options.size)
    if needed and options.tgt is None:
        say(f"the model's translation: {sentence.tgt}")
    return 0


def _add_picture(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a picture of one sentence")
    group.add_argument(
        "--src", metavar="TEXT", help="the sentence, as `translate` would be given it"
    )
    group.add_argument("--tgt", metavar="TEXT", help="its translation (default: the model's own)")
    group.add_argument(
        "--output",
        metavar="FILE",
        help="FILE.png, .svg or .pdf (these need the extra `figures`), or .html with pickers for "
        "everything; with --find: FILE.json",
    )
    group.add_argument(
        "--kind",
        choices=KINDS,
        help="the encoder's own attention, the decoder's own, or the decoder's over the source "
        "(default: cross; with --find: all)",
    )
    group.add_argument("--layer", type=positive, metavar="N", help="from 1 (default: the last)")
    group.add_argument(
        "--head", type=positive, nargs="+", metavar="N", help="from 1 (default: all of the layer)"
    )
    group.add_argument(
        "--query", metavar="WORD", help="from this word alone, or from the row of this number"
    )
    group.add_argument(
        "--style",
        choices=("lines", "heat"),
        default="lines",
        help="lines from piece to piece, as in the paper's figures 3 to 5, or heat maps",
    )
    add_size(group)


def _check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    wrong = _OF_PICTURES if options.find else _OF_FIND
    for name in wrong:
        if getattr(options, name) is not None:
            verb = "does not go with" if options.find else "goes with"
            parser.error(f"--{name} {verb} --find")
    if options.find and options.input is None:
        parser.error("--find searches in --input FILE")
    if not options.find and (options.src is None or options.output is None):
        parser.error("give --src TEXT and --output FILE, or --find and --input FILE")
