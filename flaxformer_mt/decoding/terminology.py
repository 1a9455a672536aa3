"""Which phrases a line's translation must have: those of its own, and those of a term list."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import regex
from jaxtyping import Bool

from flaxformer_mt.data.vocabulary import BLANK, PAD, UNK, Vocabulary
from flaxformer_mt.decoding.batch_shapes import one_of_few
from flaxformer_mt.decoding.constraints import Phrases
from flaxformer_mt.decoding.forbidden import LETTER
from flaxformer_mt.decoding.rules import Rules
from flaxformer_mt.decoding.segments import DecodingError, LineError
from flaxformer_mt.files.reading import read_text

Mode = Literal["hard", "soft"]
MODES: tuple[Mode, ...] = ("hard", "soft")
LONGEST_ENDING = 3  # letters of an inflection that a soft constraint leaves to the model
_WORDS = regex.compile(rf"(?:{LETTER.pattern})+|\S", regex.V1)


@dataclasses.dataclass(frozen=True)
class Phrase:
    tokens: tuple[int, ...]
    open: bool  # the last word may go on after them


@dataclasses.dataclass(frozen=True)
class Terminology:
    """Translations of source terms: each term of a source adds its own to what must occur.

    Terms are found as whole words in any case; of overlapping ones the first and longest. "hard"
    takes the translation as it is; "soft" lets the model inflect its last word.
    """

    terms: Mapping[tuple[str, ...], str] = dataclasses.field(repr=False)  # by words, folded
    mode: Mode = "hard"

    @classmethod
    def of(cls, terms: Mapping[str, str], *, mode: Mode = "hard") -> Terminology:
        """From terms and translations. Raises DecodingError for blank and repeated ones."""
        if mode not in MODES:
            raise ValueError(f"mode = {mode!r} must be one of {', '.join(MODES)}")
        found: dict[tuple[str, ...], str] = {}
        for source, target in terms.items():
            _add(found, source, target)
        return cls(found, mode)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, mode: Mode = "hard") -> Terminology:
        """From a file with a term, a tab and its translation per line, or nothing. Raises
        DecodingError."""
        found: dict[tuple[str, ...], str] = {}
        # `splitlines` would also cut at form feeds, U+0085 and others inside a term.
        lines = read_text(Path(path), DecodingError).split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            columns = line.removesuffix("\r").split("\t")
            try:
                if len(columns) != 2:
                    raise DecodingError("must be a term, a tab and its translation")
                _add(found, *columns)
            except DecodingError as error:
                raise DecodingError(f"{path}:{number}: {error}") from None
        return dataclasses.replace(cls.of({}, mode=mode), terms=found)

    @property
    def digest(self) -> str:
        """Hexadecimal; differs between lists."""
        content = repr((self.mode, sorted(self.terms.items())))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def translations(self, source: str) -> list[str]:
        longest = max(map(len, self.terms), default=0)
        words, found, place = _words(source), [], 0
        while place < len(words):
            for size in range(min(longest, len(words) - place), 0, -1):
                if (target := self.terms.get(words[place : place + size])) is not None:
                    found.append(target)
                    place += size
                    break
            else:
                place += 1
        return found


def required(
    own: Sequence[str],
    terminology: Terminology | None,
    source: str,
    vocabulary: Vocabulary,
    *,
    suppressed: Sequence[int],
) -> list[Phrase]:
    """The phrases of a source's translation, `own` and those of its terms, without repetitions.
    Raises DecodingError for phrases that can't be spelled or are suppressed."""
    found = dict.fromkeys(phrase(text, vocabulary) for text in own)
    if terminology is not None:
        soft = terminology.mode == "soft"
        for term in terminology.translations(source):
            found[phrase(term, vocabulary, soft=soft)] = None
    said = {token for one in found for token in one.tokens}
    for bad in sorted(said & {*suppressed}):
        piece = f"the suppressed piece {vocabulary.pieces([bad])[0]!r}"
        raise DecodingError(f"{piece} is part of a constraint")
    return list(found)


