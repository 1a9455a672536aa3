"""A system's scores on a test set: corpus level, by length, with intervals."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from flaxformer_mt.config import DataConfig
from flaxformer_mt.config.languages import base_language, is_written_without_blanks
from flaxformer_mt.config.tokenizers import USUAL, recorded_tokenizer, tokenizer_for
from flaxformer_mt.evaluation import PAPER_LANGUAGES, RESAMPLES, SEED
from flaxformer_mt.evaluation.comet import Comet, check_single
from flaxformer_mt.evaluation.metrics import (
    ORDER,
    Bleu,
    Chrf,
    Measured,
    Metric,
    ScoringError,
    Ter,
    measure,
)
from flaxformer_mt.evaluation.paper_protocol import PaperBleu
from flaxformer_mt.evaluation.references import Given, References
from flaxformer_mt.evaluation.significance import Interval, bootstrap_scores, interval
from flaxformer_mt.text_table import aligned

BOUNDS = (10, 20, 30, 40, 50, 60)  # words of the source
_SUSPICIOUS_PERIODS = 100  # sacreBLEU's own threshold for asking whether text is detokenised


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Corpus scores, 0 to 100, and the figures needed to read them; JSON has the same fields.

    Precisions, brevity penalty and lengths are those of the first metric, a BLEU: `sacrebleu_13a`,
    or `bleu_tokenized` for tokenised text; with `_lc` if case is ignored or references have none.
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
        return (
            f"{self.bleu_name} {self.bleu:.2f}  chrF {self.chrf:.2f}  "
            f"length ratio {self.length_ratio:.3f}  {self.sentences:,} sentences  "
            f"({self.signatures[self.bleu_name]})"
        )


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenizer: str = USUAL,
    lowercase: bool = False,
) -> Scores:
    """Corpus BLEU and chrF of one hypothesis and one reference per sentence, as training needs.

    BLEU splits both sides by one of `TOKENIZERS`, "none" for tokenised text (`sacrebleu --tokenize
    none --force`). Raises ScoringError as `measure`.
    """
    bleu = named_bleu(references, tokenizer=tokenizer, lowercase=lowercase)
    measured = measure([bleu, Chrf(lowercase=lowercase)], hypotheses, references)
    return scores_of(measured, hypotheses)


def named_bleu(references: Given, *, tokenizer: str, lowercase: bool) -> Bleu:
    """sacreBLEU under a name that says whether case matters with these references."""
    bleu = Bleu(tokenizer=tokenizer, lowercase=lowercase)
    if tokenizer != "none" or lowercase:
        return bleu
    if any(text != text.lower() for texts in References.of(references) for text in texts):
        return bleu
    return dataclasses.replace(bleu, name=f"{bleu.name}_lc")


def scores_of(
    measured: Sequence[Measured], hypotheses: Sequence[str], *, notes: Sequence[str] = ()
) -> Scores:
    """Scores of measured metrics, a BLEU first; `notes` are reasons to doubt them."""
    bleu = measured[0]
    assert isinstance(bleu.metric, Bleu)
    hypothesis_tokens, reference_tokens, *ngrams = map(int, bleu.totals)
    score = BLEU.compute_bleu(
        ngrams[:ORDER], ngrams[ORDER:], hypothesis_tokens, reference_tokens, smooth_method="exp"
    )
    periods = sum(text.endswith(" .") for text in hypotheses)
    suspicious = periods >= _SUSPICIOUS_PERIODS and bleu.metric.tokenizer != "none"
    doubt = (
        f"{periods:,} hypotheses end in a separate period: if the text is tokenised, this BLEU is "
        "not comparable with others; detokenise it, or add --tokenize none"
    )
    metrics = {corpus.metric.name: corpus.score for corpus in measured}
    # By sacreBLEU itself, equal to the last bit.
    metrics[bleu.metric.name] = score.score
    return Scores(
        metrics=metrics,
        signatures={corpus.metric.name: corpus.signature for corpus in measured},
        precisions=list(score.precisions),
        brevity_penalty=score.bp,
        length_ratio=score.sys_len / score.ref_len if score.ref_len else 0.0,
        hypothesis_tokens=score.sys_len,
        reference_tokens=score.ref_len,
        sentences=len(hypotheses),
        notes=[*([doubt] if suspicious else []), *notes],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """Corpus scores of the sentences whose source has `low` to `high` words."""

    low: int
    high: int | None  # None: no bound
    sentences: int
    metrics: dict[str, float]
    length_ratio: float  # hypotheses to references, in the tokens of the first metric

    @property
    def label(self) -> str:
        return f"{self.low} or more" if self.high is None else f"{self.low} to {self.high}"


def by_length(measured: Sequence[Measured], sources: Sequence[str]) -> tuple[Bucket, ...]:
    """Buckets by blank-separated source words, up to each of `BOUNDS` and above; none is empty."""
    numbers = np.searchsorted(BOUNDS, [len(source.split()) for source in sources])
    buckets = []
    for number in map(int, np.unique(numbers)):
        parts = [corpus.of(numbers == number) for corpus in measured]
        hypothesis_tokens, reference_tokens = parts[0].totals[:2]
        ratio = float(hypothesis_tokens / reference_tokens) if reference_tokens else 0.0
        buckets.append(
            Bucket(
                low=BOUNDS[number - 1] + 1 if number else 0,
                high=BOUNDS[number] if number < len(BOUNDS) else None,
                sentences=len(parts[0].counts),
                metrics={part.metric.name: part.score for part in parts},
                length_ratio=ratio,
            )
        )
    return tuple(buckets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """Which metrics, and how. The paper's BLEU needs raw text, case, and a language with rules."""

    # Of sacreBLEU: one of TOKENIZERS; none: the text is tokenised; auto: becomes the language's.
    tokenizer: str = "auto"
    lowercase: bool = False
    language: str = ""  # of the target, as in "de"; empty: not known
    chrf_word_order: int = 0  # above 0: also chrF with n-grams of so many words; 2 is chrF++
    ter: bool = True
    ter_options: tuple[str, ...] = ()  # of TER_OPTIONS
    comet: str = ""  # the model, if COMET is wanted
    comet_gpus: int = 0
    resamples: int = RESAMPLES  # for the intervals; 0: none
    seed: int = SEED
    others: tuple[Metric, ...] = ()  # of your own, after these

    def __post_init__(self) -> None:
        if self.tokenizer == "auto":
            object.__setattr__(self, "tokenizer", tokenizer_for(self.language).tokenizer)
        Bleu(tokenizer=self.tokenizer)  # an error now costs no translating

    def metrics(self, references: Given, sources: Sequence[str] | None = None) -> list[Metric]:
        """BLEU, chrF, then the others. Raises ScoringError for COMET without sources, or with
        several references."""
        references = References.of(references)
        metrics: list[Metric] = [
            named_bleu(references, tokenizer=self.tokenizer, lowercase=self.lowercase),
            Chrf(lowercase=self.lowercase),
        ]
        if self.chrf_word_order:
            order = self.chrf_word_order
            name = f"chrf{'+' * order}"
            metrics.append(Chrf(lowercase=self.lowercase, word_order=order, name=name))
        if self.has_paper_bleu and not references.are_several:
            metrics.append(PaperBleu(language=self.language))
        if self.ter:
            metrics.append(self._ter())
        if self.comet:
            if sources is None:
                raise ScoringError("COMET needs the sources, which are not known")
            check_single(references)
            metrics.append(Comet(sources=sources, model=self.comet, gpus=self.comet_gpus))
        return [*metrics, *self.others]

    def _ter(self) -> Ter:
        return Ter(
            case_sensitive="case_sensitive" in self.ter_options,
            normalized="normalized" in self.ter_options,
            no_punct="no_punct" in self.ter_options,
            asian_support="asian_support" in self.ter_options,
        )

    @property
    def has_paper_bleu(self) -> bool:
        has_rules = base_language(self.language) in PAPER_LANGUAGES
        return self.tokenizer != "none" and not self.lowercase and has_rules

    def notes(self, references: Given) -> tuple[str, ...]:
        """How BLEU is tokenised, if unusually, and why a number that the reader may expect is
        missing."""
        if self.tokenizer == "none":
            return ()
        notes = [*self._about_blanks()]
        if self.has_paper_bleu and References.of(references).are_several:
            notes.append("the paper's BLEU is skipped: it takes one reference per sentence")
        if not self.lowercase and not self.has_paper_bleu:
            language = f"'{self.language}'" if self.language else "an unknown target language"
            notes.append(
                f"the paper's BLEU is skipped: it has tokenisation rules for "
                f"{', '.join(PAPER_LANGUAGES)}, not for {language}"
            )
        return tuple(notes)

    def _about_blanks(self) -> Iterator[str]:
        choice = tokenizer_for(self.language)
        blankless = is_written_without_blanks(self.language)
        if choice.reason and self.tokenizer == choice.tokenizer:
            yield choice.reason
        elif blankless and self.tokenizer in ("13a", "intl"):
            yield (
                f"BLEU is tokenised by '{self.tokenizer}', which finds no words in text without "
                f"blanks such as {self.language}; --tokenize {choice.tokenizer} splits it"
            )
        if blankless and self.ter:
            yield f"TER compares blank-separated words, of which {self.language} has hardly any"


