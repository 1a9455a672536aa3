"""The files of an evaluation: those of the last one under a name, and of no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.evaluation import Scoring, assess, kept
from flaxformer_mt.evaluation.kept import keep, kept_names, read_kept
from flaxformer_mt.rundir.atomic import write_text
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path
from tests.rundir.buckets import bucket, gcs, needs_clients

__all__ = ["bucket", "gcs"]

REFERENCES, SOURCES = ["a b c d", "e f g h"], ["A", "E"]


def keep_one(directory: Path, hypotheses: list[str], *, sources: Any, examples: int) -> None:
    found = assess(hypotheses, REFERENCES, scoring=Scoring(ter=False, resamples=0))
    keep(
        found,
        hypotheses,
        REFERENCES,
        sources=sources,
        name="set",
        directory=directory,
        settings={},
        examples=examples,
        origin="",
    )


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def again_with_less(directory: Path) -> None:
    keep_one(directory, ["a b c x", "e f"], sources=SOURCES, examples=2)
    assert names(directory) == [
        *("set.html", "set.hyp.txt", "set.json", "set.ref.txt", "set.src.txt")
    ]
    assert read_kept(directory, "set").sources == SOURCES
    keep_one(directory, ["a b c d", "e f"], sources=None, examples=0)
    assert names(directory) == ["set.hyp.txt", "set.json", "set.ref.txt"]
    found = read_kept(directory, "set")
    assert (found.hypotheses, found.sources) == (["a b c d", "e f"], None)


def test_nothing_of_the_evaluation_before_stays(tmp_path: Path) -> None:
    again_with_less(tmp_path)


@needs_clients
def test_nothing_of_it_stays_in_a_bucket(gcs: Any, bucket: str) -> None:
    again_with_less(as_path(f"gs://{bucket}/evaluation"))


@pytest.mark.parametrize("broken", ["set.hyp.txt", "set.ref.txt", "set.src.txt"])
def test_after_a_failure_no_scores_stand_beside_another_evaluations_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    keep_one(tmp_path, ["a b c x", "e f"], sources=SOURCES, examples=2)

    def fail(path: Path, text: str) -> None:
        if path.name == broken:
            raise RunDirectoryError(f"{path}: the disk is full")
        write_text(path, text)

    monkeypatch.setattr(kept, "write_text", fail)
    with pytest.raises(RunDirectoryError, match="the disk is full"):
        keep_one(tmp_path, ["a b c d", "e f"], sources=SOURCES, examples=2)
    assert kept_names(tmp_path) == []


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.json").mkdir()
    with pytest.raises(RunDirectoryError, match=r"set.json: cannot be removed: "):
        keep_one(tmp_path, ["a b c d", "e f"], sources=None, examples=0)
