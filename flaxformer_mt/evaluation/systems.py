"""The systems that `compare` is given: files of hypotheses, and evaluations kept in run folders."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.evaluation.evaluation_files import Files, kept_names, read_kept, read_segments
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path, exists, read_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class System:
    """Hypotheses of the whole test set, under the name by which tables call the system.

    The rest is what is known with it of the test set.
    """

    name: str
    hypotheses: Sequence[str]
    references: list[str] | None = None
    sources: list[str] | None = None
    tokenizer: str | None = None  # with which it was scored before
    lowercase: bool | None = None  # whether without regard to case
    language: str = ""  # of the target
    evaluation: str = ""  # which one of a run directory it is


def find_system(argument: str, *, evaluation: str | None = None) -> System:
    """What `[NAME=]PATH` means: a file of hypotheses, a kept NAME.json, or a run directory.

    Of a run directory it is the evaluation called `evaluation`, or the only one that there is.
    Raises ScoringError, CorpusError and RunDirectoryError.
    """
    match = re.fullmatch(r"([^=/]+)=(.+)", argument, re.DOTALL)
    name, path = ("", argument) if match is None or Path(argument).exists() else match.groups()
    place = as_path(path)
    run = RunDirectory(place)
    if exists(run.config_file):
        chosen = _chosen(run, evaluation)
        kept = _kept(run.evaluation, chosen, name or place.name)
        return dataclasses.replace(kept, evaluation=chosen)
    if place.suffix == ".json":
        if not exists(place):
            raise ScoringError(f"{path}: does not exist")
        inner = place.name.removesuffix(".json")
        return _kept(place.parent, inner, name or inner)
    return System(name=name or place.name, hypotheses=read_segments(path))


def common_text(
    systems: Sequence[System],
    *,
    references: list[str] | None = None,
    sources: list[str] | None = None,
    need_sources: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[list[str], list[str] | None]:
    """The test set of all `systems`: as given here, else as the first of them brings it.

    Where they bring different sources, there are none; `note` is told, unless they are needed.
    Raises ScoringError if there is no reference, if one of them was scored on other text, or if
    sources that are needed differ.
    """
    brought = [(one.name, one.references) for one in systems if one.references is not None]
    if references is None and not brought:
        raise ScoringError("there is no reference to compare with: give --ref FILE")
    references = brought[0][1] if references is None else references
    for name, others in brought:
        if line := _first_difference(others, references):
            raise ScoringError(
                f"{name}: was evaluated on another reference (line {line:,} differs): "
                "evaluate all systems on one test set, or give files of hypotheses with --ref"
            )
    if sources is not None:
        return references, sources
    translated = [(one.name, one.sources) for one in systems if one.sources is not None]
    for name, others in translated:
        first, own = translated[0]
        if line := _first_difference(others, own):
            problem = f"{name}: translated another source than {first} (line {line:,} differs)"
            if need_sources:
                raise ScoringError(f"{problem}: say with --src FILE which one to score with")
            note(f"{problem}: no scores by its length; --src FILE says which one to take")
            return references, None
    return references, translated[0][1] if translated else None


def common_tokenizer(systems: Sequence[System]) -> str | None:
    """How they were scored before, if they were. Raises ScoringError for several ways."""
    found = sorted({system.tokenizer for system in systems if system.tokenizer is not None})
    if len(found) > 1:
        raise ScoringError(
            f"the systems were evaluated with different tokenisation ({', '.join(found)}): say "
            "with --tokenize which one to compare by"
        )
    return found[0] if found else None


def common_case(systems: Sequence[System]) -> bool:
    """Whether they were scored without regard to case before. Raises ScoringError for both ways."""
    found = {system.lowercase for system in systems if system.lowercase is not None}
    if len(found) > 1:
        raise ScoringError(
            "some of the systems were evaluated with --lowercase, and others were not: compare all "
            "without regard to case with --lowercase, or evaluate them in one way first"
        )
    return found == {True}


def _chosen(run: RunDirectory, evaluation: str | None) -> str:
    names = kept_names(run.evaluation)
    if evaluation is not None:
        if evaluation not in names:
            there = ", ".join(names) or "none"
            raise ScoringError(f"{run}: has no evaluation {evaluation!r} (there is: {there})")
        return evaluation
    if len(names) != 1:
        raise ScoringError(
            f"{run}: holds several evaluations: choose one with --set: {', '.join(names)}"
            if names
            else f"{run}: holds no evaluation: run `evaluate` on it first"
        )
    return names[0]


def _kept(directory: Path, inner: str, name: str) -> System:
    kept = read_kept(directory, inner)
    content: Any = read_json(Files(directory, inner).scores)
    how = content.get("scoring") if isinstance(content, dict) else None
    how = how if isinstance(how, dict) else {}
    return System(
        name=name,
        hypotheses=kept.hypotheses,
        references=kept.references,
        sources=kept.sources,
        tokenizer=how.get("tokenizer"),
        lowercase=how.get("lowercase"),
        language=how.get("language") or "",
    )


def _first_difference(ones: Sequence[str], others: Sequence[str]) -> int:
    """The first line that is not the same, from 1; 0 if there is none."""
    if ones == others:
        return 0
    pairs = enumerate(zip(ones, others, strict=False), start=1)
    shorter = min(len(ones), len(others))
    return next((number for number, (one, other) in pairs if one != other), shorter + 1)
