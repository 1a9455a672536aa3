"""BLEU as "Attention Is All You Need" reports it: the steps of tensor2tensor's `get_ende_bleu.sh`.

Both sides are normalised, tokenised as by Moses, have hyphenated words split, and are scored with
case by the formula of `multi-bleu.perl`, without smoothing. The reference the authors used had all
typographic quotes made plain, the low ones too, which no Moses script does
(github.com/tensorflow/tensor2tensor/issues/317); so they are here. A score of this kind lies one to
two points above sacreBLEU's 13a on newstest2014 English-German and compares with nothing else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from flaxformer_mt.evaluation import formulas
from flaxformer_mt.evaluation.metrics import Bleu
from flaxformer_mt.evaluation.moses import LANGUAGES, tokenize

PROTOCOL = 2  # goes up with every change that can change a score
_QUOTES = dict.fromkeys("“”„‟「」《》", '"') | dict.fromkeys("‘’‚‛", "'")
_FULL_WIDTH = {chr(ord(plain) + 0xFEE0): plain for plain in "0123456789,:?!();%~"}
_OTHERS = {"、": ",", "∶": ":", "…": "...", "━": "-", "〈": "<", "〉": ">", "【": "[", "】": "]"}
_PUNCTUATION = str.maketrans(_QUOTES | _FULL_WIDTH | _OTHERS)
_FULL_STOP = re.compile("[。．] *")
_COMPOUND = re.compile(r"(\S)-(\S)")


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


def has_rules_for(language: str) -> bool:
    return language in LANGUAGES


def protocol_note(signature: str) -> str:
    """What tables add to a score of an earlier protocol, " (protocol 1)"; nothing to others."""
    found = re.search(r"\|version:flaxformer_mt\.(\d+)$", signature)
    return f" (protocol {found[1]})" if found and int(found[1]) != PROTOCOL else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperBleu:
    """The paper's BLEU for a target language with rules (`has_rules_for`), on raw text."""

    language: str
    name: str = "bleu_paper"
    higher_is_better: bool = True

    @property
    def signature(self) -> str:
        compounds = "atat" if self.language == "de" else "no"
        return (
            f"nrefs:1|case:mixed|eff:no|norm:quotes|tok:moses-{self.language}|"
            f"compounds:{compounds}|smooth:none|version:flaxformer_mt.{PROTOCOL}"
        )

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> Float[np.ndarray, "sentences 10"]:
        sides = (hypotheses, references)
        prepared = ([prepare(text, self.language) for text in side] for side in sides)
        return Bleu(tokenizer="none").counts(*prepared)

    def score(self, totals: Float[np.ndarray, "*samples 10"]) -> Float[np.ndarray, "*samples"]:
        return formulas.bleu(totals, smooth=False)

    def sentence_scores(
        self, counts: Float[np.ndarray, "sentences 10"]
    ) -> Float[np.ndarray, " sentences"]:
        return formulas.bleu(counts, smooth=True, effective_order=True)
