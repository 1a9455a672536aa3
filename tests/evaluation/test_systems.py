"""The files of an evaluation, outputs by the paths that name them, and their common test set."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.evaluation import Scoring, ScoringError, assess, evaluation_files
from flaxformer_mt.evaluation.compare import (
    common_case,
    common_text,
    common_tokenizer,
    find_system,
)
from flaxformer_mt.evaluation.evaluation_files import System, keep, kept_names, read_kept
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path, write_text
from tests.rundir.buckets import bucket, gcs, needs_clients

__all__ = ["bucket", "gcs"]

REFERENCES, SOURCES = ["a b c d", "e f g h\u2028"], ["A", "E"]


def keep_set(
    directory: Path,
    hypotheses: list[str],
    *,
    name: str = "set",
    sources: list[str] | None = SOURCES,
    examples: int = 0,
    **scoring: Any,
) -> Path:
    settings = Scoring(ter=False, resamples=0, **scoring)
    files = keep(
        assess(hypotheses, REFERENCES, sources=sources, scoring=settings),
        name=name,
        directory=directory,
        settings={},
        examples=examples,
        origin="",
    )
    return files.scores


def kept(directory: Path, name: str, **scoring: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return keep_set(directory, ["a b c x", "\x85e f"], name=name, language="de", **scoring)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What of a run directory is looked at."""
    kept(tmp_path / "run" / "evaluation", "first")
    (tmp_path / "run" / "config.json").write_text("{}")
    return tmp_path / "run"


