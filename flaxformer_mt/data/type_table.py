"""Ids of pieces that differ from those of the SentencePiece model that splits text.

Marian numbers the types of both languages in one table (`vocab.json` of a Hugging Face checkpoint)
and splits each language by its own model. The model may not know a type, such as the other
language's or a code `>>fra<<`, and a piece of the model may have no type.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping, Sequence

import sentencepiece

from flaxformer_mt.data.sentencepiece_training import VocabularyError

MARKS = ("<pad>", "<s>", "</s>", "<unk>")  # the pieces with ids 0 to 3 of every table
_UNK = MARKS.index("<unk>")
_BLANK = "\u2581"  # as SentencePiece writes it


@dataclasses.dataclass(frozen=True)
class TypeTable:
    """The piece of each id in order, marks first. Raises VocabularyError."""

    pieces: tuple[str, ...] = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        if not all(isinstance(piece, str) for piece in self.pieces):
            raise VocabularyError("is not a JSON list of pieces")
        if self.pieces[: len(MARKS)] != MARKS:
            raise VocabularyError(f"the first types must be {', '.join(MARKS)}")
        if len(self.ids) < len(self.pieces):
            twice = next(p for number, p in enumerate(self.pieces) if self.ids[p] != number)
            raise VocabularyError(f"the piece {twice!r} has more than one id")

    def to_bytes(self) -> bytes:
        """The pieces as a JSON list."""
        return (json.dumps(list(self.pieces), ensure_ascii=False, indent=0) + "\n").encode()

    @functools.cached_property
    def ids(self) -> Mapping[str, int]:
        return {piece: number for number, piece in enumerate(self.pieces)}

    @functools.cached_property
    def _ids_of_text(self) -> Mapping[str, int]:
        """Without marks, which unknown characters could spell."""
        return {piece: number for piece, number in self.ids.items() if number > _UNK}

    def encode(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        sentences: Sequence[str],
        *,
        num_threads: int,
    ) -> list[list[int]]:
        """Token ids of each sentence; a language code at its beginning is one token."""
        codes = [self.language_code(sentence) for sentence in sentences]
        texts = [text.removeprefix(code) for text, code in zip(sentences, codes, strict=True)]
        pieces = processor.encode(texts, out_type=str, num_threads=num_threads)
        ids = self._ids_of_text
        return [
            [ids.get(piece, _UNK) for piece in ([code, *row] if code else row)]
            for code, row in zip(codes, pieces, strict=True)
        ]

    def encode_with_spans(
        self, processor: sentencepiece.SentencePieceProcessor, sentence: str
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids as by `encode`, and their places in the sentence's UTF-8 bytes."""
        code = self.language_code(sentence)
        before = len(code.encode())
        found = processor.encode(sentence.removeprefix(code), return_type="proto").pieces
        pieces = [*([code] if code else []), *(piece.piece for piece in found)]
        spans = [(before + piece.begin, before + piece.end) for piece in found]
        ids = [self._ids_of_text.get(piece, _UNK) for piece in pieces]
        return ids, [(0, before)] * bool(code) + spans

    def decode(
        self, processor: sentencepiece.SentencePieceProcessor, rows: Sequence[Sequence[int]]
    ) -> list[str]:
        """Sentences of token ids, without padding and begin and end marks."""
        kept = [[self.pieces[token] for token in row if token >= _UNK] for row in rows]
        # The model leaves pieces that it doesn't have as they are.
        return [text.replace(_BLANK, " ").strip(" ") for text in processor.decode(kept)]

    def decode_with_spans(
        self, processor: sentencepiece.SentencePieceProcessor, tokens: Sequence[int]
    ) -> tuple[str, list[tuple[int, int]]]:
        """The sentence as by `decode`, and its tokens' UTF-8 spans, empty for marks."""
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
        code, closing, _ = sentence.partition("<<")
        # These marks are quotes in several languages.
        known = sentence.startswith(">>") and code + closing in self._ids_of_text
        return code + closing if known else ""
