"""A translator's scores on a test set, kept in the run directory with the hypotheses."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from pathlib import Path

from flaxformer_mt.decoding.translator import Translation, Translator
from flaxformer_mt.evaluation.bleu import Scores, ScoringError, corpus_scores
from flaxformer_mt.rundir.atomic import write_json, write_text
from flaxformer_mt.rundir.errors import RunDirectoryError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What `evaluate` found and where it wrote it."""

    name: str
    scores: Scores
    translations: tuple[Translation, ...]
    seconds: float  # of translating
    hypotheses_file: Path
    scores_file: Path

    @property
    def split_lines(self) -> tuple[int, ...]:
        """Lines, counted from 1, that were too long for the model and translated in pieces."""
        return tuple(n for n, item in enumerate(self.translations, 1) if item.split)


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    name: str,
    directory: Path,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    tokenized: bool = False,
    lowercase: bool = False,
) -> Evaluation:
    """Translates `sources`, scores against `references`, writes NAME.hyp.txt and NAME.json.

    Raises ScoringError (also for a name that is no file name), DecodingError, and RunDirectoryError
    where the files cannot be written.
    """
    check(name, sources, references, directory)
    start = time.perf_counter()
    translations = list(
        translator.translate_lines(sources, beam_size=beam_size, length_penalty=length_penalty)
    )
    return record(
        translator,
        translations,
        references,
        seconds=time.perf_counter() - start,
        name=name,
        directory=directory,
        beam_size=beam_size,
        length_penalty=length_penalty,
        tokenized=tokenized,
        lowercase=lowercase,
    )


def check(name: str, sources: Sequence[str], references: Sequence[str], directory: Path) -> None:
    """What can be found before minutes of translating are lost to it; makes `directory`.

    Raises ScoringError for a name that is no file name and for sides that do not belong together,
    and RunDirectoryError if the directory cannot be made.
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ScoringError(f"{name!r} cannot name files: use letters, digits, '_', '-' and '.'")
    if len(sources) != len(references):
        raise ScoringError(f"{len(sources):,} sources for {len(references):,} references")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"{directory}: cannot be written: {error.strerror}") from error


def record(
    translator: Translator,
    translations: Sequence[Translation],
    references: Sequence[str],
    *,
    seconds: float,
    name: str,
    directory: Path,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    tokenized: bool = False,
    lowercase: bool = False,
) -> Evaluation:
    """Scores what `translator` has made in so many seconds, with these settings, and keeps it.

    Both files appear in `directory` whole, the scores last, in place of those of before. The JSON
    holds the scores with their signatures, the weights and the search settings.

    Raises ScoringError and RunDirectoryError.
    """
    hypotheses = [translation.text for translation in translations]
    scores = corpus_scores(hypotheses, references, tokenized=tokenized, lowercase=lowercase)

    evaluation = Evaluation(
        name=name,
        scores=scores,
        translations=tuple(translations),
        seconds=seconds,
        hypotheses_file=directory / f"{name}.hyp.txt",
        scores_file=directory / f"{name}.json",
    )
    write_text(evaluation.hypotheses_file, "".join(f"{line}\n" for line in hypotheses))
    config = translator.config
    content = {
        "name": name,
        "weights": translator.name,
        "beam_size": config.beam_size if beam_size is None else beam_size,
        "length_penalty": config.length_penalty if length_penalty is None else length_penalty,
        "max_extra_tokens": config.max_extra_tokens,
        "dtype": translator.model.config.dtype,
        "seconds": seconds,
        "split_lines": list(evaluation.split_lines),
        "lines_at_limit": [n for n, item in enumerate(translations, 1) if item.at_limit],
        **scores.to_json(),
    }
    write_json(evaluation.scores_file, content)
    return evaluation
