"""BLEU as "Attention Is All You Need" reports it: the steps of tensor2tensor's `get_ende_bleu.sh`.

Both sides are normalised, tokenised like Moses, have compounds split at hyphens, and are scored
with case by the formula of `multi-bleu.perl`, without smoothing. The authors' reference had all
typographic quotes replaced by plain ones, also the low ones, which no Moses script does
(github.com/tensorflow/tensor2tensor/issues/317); so it is done here. These scores are one to two
points above sacreBLEU's 13a on newstest2014 English-German and compare with nothing else.

Tokenisation is that of Moses's `tokenizer.perl` for German, English and French, written from its
published behaviour (Koehn et al., 2007; options `-l LANGUAGE -no-escape`). Its escapes (`&quot;`
for `"`) rename tokens one to one and are left out. The lists of abbreviations come from SacreMoses,
whose rules differ from the script's and aren't used.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence

import regex

from flaxformer_mt.abbreviations import moses_lists
from flaxformer_mt.config.languages import base_language
from flaxformer_mt.evaluation import PAPER_LANGUAGES
from flaxformer_mt.evaluation.metrics import (
    Bleu,
    Lines,
    ScoringError,
    Totals,
    Values,
    bleu_scores,
)

PROTOCOL = 2  # goes up with every change that can change a score
_QUOTES = dict.fromkeys("“”„‟「」《》", '"') | dict.fromkeys("‘’‚‛", "'")
_FULL_WIDTH = {chr(ord(plain) + 0xFEE0): plain for plain in "0123456789,:?!();%~"}
_OTHERS = {"、": ",", "∶": ":", "…": "...", "━": "-", "〈": "<", "〉": ">", "【": "[", "】": "]"}
_PUNCTUATION = str.maketrans(_QUOTES | _FULL_WIDTH | _OTHERS)
_FULL_STOP = re.compile("[。．] *")
_COMPOUND = re.compile(r"(\S)-(\S)")

# A run of periods is a token. During the rules for single periods it is written with a character
# that the text can't contain by then.
_DOT = "\x00"

_BLANKS = regex.compile(r"\s+")
_CONTROL = regex.compile(r"[\x00-\x1f]")
_SYMBOL = regex.compile(r"([^\p{Alnum}\s.'`,\-])")
_DOTS = regex.compile(r"\.{2,}")
_COMMAS = (
    # Not within numbers. Two rules, since a single one would miss every second comma of "a,b,c".
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
    # "don't" is don 't, and "1990's" 1990 's.
    "en": (
        *_APART,
        (regex.compile(r"(\p{Alpha})'(\p{Alpha})"), r"\1 '\2"),
        (regex.compile(r"(\p{N})'(s)"), r"\1 '\2"),
    ),
    # "l'eau" is l' eau. Numbers aren't letters: "1'a" is 1 ' a.
    "fr": (
        _APART[0],
        (regex.compile(r"([^\p{Alpha}])'(\p{Alpha})"), r"\1 ' \2"),
        _APART[2],
        (regex.compile(r"(\p{Alpha})'(\p{Alpha})"), r"\1' \2"),
    ),
    "de": ((regex.compile(r"'"), " ' "),),
}
_LETTER = regex.compile(r"\p{Alpha}")
_LOWER = regex.compile(r"\p{Lower}")
_DIGIT = regex.compile(r"[0-9]")


def normalize_punctuation(text: str) -> str:
    """Makes typographic quotes and full-width signs plain ASCII; guillemets and dashes stay."""
    return _FULL_STOP.sub(". ", text.translate(_PUNCTUATION))


def split_compounds(text: str) -> str:
    """`rich-text` as `rich ##AT##-##AT## text`. As in the published command matches don't overlap:
    of `a-b-c` only the first hyphen is split."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)


def prepare(text: str, language: str) -> str:
    """A line as it is scored. Hyphens are split only in German, as GNMT and its heirs did."""
    tokens = tokenize(normalize_punctuation(text), language)
    return split_compounds(tokens) if base_language(language) == "de" else tokens


def tokenize(text: str, language: str) -> str:
    """The line's tokens, separated by single blanks; `de_AT` has the rules of `de`.

    Raises ScoringError for a language without rules.
    """
    base = base_language(language)
    if base not in PAPER_LANGUAGES:
        rules = ", ".join(PAPER_LANGUAGES)
        raise ScoringError(f"no tokenisation rules for {language!r}: {rules}")
    language = base
    text = _CONTROL.sub("", _BLANKS.sub(" ", f" {text} ")).strip(" ")
    text = _SYMBOL.sub(r" \1 ", text)
    text = _DOTS.sub(lambda run: f" {_DOT * len(run[0])} ", text).strip(" ")
    for pattern, replacement in (*_COMMAS, *_APOSTROPHES[language]):
        text = pattern.sub(replacement, text)
    words = text.split()
    following = itertools.zip_longest(words, words[1:])
    tokens = [_without_period(word, after, language) for word, after in following]
    # Where a quotation ends with a sentence, the period isn't a word's last character.
    text = regex.sub(r"\.'$", " . '", " ".join(tokens))
    return " ".join(text.split()).replace(_DOT, ".")


def _without_period(word: str, after: str | None, language: str) -> str:
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
    """Moses's list, and whether each has its period only before a number."""
    lines = (line.split() for line in moses_lists().words(language))
    return {stem: mark == ["#NUMERIC_ONLY#"] for stem, *mark in lines}


def protocol_note(signature: str) -> str:
    """A mark that tables add to scores of an earlier protocol: " (protocol 1)"."""
    version = re.search(r"\|version:flaxformer_mt\.(\d+)$", signature)
    return f" (protocol {version[1]})" if version and int(version[1]) != PROTOCOL else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperBleu(Bleu):
    """The paper's BLEU for a target language with rules (`PAPER_LANGUAGES`), on raw text."""

    language: str
    name: str = "bleu_paper"
    tokenizer: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "language", base_language(self.language))

    @property
    def signature(self) -> str:
        compounds = "atat" if self.language == "de" else "no"
        return (
            f"nrefs:1|case:mixed|eff:no|norm:quotes|tok:moses-{self.language}|"
            f"compounds:{compounds}|smooth:none|version:flaxformer_mt.{PROTOCOL}"
        )

    def signature_with(self, references: str) -> str:
        return self.signature

    def row_of_several(self, hypothesis: str, references: Lines) -> Sequence[float]:
        """Raises ScoringError for more than one, which the paper's test sets don't have."""
        if len(references) > 1:
            raise ScoringError("the paper's BLEU takes one reference per sentence")
        texts = [prepare(reference, self.language) for reference in references]
        return super().row_of_several(prepare(hypothesis, self.language), texts)

    def _words(self, text: str) -> list[str]:
        return super()._words(prepare(text, self.language))

    def score(self, totals: Totals) -> Values:
        return bleu_scores(totals, smooth=False)
