"""What is measured on a test set, and the measurement of one system: scores, intervals, lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from flaxformer_mt.evaluation.comet import Comet
from flaxformer_mt.evaluation.metrics import (
    TOKENIZERS,
    Chrf,
    Measured,
    Metric,
    ScoringError,
    Ter,
    measure,
)
from flaxformer_mt.evaluation.paper_protocol import LANGUAGES, PaperBleu
from flaxformer_mt.evaluation.scores import Bucket, Scores, by_length, named_bleu, scores_of
from flaxformer_mt.evaluation.significance import RESAMPLES, SEED, Interval, intervals
from flaxformer_mt.text_table import aligned


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """Which metrics, and how: BLEU and chrF always, the paper's BLEU where it has a meaning.

    That is: for raw text, with case, in a language that has tokenisation rules.
    """

    tokenizer: str = "13a"  # of sacreBLEU: one of TOKENIZERS; "none": the text is tokenised
    lowercase: bool = False
    language: str = ""  # of the target, as in "de"; empty: not known
    ter: bool = True
    comet: str = ""  # the model, if COMET is wanted
    comet_gpus: int = 0
    resamples: int = RESAMPLES  # for the intervals; 0: none
    seed: int = SEED

    def __post_init__(self) -> None:
        if self.tokenizer not in TOKENIZERS:
            raise ScoringError(f"no tokenizer {self.tokenizer!r}: {', '.join(TOKENIZERS)}")

    def metrics(
        self, references: Sequence[str], sources: Sequence[str] | None = None
    ) -> list[Metric]:
        """BLEU first, then chrF, then the others. Raises ScoringError: COMET without sources."""
        found: list[Metric] = [
            named_bleu(references, tokenizer=self.tokenizer, lowercase=self.lowercase),
            Chrf(lowercase=self.lowercase),
        ]
        if self.has_paper_bleu:
            found.append(PaperBleu(language=self.language))
        if self.ter:
            found.append(Ter())
        if self.comet:
            if sources is None:
                raise ScoringError("COMET reads the sources as well, and they are not known")
            found.append(Comet(sources=sources, model=self.comet, gpus=self.comet_gpus))
        return found

    @property
    def has_paper_bleu(self) -> bool:
        return self.tokenizer != "none" and not self.lowercase and self.language in LANGUAGES

    @property
    def notes(self) -> tuple[str, ...]:
        """Why a number is missing that the reader may expect."""
        if self.tokenizer == "none" or self.lowercase or self.has_paper_bleu:
            return ()
        what = f"'{self.language}'" if self.language else "a target language that is not known"
        return (
            f"the paper's BLEU is left out: it has tokenisation rules for {', '.join(LANGUAGES)}, "
            f"not for {what}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assessment:
    """A system's scores on a test set, and the counts from which others are made."""

    scores: Scores
    intervals: dict[str, Interval]  # by metric name; empty where none were asked for
    buckets: tuple[Bucket, ...]  # empty where the sources are not known
    measured: tuple[Measured, ...]
    scoring: Scoring

    def to_json(self) -> dict[str, Any]:
        content = dataclasses.asdict(self.scores)
        how = dataclasses.asdict(self.scoring)
        content["scoring"] = {key: how[key] for key in ("tokenizer", "lowercase", "language")}
        if self.intervals:
            content["intervals"] = {
                "level": 0.95,
                "resamples": self.scoring.resamples,
                "seed": self.scoring.seed,
                "metrics": {name: dataclasses.asdict(one) for name, one in self.intervals.items()},
            }
        if self.buckets:
            content["by_source_length"] = [dataclasses.asdict(bucket) for bucket in self.buckets]
        return content

    def score_rows(self) -> tuple[list[str], list[list[str]]]:
        """For people: each score with its interval and signature, under a header."""
        rows = []
        for name, score in self.scores.metrics.items():
            found = self.intervals.get(name)
            spread = f"{found.low:.2f} to {found.high:.2f}" if found else "-"
            rows.append([name, f"{score:.2f}", spread, self.scores.signatures[name]])
        return ["metric", "score", "95% interval", "signature"], rows

    def length_rows(self) -> tuple[list[str], list[list[str]]]:
        """For people: the scores by length of the source, under a header."""
        names = list(self.scores.metrics)
        rows = [
            [
                bucket.label,
                f"{bucket.sentences:,}",
                *(f"{bucket.metrics[name]:.2f}" for name in names),
                f"{bucket.length_ratio:.3f}",
            ]
            for bucket in self.buckets
        ]
        return ["source words", "sentences", *names, "length ratio"], rows

    def table(self) -> str:
        """Both as text."""
        text = aligned(*self.score_rows(), left={0, 3})
        return f"{text}\n\n{aligned(*self.length_rows())}" if self.buckets else text


def assess(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    sources: Sequence[str] | None = None,
    scoring: Scoring | None = None,
) -> Assessment:
    """Scores one hypothesis and one reference a sentence; `sources` for the scores by length.

    Raises ScoringError for no sentences, or where the sides have not one for one.
    """
    scoring = scoring or Scoring()
    if sources is not None and len(sources) != len(references):
        raise ScoringError(f"{len(sources):,} sources for {len(references):,} references")
    measured = measure(scoring.metrics(references, sources), hypotheses, references)
    spreads: dict[str, Interval] = {}
    if scoring.resamples:
        found = intervals(measured, samples=scoring.resamples, seed=scoring.seed)
        spreads = {one.metric.name: spread for one, spread in zip(measured, found, strict=True)}
    return Assessment(
        scores=scores_of(measured, hypotheses, notes=scoring.notes),
        intervals=spreads,
        buckets=() if sources is None else by_length(measured, sources),
        measured=measured,
        scoring=scoring,
    )