def check_rules(rules: Rules) -> None:
    """Raises DecodingError for a search that constraints don't work with."""
    for name, used in (
        ("sampling", rules.sample),
        ("decoding.diverse_groups", rules.groups > 1),
        ("decoding.no_repeat_ngram", rules.no_repeat),
        ("decoding.outputs = trees", rules.trees),
    ):
        if used:
            raise DecodingError(f"constraints need plain beam search and can't have {name}")


def check_room(
    number: int,
    phrases: Sequence[Phrase],
    prefix: Sequence[int],
    limit: int,
    continues: Bool[np.ndarray, " vocab"],
) -> None:
    """Raises LineError if an output of `limit` tokens, end mark included, is too short."""
    said = tuple(prefix)

    def has(phrase: Phrase) -> bool:
        size = len(phrase.tokens)
        ends = range(size, len(said) + phrase.open)  # a whole word's end shows in what follows
        return any(
            said[end - size : end] == phrase.tokens and (phrase.open or not continues[said[end]])
            for end in ends
        )

    needed = sum(len(phrase.tokens) for phrase in phrases if not has(phrase))
    if needed and len(said) + needed + 1 > limit:
        what = f"its constraints take {needed} tokens"
        what += f" after a prefix of {len(said)}" * bool(said)
        what += f", but its translation may have at most {limit}, end mark included"
        raise LineError(number, what)


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORDS.findall(text.casefold()))


def _add(terms: dict[tuple[str, ...], str], source: str, target: str) -> None:
    words = _words(source)
    if not words or not target.strip():
        raise DecodingError(f"the {'translation' if words else 'term'} is blank")
    if terms.setdefault(words, target) != target:
        raise DecodingError(f"the term {source!r} already has the translation {terms[words]!r}")


def phrase(text: str, vocabulary: Vocabulary, *, soft: bool = False) -> Phrase:
    """The tokens of a text after a blank, if its script writes blanks. `soft` leaves out the last
    token if it may be an ending: short, and less than half its word. Raises DecodingError."""
    (tokens,) = vocabulary.encode([text])
    if not tokens:
        raise DecodingError(f"the constraint {text!r} is blank")
    if UNK in tokens:
        raise DecodingError(f"the target vocabulary cannot spell the constraint {text!r}")
    pieces = vocabulary.pieces(tokens)
    word = "".join(pieces).rpartition(BLANK)[2]
    if soft and len(pieces[-1]) <= LONGEST_ENDING and 2 * len(pieces[-1]) < len(word):
        tokens = tokens[:-1]
    if not LETTER.match(text.strip()):
        tokens = _without_blank(tokens, pieces[0], vocabulary)
    return Phrase(tuple(tokens), soft)


def _without_blank(tokens: list[int], first: str, vocabulary: Vocabulary) -> list[int]:
    """For a script without blanks between words."""
    if first == BLANK:
        # Bytes could belong to the word before them.
        in_bytes = vocabulary.pieces(tokens[1:2]) and vocabulary.pieces(tokens[1:2])[0][:3] == "<0x"
        return tokens if in_bytes else tokens[1:] or tokens
    plain = {piece: number for number, piece in enumerate(vocabulary.pieces())}
    return [plain.get(first.removeprefix(BLANK), tokens[0]), *tokens[1:]]


def arranged(phrases: Sequence[Sequence[Phrase]], types: np.ndarray, rows: int) -> Phrases:
    """The phrases of a batch's rows as the search needs them, in its own ids of the `types`."""
    # Sizes are compiled in: few of them.
    most = one_of_few(max(map(len, phrases)), 4)
    longest = one_of_few(max(len(each.tokens) for own in phrases for each in own), 8)
    tokens: Any = np.full((rows, most, longest), PAD, np.int32)
    may_go_on: Any = np.zeros((rows, most), bool)
    for row, own in enumerate(phrases):
        for place, each in enumerate(own):
            tokens[row, place, : len(each.tokens)] = np.searchsorted(types, each.tokens)
            may_go_on[row, place] = each.open
    return Phrases(tokens, may_go_on)
