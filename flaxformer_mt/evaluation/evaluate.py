"""A translator's scores on a test set, and their files, which are read to compare systems."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from flaxformer_mt.config.schema import DecodingConfig
from flaxformer_mt.data.corpus.paths import locate, reaching
from flaxformer_mt.data.corpus.text_files import lines
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.page import page
from flaxformer_mt.evaluation.references import Given, References
from flaxformer_mt.evaluation.scoring import Assessment, Scores, Scoring, assess
from flaxformer_mt.pages import table
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import (
    check_output,
    exists,
    is_remote,
    read_json,
    remove_file,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from flaxformer_mt.decoding.text.translation import Translation
    from flaxformer_mt.decoding.translator import Translator


class Files(NamedTuple):
    """The files of an evaluation; `sources` and `page` may be missing."""

    scores: Path
    hypotheses: Path
    references: Path  # the first ones; others are beside them
    sources: Path
    page: Path

    def reference(self, number: int) -> Path:
        """The file of the references with this number, from 1."""
        if number == 1:
            return self.references
        name = self.references.name.removesuffix(".ref.txt")
        return self.references.parent / f"{name}.ref{number}.txt"

    def further_references(self) -> list[Path]:
        """Those that exist beside the first."""
        paths: list[Path] = []
        while exists(path := self.reference(len(paths) + 2)):
            paths.append(path)
        return paths


def files_of(directory: Path, name: str) -> Files:
    endings = ("json", "hyp.txt", "ref.txt", "src.txt", "html")
    return Files(*(directory / f"{name}.{ending}" for ending in endings))


# Settings of a search that decide its outputs, as NAME.json has them.
_SEARCH = {field.name for field in dataclasses.fields(DecodingConfig)}
_SEARCH -= {"batch_tokens", "length_choice"}
_OWN_SEARCH = "flaxformer_mt"  # what stands for this program, which NAME.json doesn't name


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
    """Hypotheses of a test set, their name in tables, and known facts about the set."""

    name: str
    hypotheses: Sequence[str]
    references: Given | None = None
    sources: list[str] | None = None
    tokenizer: str | None = None  # with which it was scored before
    lowercase: bool | None = None  # whether without regard to case
    language: str = ""  # of the target
    evaluation: str = ""  # which one of a run directory it is
    has_n_best: bool = False  # the hypotheses were chosen from n-best lists
    search: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # how it was searched for


def check(name: str, sources: Sequence[str], references: Given, directory: Path) -> None:
    """Makes `directory`. Raises ScoringError for an invalid file name and for sides that are empty
    or of unequal length, and RunDirectoryError."""
    references = References.of(references)
    if len(sources) != len(references):
        raise ScoringError(f"{name}: {len(sources):,} sources for {len(references):,} references")
    if not sources:
        raise ScoringError(f"{name}: no sentences to score")
    check_place(name, directory)


def check_place(name: str, directory: Path) -> None:
    """Makes `directory`. Raises ScoringError for an invalid file name, and RunDirectoryError."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ScoringError(f"{name!r} cannot name files: use letters, digits, '_', '-' and '.'")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not is_remote(directory):
            tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise RunDirectoryError(
            f"{directory}: cannot be written: {error.strerror}; choose another --output"
        ) from error
    for file in files_of(directory, name):
        check_output(os.fspath(file))


def keep(
    assessment: Assessment,
    *,
    name: str,
    directory: Path,
    settings: Mapping[str, Any],
    examples: int,
    origin: str,
) -> Files:
    """Writes an evaluation, with `examples` of the worst and best sentences in NAME.html.

    The old scores are removed first and the new ones written last, so two evaluations are never
    read as one. Raises RunDirectoryError.
    """
    files = files_of(directory, name)
    for path in (files.scores, files.sources, files.page, *files.further_references()):
        remove_file(path)
    sides = [(files.hypotheses, assessment.hypotheses), (files.sources, assessment.sources)]
    for path, side in sides:
        if side is not None:
            write_text(path, "".join(f"{line}\n" for line in side))
    for number, texts in enumerate(assessment.references.columns, start=1):
        # NAME.json says which of the blank lines are missing references.
        write_text(files.reference(number), "".join(f"{text or ''}\n" for text in texts))
    if examples:
        write_text(files.page, page(name, assessment, origin=origin, shown=examples))
    write_json(files.scores, {"name": name, **settings, **assessment.to_json()})
    return files


def read_kept(directory: Path, name: str) -> System:
    """The evaluation `name` in `directory`; versions before 0.1 kept no references and sources.
    Raises ScoringError."""
    files = files_of(directory, name)
    if not exists(files.hypotheses):
        raise ScoringError(f"{files.hypotheses} does not exist: evaluate that run again")
    content: Any = read_json(files.scores) if exists(files.scores) else {}
    if not isinstance(content, dict):
        content = {}
    scoring = content.get("scoring")
    if not isinstance(scoring, dict):
        scoring = {}
    search = {key: content[key] for key in _SEARCH if key in content}
    if search:
        search["runtime"] = content.get("runtime", _OWN_SEARCH)
    return System(
        name=name,
        hypotheses=read_segments(str(files.hypotheses)),
        references=_kept_references(files, content) if exists(files.references) else None,
        sources=read_segments(str(files.sources)) if exists(files.sources) else None,
        tokenizer=scoring.get("tokenizer"),
        lowercase=scoring.get("lowercase"),
        language=scoring.get("language") or "",
        search=search,
    )


