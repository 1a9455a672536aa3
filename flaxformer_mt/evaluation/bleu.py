"""BLEU and chrF by sacreBLEU (Post, 2018), with the signatures that make them comparable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

_SUSPICIOUS_PERIODS = 100  # sacreBLEU's own threshold for asking whether text is detokenised


class ScoringError(ValueError):
    """Hypotheses and references that cannot be scored together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Corpus scores, 0 to 100, and what is needed to read them.

    `bleu_name` says which BLEU it is: `sacrebleu_13a`, or `bleu_tokenized` for text scored as it
    stands; `_lc` follows where case plays no part (ignored, or absent from the references).
    """

    bleu_name: str
    bleu: float
    chrf: float
    signatures: Mapping[str, str]  # by metric name
    precisions: tuple[float, ...]  # of 1- to 4-grams, per cent
    brevity_penalty: float
    hypothesis_tokens: int  # as the metric counts them
    reference_tokens: int
    sentences: int
    notes: tuple[str, ...] = ()  # reasons to doubt the scores

    @property
    def length_ratio(self) -> float:
        return self.hypothesis_tokens / self.reference_tokens if self.reference_tokens else 0.0

    @property
    def metrics(self) -> dict[str, float]:
        """Metric name to score."""
        return {self.bleu_name: self.bleu, "chrf": self.chrf}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: `metrics`, `signatures` and the lengths."""
        return {
            "metrics": self.metrics,
            "signatures": dict(self.signatures),
            "precisions": list(self.precisions),
            "brevity_penalty": self.brevity_penalty,
            "length_ratio": self.length_ratio,
            "hypothesis_tokens": self.hypothesis_tokens,
            "reference_tokens": self.reference_tokens,
            "sentences": self.sentences,
            "notes": list(self.notes),
        }

    def one_line(self) -> str:
        """For people: both scores, the length ratio, the number of sentences, BLEU's signature."""
        return (
            f"{self.bleu_name} {self.bleu:.2f}  chrF {self.chrf:.2f}  "
            f"length ratio {self.length_ratio:.3f}  {self.sentences:,} sentences  "
            f"({self.signatures[self.bleu_name]})"
        )


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenized: bool = False,
    lowercase: bool = False,
) -> Scores:
    """Corpus BLEU and chrF of one hypothesis and one reference a sentence.

    BLEU tokenises both sides by mteval-v13a; with `tokenized` both are taken as tokenised already
    (`sacrebleu --tokenize none --force`). `lowercase` ignores case. Raises ScoringError where there
    is nothing to score or the numbers of sentences differ.
    """
    if len(hypotheses) != len(references):
        raise ScoringError(
            f"{len(hypotheses):,} hypotheses for {len(references):,} references: they must be "
            "aligned line by line"
        )
    if not references:
        raise ScoringError("no sentences to score")
    # `force` only silences the log message that `notes` replaces.
    bleu = BLEU(tokenize="none" if tokenized else "13a", lowercase=lowercase, force=True)
    chrf = CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    without_case = lowercase or (tokenized and all(text == text.lower() for text in references))
    name = ("bleu_tokenized" if tokenized else "sacrebleu_13a") + ("_lc" if without_case else "")
    return Scores(
        bleu_name=name,
        bleu=bleu_score.score,
        chrf=chrf_score.score,
        signatures={name: str(bleu.get_signature()), "chrf": str(chrf.get_signature())},
        precisions=tuple(bleu_score.precisions),
        brevity_penalty=bleu_score.bp,
        hypothesis_tokens=bleu_score.sys_len,
        reference_tokens=bleu_score.ref_len,
        sentences=len(references),
        notes=() if tokenized else _tokenized_periods(hypotheses),
    )


def _tokenized_periods(hypotheses: Sequence[str]) -> tuple[str, ...]:
    count = sum(text.endswith(" .") for text in hypotheses)
    if count < _SUSPICIOUS_PERIODS:
        return ()
    return (
        f"{count:,} hypotheses end in a separate period: if the text is tokenised, this BLEU is "
        "not comparable with others; detokenise it, or score it as tokenised",
    )
