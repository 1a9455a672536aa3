"""`translate`: lines, columns or JSON objects in; the same with translations out, in order."""

from __future__ import annotations

import functools
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import flaxformer_mt as fm
from flaxformer_mt.api import say
from flaxformer_mt.bulk.forms import NAMES, WRITTEN, Form, Shown, UnwritableError, Written
from flaxformer_mt.cli.arguments import (
    NO_SPLIT,
    TAG,
    WORKDIR,
    Flag,
    add_decoding,
    add_sampling,
    add_search,
    flags,
    make_parser,
    positive,
    sampling_of,
    utf8_text,
)
from flaxformer_mt.cli.bulk import OUTPUT, Loader, loaded, run_or_join
from flaxformer_mt.cli.runtime import RUNTIME, check_runtime
from flaxformer_mt.rundir.layout import open_run

if TYPE_CHECKING:
    from flaxformer_mt.bulk.job import FileReport
    from flaxformer_mt.bulk.translating import TranslationCounts
    from flaxformer_mt.decoding.options import WantedOfAll

DOCUMENTS = ("html", "xml", "markdown", "docx", "odt", "srt", "vtt")
# The options that only lines have.
_OF_LINES = (
    "output_format",
    "join_lines",
    "column",
    "append",
    "key",
    "translation_key",
    "scores",
    "alignments",
    "tokens",
    "prefix",
    "prefix_key",
    "forbid_key",
    "constraints_key",
    "n_best",
    "ensemble",
    "shard",
    "output_shards",
    "join",
    "restart",
    "engine",
    "ray_address",
    "ray_chips",
    "window",
)
_LINES = {
    "--n-best": Flag(
        "up to N translations per line: a list in jsonl, else lines starting with "
        "the source line's number and a tab; see also --output-format moses",
        takes="N",
        read=positive,
    ),
    "--mbr": Flag(
        "of the --beam-size translations (or samples, with --sample), return the one most "
        "similar to the others by chrF (minimum Bayes risk)"
    ),
    "--overlong": Flag(
        "if a line is too long for the model, split it at sentence ends, "
        "translate and rejoin, or fail",
        choices=("split", "refuse"),
    ),
}
_FORMS = {
    "--format": Flag(
        "text: one sentence per line; tsv: columns, translating one; "
        "jsonl: one JSON object per line, adding the translation; others: one document, "
        "whose markup stays with its words",
        choices=(*NAMES, *DOCUMENTS),
    ),
    "--output-format": Flag(
        "output format (default: --format); moses: n-best lists for other programs, with lines "
        "like `0 ||| translation ||| log_prob= -1.2 ||| -0.8`",
        choices=WRITTEN,
    ),
    "--join-lines": Flag(
        "text: join the lines of each paragraph of hard-wrapped text; blank lines end paragraphs; "
        "the output has one line per paragraph"
    ),
    "--column": Flag("tsv: the column to translate (default: 1)", takes="N", read=positive),
    "--append": Flag("tsv: add the translation as the last column instead of replacing the source"),
    "--key": Flag(
        "jsonl: the source's key; a dot enters an object (default: source)",
        takes="KEY",
        read=utf8_text,
    ),
    "--translation-key": Flag(
        "jsonl: the key to add (default: translation); with another one, the "
        "other fields are KEY_score and so on",
        takes="KEY",
        read=utf8_text,
    ),
    "--scores": Flag(
        "text: put a score and a tab before each translation; tsv: add a column; jsonl "
        "always has scores"
    ),
    "--alignments": Flag("align words (0-0 1-2 ...), in a last column or a field"),
    "--tokens": Flag("jsonl: add the translation's token ids, for `score`"),
    "--keep-elements": Flag(
        "html, xml, markdown: don't translate the content of elements with these names",
        takes="NAME",
        several=True,
        read=utf8_text,
    ),
}
_CONSTRAINTS = {
    "--prefix": Flag("start each translation with this", takes="TEXT", read=utf8_text),
    "--prefix-key": Flag("jsonl: key of each line's own prefix", takes="KEY", read=utf8_text),
    "--suppress": Flag(
        "never produce these pieces of the target vocabulary",
        takes="PIECE",
        several=True,
        read=utf8_text,
    ),
    "--forbid": Flag(
        "never produce these phrases, as whole words, written as here",
        takes="TEXT",
        several=True,
        read=utf8_text,
    ),
    "--forbid-key": Flag(
        "jsonl: key of each line's own list of such phrases", takes="KEY", read=utf8_text
    ),
    "--constraints-key": Flag(
        "jsonl: key of each line's own list of phrases to produce", takes="KEY", read=utf8_text
    ),
    "--terminology": Flag(
        "one term, a tab and its translation per line: where a source has the "
        "term, produce that translation",
        takes="FILE",
    ),
    "--terminology-mode": Flag(
        "hard: as whole words, written as in FILE; soft: the last word may be inflected",
        choices=("hard", "soft"),
    ),
    "--ensemble": Flag(
        "more run directories with the same vocabulary; averages the models' probabilities",
        takes="DIR",
        several=True,
    ),
}


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    flags(parser, WORKDIR, required=True)
    add_decoding(parser)
    source = "source lines; plain, .gz, .bz2, .xz or .zst; gs:// too (default: standard input)"
    flags(parser, {"--input": Flag(source, takes="FILE")} | OUTPUT, engine="local")
    formats = parser.add_argument_group("input and output formats")
    flags(formats, _FORMS, format="text", keep_elements=[])
    flags(parser, _LINES | NO_SPLIT | TAG, n_best=1, overlong="split")
    add_search(parser)
    flags(parser, RUNTIME, runtime="jax")
    constraints = parser.add_argument_group("constraints on translations")
    flags(constraints, _CONSTRAINTS, prefix="", suppress=[], forbid=[], ensemble=[])
    add_sampling(parser)
    options = parser.parse_args(arguments)
    if options.format in DOCUMENTS:
        return _translate_document(options, parser)
    if options.keep_elements:
        parser.error("--keep-elements is for documents: add --format html, xml or markdown")
    output_format = options.output_format or options.format
    _check_formats(options, parser, output_format)
    form = _form(options, parser, output_format)
    wanted = _wanted_of_all(options, parser)

    def translate_file(run: Loader, **output_flags: Any) -> FileReport[TranslationCounts]:
        return fm.translate_file(
            run,
            input=options.input,
            form=form,
            prefix=options.prefix,
            **wanted,
            **output_flags,
        )

    return run_or_join(options, parser, translate_file)


