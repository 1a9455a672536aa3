"""Sentences in another language than they should be, as py3langid identifies them."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import regex

from flaxformer_mt.config.languages import base_language

# Codes of one macrolanguage of ISO 639-3: their sentences may not differ.
_MACROLANGUAGES = (
    frozenset(("no", "nb", "nn")),
    frozenset(("bs", "hr", "sr", "sh")),
    frozenset(("id", "ms")),
)
_LETTER = regex.compile(r"\p{L}")


class OtherLanguage(NamedTuple):
    """A sentence's place, the most probable language, and how much less probable its own is."""

    place: int
    language: str
    share: float


def knows(language: str) -> bool:
    """Whether a language code can be identified."""
    return bool(_codes(language) & {*_identifier().labels})


def in_other_languages(
    sentences: Sequence[bytes], language: str, share: float
) -> list[OtherLanguage]:
    """The UTF-8 sentences whose language is less than `share` times as probable as another one.

    So a short sentence, of which nothing sure can be said, stays; and so does one without letters.
    """
    codes = _codes(language)
    others = list[OtherLanguage]()
    for place, sentence in enumerate(sentences):
        text = sentence.decode()
        if not _LETTER.search(text):
            continue
        ranked = _identifier().rank(text)
        best, highest = ranked[0]
        own = max(probability for code, probability in ranked if code in codes)
        if own < share * highest:
            others.append(OtherLanguage(place, best, own / highest))
    return others


def _codes(language: str) -> frozenset[str]:
    base = base_language(language)
    return next((codes for codes in _MACROLANGUAGES if base in codes), frozenset((base,)))


@functools.cache
def _identifier() -> Any:
    """py3langid's own model, with probabilities that don't grow surer with a text's length."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
