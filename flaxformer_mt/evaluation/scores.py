"""Corpus scores with the signatures that make them comparable, and scores by source length."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from flaxformer_mt.evaluation.metrics import ORDER, Bleu, Chrf, Measured, measure

BOUNDS = (10, 20, 30, 40, 50, 60)  # words of the source
_SUSPICIOUS_PERIODS = 100  # sacreBLEU's own threshold for asking whether text is detokenised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Corpus scores, 0 to 100, and what is needed to read them: in JSON as they are here.

    The first metric's name says which BLEU it is: `sacrebleu_13a`, or `bleu_tokenized` for text
    scored as it stands; `_lc` follows where case plays no part (ignored, or absent from the
    references). Precisions, brevity penalty and lengths are those of this BLEU.
    """

    metrics: dict[str, float]  # by name
    signatures: dict[str, str]  # by metric name
    precisions: list[float]  # of 1- to 4-grams, per cent
    brevity_penalty: float
    length_ratio: float  # of hypotheses to references
    hypothesis_tokens: int  # as the metric counts them
    reference_tokens: int
    sentences: int
    notes: list[str]  # reasons to doubt the scores

    @property
    def bleu_name(self) -> str:
        return next(iter(self.metrics))

    @property
    def bleu(self) -> float:
        return self.metrics[self.bleu_name]

    @property
    def chrf(self) -> float:
        return self.metrics["chrf"]

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
    bleu = measured[0]
    assert isinstance(bleu.metric, Bleu)
    tokenized = bleu.metric.tokenizer == "none"
    hypothesis_tokens, reference_tokens, *grams = (int(number) for number in bleu.totals)
    score = BLEU.compute_bleu(
        grams[:ORDER],
        grams[ORDER:],
        sys_len=hypothesis_tokens,
        ref_len=reference_tokens,
        smooth_method="exp",
    )
    # BLEU's by sacreBLEU itself: equal to what it prints to the last bit.
    metrics = {one.metric.name: one.score for one in measured} | {bleu.metric.name: score.score}
    return Scores(
        metrics=metrics,
        signatures={one.metric.name: one.metric.signature for one in measured},
        precisions=list(score.precisions),
        brevity_penalty=score.bp,
        length_ratio=score.sys_len / score.ref_len if score.ref_len else 0.0,
        hypothesis_tokens=score.sys_len,
        reference_tokens=score.ref_len,
        sentences=len(hypotheses),
        notes=[*([] if tokenized else _tokenized_periods(hypotheses)), *notes],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """Corpus scores of the sentences whose source has `low` to `high` words, both included."""

    low: int
    high: int | None  # None: no bound
    sentences: int
    metrics: dict[str, float]
    length_ratio: float  # hypotheses to references, in the tokens of the first metric

    @property
    def label(self) -> str:
        return f"{self.low} and more" if self.high is None else f"{self.low} to {self.high}"


def by_length(
    measured: Sequence[Measured], sources: Sequence[str], *, bounds: Sequence[int] = BOUNDS
) -> tuple[Bucket, ...]:
    """A bucket up to each of the rising `bounds`, and one above; only those that have sentences.

    A source's length is its number of blank-separated words. The first metric is a BLEU.
    """
    assert isinstance(measured[0].metric, Bleu)
    words = np.array([len(source.split()) for source in sources])
    found = []
    starts = (0, *(bound + 1 for bound in bounds))
    for low, high in zip(starts, (*bounds, None), strict=True):
        chosen = (words >= low) & (words <= (words.max() if high is None else high))
        if not chosen.any():
            continue
        parts = [one.of(chosen) for one in measured]
        ours, theirs = parts[0].totals[:2]
        found.append(
            Bucket(
                low=low,
                high=high,
                sentences=int(chosen.sum()),
                metrics={part.metric.name: part.score for part in parts},
                length_ratio=float(ours / theirs) if theirs else 0.0,
            )
        )
    return tuple(found)


def _tokenized_periods(hypotheses: Sequence[str]) -> list[str]:
    count = sum(text.endswith(" .") for text in hypotheses)
    if count < _SUSPICIOUS_PERIODS:
        return []
    return [
        f"{count:,} hypotheses end in a separate period: if the text is tokenised, this BLEU is "
        "not comparable with others; detokenise it, or score it as tokenised"
    ]
