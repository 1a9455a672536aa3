"""Tokenisation as the Moses decoder's `tokenizer.perl` does it, for German, English and French.

Written from the published behaviour of that script (Koehn et al., 2007; options `-l LANGUAGE
-no-escape`): papers of the Transformer's time score text that it has split. Its escapes (`&quot;`
for `"`) rename tokens one to one and are left out. Moses's lists of abbreviations come from
SacreMoses; its rules differ from the script's and are not used.
"""

from __future__ import annotations

import functools

import regex

from flaxformer_mt.evaluation.errors import ScoringError

# A run of periods is a token. While the rules for single ones run, it goes by a character that text
# has no more by then.
_DOT = "\x00"

_BLANKS = regex.compile(r"\s+")
_CONTROL = regex.compile(r"[\x00-\x1f]")
_SYMBOL = regex.compile(r"([^\p{Alnum}\s.'`,\-])")
_DOTS = regex.compile(r"\.{2,}")
_COMMAS = (
    # Not within numbers. Two rules, since one would see every second comma of "a,b,c" alone.
    (regex.compile(r"([^\p{N}]),"), r"\1 , "),
    (regex.compile(r",([^\p{N}])"), r" , \1"),
    (regex.compile(r"(\p{N}),$"), r"\1 ,"),
)
_APART = (
    (regex.compile(r"([^\p{Alpha}])'([^\p{Alpha}])"), r"\1 ' \2"),
    (regex.compile(r"([^\p{Alpha}\p{N}])'(\p{Alpha})"), r"\1 ' \2"),
    (regex.compile(r"(\p{Alpha})'([^\p{Alpha}])"), r"\1 ' \2"),
)
_APOSTROPHES = {
    # don't: do n't is another school; here it is don 't. And "1990's" is 1990 's.
    "en": (
        *_APART,
        (regex.compile(r"(\p{Alpha})'(\p{Alpha})"), r"\1 '\2"),
        (regex.compile(r"(\p{N})'(s)"), r"\1 '\2"),
    ),
    # l'eau is l' eau, and numbers count as no letters: 1'a is 1 ' a.
    "fr": (
        _APART[0],
        (regex.compile(r"([^\p{Alpha}])'(\p{Alpha})"), r"\1 ' \2"),
        _APART[2],
        (regex.compile(r"(\p{Alpha})'(\p{Alpha})"), r"\1' \2"),
    ),
    "de": ((regex.compile(r"'"), " ' "),),
}
LANGUAGES = tuple(sorted(_APOSTROPHES))
_LETTER = regex.compile(r"\p{Alpha}")
_LOWER = regex.compile(r"\p{Lower}")
_DIGIT = regex.compile(r"[0-9]")


def tokenize(text: str, language: str) -> str:
    """The line's tokens, separated by single blanks. Raises ScoringError for another language."""
    if language not in LANGUAGES:
        raise ScoringError(f"no tokenisation rules for {language!r}: {', '.join(LANGUAGES)}")
    text = _CONTROL.sub("", _BLANKS.sub(" ", f" {text} ")).strip(" ")
    text = _SYMBOL.sub(r" \1 ", text)
    text = _DOTS.sub(lambda run: f" {_DOT * len(run[0])} ", text).strip(" ")
    for pattern, replacement in (*_COMMAS, *_APOSTROPHES[language]):
        text = pattern.sub(replacement, text)
    words = text.split()
    tokens = [
        _without_period(word, words[number + 1 : number + 2], language)
        for number, word in enumerate(words)
    ]
    # A quotation that ends with a sentence: the period is no word's last character.
    text = regex.sub(r"\.'$", " . '", " ".join(tokens))
    return " ".join(text.split()).replace(_DOT, ".")


def _without_period(word: str, following: list[str], language: str) -> str:
    """The word, with its last period split off unless that makes it an abbreviation."""
    stem = word[:-1]
    if not word.endswith(".") or not stem:
        return word
    if following:
        (after,) = following
        if "." in stem and _LETTER.search(stem):  # i.e. U.S.
            return word
        only_before_numbers = _abbreviations(language).get(stem)
        if only_before_numbers is False or _LOWER.match(after):
            return word
        if only_before_numbers and _DIGIT.match(after):
            return word
    return f"{stem} ."


@functools.cache
def _abbreviations(language: str) -> dict[str, bool]:
    """Moses's list: to each whether its period belongs to it only before a number."""
    # Here, because importing it takes 0.3 s and most commands tokenise nothing.
    from sacremoses.corpus import NonbreakingPrefixes

    lines = (line.split() for line in NonbreakingPrefixes().words(language))
    return {stem: mark == ["#NUMERIC_ONLY#"] for stem, *mark in lines}
