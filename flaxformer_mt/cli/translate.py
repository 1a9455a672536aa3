"""`translate`: lines in, lines out, in order."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from flaxformer_mt.cli.arguments import (
    add_decoding,
    add_workdir,
    make_parser,
    positive,
    say,
    weights,
)
from flaxformer_mt.decoding.translator import Translator

_UTF8_BOM = b"\xef\xbb\xbf"
WINDOW = 4096  # lines read before any is written: sorted by length, they share batches


class InputError(ValueError):
    """Input that is not text, with its file and line."""


def main(arguments: Sequence[str], prog: str, purpose: str) -> int:
    parser = make_parser(prog, purpose)
    add_workdir(parser)
    add_decoding(parser)
    parser.add_argument("--input", metavar="FILE", help="source lines (default: standard input)")
    parser.add_argument("--output", metavar="FILE", help="translations (default: standard output)")
    parser.add_argument(
        "--n-best", type=positive, default=1, metavar="N", help="translations of each line"
    )
    parser.add_argument(
        "--scores", action="store_true", help="a score and a tab before each translation"
    )
    options = parser.parse_args(arguments)
    translator = Translator.load(options.workdir, which=weights(options.weights, parser))
    _check_n_best(options, translator, parser)

    start, count = time.perf_counter(), 0
    with _reading(options.input) as source, _writing(options.output) as sink:
        name = options.input or "standard input"
        lines = read_lines(source, name)
        translations = translator.translate_lines(
            lines,
            window=1 if source.isatty() else WINDOW,
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            n_best=options.n_best,
        )
        for count, translation in enumerate(translations, start=1):
            if translation.split:
                say(
                    f"{name}:{count}: longer than the model takes; "
                    "translated in pieces and rejoined"
                )
            for hypothesis in translation.hypotheses:
                score = f"{hypothesis.score:.4f}\t" if options.scores else ""
                sink.write(f"{score}{hypothesis.text}\n".encode())
            if source.isatty():
                sink.flush()
    seconds = time.perf_counter() - start
    say(f"{count:,} lines in {seconds:.1f} s with the weights '{translator.name}'")
    return 0


def read_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines as UTF-8 text, split at line feeds alone. Raises InputError with file and line."""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            # As training's readers do.
            line = line.removeprefix(_UTF8_BOM)
        try:
            yield line.rstrip(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}:{number}: is not UTF-8 text (byte {error.start + 1})"
            ) from error


def _check_n_best(
    options: argparse.Namespace, translator: Translator, parser: argparse.ArgumentParser
) -> None:
    beam_size = options.beam_size or translator.config.beam_size
    if not 1 <= options.n_best <= beam_size:
        parser.error(f"--n-best {options.n_best} must lie between 1 and the beam size, {beam_size}")


def _reading(path: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if path is None:
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def _writing(path: str | None) -> Iterator[BinaryIO]:
    """A file appears under its name when it is complete."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    aside = Path(f"{path}.part")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; --output names a file")
    try:
        stream = open(aside, "wb")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with stream:
            yield stream
        os.replace(aside, path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written: {error.strerror}; what is complete is in {aside}"
        ) from error
