"""`translate`: lines, columns or JSON objects in; the same with translations out, in order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from flaxformer_mt.bulk.forms import NAMES, WRITABLE, Form, Shown
from flaxformer_mt.bulk.reading import open_lines
from flaxformer_mt.bulk.work import TranslateSettings
from flaxformer_mt.cli.arguments import add_decoding, add_workdir, make_parser, positive
from flaxformer_mt.cli.searching import add_sampling, add_search, sampling_of
from flaxformer_mt.cli.streams import add_output, streamed


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_workdir(parser)
    add_decoding(parser)
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="source lines; plain, .gz, .xz or .zst; gs:// too (default: standard input)",
    )
    add_output(parser)
    _add_forms(parser)
    parser.add_argument(
        "--n-best",
        type=positive,
        default=1,
        metavar="N",
        help="up to N translations of each line: in jsonl a list, else lines that begin with the "
        "number of the source's line and a tab",
    )
    parser.add_argument(
        "--overlong",
        choices=("split", "refuse"),
        default="split",
        help="a line longer than the model takes is cut at sentence ends, translated in pieces "
        "and rejoined, or it is an error",
    )
    add_search(parser)
    _add_constraints(parser)
    add_sampling(parser)
    options = parser.parse_args(arguments)
    settings = TranslateSettings(
        form=_form(options, parser),
        n_best=options.n_best,
        overlong=options.overlong,
        prefix=options.prefix,
        suppress=tuple(options.suppress),
        sampling=sampling_of(options, parser),
    )
    return streamed(
        options,
        parser,
        what="translate",
        reading=open_lines(options.input),
        settings=settings,
    )


def _add_forms(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("forms of input and output")
    group.add_argument(
        "--format",
        choices=NAMES,
        default="text",
        help="text: a sentence a line; tsv: columns, of which one is translated; jsonl: a JSON "
        "object a line, to which the translation is added",
    )
    group.add_argument(
        "--output-format", choices=NAMES, help="that of the output, if it is another one"
    )
    group.add_argument(
        "--column", type=positive, metavar="N", help="tsv: the column to translate (default: 1)"
    )
    group.add_argument(
        "--append",
        action="store_true",
        help="tsv: the translation becomes the last column instead of taking the source's place",
    )
    group.add_argument(
        "--key", help="jsonl: the source's key; a dot leads into an object (default: source)"
    )
    group.add_argument(
        "--translation-key", metavar="KEY", help="jsonl: the added key (default: translation)"
    )
    group.add_argument(
        "--scores",
        action="store_true",
        help="text: a score and a tab before each translation; tsv: a further column; jsonl has "
        "scores anyway",
    )
    group.add_argument(
        "--alignments",
        action="store_true",
        help="the source word of each word (0-0 1-2, ...): a last column, or a field",
    )
    group.add_argument(
        "--tokens", action="store_true", help="jsonl: the translation's token ids, for `score`"
    )


def _add_constraints(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what a translation must have, and must not")
    group.add_argument(
        "--prefix", default="", metavar="TEXT", help="what each translation begins with"
    )
    group.add_argument(
        "--prefix-key",
        metavar="KEY",
        help="jsonl: the key of each line's prefix, a text",
    )
    group.add_argument(
        "--suppress",
        nargs="+",
        default=[],
        metavar="PIECE",
        help="pieces of the target vocabulary that no translation has",
    )
    group.add_argument(
        "--ensemble",
        nargs="+",
        default=[],
        metavar="DIR",
        help="further run directories with the same vocabulary: the mean of the models' "
        "probabilities decides",
    )


def _form(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Form:
    write = options.output_format or options.format
    if write not in WRITABLE[options.format]:
        parser.error(
            f"--output-format {write}: of {options.format} comes "
            f"{' or '.join(WRITABLE[options.format])}"
        )
    _check_flags(options, write, parser)
    try:
        return Form(
            read=options.format,
            write=write,
            column=(options.column or 1) - 1,
            append=options.append or options.format == "text",
            key=options.key or "source",
            target_key=options.translation_key or "translation",
            prefix_key=options.prefix_key or "",
            shown=Shown(
                scores=options.scores or write == "jsonl",
                alignments=options.alignments,
                tokens=options.tokens,
                n_best=options.n_best > 1,
            ),
        )
    except ValueError as error:
        parser.error(f"{error}; choose another --key or --translation-key")


def _check_flags(options: argparse.Namespace, write: str, parser: argparse.ArgumentParser) -> None:
    """Nothing that was asked for is without effect."""
    forms = {
        "--key": (options.key, "--format", {options.format, write}),
        "--translation-key": (options.translation_key, "--output-format", {write}),
        "--prefix-key": (options.prefix_key, "--format", {options.format}),
    }
    for flag, (key, form, said) in forms.items():
        if key == "":
            parser.error(f"{flag} is empty")
        if key is not None and "jsonl" not in said:
            parser.error(f"{flag} is a key of JSON objects: add {form} jsonl")
    if options.tokens and write != "jsonl":
        parser.error("--tokens are fields of JSON objects: add --output-format jsonl")
    if options.column is not None and options.format != "tsv":
        parser.error("--column is one of columns: add --format tsv")
    if options.append and write != "tsv":
        parser.error("--append is for columns: the output is to be tsv")
    if options.prefix_key and options.prefix:
        parser.error("--prefix and --prefix-key are two ways to say the same: give one")
    if options.ensemble and options.alignments:
        parser.error("--alignments are one model's: leave out --ensemble")
