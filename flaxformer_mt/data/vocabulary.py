"""The subword vocabulary: a SentencePiece model, shared or one per side, with verified digests.

A run of spaces counts as one and spaces at the ends of a sentence count as none, since they carry
no meaning and would only cost tokens. U+2581, SentencePiece's visible blank, is a space in text.
Otherwise text passes through unchanged, so that what goes in comes out, unless `normalization` asks
for more: its rules (`normalization.py`) are part of the model.

The ids are the model's own, or those of a table beside it (`type_table.py`), as in imported models.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from jaxtyping import Int32

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data.segmentation import Words, words_of
from flaxformer_mt.data.sentencepiece_training import (
    ModelProto,
    VocabularyError as VocabularyError,
    trained_model,
)
from flaxformer_mt.data.type_table import AddedToken, TypeTable
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.files.reading import json_errors_as, load_json, read_file

# Four different ids: where padding shares the unknown token's id, every unknown token of a
# sentence is masked out of attention and loss.
PAD, BOS, EOS, UNK = 0, 1, 2, 3
MARKS = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}

# 1: ids are the models' own; 2: of a model with a table, those of the table; 3: tables may have
# added tokens.
FORMATS = (1, 2, 3)
INDEX = "vocabulary.json"
_ADVICE = "; restore it from a copy: a model works only with its own vocabulary"
BLANK = "\u2581"


class Type(NamedTuple):
    """One type of a vocabulary."""

    text: str  # as it is written in the model: U+2581 stands for a blank
    score: float  # BPE: the later it is joined, the lower; unigram: logarithm of its probability
    plain: bool  # a piece of text: no mark, no unknown, no byte


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """One SentencePiece model, held as the bytes of its file, and perhaps ids of its own."""

    model: bytes = dataclasses.field(repr=False)
    table: TypeTable | None = None

    @classmethod
    def load(
        cls, path: str | Path, *, sha256: str | None = None, table: str | Path | None = None
    ) -> Vocabulary:
        """Read a model, of this digest, and the table of its ids. Raises VocabularyError."""
        path = Path(path)
        with json_errors_as(VocabularyError, path, ""):
            vocabulary = cls(read_file(path))
        if table is not None:
            with json_errors_as(VocabularyError, Path(table), _ADVICE):
                content = load_json(Path(table))
            try:
                vocabulary = cls(vocabulary.model, TypeTable.from_json(content))
            except VocabularyError as error:
                raise VocabularyError(f"{table}: {error}{_ADVICE}") from error
        if sha256 not in (None, vocabulary.digest):
            raise VocabularyError(f"{path}: does not match its record in {INDEX}; restore it")
        try:
            vocabulary.check()
        except VocabularyError as error:
            raise VocabularyError(f"{path}: {error}") from error
        return vocabulary

    def check(self) -> None:
        """Raises VocabularyError unless SentencePiece takes the model and has the marks as here."""
        try:
            if not self.model:
                raise RuntimeError("the file is empty")
            processor = self._processor
        except RuntimeError as error:
            raise VocabularyError("not a SentencePiece model") from error
        for mark, expected in MARKS.items() if self.table is None else ():
            number = getattr(processor, f"{mark}_id")()
            if number != expected:
                raise VocabularyError(f"the {mark} token has id {number}, not {expected}")

    def __reduce__(self) -> tuple[type[Vocabulary], tuple[bytes, TypeTable | None]]:
        # Without cached properties: another process builds them when it needs them.
        return Vocabulary, (self.model, self.table)

    @functools.cached_property
    def _processor(self) -> sentencepiece.SentencePieceProcessor:
        return sentencepiece.SentencePieceProcessor(model_proto=self.model)

    @functools.cached_property
    def _words(self) -> Words | None:
        if self.table is not None or not self.is_bpe:
            return None
        pieces = {kind.text for kind in self.types() if kind.plain}
        return words_of(self._processor, self.model, pieces)

    @property
    def size(self) -> int:
        """Number of types, marks included."""
        return len(self.table.pieces) if self.table else int(self._processor.get_piece_size())

    @functools.cached_property
    def digest(self) -> str:
        """sha256 of the model file, and of the table after it; hexadecimal."""
        table = b"" if self.table is None else self.table.to_bytes()
        return hashlib.sha256(self.model + table).hexdigest()

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Token ids of each sentence, without marks; an empty or blank one has none."""
        sentences = [sentence.replace(BLANK, " ") for sentence in sentences]
        threads = min(os.cpu_count() or 1, 16) if len(sentences) > 64 else 1
        if self.table is not None:
            return self.table.encode(self._processor, sentences, num_threads=threads)
        return self._processor.encode(sentences, out_type=int, num_threads=threads)

    def encode_flat(
        self, sentences: Sequence[bytes]
    ) -> tuple[Int32[np.ndarray, " tokens"], Int32[np.ndarray, " sentences"]]:
        """UTF-8 sentences end to end, EOS after each, and their lengths, which count it.

        The same tokens as `encode` gives, by one thread; BPE several times as fast.
        """
        blank = BLANK.encode()
        sentences = [sentence.replace(blank, b" ") for sentence in sentences]
        if self._words is not None:
            return self._words.encode(sentences, end=EOS)
        if self.table is not None:
            texts = [sentence.decode() for sentence in sentences]
            rows = self.table.encode(self._processor, texts, num_threads=1)
            encoded = [np.array([*row, EOS], np.int32) for row in rows]
        else:
            encoded = self._processor.encode(
                sentences, return_type="numpy", add_eos=True, num_threads=1
            )
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        return np.concatenate([np.zeros(0, np.int32), *encoded]), lengths

    def encode_with_spans(self, sentence: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids as by `encode`, and the place of each in the sentence's UTF-8 bytes.

        A span may begin with blanks. Of a character in several tokens the last has the whole span,
        and the others an empty one where it begins.
        """
        if BLANK in sentence:
            spaced = sentence.replace(BLANK, " ")
            ids, spans = self.encode_with_spans(spaced)
            spaced_places, places = (
                itertools.accumulate((len(character.encode()) for character in text), initial=0)
                for text in (spaced, sentence)
            )
            place_of = dict(zip(spaced_places, places, strict=True))
            return ids, [(place_of[begin], place_of[end]) for begin, end in spans]
        if self.table is not None:
            return self.table.encode_with_spans(self._processor, sentence)
        pieces = self._processor.encode(sentence, return_type="proto").pieces
        return [piece.id for piece in pieces], [(piece.begin, piece.end) for piece in pieces]

    def language_code(self, sentence: str) -> str:
        """The code of the target language that a sentence begins with, if the vocabulary has it."""
        return self.table.language_code(sentence) if self.table is not None else ""

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        """Pieces that are one token wherever text spells them."""
        return self.table.added if self.table is not None else ()

    @functools.cached_property
    def _proto(self) -> Any:
        return ModelProto.FromString(self.model)

    @functools.cached_property
    def symbols(self) -> frozenset[str]:
        """Pieces that are never split: tags, placeholders, brackets."""
        kind = ModelProto.SentencePiece.USER_DEFINED
        return frozenset(piece.piece for piece in self._proto.pieces if piece.type == kind)

    def is_one_type(self, text: str) -> bool:
        """Whether text of its own is a single type, besides a blank before it."""
        [ids] = self.encode([text])
        return [piece for piece in self.pieces(ids) if piece != BLANK] in ([text], [BLANK + text])

    @property
    def language_codes(self) -> list[str]:
        """The pieces, such as >>fra<<, that tell a model of several languages what to write."""
        return [piece for piece in self.pieces()[UNK + 1 :] if piece == self.language_code(piece)]

    def decode_with_spans(self, tokens: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The sentence as `decode` gives it, and its tokens' spans as in `encode_with_spans`."""
        ids = [*map(int, tokens)]
        if self.table is not None:
            return self.table.decode_with_spans(self._processor, ids)
        decoded = self._processor.decode(ids, return_type="proto")
        return decoded.text, [(piece.begin, piece.end) for piece in decoded.pieces]

    def normalize(self, sentence: str) -> str:
        """The sentence as the model normalises it before encoding, with plain blanks."""
        normalized = self._processor.normalize(sentence.replace(BLANK, " "))
        return normalized.replace(BLANK, " ").removeprefix(" ")

    def decode(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Sentences of token ids; padding and begin and end marks are left out, UNK reads "⁇"."""
        rows = [[*map(int, row)] for row in tokens]
        for row in rows:
            if row and not 0 <= min(row) <= max(row) < self.size:
                wrong = next(token for token in row if not 0 <= token < self.size)
                raise VocabularyError(f"token {wrong} is not in a vocabulary of {self.size} types")
        if self.table is not None:
            return self.table.decode(self._processor, rows)
        return self._processor.decode(rows) if rows else []

    def pieces(self, ids: Sequence[int] | None = None) -> list[str]:
        """The written form of token ids (of every type, in id order, by default)."""
        tokens = range(self.size) if ids is None else [*map(int, ids)]
        if self.table is not None:
            return [self.table.pieces[token] for token in tokens]
        return [self._processor.id_to_piece(token) for token in tokens]

    @functools.cached_property
    def is_bpe(self) -> bool:
        """Whether the model is BPE, not unigram: scores are places in the order of joins."""
        if self.table is None:
            spec = self._proto.trainer_spec
            return bool(spec.model_type == spec.BPE)
        return all(kind.score.is_integer() for kind in self.types() if kind.plain)

    def types(self) -> list[Type]:
        """Every type, in id order; one of a table that the model does not have is not plain."""
        processor = self._processor
        pieces = self.pieces()
        # A piece that the model doesn't have is its unknown piece.
        numbers = range(len(pieces)) if self.table is None else map(processor.piece_to_id, pieces)
        return [
            Type(
                piece,
                processor.get_score(number),
                not (
                    processor.is_control(number)
                    or processor.is_unknown(number)
                    or processor.is_byte(number)
                ),
            )
            for number, piece in zip(numbers, pieces, strict=True)
        ]

    def write(self, folder: Path, name: str) -> dict[str, Any]:
        """Writes NAME.model and the files beside it; its entry in the index."""
        table = "".join(f"{id}\t{piece}\n" for id, piece in enumerate(self.pieces()))
        files = {"model": self.model, "pieces.tsv": table.encode()}
        if self.table is not None:
            files["table.json"] = self.table.to_bytes()
        for ending, content in files.items():
            (folder / f"{name}.{ending}").write_bytes(content)
        names = {ending.partition(".")[0]: f"{name}.{ending}" for ending in files}
        return {**names, "size": self.size, "sha256": self.digest}


@dataclasses.dataclass(frozen=True)
class Vocabularies:
    """The source and the target vocabulary that a model is tied to; one object if shared."""

    src: Vocabulary
    tgt: Vocabulary

    @property
    def shared(self) -> bool:
        return self.src == self.tgt

    def copies_of(self, symbols: Sequence[str], *, tags: Set[str] = frozenset()) -> dict[int, int]:
        """The target type of the source type of each of these symbols; without any symbols, of all
        that neither vocabulary splits, except `tags` and language codes. Raises VocabularyError
        for one that is no single type of both."""
        names: Iterable[str] = symbols
        if not symbols:
            names = self.src.symbols & self.tgt.symbols - tags - {*self.src.language_codes}
        src, tgt = (
            {piece: number for number, piece in enumerate(side.pieces())}
            for side in (self.src, self.tgt)
        )
        for name in names:
            in_both = name in src and name in tgt
            if not (in_both and self.src.is_one_type(name) and self.tgt.is_one_type(name)):
                raise VocabularyError(f"{name} is not a single type of both vocabularies")
        return {src[name]: tgt[name] for name in names}

    @property
    def digest(self) -> str:
        """One sha256 for the pair, hexadecimal: equal exactly if both models are."""
        return hashlib.sha256(f"{self.src.digest} {self.tgt.digest}".encode()).hexdigest()

    def save(self, directory: str | Path) -> None:
        """Write models, tables of their pieces and `vocabulary.json` into a new folder at once."""
        directory = Path(directory)
        if directory.exists() and any(directory.iterdir()):
            raise VocabularyError(f"{directory}: already exists; a vocabulary is never replaced")
        directory.parent.mkdir(parents=True, exist_ok=True)
        tables = [side.table for side in (self.src, self.tgt) if side.table is not None]
        version = 1
        if tables:
            version = 3 if any(table.added for table in tables) else 2
        index: dict[str, Any] = {"format": version, "shared": self.shared, "ids": MARKS}
        names = {"shared": self.src} if self.shared else {"src": self.src, "tgt": self.tgt}
        with replacing(directory, aside=directory.with_name(directory.name + ".partial")) as aside:
            aside.mkdir()
            index |= {name: side.write(aside, name) for name, side in names.items()}
            index["digest"] = self.digest
            (aside / INDEX).write_text(json.dumps(index, indent=2) + "\n")

    @classmethod
    def load(cls, directory: str | Path) -> Vocabularies:
        """Read what `save` wrote and verify it. Raises VocabularyError, which names the file."""
        index_file = Path(directory) / INDEX
        with json_errors_as(VocabularyError, index_file, _ADVICE):
            index = load_json(index_file)
            if index["format"] not in FORMATS:
                raise VocabularyError(f"{index_file}: has unknown format {index['format']}")
            loaded = {}
            for name in ["shared"] if index["shared"] else ["src", "tgt"]:
                # By their own names: an index may have been made to name any file of the machine.
                has_table = "table" in index[name]
                loaded[name] = Vocabulary.load(
                    index_file.with_name(f"{name}.model"),
                    sha256=str(index[name]["sha256"]),
                    table=index_file.with_name(f"{name}.table.json") if has_table else None,
                )
        sides = list(loaded.values())  # one if it is shared
        return cls(sides[0], sides[-1])


def train(
    sentences: Iterable[str],
    config: VocabularyConfig,
    *,
    words: bool = False,
    tags: Sequence[str] = (),
) -> Vocabulary:
    """Train a SentencePiece model; the same sentences and settings give the same bytes.

    With `words`, one of whole words. Otherwise `tags` and the settings' symbols are never split.
    Raises as `trained_model` does.
    """
    text = itertools.chain(sentences, config.tgt_words) if words else sentences
    symbols = list(dict.fromkeys((*tags, *(() if words else config.symbols))))
    return Vocabulary(trained_model(text, config, MARKS, words=words, symbols=symbols))


def train_pair(
    pairs: Sequence[tuple[str, str]], config: VocabularyConfig, *, tags: Sequence[str] = ()
) -> Vocabularies:
    """The vocabulary of a corpus, or of each side; `tags` and brackets, if asked for, are types."""
    if config.shared:
        symbols = dict.fromkeys(tags)
        if config.tgt_types == "brackets":
            brackets = {*config.tgt_words, *_brackets(tgt for _, tgt in pairs)}
            symbols |= dict.fromkeys(BLANK + bracket for bracket in sorted(brackets))
        both = train((sentence for pair in pairs for sentence in pair), config, tags=[*symbols])
        return Vocabularies(both, both)
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    of_target = config
    if config.tgt_size:
        of_target = dataclasses.replace(config, size=config.tgt_size, soft_size=False)
    of_words = config.tgt_types == "words"
    return Vocabularies(train(src, config, tags=tags), train(tgt, of_target, words=of_words))


def _brackets(trees: Iterable[str]) -> set[str]:
    """The brackets, with their labels, of linearised trees."""
    return {word for tree in trees for word in tree.split(" ") if word[:1] in ("(", ")")}
