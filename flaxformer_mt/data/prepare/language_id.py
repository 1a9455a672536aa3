"""Sentences in another language than they should be, as py3langid identifies them."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import regex

from flaxformer_mt.config.languages import same_language

# Codes of one macrolanguage of ISO 639-3 beyond `same_language`: their sentences may not differ.
_ALIKE = (frozenset(("bs", "hr", "sr")), frozenset(("id", "ms")))
_LETTER = regex.compile(r"\p{L}")


class OtherLanguage(NamedTuple):
    """A sentence's place, the most probable language, and how much less probable its own is."""

    place: int
    language: str
    share: float


def knows(language: str) -> bool:
    """Whether a language code can be identified."""
    return bool(labels_of(language))


def in_other_languages(
    sentences: Sequence[bytes], language: str, share: float
) -> list[OtherLanguage]:
    """The UTF-8 sentences whose language is less than `share` times as probable as another one.

    So a short sentence, of which nothing sure can be said, stays; and so does one without letters.
    """
    labels = labels_of(language)
    others = list[OtherLanguage]()
    for place, sentence in enumerate(sentences):
        text = sentence.decode()
        if not _LETTER.search(text):
            continue
        ranked = _identifier().rank(text)
        best, highest = ranked[0]
        own = max(probability for label, probability in ranked if label in labels)
        if own < share * highest:
            others.append(OtherLanguage(place, best, own / highest))
    return others


@functools.cache
def labels_of(language: str) -> frozenset[str]:
    """py3langid's names for the language of a code."""
    code = same_language(language)
    codes = next((codes for codes in _ALIKE if code in codes), frozenset((code,)))
    return frozenset(label for label in _identifier().labels if same_language(label) in codes)


@functools.cache
def _identifier() -> Any:
    """py3langid's own model, with probabilities that don't grow surer with a text's length."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
