"""Phrases that an output must have: from text to tokens."""

import dataclasses
import functools
import unicodedata
from collections.abc import Sequence

from flaxformer_mt.data.vocabulary import BLANK, UNK, Vocabulary
from flaxformer_mt.decoding.constraints.symbols import LETTER
from flaxformer_mt.decoding.errors import UnspeltError
from flaxformer_mt.decoding.text.segments import encode

LONGEST_ENDING = 3  # letters of an inflection that a soft constraint leaves to the model


@dataclasses.dataclass(frozen=True)
class Phrase:
    """Tokens that an output must have one after another."""

    tokens: tuple[int, ...]
    open: bool  # the last word may go on after them


def spell_phrases(
    texts: Sequence[str], vocabulary: Vocabulary, *, soft: bool, suppressed: Sequence[int]
) -> list[Phrase]:
    """The phrase of each text, in its canonically equivalent form of the fewest unknown tokens,
    then of the fewest tokens: text as the vocabulary knows it. Raises UnspeltError."""
    forms = [_normal_forms(text) for text in texts]
    encoded = iter(encode(vocabulary, [form for group in forms for form in group]))
    phrases = []
    for number, (text, group) in enumerate(zip(texts, forms, strict=True)):
        spellings = [(form, next(encoded)) for form in group]
        form, tokens = min(spellings, key=lambda each: (each[1].count(UNK), len(each[1])))
        if not tokens:
            raise UnspeltError(number, f"the constraint {text!r} is blank")
        if UNK in tokens:
            raise UnspeltError(
                number, f"the target vocabulary cannot spell the constraint {text!r}"
            )
        phrase = _phrase(form, tokens, vocabulary, soft=soft)
        if bad := sorted({*phrase.tokens} & {*suppressed}):
            piece = vocabulary.pieces(bad[:1])[0]
            raise UnspeltError(
                number, f"the suppressed piece {piece!r} is part of the constraint {text!r}"
            )
        phrases.append(phrase)
    return phrases


def _normal_forms(text: str) -> list[str]:
    """The text as it is, composed and decomposed, each once."""
    if text.isascii():
        return [text]
    return list(dict.fromkeys([text, *(unicodedata.normalize(f, text) for f in ("NFC", "NFD"))]))


def _phrase(text: str, tokens: list[int], vocabulary: Vocabulary, *, soft: bool) -> Phrase:
    """The tokens of a text after a blank, if its script writes blanks. `soft` leaves out the last
    token if it may be an ending: short, and less than half its word."""
    first = vocabulary.pieces(tokens[:1])[0]
    if soft:
        pieces = vocabulary.pieces(tokens)
        word = "".join(pieces).rpartition(BLANK)[2]
        if len(pieces[-1]) <= LONGEST_ENDING and 2 * len(pieces[-1]) < len(word):
            tokens = tokens[:-1]
    if not LETTER.match(text.strip()):
        tokens = _without_blank(tokens, first, vocabulary)
    return Phrase(tuple(tokens), soft)


def _without_blank(tokens: list[int], first: str, vocabulary: Vocabulary) -> list[int]:
    """For a script without blanks between words."""
    if first == BLANK:
        # Bytes could belong to the word before them.
        in_bytes = vocabulary.pieces(tokens[1:2]) and vocabulary.pieces(tokens[1:2])[0][:3] == "<0x"
        return tokens if in_bytes else tokens[1:] or tokens
    return [_ids(vocabulary).get(first.removeprefix(BLANK), tokens[0]), *tokens[1:]]


@functools.lru_cache(maxsize=4)
def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(vocabulary.pieces())}
