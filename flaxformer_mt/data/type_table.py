"""Ids of pieces that differ from those of the SentencePiece model that splits text.

Marian numbers the types of both languages in one table (`vocab.json` of a Hugging Face checkpoint)
and splits each language by its own model. The model may not know a type, such as the other
language's or a code `>>fra<<`, and a piece of the model may have no type. Tokens that someone added
to such a model are types that text is cut at before it is split.
"""

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sentencepiece

from flaxformer_mt.data.sentencepiece_training import VocabularyError

MARKS = ("<pad>", "<s>", "</s>", "<unk>")  # the pieces with ids 0 to 3 of every table
_UNK = MARKS.index("<unk>")
_BLANK = "\u2581"  # as SentencePiece writes it


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A piece that is one token wherever text spells it, whatever the SentencePiece model says."""

    text: str
    lstrip: bool = False  # blanks before it belong to it
    rstrip: bool = False
    single_word: bool = False  # only between blanks


class _Part(NamedTuple):
    """A stretch of a sentence, and whether it is a type as it is."""

    text: str
    begin: int  # in characters
    is_type: bool


def _around(
    before: _Part, part: _Part, after: _Part, token: AddedToken
) -> tuple[_Part, _Part, _Part]:
    """The three parts around an added token, after it has joined or stripped its neighbours."""
    nothing = part._replace(text="")
    # Part of a longer word, it joins the text beside it.
    if token.single_word and before.text and before.text[-1] != " ":
        return _Part(before.text + part.text, before.begin, False), nothing, _stripped(after, token)
    inside = token.single_word and after.text and after.text[0] != " "
    if token.lstrip:
        before = before._replace(text=before.text.rstrip())
    if inside:
        return before, nothing, _Part(part.text + after.text, part.begin, False)
    return before, part, _stripped(after, token)


def _stripped(after: _Part, token: AddedToken) -> _Part:
    text = after.text.lstrip() if token.rstrip else after.text
    return after._replace(text=text, begin=after.begin + len(after.text) - len(text))


@dataclasses.dataclass(frozen=True)
class TypeTable:
    """The piece of each id in order, marks first, and which of them were added to the model.

    Raises VocabularyError.
    """

    pieces: tuple[str, ...] = dataclasses.field(repr=False)
    added: tuple[AddedToken, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(piece, str) for piece in self.pieces):
            raise VocabularyError("is not a JSON list of pieces")
        if self.pieces[: len(MARKS)] != MARKS:
            raise VocabularyError(f"the first types must be {', '.join(MARKS)}")
        if len(self.ids) < len(self.pieces):
            twice = next(p for number, p in enumerate(self.pieces) if self.ids[p] != number)
            raise VocabularyError(f"the piece {twice!r} has more than one id")
        for token in self.added:
            if not token.text or token.text not in self.ids:
                raise VocabularyError(f"the added token {token.text!r} has no id")

    @classmethod
    def from_json(cls, content: Any) -> "TypeTable":
        """The table that `to_bytes` wrote. Raises VocabularyError."""
        if isinstance(content, list):
            return cls(tuple(content))
        try:
            added = tuple(AddedToken(**token) for token in content["added"])
            return cls(tuple(content["pieces"]), added)
        except (KeyError, TypeError) as error:
            raise VocabularyError("is not a JSON list of pieces") from error

    def to_bytes(self) -> bytes:
        """JSON: a list of pieces, or an object if tokens were added."""
        pieces = list(self.pieces)
        added = [dataclasses.asdict(token) for token in self.added]
        content = {"pieces": pieces, "added": added} if added else pieces
        return (json.dumps(content, ensure_ascii=False, indent=0) + "\n").encode()

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
        ids = self._ids_of_text
        parts = [list(self._parts(sentence)) for sentence in sentences]
        texts = [part.text for row in parts for part in row if not part.is_type]
        # One call, which may use several threads.
        encoded = iter(processor.encode(texts, out_type=str, num_threads=num_threads))
        return [
            [
                ids.get(piece, _UNK)
                for part in row
                for piece in ([part.text] if part.is_type else next(encoded))
            ]
            for row in parts
        ]

    def encode_with_spans(
        self, processor: sentencepiece.SentencePieceProcessor, sentence: str
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids as by `encode`, and their places in the sentence's UTF-8 bytes."""
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for part in self._parts(sentence):
            before = len(sentence[: part.begin].encode())
            if part.is_type:
                ids.append(self._ids_of_text[part.text])
                spans.append((before, before + len(part.text.encode())))
                continue
            for piece in processor.encode(part.text, return_type="proto").pieces:
                ids.append(self._ids_of_text.get(piece.piece, _UNK))
                spans.append((before + piece.begin, before + piece.end))
        return ids, spans

    def decode(
        self, processor: sentencepiece.SentencePieceProcessor, rows: Sequence[Sequence[int]]
    ) -> list[str]:
        """Sentences of token ids, without padding and begin and end marks."""
        pieces = [[self.pieces[token] for token in row if token >= _UNK] for row in rows]
        # The model leaves pieces that it doesn't have as they are.
        return [text.replace(_BLANK, " ").strip(" ") for text in processor.decode(pieces)]

    def decode_with_spans(
        self, processor: sentencepiece.SentencePieceProcessor, tokens: Sequence[int]
    ) -> tuple[str, list[tuple[int, int]]]:
        """The sentence as by `decode`, and its tokens' UTF-8 spans, empty for marks."""
        pieces = [self.pieces[token] for token in tokens if token >= _UNK]
        decoded = iter(processor.decode(pieces, return_type="proto").pieces if pieces else ())
        texts = [
            next(decoded).surface.replace(_BLANK, " ") if token >= _UNK else "" for token in tokens
        ]
        joined = "".join(texts)
        sentence = joined.strip(" ")
        left_out = len(joined) - len(joined.lstrip(" "))
        ends = itertools.accumulate((len(text.encode()) for text in texts), initial=-left_out)
        spans = itertools.pairwise(min(max(end, 0), len(sentence.encode())) for end in ends)
        return sentence, list(spans)

    def language_code(self, sentence: str) -> str:
        """The language code that a sentence begins with, such as `>>fra<<`, or nothing."""
        code, closing, _ = sentence.partition("<<")
        # These marks are quotes in several languages.
        known = sentence.startswith(">>") and code + closing in self._ids_of_text
        return code + closing if known else ""

    @functools.cached_property
    def _added(self) -> Mapping[str, AddedToken]:
        return {token.text: token for token in self.added}

    @functools.cached_property
    def _any_added(self) -> re.Pattern[str]:
        """Of tokens that begin at one place, the longest."""
        longest_first = sorted(self._added, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))

    def _parts(self, sentence: str) -> Iterator[_Part]:
        """The sentence in order, cut as transformers' tokenizers cut it: text, and single types."""
        code = self.language_code(sentence)
        if code:
            yield _Part(code, 0, True)
        if not self.added:
            yield _Part(sentence[len(code) :], len(code), False)
            return

        nothing = _Part("", 0, False)
        parts = [nothing, *self._cut(sentence, len(code)), nothing]
        for number in range(1, len(parts) - 1):
            before, part, after = parts[number - 1 : number + 2]
            if part.is_type:
                parts[number - 1 : number + 2] = _around(
                    before, part, after, self._added[part.text]
                )
        yield from (part for part in parts if part.text)

    def _cut(self, sentence: str, begin: int) -> Iterator[_Part]:
        for match in self._any_added.finditer(sentence, begin):
            if begin < match.start():
                yield _Part(sentence[begin : match.start()], begin, False)
            yield _Part(match[0], match.start(), True)
            begin = match.end()
        if begin < len(sentence):
            yield _Part(sentence[begin:], begin, False)
