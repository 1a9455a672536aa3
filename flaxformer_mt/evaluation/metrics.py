"""The metrics: how a sentence's statistics are counted, and which formula makes scores of sums.

The counts are sacreBLEU's (chrF's, which it keeps to itself, are made of its n-grams), and so is
each signature: numbers and signatures agree with what `sacrebleu` says of the same files.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics import helpers
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from flaxformer_mt.evaluation import formulas
from flaxformer_mt.evaluation.errors import ScoringError

TOKENIZERS = ("13a", "intl", "char", "zh", "none")


class Metric(Protocol):
    """A corpus metric that is a formula over sums of what is counted in each sentence."""

    @property
    def name(self) -> str:
        """Its key in JSON."""

    @property
    def higher_is_better(self) -> bool: ...

    @property
    def signature(self) -> str:
        """How exactly it is computed."""

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> Float[np.ndarray, "sentences statistics"]: ...

    def score(
        self, totals: Float[np.ndarray, "*samples statistics"]
    ) -> Float[np.ndarray, "*samples"]:
        """Scores of sums of counts, each of a whole corpus."""

    def sentence_scores(
        self, counts: Float[np.ndarray, "sentences statistics"]
    ) -> Float[np.ndarray, " sentences"]:
        """Scores of single sentences; their mean is not the corpus's score."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bleu:
    """sacreBLEU: `13a` is mteval's tokenisation, `none` takes the text as tokenised already."""

    tokenizer: str = "13a"
    lowercase: bool = False
    name: str = ""
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS:
            raise ScoringError(f"no tokenizer {self.tokenizer!r}: {', '.join(TOKENIZERS)}")
        if not self.name:
            kind = "bleu_tokenized" if self.tokenizer == "none" else f"sacrebleu_{self.tokenizer}"
            object.__setattr__(self, "name", kind + ("_lc" if self.lowercase else ""))

    @property
    def signature(self) -> str:
        return _signature(BLEU(tokenize=self.tokenizer, lowercase=self.lowercase, force=True))

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> Float[np.ndarray, "sentences 10"]:
        # Effective order says how a single sentence's score is made, and spares a log message.
        bleu = BLEU(
            tokenize=self.tokenizer, lowercase=self.lowercase, force=True, effective_order=True
        )
        found = (bleu.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True))
        return np.array(
            [[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in found], np.float64
        ).reshape(-1, 2 + 2 * formulas.ORDER)

    def score(self, totals: Float[np.ndarray, "*samples 10"]) -> Float[np.ndarray, "*samples"]:
        return formulas.bleu(totals, smooth=True)

    def sentence_scores(
        self, counts: Float[np.ndarray, "sentences 10"]
    ) -> Float[np.ndarray, " sentences"]:
        return formulas.bleu(counts, smooth=True, effective_order=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chrf:
    """chrF2 as in sacreBLEU: character 6-grams, no words, beta 2."""

    lowercase: bool = False
    name: str = "chrf"
    higher_is_better: bool = True

    @property
    def signature(self) -> str:
        return _signature(CHRF(lowercase=self.lowercase))

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> Float[np.ndarray, "sentences 18"]:
        rows = [self._count(h, r) for h, r in zip(hypotheses, references, strict=True)]
        return np.array(rows, np.float64).reshape(-1, 3 * formulas.CHAR_ORDER)

    def _count(self, hypothesis: str, reference: str) -> list[int]:
        row = []
        for ours, theirs in zip(self._ngrams(hypothesis), self._ngrams(reference), strict=True):
            common = ours.keys() & theirs.keys()
            matches = sum(min(ours[gram], theirs[gram]) for gram in common)
            # sacreBLEU's rule: an order that the reference lacks is no fault of the hypothesis.
            row += [sum(ours.values()) if theirs else 0, sum(theirs.values()), matches]
        return row

    def _ngrams(self, text: str) -> list[Counter[str]]:
        text = text.lower() if self.lowercase else text
        return helpers.extract_all_char_ngrams(text, formulas.CHAR_ORDER)

    def score(self, totals: Float[np.ndarray, "*samples 18"]) -> Float[np.ndarray, "*samples"]:
        return formulas.chrf(totals)

    def sentence_scores(
        self, counts: Float[np.ndarray, "sentences 18"]
    ) -> Float[np.ndarray, " sentences"]:
        return formulas.chrf(counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ter:
    """TER as in sacreBLEU, which is Tercom's: blank-separated words without regard to case."""

    name: str = "ter"
    higher_is_better: bool = False

    @property
    def signature(self) -> str:
        return _signature(TER())

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> Float[np.ndarray, "sentences 2"]:
        ter = TER()
        found = (ter.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True))
        return np.array([[s.num_edits, s.ref_length] for s in found], np.float64).reshape(-1, 2)

    def score(self, totals: Float[np.ndarray, "*samples 2"]) -> Float[np.ndarray, "*samples"]:
        return formulas.ter(totals)

    def sentence_scores(
        self, counts: Float[np.ndarray, "sentences 2"]
    ) -> Float[np.ndarray, " sentences"]:
        return formulas.ter(counts)


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """A metric's counts for each sentence of a corpus, `[sentences, statistics]`."""

    metric: Metric
    counts: Float[np.ndarray, "sentences statistics"]

    @property
    def totals(self) -> Float[np.ndarray, " statistics"]:
        return self.counts.sum(axis=0)

    @property
    def score(self) -> float:
        return float(self.metric.score(self.totals))

    @functools.cached_property
    def sentence_scores(self) -> Float[np.ndarray, " sentences"]:
        return self.metric.sentence_scores(self.counts)

    def of(self, chosen: np.ndarray) -> Measured:
        """The same for some of the sentences, by a mask or by numbers."""
        return Measured(self.metric, self.counts[chosen])


def measure(
    metrics: Sequence[Metric], hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[Measured, ...]:
    """Counts of each metric. Raises ScoringError for no sentences, or not one for one."""
    if len(hypotheses) != len(references):
        raise ScoringError(
            f"{len(hypotheses):,} hypotheses for {len(references):,} references: they must be "
            "aligned line by line"
        )
    if not references:
        raise ScoringError("no sentences to score")
    return tuple(Measured(metric, metric.counts(hypotheses, references)) for metric in metrics)


def _signature(metric: BLEU | CHRF | TER) -> str:
    metric.corpus_score([""], [[""]])  # it tells its number of references once it has met some
    return str(metric.get_signature())
