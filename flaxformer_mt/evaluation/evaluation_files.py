"""The files of an evaluation: writes them together, and reads them to compare systems."""

import dataclasses
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flaxformer_mt.data.corpus.paths import locate, reaching
from flaxformer_mt.data.corpus.text_files import lines
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.page import page
from flaxformer_mt.evaluation.scoring import Assessment
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import (
    exists,
    is_remote,
    read_json,
    remove_file,
    write_json,
    write_text,
)


class Files(NamedTuple):
    """The files of an evaluation; `sources` and `page` may be missing."""

    scores: Path
    hypotheses: Path
    references: Path
    sources: Path
    page: Path


def files_of(directory: Path, name: str) -> Files:
    endings = ("json", "hyp.txt", "ref.txt", "src.txt", "html")
    return Files(*(directory / f"{name}.{ending}" for ending in endings))


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
    """Hypotheses of a test set, their name in tables, and what is known of the set."""

    name: str
    hypotheses: Sequence[str]
    references: list[str] | None = None
    sources: list[str] | None = None
    tokenizer: str | None = None  # with which it was scored before
    lowercase: bool | None = None  # whether without regard to case
    language: str = ""  # of the target
    evaluation: str = ""  # which one of a run directory it is


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
    for path in (files.scores, files.sources, files.page):
        remove_file(path)
    for path, side in (
        (files.hypotheses, assessment.hypotheses),
        (files.references, assessment.references),
        (files.sources, assessment.sources),
    ):
        if side is not None:
            write_text(path, "".join(f"{line}\n" for line in side))
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
    how = content.get("scoring") if isinstance(content, dict) else None
    how = how if isinstance(how, dict) else {}
    return System(
        name=name,
        hypotheses=read_segments(str(files.hypotheses)),
        references=read_segments(str(files.references)) if exists(files.references) else None,
        sources=read_segments(str(files.sources)) if exists(files.sources) else None,
        tokenizer=how.get("tokenizer"),
        lowercase=how.get("lowercase"),
        language=how.get("language") or "",
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

    found = [read_json(files_of(directory, name).scores) for name in kept_names(directory)]
    return [each for each in found if step(each.get("weights")) == step(weights)]


def read_segments(path: str) -> list[str]:
    """The lines, blank ones too, of a UTF-8 file: plain, `.gz`, `.xz` or `.zst`; local or `gs://`.
    Raises ScoringError and CorpusError."""
    located = locate(path, "")
    with reaching(located):
        if located.is_dir() or not located.exists():
            what = "is a folder" if located.is_dir() else "does not exist"
            raise ScoringError(f"{path}: {what}; give a file with one segment per line")
    found = []
    for number, line in enumerate(lines(located), start=1):
        try:
            found.append(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            place = f"byte {error.start + 1}"
            raise ScoringError(f"{path}:{number}: is not UTF-8 text ({place})") from error
    return found
