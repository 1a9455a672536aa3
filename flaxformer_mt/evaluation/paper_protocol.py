"""BLEU as "Attention Is All You Need" reports it: the steps of tensor2tensor's `get_ende_bleu.sh`.

Both sides are normalised, tokenised as by Moses, have hyphenated words split, and are scored with
case by the formula of `multi-bleu.perl`, without smoothing. The reference the authors used had all
typographic quotes made plain, the low ones too, which no Moses script does
(github.com/tensorflow/tensor2tensor/issues/317); so they are here. A score of this kind lies one to
two points above sacreBLEU's 13a on newstest2014 English-German and compares with nothing else.

Tokenisation is that of the Moses decoder's `tokenizer.perl` for German, English and French, written
from its published behaviour (Koehn et al., 2007; options `-l LANGUAGE -no-escape`). Its escapes
(`&quot;` for `"`) rename tokens one to one and are left out. Moses's lists of abbreviations come
from SacreMoses; its rules differ from the script's and are not used.
"""

import dataclasses
import functools
import itertools
import re

import numpy as np
import regex
from jaxtyping import Float

from flaxformer_mt.evaluation.metrics import Bleu, ScoringError, bleu_scores

PROTOCOL = 2  # goes up with every change that can change a score
_QUOTES = dict.fromkeys("“”„‟「」《》", '"') | dict.fromkeys("‘’‚‛", "'")
_FULL_WIDTH = {chr(ord(plain) + 0xFEE0): plain for plain in "0123456789,:?!();%~"}
_OTHERS = {"、": ",", "∶": ":", "…": "...", "━": "-", "〈": "<", "〉": ">", "【": "[", "】": "]"}
_PUNCTUATION = str.maketrans(_QUOTES | _FULL_WIDTH | _OTHERS)
_FULL_STOP = re.compile("[。．] *")
_COMPOUND = re.compile(r"(\S)-(\S)")

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


def normalize_punctuation(text: str) -> str:
    """Typographic quotes and full-width signs as plain ASCII ones; guillemets and dashes stay."""
    return _FULL_STOP.sub(". ", text.translate(_PUNCTUATION))


def split_compounds(text: str) -> str:
    """Hyphens between tokens' characters as tokens: `rich-text` is `rich ##AT##-##AT## text`.

    The pattern takes a character on both sides, and matches do not overlap: of `a-b-c` only the
    first hyphen is split. That is what the published command does.
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)


def prepare(text: str, language: str) -> str:
    """A line as it is scored. Hyphens are split in German alone: what GNMT and its heirs did."""
    tokens = tokenize(normalize_punctuation(text), language)
    return split_compounds(tokens) if language == "de" else tokens


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
    following = itertools.zip_longest(words, words[1:])
    tokens = [_without_period(word, after, language) for word, after in following]
    # A quotation that ends with a sentence: the period is no word's last character.
    text = regex.sub(r"\.'$", " . '", " ".join(tokens))
    return " ".join(text.split()).replace(_DOT, ".")


def _without_period(word: str, after: str | None, language: str) -> str:
    """The word, with its last period split off unless that makes it an abbreviation."""
    stem = word[:-1]
    if not word.endswith(".") or not stem:
        return word
    if after is not None:
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


def protocol_note(signature: str) -> str:
    """What tables add to a score of an earlier protocol, " (protocol 1)"; nothing to others."""
    found = re.search(r"\|version:flaxformer_mt\.(\d+)$", signature)
    return f" (protocol {found[1]})" if found and int(found[1]) != PROTOCOL else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperBleu(Bleu):
    """The paper's BLEU for a target language with rules (`LANGUAGES`), on raw text."""

    language: str
    name: str = "bleu_paper"
    tokenizer: str = "none"

    @property
    def signature(self) -> str:
        compounds = "atat" if self.language == "de" else "no"
        return (
            f"nrefs:1|case:mixed|eff:no|norm:quotes|tok:moses-{self.language}|"
            f"compounds:{compounds}|smooth:none|version:flaxformer_mt.{PROTOCOL}"
        )

    def row(self, hypothesis: str, reference: str) -> list[int]:
        return super().row(prepare(hypothesis, self.language), prepare(reference, self.language))

    def score(self, totals: Float[np.ndarray, "*samples 10"]) -> Float[np.ndarray, "*samples"]:
        return bleu_scores(totals, smooth=False)
