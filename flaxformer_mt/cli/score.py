"""`score`: how likely a model finds given translations."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import flaxformer_mt as fm
from flaxformer_mt.bulk.forms import PairForm, field_of
from flaxformer_mt.cli.arguments import (
    DTYPE,
    NO_SPLIT,
    TAG,
    WORKDIR,
    Flag,
    add_settings,
    add_weights,
    flags,
    make_parser,
    positive,
    utf8_text,
)
from flaxformer_mt.cli.bulk import OUTPUT, Loader, run_or_join

if TYPE_CHECKING:
    from flaxformer_mt.bulk.job import FileReport
    from flaxformer_mt.bulk.scoring import ScoreCounts

_LINES = {
    "--per-token": Flag("also give each token's log-probability"),
    "--overlong": Flag(
        "if a side is too long for the model, fail, or split both sides as "
        "`translate` does and score matching parts",
        choices=("split", "refuse"),
    ),
}
_PAIRS = {
    "--src": Flag("source lines, with --tgt", takes="FILE"),
    "--tgt": Flag("their translations, line by line", takes="FILE"),
    "--input": Flag("pairs in one file (default: standard input)", takes="FILE"),
    "--format": Flag(
        "format of --input. tsv (default): columns, followed by log-probability "
        "and score; jsonl: one JSON object per line, with the scores in an added object",
        choices=("tsv", "jsonl"),
    ),
    "--columns": Flag(
        "tsv: columns of source and translation (default: 1 2)", takes=("SRC", "TGT"), read=positive
    ),
    "--key": Flag(
        "jsonl: the source's key; a dot enters an object (default: source)",
        takes="KEY",
        read=utf8_text,
    ),
    "--translation-key": Flag(
        "jsonl: the translation's key (default: translation)", takes="KEY", read=utf8_text
    ),
    "--from-tokens": Flag(
        "jsonl: score the token ids under `tokens`, written by `translate --tokens`, "
        "instead of the text"
    ),
    "--scored-key": Flag("jsonl: the key to add (default: scored)", takes="KEY", read=utf8_text),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, WORKDIR, required=True)
    add_weights(parser)
    names = (
        *("length_penalty", "length_norm", "coverage_penalty", "batch_tokens"),
        *("keep", "copy_unknown"),
    )
    add_settings(parser, *names, note=" (default: the run's decoding.{})")
    flags(parser, DTYPE)
    pairs = "pairs (text files plain, .gz, .bz2, .xz or .zst; gs:// too)"
    flags(parser.add_argument_group(pairs), _PAIRS)
    flags(parser, OUTPUT | _LINES | NO_SPLIT | TAG, overlong="refuse", engine="local")
    options = parser.parse_args(arguments)
    _check(options, parser)
    form = _form(options, parser)
    paired = options.src is not None

    def score_file(run: Loader, **output_flags: Any) -> FileReport[ScoreCounts]:
        return fm.score_file(
            run,
            input=(options.src, options.tgt) if paired else options.input,
            form=form,
            overlong=options.overlong,
            **output_flags,
        )

    return run_or_join(options, parser, score_file)


def _check(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags that contradict each other."""
    if (options.src is None) != (options.tgt is None):
        parser.error("--src and --tgt go together")
    if options.src is not None and options.input is not None:
        parser.error("give either --input, or --src and --tgt")
    if options.src is not None and options.format is not None:
        parser.error("--format is for --input; --src and --tgt are plain text")
    _check_keys(options, parser)
    if options.columns is not None and (options.src is not None or options.format == "jsonl"):
        parser.error("--columns is for --format tsv")


def _check_keys(options: Namespace, parser: ArgumentParser) -> None:
    """Refuses flags for JSON objects where none are read."""
    for name in ("key", "translation_key", "scored_key", "from_tokens"):
        flag = f"--{name.replace('_', '-')}"
        setting = getattr(options, name)
        if setting == "":
            parser.error(f"{flag} is empty")
        if setting and options.format != "jsonl":
            parser.error(f"{flag} is for JSON objects: add --format jsonl")


def _form(options: Namespace, parser: ArgumentParser) -> PairForm:
    src_column, tgt_column = options.columns or (1, 2)
    target_key = options.translation_key or "translation"
    try:
        return PairForm(
            name="files" if options.src is not None else options.format or "tsv",
            src=src_column - 1,
            tgt=tgt_column - 1,
            source_key=options.key or "source",
            target_key=target_key,
            tokens_key=field_of(target_key, "tokens") if options.from_tokens else "",
            scored_key=options.scored_key or "scored",
            per_token=options.per_token,
        )
    except ValueError as error:
        parser.error(f"{error}; choose a different --scored-key")
