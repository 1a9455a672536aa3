"""Corpus scores by sacreBLEU (Post, 2018), with the signatures that make them comparable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from flaxformer_mt.evaluation.errors import ScoringError
from flaxformer_mt.evaluation.formulas import ORDER
from flaxformer_mt.evaluation.metrics import Bleu, Chrf, Measured, measure

__all__ = ["Scores", "ScoringError", "corpus_scores", "scores_of"]

_SUSPICIOUS_PERIODS = 100  # sacreBLEU's own threshold for asking whether text is detokenised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Corpus scores, 0 to 100, and what is needed to read them.

    `bleu_name` says which BLEU it is: `sacrebleu_13a`, or `bleu_tokenized` for text scored as it
    stands; `_lc` follows where case plays no part (ignored, or absent from the references).
    Precisions, brevity penalty and lengths are those of this BLEU.
    """

    bleu_name: str
    bleu: float
    chrf: float
    further: Mapping[str, float] = dataclasses.field(default_factory=dict)  # by metric name
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
        return {self.bleu_name: self.bleu, "chrf": self.chrf, **self.further}

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
    """Corpus BLEU and chrF of one hypothesis and one reference a sentence: what training watches.

    BLEU tokenises both sides by mteval-v13a; with `tokenized` both are taken as tokenised already
    (`sacrebleu --tokenize none --force`). `lowercase` ignores case. Raises ScoringError where there
    is nothing to score or the numbers of sentences differ.
    """
    bleu = named_bleu(references, tokenizer="none" if tokenized else "13a", lowercase=lowercase)
    measured = measure([bleu, Chrf(lowercase=lowercase)], hypotheses, references)
    return scores_of(measured, hypotheses)


def named_bleu(references: Sequence[str], *, tokenizer: str, lowercase: bool) -> Bleu:
    """sacreBLEU under a name that tells whether case plays a part with these references."""
    bleu = Bleu(tokenizer=tokenizer, lowercase=lowercase)
    if tokenizer == "none" and not lowercase and all(text == text.lower() for text in references):
        return dataclasses.replace(bleu, name=f"{bleu.name}_lc")
    return bleu


def scores_of(
    measured: Sequence[Measured],
    hypotheses: Sequence[str],
    *,
    notes: Sequence[str] = (),
) -> Scores:
    """What was measured, by BLEU and chrF first of all; `notes` are reasons to doubt it."""
    bleu, chrf, *further = measured
    assert isinstance(bleu.metric, Bleu) and isinstance(chrf.metric, Chrf)
    name, tokenized = bleu.metric.name, bleu.metric.tokenizer == "none"
    hypothesis_tokens, reference_tokens, *grams = (int(number) for number in bleu.totals)
    # By sacreBLEU itself: equal to what it prints to the last bit.
    score = BLEU.compute_bleu(
        grams[:ORDER],
        grams[ORDER:],
        sys_len=hypothesis_tokens,
        ref_len=reference_tokens,
        smooth_method="exp",
    )
    return Scores(
        bleu_name=name,
        bleu=score.score,
        chrf=chrf.score,
        further={other.metric.name: other.score for other in further},
        signatures={item.metric.name: item.metric.signature for item in measured},
        precisions=tuple(score.precisions),
        brevity_penalty=score.bp,
        hypothesis_tokens=score.sys_len,
        reference_tokens=score.ref_len,
        sentences=len(hypotheses),
        notes=(*(() if tokenized else _tokenized_periods(hypotheses)), *notes),
    )


def _tokenized_periods(hypotheses: Sequence[str]) -> tuple[str, ...]:
    count = sum(text.endswith(" .") for text in hypotheses)
    if count < _SUSPICIOUS_PERIODS:
        return ()
    return (
        f"{count:,} hypotheses end in a separate period: if the text is tokenised, this BLEU is "
        "not comparable with others; detokenise it, or score it as tokenised",
    )