def _kept_references(files: Files, content: Mapping[str, Any]) -> Given:
    """The references beside an evaluation's scores. Raises ScoringError."""
    missing = content.get("missing_references")
    if missing is None:
        return read_segments(str(files.references))
    if not _is_lists_of_numbers(missing):
        raise ScoringError(
            f"{files.scores}: missing_references must be a list of line numbers for each "
            "reference, such as [[], [2]]: evaluate that run again"
        )
    columns: list[list[str | None]] = []
    for number, lines_missing in enumerate(missing, start=1):
        path = files.reference(number)
        columns.append([*read_segments(str(path))])
        for line in lines_missing:
            if not 1 <= line <= len(columns[-1]):
                raise ScoringError(f"{path}: has no line {line:,}: evaluate that run again")
            columns[-1][line - 1] = None
    return columns


def _is_lists_of_numbers(missing: object) -> TypeGuard[list[list[int]]]:
    """Whether it is a list of lists, at least one, of integers."""
    if not isinstance(missing, list) or not missing:
        return False
    return all(
        isinstance(lines, list) and all(type(line) is int for line in lines) for lines in missing
    )


def kept_names(directory: Path) -> list[str]:
    if not exists(directory):
        return []
    return sorted(path.name.removesuffix(".json") for path in directory.glob("*.json"))


def kept_scores(directory: Path, weights: str) -> list[dict[str, Any]]:
    """Each evaluation's NAME.json, if it is of these weights. Raises RunDirectoryError."""

    def step(name: object) -> str:
        # The best checkpoint may also be the latest.
        return str(name).removeprefix("best, ").removeprefix("latest, ")

    evaluations = [read_json(files_of(directory, name).scores) for name in kept_names(directory)]
    return [scores for scores in evaluations if step(scores.get("weights")) == step(weights)]


def read_segments(path: str) -> list[str]:
    """The lines, blank ones too, of a UTF-8 file: plain, `.gz`, `.bz2`, `.xz` or `.zst`; local or `gs://`.
    Raises ScoringError and CorpusError."""
    located = locate(path, "")
    with reaching(located):
        if located.is_dir():
            raise ScoringError(f"{path}: is a folder; give a file with one segment per line")
        if not located.exists():
            raise ScoringError(f"{path}: does not exist; give a file with one segment per line")

    segments = []
    for number, line in enumerate(lines(located), start=1):
        try:
            segments.append(line.decode())
        except UnicodeDecodeError as error:
            raise ScoringError(
                f"{path}:{number}: is not UTF-8 text (byte {error.start + 1})"
            ) from error
    return segments


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
        return tuple(
            number for number, translation in enumerate(self.translations, 1) if translation.split
        )

    @property
    def short_lines(self) -> tuple[int, ...]:
        """Lines, from 1, whose translation is less than a third as long as usual."""
        return tuple(
            number for number, translation in enumerate(self.translations, 1) if translation.short
        )


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Given,
    *,
    name: str,
    directory: Path,
    scoring: Scoring | None = None,
    examples: int = 0,
    translated: tuple[Sequence[Translation], float] | None = None,
) -> Evaluation:
    """Translates `sources`, scores against `references`, and writes NAME.json and other files, as
    `keep`.

    `translated` gives existing translations and how many seconds they took. Raises as `check` and
    `keep`, or DecodingError.
    """
    check(name, sources, references, directory)
    if translated is None:
        from flaxformer_mt.parallel.compile_cache import working_time

        start = working_time()
        outputs = list(translator.translate_lines(sources, warn=False))
        translated = outputs, working_time() - start
    translations, seconds = translated
    hypotheses = [translation.text for translation in translations]
    assessment = assess(hypotheses, references, sources=sources, scoring=scoring)
    settings = {
        **_settings_of(translator),
        "seconds": seconds,
        "split_lines": [
            number for number, translation in enumerate(translations, 1) if translation.split
        ],
        "lines_by_sentence": [
            number for number, translation in enumerate(translations, 1) if translation.by_sentence
        ],
        "lines_at_limit": [
            number for number, translation in enumerate(translations, 1) if translation.at_limit
        ],
    }
    files = keep(
        assessment,
        name=name,
        directory=directory,
        settings=settings,
        examples=examples,
        origin=_origin(translator),
    )
    return Evaluation(
        name=name,
        assessment=assessment,
        translations=tuple(translations),
        seconds=seconds,
        files=files,
    )


def _settings_of(translator: Translator) -> dict[str, Any]:
    """What decides the translations, as NAME.json has it; `runtime` only for another program."""
    runtime = translator.runtime
    return {
        "weights": translator.name,
        **({} if runtime is None else {"runtime": runtime.name}),
        **dataclasses.asdict(translator.config),
        "dtype": translator.model.config.dtype,
        "shortlist": translator.shortlist and translator.shortlist.digest,
    }


def _origin(translator: Translator) -> str:
    """The same in a line of the page."""
    runtime = translator.runtime
    searched_by = "" if runtime is None else f"; searched by {runtime.name}"
    return f"Weights: {translator.name}; beam {translator.config.beam_size}{searched_by}"
