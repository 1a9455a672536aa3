"""Sentences for a comparison of two runtimes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.data.prepare import valid_text
from flaxformer_mt.data.prepare.manifest import VALID_TEXT
from flaxformer_mt.data.vocabulary import UNK, Vocabularies
from flaxformer_mt.export.errors import ExportError

COUNT = 32
_LONGEST = 24  # pieces of a sentence made of a vocabulary's pieces


def sample_lines(
    vocabularies: Vocabularies, data: Path | None, file: str | os.PathLike[str] | None
) -> tuple[list[str], str]:
    """At most `COUNT` source lines, none blank, and where they are from.

    Those of `file`, else of the validation text in the folder `data`, evenly over it, else made of
    the vocabulary's own pieces. Raises ExportError for a file without text, and as `valid_text`.
    """
    if file is not None:
        return _spread(_lines(Path(file))), str(file)
    if data is not None and (data / VALID_TEXT[0]).exists():
        if lines := [line for line in valid_text(data)[0] if not is_blank(line)]:
            return _spread(lines), "the run's validation text"
    return made_of_pieces(vocabularies), "pieces of the vocabulary, drawn by chance"


def made_of_pieces(vocabularies: Vocabularies, *, seed: int = 0) -> list[str]:
    """`COUNT` lines of 1 to 24 pieces that the source vocabulary knows."""
    random = np.random.default_rng(seed)
    vocabulary = vocabularies.src
    plain = [number for number, kind in enumerate(vocabulary.types()) if kind.plain]
    lengths = random.integers(1, _LONGEST + 1, 2 * COUNT)
    rows = [random.choice(plain, length).tolist() for length in lengths]
    texts = [text for text in vocabulary.decode(rows) if not is_blank(text)]
    encoded = vocabulary.encode(texts)
    return [text for text, ids in zip(texts, encoded, strict=True) if ids and UNK not in ids][
        :COUNT
    ]


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ExportError(f"{path}: is not UTF-8 text (byte {error.start + 1})") from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if not (lines := [line for line in lines if not is_blank(line)]):
        raise ExportError(f"{path}: holds no line of text to compare with")
    return lines


def _spread(lines: list[str]) -> list[str]:
    if len(lines) <= COUNT:
        return lines
    return [lines[number * len(lines) // COUNT] for number in range(COUNT)]