def _translate_document(options: Namespace, parser: ArgumentParser) -> int:
    for name in _OF_LINES:
        if getattr(options, name) != parser.get_default(name):
            flag = "--" + name.replace("_", "-")
            parser.error(f"{flag} is for lines: leave it out with --format {options.format}")
    wanted = _wanted_of_all(options, parser)
    open_run(options.workdir)  # says what is wrong before JAX is loaded
    check_runtime(options)
    translated = fm.translate_document_file(
        functools.partial(loaded, options),
        options.input,
        options.output,
        format=options.format,
        keep_elements=options.keep_elements,
        **wanted,
    )
    for line in translated.describe():
        say(line)
    return 0


def _wanted_of_all(options: Namespace, parser: ArgumentParser) -> WantedOfAll:
    """What the flags ask for all lines, or all sentences of a document."""
    return {
        "n_best": options.n_best,
        "overlong": options.overlong,
        "suppress": options.suppress,
        "forbid": options.forbid,
        "terminology": _terminology(options, parser),
        "sampling": sampling_of(options, parser),
        "mbr": options.mbr,
    }


def _terminology(options: Namespace, parser: ArgumentParser) -> fm.Terminology | None:
    if options.terminology is not None:
        return fm.Terminology.read(options.terminology, mode=options.terminology_mode or "hard")
    if options.terminology_mode is not None:
        parser.error("--terminology-mode is for --terminology")
    return None


def _check_formats(options: Namespace, parser: ArgumentParser, output_format: Written) -> None:
    """Refuses flags that the formats of input and output have no use for."""
    _check_keys(options, parser, output_format)
    if options.join_lines and options.format != "text":
        parser.error("--join-lines is for plain text: leave out --format")
    if options.column is not None and options.format != "tsv":
        parser.error("--column is for columns: add --format tsv")
    if options.append and output_format != "tsv":
        parser.error("--append is for columns: the output must be tsv")
    if options.prefix_key and options.prefix:
        parser.error("give either --prefix or --prefix-key")
    if options.ensemble and options.alignments:
        parser.error("--alignments needs a single model: leave out --ensemble")


def _check_keys(options: Namespace, parser: ArgumentParser, output_format: Written) -> None:
    """Refuses flags for JSON objects where none are read or written."""
    reads = options.format == "jsonl"
    writes = output_format == "jsonl"
    for flag, key, is_useful, advice in (
        ("--key", options.key, reads or writes, "--format jsonl"),
        ("--translation-key", options.translation_key, writes, "--output-format jsonl"),
        ("--prefix-key", options.prefix_key, reads, "--format jsonl"),
        ("--forbid-key", options.forbid_key, reads, "--format jsonl"),
        ("--constraints-key", options.constraints_key, reads, "--format jsonl"),
        ("--tokens", options.tokens or None, writes, "--output-format jsonl"),
    ):
        if key == "":
            parser.error(f"{flag} is empty")
        if key is not None and not is_useful:
            parser.error(f"{flag} is for JSON objects: add {advice}")


def _form(options: Namespace, parser: ArgumentParser, output_format: Written) -> Form:
    try:
        return Form(
            read=options.format,
            write=output_format,
            column=(options.column or 1) - 1,
            append=options.append,
            key=options.key or "source",
            target_key=options.translation_key or "translation",
            prefix_key=options.prefix_key or "",
            forbid_key=options.forbid_key,
            constraints_key=options.constraints_key,
            join_lines=options.join_lines,
            shown=Shown(
                scores=options.scores or output_format == "jsonl",
                alignments=options.alignments,
                tokens=options.tokens,
                n_best=options.n_best > 1,
            ),
        )
    except UnwritableError as error:
        parser.error(f"--output-format: {error}")
    except ValueError as error:
        parser.error(f"{error}; choose a different --key or --translation-key")
