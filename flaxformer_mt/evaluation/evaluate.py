"""A translator's scores on a test set, kept in the run directory with the hypotheses."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flaxformer_mt.evaluation.evaluation_files import Files, check_place, keep
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.scoring import Assessment, Scores, Scoring, assess
from flaxformer_mt.pages import table

if TYPE_CHECKING:
    from flaxformer_mt.decoding.translation import Translation
    from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    name: str
    assessment: Assessment
    translations: tuple[Translation, ...]
    seconds: float  # of translating, without compiling
    files: Files

    def __repr__(self) -> str:
        return f"<Evaluation {self.name}: {self.scores.one_line()}>"

    def _repr_html_(self) -> str:
        return table(self.name, *self.assessment.score_rows())

    @property
    def scores(self) -> Scores:
        return self.assessment.scores

    @property
    def split_lines(self) -> tuple[int, ...]:
        """Lines, from 1, that were too long for the model and translated in pieces."""
        return tuple(n for n, item in enumerate(self.translations, 1) if item.split)


def check(name: str, sources: Sequence[str], references: Sequence[str], directory: Path) -> None:
    """Makes `directory`. Raises ScoringError for an invalid file name and for sides that are empty
    or of unequal length, and RunDirectoryError."""
    if len(sources) != len(references):
        raise ScoringError(f"{name}: {len(sources):,} sources for {len(references):,} references")
    if not sources:
        raise ScoringError(f"{name}: no sentences to score")
    check_place(name, directory)


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    name: str,
    directory: Path,
    scoring: Scoring | None = None,
    examples: int = 0,
    translated: tuple[Sequence[Translation], float] | None = None,
) -> Evaluation:
    """Translates `sources`, scores against `references`, and writes NAME.json and other files, as
    `evaluation_files.keep`. `translated` gives existing translations and how many seconds they
    took. Raises as `check` and `keep`, or DecodingError."""
    check(name, sources, references, directory)
    if translated is None:
        from flaxformer_mt.parallel.compile_cache import working_time

        start = working_time()
        translated = list(translator.translate_lines(sources)), working_time() - start
    translations, seconds = translated
    hypotheses = [translation.text for translation in translations]
    assessment = assess(hypotheses, references, sources=sources, scoring=scoring)
    settings = {
        "weights": translator.name,
        **dataclasses.asdict(translator.config),
        "dtype": translator.model.config.dtype,
        "shortlist": translator.shortlist and translator.shortlist.digest,
        "seconds": seconds,
        "split_lines": [n for n, item in enumerate(translations, 1) if item.split],
        "lines_at_limit": [n for n, item in enumerate(translations, 1) if item.at_limit],
    }
    files = keep(
        assessment,
        name=name,
        directory=directory,
        settings=settings,
        examples=examples,
        origin=f"Weights: {translator.name}; beam {translator.config.beam_size}",
    )
    return Evaluation(
        name=name,
        assessment=assessment,
        translations=tuple(translations),
        seconds=seconds,
        files=files,
    )
