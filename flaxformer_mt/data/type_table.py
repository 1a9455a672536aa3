"""Ids of pieces that are not those of the SentencePiece model which cuts text into them.

Marian numbers the types of both languages in one table (`vocab.json` of a Hugging Face checkpoint)
and cuts each language's text with a SentencePiece model of its own. A type may then be unknown to
the model, such as one of the other language alone or a language code `>>fra<<`, and a piece that
the model makes may have no type: it is unknown.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping, Sequence

import numpy as np
import sentencepiece
from jaxtyping import Int32

from flaxformer_mt.errors import UserError

MARKS = ("<pad>", "<s>", "</s>", "<unk>")
"""The pieces with ids 0 to 3 of every table."""
_UNK = MARKS.index("<unk>")
_BLANK = "\u2581"  # as SentencePiece writes it


class TypeTableError(UserError):
    """A table that numbers pieces in no usable way."""


@dataclasses.dataclass(frozen=True)
class TypeTable:
    """The piece of each id, in order of the ids; the marks first.

    Raises TypeTableError for a piece that has two ids, or other marks.
    """

    pieces: tuple[str, ...] = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        if self.pieces[: len(MARKS)] != MARKS:
            raise TypeTableError(
                f"the first types are {', '.join(self.pieces[: len(MARKS)])}, not "
                f"{', '.join(MARKS)}"
            )
        if len(self.ids) < len(self.pieces):
            twice = next(p for number, p in enumerate(self.pieces) if self.ids[p] != number)
            raise TypeTableError(f"the piece {twice!r} has more than one id")

    @classmethod
    def from_json(cls, pieces: object) -> TypeTable:
        """The table whose `to_bytes` holds this JSON value. Raises TypeTableError."""
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise TypeTableError("is not a JSON list of pieces")
        return cls(tuple(pieces))

    def to_bytes(self) -> bytes:
        """The pieces as a JSON list."""
        return (json.dumps(list(self.pieces), ensure_ascii=False, indent=0) + "\n").encode()

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each piece."""
        return {piece: number for number, piece in enumerate(self.pieces)}

    @functools.cached_property
    def _ids_of_text(self) -> Mapping[str, int]:
        """Without the marks: a run of unknown characters is one piece, and could spell one."""
        return {piece: number for piece, number in self.ids.items() if number > _UNK}

    def encode(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        sentences: Sequence[str],
        *,
        num_threads: int,
    ) -> list[list[int]]:
        """Token ids of each sentence. A language code at its beginning is a token of its own."""
        cut = [self._language_code(sentence) for sentence in sentences]
        pieces = processor.encode([text for _, text in cut], out_type=str, num_threads=num_threads)
        ids = self._ids_of_text
        return [
            [*code, *(ids.get(piece, _UNK) for piece in row)]
            for (code, _), row in zip(cut, pieces, strict=True)
        ]

    def encode_flat(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        sentences: Sequence[bytes],
        *,
        end: int,
    ) -> tuple[Int32[np.ndarray, " tokens"], Int32[np.ndarray, " sentences"]]:
        """UTF-8 sentences end to end, `end` after each, and their lengths, which count it."""
        texts = [sentence.decode() for sentence in sentences]
        rows = self.encode(processor, texts, num_threads=1)
        flat = [token for row in rows for token in (*row, end)]
        lengths = np.fromiter((len(row) + 1 for row in rows), np.int32, len(rows))
        return np.array(flat, np.int32), lengths

    def encode_with_spans(
        self, processor: sentencepiece.SentencePieceProcessor, sentence: str
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids as `encode` gives them, and where each stands in the sentence's UTF-8 bytes."""
        code, text = self._language_code(sentence)
        before = len(sentence.encode()) - len(text.encode())
        found = processor.encode(text, return_type="proto").pieces
        ids = [self._ids_of_text.get(piece.piece, _UNK) for piece in found]
        spans = [(before + piece.begin, before + piece.end) for piece in found]
        return [*code, *ids], [*((0, before) for _ in code), *spans]

    def decode(
        self, processor: sentencepiece.SentencePieceProcessor, rows: Sequence[Sequence[int]]
    ) -> list[str]:
        """Sentences of token ids; padding and begin and end marks are left out."""
        kept = [[self.pieces[token] for token in row if token >= _UNK] for row in rows]
        # What the model does not have, it leaves as it is written.
        return [
            processor.decode(pieces).replace(_BLANK, " ").strip(" ") if pieces else ""
            for pieces in kept
        ]

    def decode_with_spans(
        self, processor: sentencepiece.SentencePieceProcessor, tokens: Sequence[int]
    ) -> tuple[str, list[tuple[int, int]]]:
        """The sentence as `decode` gives it, and where each token stands in its UTF-8 bytes.

        Marks that are left out have empty spans.
        """
        kept = [self.pieces[token] for token in tokens if token >= _UNK]
        found = iter(processor.decode(kept, return_type="proto").pieces if kept else ())
        texts = [
            next(found).surface.replace(_BLANK, " ") if token >= _UNK else "" for token in tokens
        ]
        whole = "".join(texts)
        text = whole.strip(" ")
        left_out = len(whole) - len(whole.lstrip(" "))
        ends = itertools.accumulate((len(each.encode()) for each in texts), initial=-left_out)
        spans = itertools.pairwise(min(max(end, 0), len(text.encode())) for end in ends)
        return text, list(spans)

    def language_code(self, sentence: str) -> str:
        """The language code that a sentence begins with, such as `>>fra<<`, or nothing."""
        _, text = self._language_code(sentence)
        return sentence[: len(sentence) - len(text)]

    def _language_code(self, sentence: str) -> tuple[tuple[int, ...], str]:
        """The id of the code that a sentence begins with, if there is one, and the rest."""
        if not isinstance(sentence, str) or not sentence.startswith(">>"):
            return (), sentence
        code, closing, rest = sentence.partition("<<")
        token = self._ids_of_text.get(code + closing)
        # Text may begin with such marks for other reasons: they are quotes in several languages.
        return ((), sentence) if token is None else ((token,), rest)
