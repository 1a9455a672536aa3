"""The metrics: a sentence's statistics, and the formula from their sums to a score, so that a
resampled corpus is a row of weights times the sentences' statistics. Numbers and signatures agree
with `sacrebleu` (Post, 2018)."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics import helpers
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from flaxformer_mt.config.tokenizers import USUAL
from flaxformer_mt.evaluation.bleu_tokenizers import sacrebleu_with
from flaxformer_mt.evaluation.edit_rate import edits
from flaxformer_mt.evaluation.ngrams import Units, all_ngrams, shared_ngrams
from flaxformer_mt.evaluation.references import (
    VARIABLE,
    Given,
    References,
    ScoringError as ScoringError,
)

ORDER = 4  # of BLEU's n-grams
_CHAR_ORDER = 6  # of chrF's
_BETA = 2  # chrF: recall counts this many times as much as precision
Lines = Sequence[str]
Counts = Float[np.ndarray, "sentences statistics"]
Totals = Float[np.ndarray, "*samples statistics"]
Values = Float[np.ndarray, "*samples"]
SentenceScores = Float[np.ndarray, " sentences"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """A corpus metric: a formula over sums of the sentences' counts."""

    name: str = ""  # its key in JSON
    higher_is_better: bool = True

    @property
    def signature(self) -> str:
        """How exactly it is computed."""
        raise NotImplementedError

    def signature_with(self, references: str) -> str:
        """The signature for so many `references` per sentence: "1", "2" and so on, or "var"."""
        return self.signature

    def row(self, hypothesis: str, reference: str) -> Sequence[float]:
        """A sentence's counts."""
        raise NotImplementedError

    def row_of_several(self, hypothesis: str, references: Lines) -> Sequence[float]:
        """A sentence's counts with several references: unless a metric says otherwise, those with
        the reference that gives the best score, the first of equals."""
        rows = [self.row(hypothesis, reference) for reference in references]
        scores = self.sentence_scores(np.array(rows, np.float64))
        return rows[int(scores.argmax() if self.higher_is_better else scores.argmin())]

    def counts(self, hypotheses: Lines, references: Given) -> Counts:
        """The rows of a non-empty corpus."""
        texts = References.of(references)
        if not texts.are_several:
            return self.counts_of_pairs(hypotheses, [reference for (reference,) in texts])
        pairs = zip(hypotheses, texts, strict=True)
        return np.array([self._row(*pair) for pair in pairs], np.float64)

    def counts_of_pairs(self, hypotheses: Lines, references: Lines) -> Counts:
        """The rows of sentences with one reference; a metric may compute them together."""
        return np.array([*map(self.row, hypotheses, references)], np.float64)

    def _row(self, hypothesis: str, references: Lines) -> Sequence[float]:
        if len(references) == 1:
            return self.row(hypothesis, references[0])
        return self.row_of_several(hypothesis, references)

    def score(self, totals: Totals) -> Values:
        """Scores of whole corpora, from sums of counts."""
        raise NotImplementedError

    def sentence_scores(self, counts: Counts) -> SentenceScores:
        """Scores of single sentences; their mean isn't the corpus's score."""
        return self.score(counts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bleu(Metric):
    """sacreBLEU: `13a` is mteval's tokenisation, `none` is for tokenised text. Raises ScoringError
    for a tokenisation that can't be used here."""

    tokenizer: str = USUAL
    lowercase: bool = False

    def __post_init__(self) -> None:
        _ = self._bleu  # an error now costs no translating
        if not self.name:
            kind = "bleu_tokenized" if self.tokenizer == "none" else f"sacrebleu_{self.tokenizer}"
            object.__setattr__(self, "name", kind + ("_lc" if self.lowercase else ""))

    @property
    def signature(self) -> str:
        return self.signature_with("1")

    def signature_with(self, references: str) -> str:
        bleu = copy.copy(self._bleu)
        bleu.effective_order = False
        return _signature(bleu, references)

    @property
    def _bleu(self) -> BLEU:
        return sacrebleu_with(self.tokenizer, lowercase=self.lowercase)

    def row(self, hypothesis: str, reference: str) -> Sequence[float]:
        return self.row_of_several(hypothesis, [reference])

    def row_of_several(self, hypothesis: str, references: Lines) -> Sequence[float]:
        """N-grams match in any reference; the length is that of the closest, the shorter of two."""
        score = self._bleu.sentence_score(hypothesis, references)
        return [score.sys_len, score.ref_len, *score.counts, *score.totals]

    def counts_of_pairs(self, hypotheses: Lines, references: Lines) -> Counts:
        words, wanted = ([*map(self._words, texts)] for texts in (hypotheses, references))
        lengths = [[*map(len, side)] for side in (words, wanted)]
        ngrams = shared_ngrams(words, wanted, ORDER), all_ngrams(words, ORDER)
        return np.column_stack([*lengths, *ngrams]).astype(np.float64)

    def _words(self, text: str) -> list[str]:
        words: str = self._bleu._preprocess_segment(text)
        return words.split()

    def score(self, totals: Totals) -> Values:
        return bleu_scores(totals, smooth=True)

    def sentence_scores(self, counts: Counts) -> SentenceScores:
        return bleu_scores(counts, smooth=True, effective_order=True)


def bleu_scores(totals: Totals, *, smooth: bool, effective_order: bool = False) -> Values:
    """BLEU, 0 to 100 (Papineni et al., 2002).

    `totals` holds the hypotheses' and references' tokens, then matching n-grams and those of the
    hypotheses, n = 1 to 4. `smooth`: an order without a match counts as a half, a quarter and so on
    of one (sacreBLEU's `smooth:exp`); otherwise the score is then 0. `effective_order` leaves out
    orders that a short hypothesis can't have.
    """
    hypothesis, reference = totals[..., 0], totals[..., 1]
    matches = totals[..., 2 : 2 + ORDER]
    possible = totals[..., 2 + ORDER :]
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = (matches == 0) & (possible > 0)
        halved = np.where(missed, 2.0 ** -np.cumsum(missed, axis=-1), 0.0) if smooth else 0.0
        precisions = np.where(matches > 0, matches, halved) / possible
        logs = np.where(possible > 0, np.log(precisions), 0.0 if effective_order else -np.inf)
        orders = np.maximum((possible > 0).sum(axis=-1), 1) if effective_order else ORDER
        brevity = np.where(hypothesis < reference, np.exp(1 - reference / hypothesis), 1.0)
        scores = 100 * brevity * np.exp(logs.sum(axis=-1) / orders)
    # Where nothing matches, smoothing doesn't help.
    return np.where(matches.any(axis=-1) & (hypothesis > 0), scores, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chrf(Metric):
    """chrF2 (Popović, 2015) as in sacreBLEU, and with n-grams of words chrF++ (Popović, 2017).

    The counts are, for each n from 1 to 6 and then of words from 1 to `word_order`, the n-grams of
    the hypothesis, of the reference, and common ones.
    """

    lowercase: bool = False
    word_order: int = 0
    name: str = "chrf"

    @property
    def signature(self) -> str:
        return self.signature_with("1")

    def signature_with(self, references: str) -> str:
        return _signature(CHRF(lowercase=self.lowercase, word_order=self.word_order), references)

    @functools.cached_property
    def _chrf(self) -> CHRF:
        return CHRF(lowercase=self.lowercase, word_order=self.word_order)

    def row(self, hypothesis: str, reference: str) -> list[int]:
        texts = map(self._cased, (hypothesis, reference))
        orders = zip(*map(self._ngrams, texts), strict=True)
        return [count for pair in orders for count in CHRF._get_match_statistics(*pair)]

    def row_of_several(self, hypothesis: str, references: Lines) -> Sequence[float]:
        """Those with the reference that gives the best score."""
        rows = (self.row(hypothesis, reference) for reference in references)
        # By sacreBLEU's own sum, since another order of adding may decide between equals.
        return max(rows, key=self._chrf._compute_f_score)

    def counts_of_pairs(self, hypotheses: Lines, references: Lines) -> Counts:
        texts, wanted = ([*map(self._cased, side)] for side in (hypotheses, references))
        counts = _ngram_counts(_characters(texts), _characters(wanted), _CHAR_ORDER)
        if not self.word_order:
            return counts
        words, wanted_words = (
            [self._chrf._remove_punctuation(text) for text in side] for side in (texts, wanted)
        )
        of_words = _ngram_counts(words, wanted_words, self.word_order)
        return np.concatenate([counts, of_words], axis=1)

    def _cased(self, text: str) -> str:
        return text.lower() if self.lowercase else text

    def _ngrams(self, text: str) -> list[Counter[str]]:
        """Of each order, of characters and then of words, punctuation marks apart."""
        ngrams: list[Counter[str]] = helpers.extract_all_char_ngrams(text, _CHAR_ORDER)
        if self.word_order:
            words = self._chrf._remove_punctuation(text)
            orders = range(1, self.word_order + 1)
            ngrams += [helpers.extract_word_ngrams(words, order) for order in orders]
        return ngrams

    def score(self, totals: Totals) -> Values:
        """0 to 100. Precision and recall are means over the orders that both sides have."""
        hypothesis, reference, matches = (totals[..., part::3] for part in range(3))
        both = (hypothesis > 0) & (reference > 0)
        orders = np.maximum(both.sum(axis=-1), 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            precision = np.where(both, matches / hypothesis, 0.0).sum(axis=-1) / orders
            recall = np.where(both, matches / reference, 0.0).sum(axis=-1) / orders
            scores = (1 + _BETA**2) * precision * recall / (_BETA**2 * precision + recall)
        return np.where(precision + recall > 0, 100 * scores, 0.0)


def _characters(texts: Sequence[str]) -> list[str]:
    """The texts without white space."""
    return ["".join(text.split()) for text in texts]


def _ngram_counts(hypotheses: Sequence[Units], references: Sequence[Units], most: int) -> Counts:
    """chrF's counts of each order: those of the hypothesis, if its reference has any, those of the
    reference, and common ones."""
    of_references = all_ngrams(references, most)
    of_hypotheses = np.where(of_references, all_ngrams(hypotheses, most), 0)
    shared = shared_ngrams(hypotheses, references, most)
    by_order = np.stack([of_hypotheses, of_references, shared], axis=-1)
    return by_order.reshape(len(by_order), -1).astype(np.float64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ter(Metric):
    """Translation edit rate (Snover et al., 2006) as in sacreBLEU, which is Tercom's.

    It compares blank-separated words and, unless it is told otherwise, ignores case. The counts are
    the edits (insertions, deletions, substitutions, shifts) and the reference's words. Of several
    references, they are the fewest edits and the mean number of words.
    """

    name: str = "ter"
    higher_is_better: bool = False
    case_sensitive: bool = False
    normalized: bool = False  # punctuation marks are words of their own
    no_punct: bool = False
    asian_support: bool = False  # with one of the two above: Chinese and Japanese characters, too

    @functools.cached_property
    def _ter(self) -> TER:
        return TER(
            case_sensitive=self.case_sensitive,
            normalized=self.normalized,
            no_punct=self.no_punct,
            asian_support=self.asian_support,
        )

    @property
    def signature(self) -> str:
        return self.signature_with("1")

    def signature_with(self, references: str) -> str:
        return _signature(self._ter, references)

    def row(self, hypothesis: str, reference: str) -> Sequence[float]:
        return self.row_of_several(hypothesis, [reference])

    def row_of_several(self, hypothesis: str, references: Lines) -> Sequence[float]:
        words, *others = map(self._words, (hypothesis, *references))
        fewest = min(edits(words, reference) for reference in others)
        return [fewest, sum(map(len, others)) / len(others)]

    def _words(self, text: str) -> list[str]:
        words: str = self._ter._preprocess_segment(text)
        return words.split()

    def score(self, totals: Totals) -> Values:
        """Per cent, without an upper bound."""
        edits, words = totals[..., 0], totals[..., 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = 100 * (edits / words)
        # If the reference has no words, all words are wrong.
        return np.where(words > 0, rates, np.where(edits > 0, 100.0, 0.0))


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """A metric's counts for each sentence of a corpus, `[sentences, statistics]`."""

    metric: Metric
    counts: Counts
    references: str = "1"  # of each sentence, as signatures have it

    @property
    def signature(self) -> str:
        return self.metric.signature_with(self.references)

    @property
    def totals(self) -> Float[np.ndarray, " statistics"]:
        return self.counts.sum(axis=0)

    @property
    def score(self) -> float:
        return float(self.metric.score(self.totals))

    @functools.cached_property
    def sentence_scores(self) -> SentenceScores:
        return self.metric.sentence_scores(self.counts)

    def of(self, chosen: np.ndarray) -> Measured:
        """The same for some of the sentences, by a mask or indices."""
        return dataclasses.replace(self, counts=self.counts[chosen])


def measure(
    metrics: Sequence[Metric], hypotheses: Lines, references: Given
) -> tuple[Measured, ...]:
    """Counts of each metric. Raises ScoringError for no sentences or sides of unequal length."""
    references = References.of(references)
    if len(hypotheses) != len(references):
        raise ScoringError(
            f"{len(hypotheses):,} hypotheses for {len(references):,} references: they must be "
            "aligned line by line"
        )
    if not hypotheses:
        raise ScoringError("no sentences to score")
    number = references.number
    return tuple(
        Measured(metric, metric.counts(hypotheses, references), number) for metric in metrics
    )


def _signature(metric: BLEU | CHRF | TER, references: str) -> str:
    # A signature needs to have seen references.
    if references == VARIABLE:
        texts: list[list[Any]] = [["", ""], ["", None]]
        metric.corpus_score(["", ""], texts)
    else:
        metric.corpus_score([""], [[""]] * int(references))
    return str(metric.get_signature())
