"""The outputs that `compare` is given: files of hypotheses, and evaluations kept in run folders."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.evaluation.errors import ScoringError
from flaxformer_mt.evaluation.evaluation_files import Files, kept_names, read_kept
from flaxformer_mt.evaluation.segments import read_segments
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path, exists, read_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """What one system wrote, and what is known with it of the test set."""

    name: str
    hypotheses: list[str]
    references: list[str] | None = None
    sources: list[str] | None = None
    tokenizer: str | None = None  # with which it was scored before
    lowercase: bool | None = None  # whether without regard to case
    language: str = ""  # of the target
    evaluation: str = ""  # which one of a run directory it is


def find_output(argument: str, *, evaluation: str | None = None) -> Output:
    """What `[NAME=]PATH` means: a file of hypotheses, a kept NAME.json, or a run directory.

    Of a run directory it is the evaluation called `evaluation`, or the only one that there is.
    Raises ScoringError, CorpusError and RunDirectoryError.
    """
    name, path = _named(argument)
    place = as_path(path)
    if exists(RunDirectory(place).config_file):
        run = RunDirectory(place)
        chosen = _chosen(run, evaluation)
        kept = _kept(run.evaluation, chosen, name or place.name)
        return dataclasses.replace(kept, evaluation=chosen)
    if place.suffix == ".json":
        if not exists(place):
            raise ScoringError(f"{path}: does not exist")
        inner = place.name.removesuffix(".json")
        return _kept(place.parent, inner, name or inner)
    return Output(name=name or place.name, hypotheses=read_segments(path))


def common_text(
    outputs: Sequence[Output],
    *,
    references: list[str] | None = None,
    sources: list[str] | None = None,
    need_sources: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[list[str], list[str] | None]:
    """The test set of all `outputs`: as given here, else as the first of them brings it.

    Where they bring different sources, there are none; `note` is told, unless they are needed.
    Raises ScoringError if there is no reference, if one of them was scored on other text, or if
    sources that are needed differ.
    """
    brought = [output for output in outputs if output.references is not None]
    if references is None:
        if not brought:
            raise ScoringError("there is no reference to compare with: give --ref FILE")
        references = brought[0].references
    assert references is not None
    for output in brought:
        assert output.references is not None
        if output.references != references:
            line = _first_difference(output.references, references)
            raise ScoringError(
                f"{output.name}: was evaluated on another reference (line {line:,} differs): "
                "evaluate all systems on one test set, or give files of hypotheses with --ref"
            )
    if sources is None:
        sources = _common_sources(outputs, need=need_sources, note=note)
    return references, sources


def _common_sources(
    outputs: Sequence[Output], *, need: bool, note: Callable[[str], None]
) -> list[str] | None:
    brought = [output for output in outputs if output.sources is not None]
    for output in brought:
        first, other = brought[0].sources, output.sources
        assert first is not None and other is not None
        if first != other:
            line = _first_difference(first, other)
            problem = f"{output.name}: translated another source than {brought[0].name} (line "
            problem += f"{line:,} differs)"
            if need:
                raise ScoringError(f"{problem}: say with --src FILE which one to score with")
            note(f"{problem}: no scores by its length; --src FILE says which one to take")
            return None
    return brought[0].sources if brought else None


def common_tokenizer(outputs: Sequence[Output]) -> str | None:
    """How they were scored before, if they were. Raises ScoringError for several ways."""
    found = sorted({output.tokenizer for output in outputs if output.tokenizer is not None})
    if len(found) > 1:
        raise ScoringError(
            f"the systems were evaluated with different tokenisation ({', '.join(found)}): say "
            "with --tokenize which one to compare by"
        )
    return found[0] if found else None


def common_case(outputs: Sequence[Output]) -> bool:
    """Whether they were scored without regard to case before. Raises ScoringError for both ways."""
    found = {output.lowercase for output in outputs if output.lowercase is not None}
    if len(found) > 1:
        raise ScoringError(
            "some of the systems were evaluated with --lowercase, and others were not: compare all "
            "without regard to case with --lowercase, or evaluate them in one way first"
        )
    return found == {True}


def _named(argument: str) -> tuple[str, str]:
    match = re.fullmatch(r"([^=/]+)=(.+)", argument, re.DOTALL)
    if match is None or Path(argument).exists():
        return "", argument
    return match[1], match[2]


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


def _kept(directory: Path, inner: str, name: str) -> Output:
    kept = read_kept(directory, inner)
    how: Any = read_json(Files(directory, inner).scores)
    how = how.get("scoring") if isinstance(how, dict) else None
    how = how if isinstance(how, dict) else {}
    return Output(
        name=name,
        hypotheses=kept.hypotheses,
        references=kept.references,
        sources=kept.sources,
        tokenizer=how.get("tokenizer"),
        lowercase=how.get("lowercase"),
        language=how.get("language") or "",
    )


def _first_difference(ones: Sequence[str], others: Sequence[str]) -> int:
    pairs = enumerate(zip(ones, others, strict=False), start=1)
    shorter = min(len(ones), len(others))
    return next((number for number, (one, other) in pairs if one != other), shorter + 1)
