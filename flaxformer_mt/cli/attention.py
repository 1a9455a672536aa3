"""`attention`: draws what each head attends to, and finds heads worth drawing."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from flaxformer_mt.attention import KINDS
from flaxformer_mt.cli.arguments import (
    TAG,
    WORKDIR,
    Flag,
    add_decoding,
    flags,
    make_parser,
    positive,
    utf8_text,
)
from flaxformer_mt.cli.figures import add_size
from flaxformer_mt.cli.programs import keep_programs
from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.figures import FAR, FigureError
from flaxformer_mt.figures.canvas import check_form
from flaxformer_mt.rundir.layout import open_run

_EPILOG = """Rows are queries: the pieces that attend; in the decoder, the piece about to be
generated. `-ing` continues a word; ‹end› is the end mark. An HTML file holds all kinds, layers and
heads: --kind, --layer, --head and --query choose what it opens with."""
_OF_PICTURES = ("src", "tgt", "layer", "head", "query")
_OF_FIND = ("input", "target", "draw", "pronouns")
_PICTURE = {
    "--src": Flag(
        "source sentence, as you would give it to `translate`", takes="TEXT", read=utf8_text
    ),
    "--tgt": Flag("its translation (default: the model's own)", takes="TEXT", read=utf8_text),
    "--output": Flag(
        "FILE.png, .svg or .pdf (with the extra `figures`), or an interactive .html; "
        "with --find: FILE.json",
        takes="FILE",
    ),
    "--kind": Flag(
        "encoder self-attention, decoder self-attention, or "
        "decoder-to-source attention (default: cross; with --find: all)",
        choices=KINDS,
    ),
    "--layer": Flag("from 1 (default: the last)", takes="N", read=positive),
    "--head": Flag(
        "from 1 (default: all heads of the layer)", takes="N", several=True, read=positive
    ),
    "--query": Flag(
        "show only the lines of this word, or of the row with this number",
        takes="WORD",
        read=utf8_text,
    ),
    "--style": Flag(
        "lines between pieces, as in the paper's figures 3 to 5, or heat maps",
        choices=("lines", "heat"),
    ),
}
_FIND = {
    "--find": Flag(
        "compute statistics of every head over many sentences, and find the heads that best "
        "show long-distance dependency, anaphora, structure and reordering"
    ),
    "--input": Flag("source lines; plain, .gz, .bz2, .xz or .zst", takes="FILE"),
    "--target": Flag("their translations (default: the model's own)", takes="FILE"),
    "--sentences": Flag("use at most the first N", takes="N", read=positive),
    "--far": Flag("distance that counts as long, in pieces", takes="N", read=positive),
    "--top": Flag("heads to list for each search", takes="N", read=positive),
    "--pronouns": Flag(
        "pronouns of either language (default: built-in lists for en, de and "
        "fr, by the run's languages)",
        takes="WORD",
        several=True,
        read=utf8_text,
    ),
    "--json": Flag("print JSON instead of the table"),
    "--draw": Flag("draw an SVG of each example, with --style and --size", takes="FOLDER"),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose, _EPILOG)
    flags(parser, WORKDIR, required=True)
    add_decoding(parser)
    flags(parser, TAG)
    picture = parser.add_argument_group("a picture of one sentence")
    flags(picture, _PICTURE, style="lines")
    add_size(picture)
    search = parser.add_argument_group("search for the heads most worth drawing")
    flags(search, _FIND, far=FAR, top=3, sentences=500)
    options = parser.parse_args(arguments)
    _check_flags(options, parser)
    # What is wrong shows before JAX is loaded.
    open_run(options.workdir)
    form = _form(options)
    keep_programs()
    from flaxformer_mt.cli.actions.attention import draw, find

    return find(options) if options.find else draw(options, form)


def _check_flags(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags that don't belong together, or are missing."""
    for name in _OF_PICTURES if options.find else _OF_FIND:
        if getattr(options, name) is not None:
            verb = "can't be used with" if options.find else "needs"
            parser.error(f"--{name} {verb} --find")
    if options.find and options.input is None:
        parser.error("--find needs --input FILE")
    if not options.find and (options.src is None or options.output is None):
        parser.error("give --src TEXT and --output FILE, or --find and --input FILE")


def _form(options: Namespace) -> str:
    """The form of --output by its name's ending; "" without one. Raises FigureError for a wrong
    ending, and for an empty --src."""
    if not options.find:
        if is_blank(options.src):
            raise FigureError("--src is empty: give a sentence")
        return check_form(options.output, others=("html",))
    if options.output is None:
        return ""
    if not options.output.endswith(".json"):
        raise FigureError(f"{options.output}: --find writes JSON: the name must end in .json")
    return "json"
