"""`translate`: lines, columns or JSON objects in; the same with translations out, in order."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence

from flaxformer_mt.bulk.forms import NAMES, WRITABLE, Form, Shown
from flaxformer_mt.bulk.reading import open_lines
from flaxformer_mt.bulk.work import TranslateSettings
from flaxformer_mt.cli.arguments import WORKDIR, add_decoding, flags, make_parser
from flaxformer_mt.cli.searching import add_sampling, add_search, sampling_of
from flaxformer_mt.cli.streams import OUTPUT, streamed

_INPUT = {
    "--input FILE": "source lines; plain, .gz, .xz or .zst; gs:// too (default: standard input)",
}
_LINES = {
    "--n-best N:int": "up to N translations of each line: in jsonl a list, else lines that begin "
    "with the number of the source's line and a tab",
    "--mbr": "of the --beam-size translations, or samples with --sample, take the one that the "
    "others resemble most by chrF (minimum Bayes risk)",
    "--overlong split|refuse": "a line longer than the model takes is cut at sentence ends, "
    "translated in pieces and rejoined, or it is an error",
}
_FORMS = {
    f"--format {'|'.join(NAMES)}": "text: a sentence a line; tsv: columns, of which one is "
    "translated; jsonl: a JSON object a line, to which the translation is added",
    f"--output-format {'|'.join(NAMES)}": "that of the output, if it is another one",
    "--column N:int": "tsv: the column to translate (default: 1)",
    "--append": "tsv: the translation becomes the last column, in place of the source's",
    "--key KEY": "jsonl: the source's key; a dot leads into an object (default: source)",
    "--translation-key KEY": "jsonl: the added key (default: translation)",
    "--scores": "text: a score and a tab before each translation; tsv: a further column; jsonl has "
    "scores anyway",
    "--alignments": "the source word of each word (0-0 1-2, ...): a last column, or a field",
    "--tokens": "jsonl: the translation's token ids, for `score`",
}
_CONSTRAINTS = {
    "--prefix TEXT": "what each translation begins with",
    "--prefix-key KEY": "jsonl: the key of each line's prefix, a text",
    "--suppress PIECE...": "pieces of the target vocabulary that no translation has",
    "--ensemble DIR...": "further run directories with the same vocabulary: the mean of the "
    "models' probabilities decides",
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, WORKDIR, required=True)
    add_decoding(parser)
    flags(parser, _INPUT | OUTPUT)
    flags(parser.add_argument_group("forms of input and output"), _FORMS, format="text")
    flags(parser, _LINES, n_best=1, overlong="split")
    add_search(parser)
    constraints = parser.add_argument_group("what a translation must have, and must not")
    flags(constraints, _CONSTRAINTS, prefix="", suppress=[], ensemble=[])
    add_sampling(parser)
    options = parser.parse_args(arguments)
    settings = TranslateSettings(
        form=_form(options, parser),
        n_best=options.n_best,
        overlong=options.overlong,
        prefix=options.prefix,
        suppress=tuple(options.suppress),
        sampling=sampling_of(options, parser),
        mbr=options.mbr or None,  # an output of before knows nothing of it
    )
    reading = functools.partial(open_lines, options.input)
    return streamed(options, parser, what="translate", reading=reading, settings=settings)


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
    keys = {
        "--key": (options.key, "--format", {options.format, write}),
        "--translation-key": (options.translation_key, "--output-format", {write}),
        "--prefix-key": (options.prefix_key, "--format", {options.format}),
    }
    for flag, (key, form, said) in keys.items():
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