def test_a_file_of_hypotheses(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_bytes("\ufeffone\r\n\ntwo\u2028half\n".encode())
    found = find_system(str(file))
    assert (found.name, found.hypotheses) == ("out.txt", ["one", "", "two\u2028half"])
    assert found.references is None
    (tmp_path / "out.gz").write_bytes(gzip.compress(b"one\n"))
    assert find_system(f"ours={tmp_path / 'out.gz'}") == System(name="ours", hypotheses=["one"])
    # A file whose name has the sign in it is a file.
    (tmp_path / "a=b").write_text("x\n")
    assert find_system(f"n={tmp_path / 'a=b'}").name == "n"


def test_an_evaluation_comes_back_as_it_was_kept(run: Path) -> None:
    found = find_system(str(run))
    assert (found.name, found.references, found.sources) == ("run", REFERENCES, SOURCES)
    assert (found.tokenizer, found.language) == ("13a", "de")
    assert found.hypotheses == ["a b c x", "\x85e f"]
    by_file = find_system(f"x={run / 'evaluation' / 'first.json'}")
    assert (by_file.name, by_file.hypotheses) == ("x", found.hypotheses)


def test_of_several_evaluations_one_is_chosen(run: Path) -> None:
    kept(run / "evaluation", "second")
    with pytest.raises(ScoringError, match="several evaluations: .* --set: first, second"):
        find_system(str(run))
    assert find_system(str(run), evaluation="second").name == "run"
    with pytest.raises(ScoringError, match=r"no evaluation 'third' \(there is: first, second\)"):
        find_system(str(run), evaluation="third")


def test_what_is_missing_or_no_text_is_named(run: Path, tmp_path: Path) -> None:
    for path, message in (("nowhere", "nowhere: does not exist"), ("x.json", "does not exist")):
        with pytest.raises(ScoringError, match=message):
            find_system(str(tmp_path / path))
    (tmp_path / "bad").write_bytes(b"good\n\xff\n")
    with pytest.raises(ScoringError, match=r"bad:2: is not UTF-8 text \(byte 1\)"):
        find_system(str(tmp_path / "bad"))
    (tmp_path / "zip").write_bytes(gzip.compress(b"x"))
    with pytest.raises(CorpusError, match="is gzip data where its name says plain text"):
        find_system(str(tmp_path / "zip"))
    with pytest.raises(ScoringError, match="is a folder"):
        find_system(str(tmp_path))
    (run / "evaluation" / "first.hyp.txt").unlink()
    with pytest.raises(ScoringError, match="first.hyp.txt does not exist: evaluate that run again"):
        find_system(str(run))
    for path in (run / "evaluation").iterdir():
        path.unlink()
    with pytest.raises(ScoringError, match="holds no evaluation: run `evaluate`"):
        find_system(str(run))


def test_all_were_scored_on_one_text() -> None:
    plain = System(name="a", hypotheses=["x", "y"])
    brought = System(name="b", hypotheses=["x", "y"], references=REFERENCES, sources=SOURCES)
    assert common_text([plain, brought]) == (REFERENCES, SOURCES)
    assert common_text([plain], references=["r"]) == (["r"], None)
    with pytest.raises(ScoringError, match="no reference to compare with: give --ref"):
        common_text([plain])
    with pytest.raises(ScoringError, match=r"b: was evaluated on another .*\(line 2 differs\)"):
        common_text([brought], references=[REFERENCES[0], "other"])
    with pytest.raises(ScoringError, match="line 3 differs"):
        common_text([brought], references=[*REFERENCES, "more"])


def test_all_have_translated_one_source() -> None:
    one = System(name="one", hypotheses=[], references=REFERENCES, sources=SOURCES)
    other = System(name="other", hypotheses=[], references=REFERENCES, sources=["A", "X"])
    plain = System(name="plain", hypotheses=[], references=REFERENCES)
    notes: list[str] = []
    for order in ([one, other], [other, one], [plain, one, plain, other]):
        assert common_text(order, note=notes.append) == (REFERENCES, None)
        with pytest.raises(ScoringError, match=r"line 2 differs\): say with --src FILE which one"):
            common_text(order, need_sources=True, note=notes.append)
    assert len(notes) == 3
    assert notes[0].startswith("other: translated another source than one (line 2 differs): no ")
    # What is said outright holds.
    given = common_text([one, other], sources=SOURCES, need_sources=True, note=notes.append)
    assert given == (REFERENCES, SOURCES) and len(notes) == 3
    assert common_text([one, plain, one], note=notes.append) == (REFERENCES, SOURCES)
    assert len(notes) == 3


def test_all_were_scored_in_one_way(tmp_path: Path) -> None:
    cased = find_system(str(kept(tmp_path, "cased")))
    raw = find_system(str(kept(tmp_path, "raw", tokenizer="none")))
    blind = find_system(str(kept(tmp_path, "blind", lowercase=True)))
    plain = System(name="a", hypotheses=[])
    assert common_tokenizer([plain]) is None
    assert common_tokenizer([raw, plain]) == "none"
    with pytest.raises(ScoringError, match=r"different tokenisation \(13a, none\): say with --tok"):
        common_tokenizer([cased, raw])
    assert common_case([blind, plain])
    assert not common_case([cased, plain]) and not common_case([plain])
    with pytest.raises(ScoringError, match="some of the systems were evaluated with --lowercase"):
        common_case([cased, blind])


def test_evaluations_of_before_references_were_kept(tmp_path: Path) -> None:
    scores = kept(tmp_path, "old")
    (tmp_path / "old.ref.txt").unlink()
    (tmp_path / "old.src.txt").unlink()
    scores.write_text(json.dumps({"metrics": {}}))
    found = find_system(str(scores))
    assert (found.references, found.sources, found.tokenizer) == (None, None, None)


@needs_clients
def test_an_evaluation_in_a_bucket(gcs: Any, bucket: str) -> None:
    run = f"gs://{bucket}/runs/one"
    kept(as_path(run) / "evaluation", "first")
    kept(as_path(run) / "evaluation", "second")
    write_text(as_path(run) / "config.json", "{}")
    found = find_system(run, evaluation="second")
    assert (found.name, found.references, found.sources) == ("one", REFERENCES, SOURCES)
    plain = find_system(f"x={run}/evaluation/first.hyp.txt")
    assert plain == System(name="x", hypotheses=found.hypotheses)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def again_with_less(directory: Path) -> None:
    keep_set(directory, ["a b c x", "e f"], sources=SOURCES, examples=2)
    assert names(directory) == [
        *("set.html", "set.hyp.txt", "set.json", "set.ref.txt", "set.src.txt")
    ]
    assert read_kept(directory, "set").sources == SOURCES
    keep_set(directory, ["a b c d", "e f"], sources=None, examples=0)
    assert names(directory) == ["set.hyp.txt", "set.json", "set.ref.txt"]
    found = read_kept(directory, "set")
    assert (found.hypotheses, found.sources) == (["a b c d", "e f"], None)


def test_nothing_of_the_evaluation_before_stays(tmp_path: Path) -> None:
    again_with_less(tmp_path)


@pytest.mark.parametrize("broken", ["set.hyp.txt", "set.ref.txt", "set.src.txt"])
def test_after_a_failure_no_scores_stand_beside_another_evaluations_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    keep_set(tmp_path, ["a b c x", "e f"], sources=SOURCES, examples=2)

    def fail(path: Path, text: str) -> None:
        if path.name == broken:
            raise RunDirectoryError(f"{path}: the disk is full")
        write_text(path, text)

    monkeypatch.setattr(evaluation_files, "write_text", fail)
    with pytest.raises(RunDirectoryError, match="the disk is full"):
        keep_set(tmp_path, ["a b c d", "e f"], sources=SOURCES, examples=2)
    assert kept_names(tmp_path) == []


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.json").mkdir()
    with pytest.raises(RunDirectoryError, match=r"set.json: cannot be removed: "):
        keep_set(tmp_path, ["a b c d", "e f"], sources=None, examples=0)
