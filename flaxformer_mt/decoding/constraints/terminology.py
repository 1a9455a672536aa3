"""Term lists: the terms of a source, and what their translations are."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import reprlib
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import regex

from flaxformer_mt.data.vocabulary import Vocabulary
from flaxformer_mt.decoding.constraints.forbidden import forbidden, forbids
from flaxformer_mt.decoding.constraints.phrases import Phrase, spell_phrases
from flaxformer_mt.decoding.constraints.symbols import LETTER
from flaxformer_mt.decoding.errors import DecodingError, UnspeltError
from flaxformer_mt.files.reading import read_text

Mode = Literal["hard", "soft"]
MODES: tuple[Mode, ...] = ("hard", "soft")
_WORDS = regex.compile(rf"(?:{LETTER.pattern})+|\S", regex.V1)
_ROOT = 0  # the tree's node without words

Words = tuple[str, ...]  # of a term, folded


@dataclasses.dataclass(frozen=True)
class TermTree:
    """Terms by their words, read from left to right: finding one takes as long as its words."""

    children: list[dict[str, int]]  # of each node, by word
    terms: dict[int, Words]  # that end in a node

    @classmethod
    def of(cls, terms: Collection[Words]) -> TermTree:
        tree = cls([{}], {})
        for words in terms:
            node = _ROOT
            for word in words:
                after = tree.children[node].get(word)
                if after is None:
                    after = len(tree.children)
                    tree.children.append({})
                    tree.children[node][word] = after
                node = after
            tree.terms[node] = words
        return tree

    def longest(self, words: Words, start: int) -> Words | None:
        """The longest term that begins at word number `start`."""
        node = _ROOT
        longest = None
        for place in range(start, len(words)):
            after = self.children[node].get(words[place])
            if after is None:
                break
            node = after
            longest = self.terms.get(node, longest)
        return longest


@dataclasses.dataclass(frozen=True)
class Terminology:
    """Translations of source terms: each term of a source adds its own to what must occur.

    Made by `of` or `read`. Terms are found as whole words in any case and in any canonically
    equivalent form (é, or e and an accent); of overlapping ones the first and longest. "hard" takes
    the translation as it is; "soft" lets the model inflect its last word.
    """

    terms: Mapping[Words, str] = dataclasses.field(repr=False)  # translations
    mode: Mode = "hard"
    # Where each term was read, such as "terms.tsv:3".
    places: Mapping[Words, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode = {self.mode!r} must be one of {', '.join(MODES)}")
        if not isinstance(self.terms, Mapping) or any(isinstance(key, str) for key in self.terms):
            raise TypeError("make a Terminology with Terminology.of(...) or Terminology.read(...)")

    def __getstate__(self) -> dict[str, Any]:
        # Without what is cached: another process builds it when it needs it.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def of(cls, terms: Mapping[str, str], *, mode: Mode = "hard") -> Terminology:
        """From terms and translations. Raises DecodingError for blank and repeated ones, and
        TypeError for what isn't text."""
        if not isinstance(terms, Mapping):
            raise TypeError(f"terms must map a str to a str, not {type(terms).__name__}")
        known: dict[Words, str] = {}
        for source, target in terms.items():
            if not (isinstance(source, str) and isinstance(target, str)):
                raise TypeError(f"terms must map a str to a str, not {source!r} to {target!r}")
            _add(known, source, target)
        return cls(known, mode)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, mode: Mode = "hard") -> Terminology:
        """From a UTF-8 file with a term, a tab and its translation per line, or nothing. Raises
        DecodingError with file and line."""
        known: dict[Words, str] = {}
        places: dict[Words, str] = {}
        # `splitlines` would also cut at form feeds, U+0085 and others inside a term.
        lines = read_text(Path(path), DecodingError).split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            columns = line.removesuffix("\r").split("\t")
            try:
                if len(columns) != 2:
                    raise DecodingError("must be a term, a tab and its translation")
                words = _add(known, *columns)
            except DecodingError as error:
                raise DecodingError(f"{path}:{number}: {error}") from None
            places.setdefault(words, f"{path}:{number}")
        return cls(known, mode, places)

    @property
    def digest(self) -> str:
        """Hexadecimal; differs between lists."""
        content = repr((self.mode, sorted(self.terms.items())))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def translations(self, source: str) -> list[str]:
        return [self.terms[words] for words in self.found(source)]

    def found(self, source: str) -> list[Words]:
        """The terms of a source, in their order."""
        words = _words(source)
        terms = []
        place = 0
        while place < len(words):
            term = self._tree.longest(words, place)
            if term is None:
                place += 1
            else:
                terms.append(term)
                place += len(term)
        return terms

    def spelled(
        self, vocabulary: Vocabulary, *, suppressed: Sequence[int]
    ) -> Mapping[Words, Phrase]:
        """The phrase of each term's translation, spelled once per vocabulary. Raises DecodingError,
        with file and line, for the first that can't be spelled or has a suppressed piece."""
        key = vocabulary.digest, tuple(suppressed)
        if key not in self._spelled:
            soft = self.mode == "soft"
            try:
                phrases = spell_phrases(
                    [*self.terms.values()], vocabulary, soft=soft, suppressed=suppressed
                )
            except UnspeltError as error:
                raise self._error([*self.terms][error.number], str(error)) from None
            self._spelled[key] = dict(zip(self.terms, phrases, strict=True))
        return self._spelled[key]

    def check(
        self,
        vocabulary: Vocabulary,
        *,
        suppressed: Sequence[int],
        max_length: int,
        never: tuple[str, ...],
    ) -> None:
        """Raises DecodingError, with file and line, for the first term whose translation no output
        can have: one that `spelled` refuses, that takes more than `max_length` tokens with the end
        mark, or that has one of the forbidden phrases `never`."""
        key = vocabulary.digest, tuple(suppressed), max_length, never
        if key in self._checked:
            return
        automaton = forbidden(never, vocabulary) if never else None
        for words, phrase in self.spelled(vocabulary, suppressed=suppressed).items():
            target = self.terms[words]
            if len(phrase.tokens) >= max_length:
                raise self._error(
                    words,
                    f"the translation {reprlib.repr(target)} takes {len(phrase.tokens)} tokens, "
                    f"but the model writes at most {max_length - 1}",
                )
            if automaton is not None and forbids(
                automaton, phrase.tokens, room=2 if phrase.open else 1
            ):
                raise self._error(words, f"the translation {target!r} has a forbidden phrase")
        self._checked.add(key)

    def _error(self, words: Words, reason: str) -> DecodingError:
        place = self.places.get(words)
        return DecodingError(f"{place}: {reason}" if place else reason)

    @functools.cached_property
    def _tree(self) -> TermTree:
        return TermTree.of(self.terms)

    @functools.cached_property
    def _spelled(self) -> dict[tuple[str, tuple[int, ...]], dict[Words, Phrase]]:
        return {}

    @functools.cached_property
    def _checked(self) -> set[tuple[str, tuple[int, ...], int, tuple[str, ...]]]:
        return set()


def _words(text: str) -> Words:
    """The words of a text, folded: canonically equivalent texts have the same (Unicode, D145)."""
    if not text.isascii():
        text = unicodedata.normalize("NFD", text)
    folded = text.casefold()
    if not folded.isascii():
        # Composed: a mark alone would be a word of its own after a letter of a script without
        # blanks.
        folded = unicodedata.normalize("NFC", folded)
    return tuple(_WORDS.findall(folded))


def _add(terms: dict[Words, str], source: str, target: str) -> Words:
    """Adds a term; returns its words."""
    words = _words(source)
    if not words or not target.strip():
        raise DecodingError(f"the {'translation' if words else 'term'} is blank")
    if terms.setdefault(words, target) != target:
        raise DecodingError(f"the term {source!r} already has the translation {terms[words]!r}")
    return words
