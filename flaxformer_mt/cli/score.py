"""`score`: how likely a model finds translations that it is given."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator, Sequence

from flaxformer_mt.bulk.reading import Lines, open_lines
from flaxformer_mt.bulk.scoring import PairForm, Scoring, TwoInputs, open_pairs
from flaxformer_mt.bulk.sinks import Sink
from flaxformer_mt.bulk.stream import WINDOW
from flaxformer_mt.cli.arguments import (
    add_workdir,
    make_parser,
    not_negative,
    positive,
    say,
    weights,
)
from flaxformer_mt.cli.searching import add_batch_tokens, add_dtype, add_scoring, as_asked
from flaxformer_mt.cli.streams import (
    NOT_FINISHED,
    Stopped,
    add_output,
    sigterm_stops,
    streamed,
    writing,
)
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.progress import Meter


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_workdir(parser)
    parser.add_argument(
        "--weights",
        default="auto",
        metavar="WHICH",
        help="average, best, latest, a step, or auto: a current average, else best, else latest",
    )
    parser.add_argument(
        "--length-penalty",
        type=not_negative,
        metavar="A",
        help="default: the run's decoding.length_penalty",
    )
    add_scoring(parser)
    add_dtype(parser)
    add_batch_tokens(parser)
    _add_input(parser)
    add_output(parser, WINDOW)
    parser.add_argument(
        "--per-token", action="store_true", help="each token's log-probability as well"
    )
    parser.add_argument(
        "--overlong",
        choices=("split", "refuse"),
        default="refuse",
        help="a side longer than the model takes is an error, or the pair is scored in parts: "
        "those of `translate`, and of a text those that are likely to belong together",
    )
    options = parser.parse_args(arguments)
    form = _form(options, parser)
    try:
        with sigterm_stops(options.output is not None):
            inputs = (options.input, options.src, options.tgt)
            with _reading(options) as lines, writing(options, inputs) as sink:
                which = weights(options.weights, parser)
                translator = Translator.load(options.workdir, which=which)
                translator = as_asked(options, translator)
                return _score(options, form, translator, lines, sink)
    except Stopped:
        return NOT_FINISHED


def _score(
    options: argparse.Namespace,
    form: PairForm,
    translator: Translator,
    lines: Lines | TwoInputs,
    sink: Sink,
) -> int:
    meter = Meter("score", say, share=lines.share, terminal=sys.stderr.isatty())
    settings = {"overlong": options.overlong}
    action = Scoring(
        functools.partial(translator.score, **settings), form, translator.vocabularies.tgt
    )
    return streamed(
        options,
        translator,
        lines,
        sink,
        parse=form.parse,
        action=action,
        meter=meter,
        settings={"form": dataclasses.asdict(form), **settings},
    )


def _add_input(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pairs (text files plain, .gz, .xz or .zst; gs:// too)")
    group.add_argument("--src", metavar="FILE", help="source lines, with --tgt")
    group.add_argument("--tgt", metavar="FILE", help="their translations, line by line")
    group.add_argument(
        "--input", metavar="FILE", help="pairs in one file instead (default: standard input)"
    )
    group.add_argument(
        "--format",
        choices=("tsv", "jsonl"),
        help="of --input. tsv (the default): columns, to which log-probability and score are "
        "added; jsonl: a JSON object a line, to which an object with them is added",
    )
    group.add_argument(
        "--columns",
        nargs=2,
        type=positive,
        metavar=("SRC", "TGT"),
        help="tsv: those of source and translation (default: 1 2)",
    )
    group.add_argument(
        "--key", help="jsonl: the source's key; a dot leads into an object (default: source)"
    )
    group.add_argument(
        "--translation-key",
        metavar="KEY",
        help="jsonl: the translation's key (default: translation)",
    )
    group.add_argument(
        "--from-tokens",
        action="store_true",
        help="jsonl: score the tokens under `tokens`, as `translate --tokens` writes them, and not "
        "those of the text",
    )
    group.add_argument(
        "--scored-key", metavar="KEY", help="jsonl: the key that is added (default: scored)"
    )


@contextlib.contextmanager
def _reading(options: argparse.Namespace) -> Iterator[Lines | TwoInputs]:
    if options.src is None:
        with open_lines(options.input) as lines:
            yield lines
    else:
        with open_pairs(options.src, options.tgt) as pairs:
            yield pairs


def _form(options: argparse.Namespace, parser: argparse.ArgumentParser) -> PairForm:
    _check_flags(options, parser)
    src, tgt = options.columns or (1, 2)
    try:
        return PairForm(
            name="files" if options.src is not None else options.format or "tsv",
            src=src - 1,
            tgt=tgt - 1,
            source_key=options.key or "source",
            target_key=options.translation_key or "translation",
            tokens_key="tokens" if options.from_tokens else "",
            scored_key=options.scored_key or "scored",
            per_token=options.per_token,
        )
    except ValueError as error:
        parser.error(f"{error}; choose another --scored-key")


def _check_flags(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Nothing that was asked for is without effect."""
    if (options.src is None) != (options.tgt is None):
        parser.error("--src and --tgt go together")
    if options.src is not None and options.input is not None:
        parser.error("--input names pairs in one file: leave it out, or --src and --tgt")
    if options.src is not None and options.format is not None:
        parser.error("--format is of pairs in one file, and --src and --tgt are two of plain text")
    for flag, what in (
        ("key", "is a key of JSON objects"),
        ("translation_key", "is a key of JSON objects"),
        ("scored_key", "is a key of JSON objects"),
        ("from_tokens", "reads JSON objects"),
    ):
        value, name = getattr(options, flag), f"--{flag.replace('_', '-')}"
        if value == "":
            parser.error(f"{name} is empty")
        if value and options.format != "jsonl":
            parser.error(f"{name} {what}: add --format jsonl")
    if options.columns is not None and (options.src is not None or options.format == "jsonl"):
        parser.error("--columns are those of --format tsv")