def scoring_of(data: DataConfig, **others: Any) -> Scoring:
    """How the outputs of a run with these settings are scored; `others` are fields of Scoring."""
    tokenizer = recorded_tokenizer(data)
    return Scoring(**{"tokenizer": tokenizer, "language": data.tgt_lang, **others})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assessment:
    """A system's text and scores on a test set, and the counts behind them."""

    hypotheses: Sequence[str]
    references: References
    sources: Sequence[str] | None
    scores: Scores
    intervals: dict[str, Interval]  # by metric name; empty where none were asked for
    buckets: tuple[Bucket, ...]  # empty where the sources are not known
    measured: tuple[Measured, ...]
    scoring: Scoring

    def to_json(self) -> dict[str, Any]:
        content = dataclasses.asdict(self.scores)
        scoring = dataclasses.asdict(self.scoring)
        content["scoring"] = {key: scoring[key] for key in ("tokenizer", "lowercase", "language")}
        if self.references.are_several:
            # By reference, the lines (from 1) at which it has no text.
            content["missing_references"] = self.references.missing()
        if self.intervals:
            content["intervals"] = {
                "level": 0.95,
                "resamples": self.scoring.resamples,
                "seed": self.scoring.seed,
                "metrics": {
                    name: dataclasses.asdict(spread) for name, spread in self.intervals.items()
                },
            }
        if self.buckets:
            content["by_source_length"] = [*map(dataclasses.asdict, self.buckets)]
        return content

    def score_rows(self) -> tuple[list[str], list[list[str]]]:
        """A header, and each score with its interval and signature."""
        rows = []
        for name, score in self.scores.metrics.items():
            spread = self.intervals.get(name)
            bounds = f"{spread.low:.2f} to {spread.high:.2f}" if spread else "-"
            rows.append([name, f"{score:.2f}", bounds, self.scores.signatures[name]])
        return ["metric", "score", "95% interval", "signature"], rows

    def length_rows(self) -> tuple[list[str], list[list[str]]]:
        """A header, and the scores by length of the source."""
        names = list(self.scores.metrics)
        rows = []
        for bucket in self.buckets:
            scores = [f"{bucket.metrics[name]:.2f}" for name in names]
            ratio = f"{bucket.length_ratio:.3f}"
            rows.append([bucket.label, f"{bucket.sentences:,}", *scores, ratio])
        return ["source words", "sentences", *names, "length ratio"], rows

    def table(self) -> str:
        text = aligned(*self.score_rows(), left={0, 3})
        return f"{text}\n\n{aligned(*self.length_rows())}" if self.buckets else text


def assess(
    hypotheses: Sequence[str],
    references: Given,
    *,
    sources: Sequence[str] | None = None,
    scoring: Scoring | None = None,
) -> Assessment:
    """Scores one hypothesis per sentence with its references, with `sources` also by length.

    Raises ScoringError for no sentences and for sides of unequal length.
    """
    references = References.of(references)
    scoring = scoring or Scoring()
    if sources is not None and len(sources) != len(references):
        raise ScoringError(f"{len(sources):,} sources for {len(references):,} references")
    measured = measure(scoring.metrics(references, sources), hypotheses, references)
    spreads: dict[str, Interval] = {}
    if scoring.resamples:
        resampled = bootstrap_scores(measured, samples=scoring.resamples, seed=scoring.seed)
        spreads = {
            corpus.metric.name: interval(scores)
            for corpus, scores in zip(measured, resampled, strict=True)
        }
    return Assessment(
        hypotheses=hypotheses,
        references=references,
        sources=sources,
        scores=scores_of(measured, hypotheses, notes=scoring.notes(references)),
        intervals=spreads,
        buckets=() if sources is None else by_length(measured, sources),
        measured=measured,
        scoring=scoring,
    )
