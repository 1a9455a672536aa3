"""The files of an evaluation, outputs by the paths that name them, and their common test set."""

import functools
import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flaxformer_mt.decoding.text.translation import Hypothesis, Translation
from flaxformer_mt.evaluation import evaluate
from flaxformer_mt.evaluation.compare import common_scoring, common_text, compare, find_system
from flaxformer_mt.evaluation.evaluate import System, check, keep, kept_names, read_kept
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.references import Given, References
from flaxformer_mt.evaluation.scoring import Scoring, assess
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path, write_text
from tests.interop.translators import translator
from tests.rundir.buckets import needs_clients

REFERENCES, SOURCES = ["a b c d", "e f g h\u2028"], ["A", "E"]
HYPOTHESES = ["a b c x", "\x85e f"]


def kept(
    directory: Path,
    name: str = "set",
    *,
    sources: list[str] | None = SOURCES,
    references: Given = REFERENCES,
    examples: int = 0,
    **scoring: Any,
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    settings = Scoring(ter=False, resamples=0, language="de", **scoring)
    assessment = assess(HYPOTHESES, references, sources=sources, scoring=settings)
    how = {"directory": directory, "settings": {}, "examples": examples, "origin": ""}
    return keep(assessment, name=name, **how).scores


@pytest.fixture
def run(tmp_path) -> Path:
    """What of a run directory is looked at."""
    kept(tmp_path / "run" / "evaluation", "first")
    (tmp_path / "run" / "config.json").write_text("{}")
    return tmp_path / "run"


def test_a_file_of_hypotheses(tmp_path):
    file = tmp_path / "out.txt"
    file.write_bytes("\ufeffone\r\n\ntwo\u2028half\n".encode())
    system = find_system(str(file))
    assert (system.name, system.hypotheses) == ("out.txt", ["one", "", "two\u2028half"])
    assert system.references is None
    (tmp_path / "out.gz").write_bytes(gzip.compress(b"one\n"))
    assert find_system(f"ours={tmp_path / 'out.gz'}") == System(name="ours", hypotheses=["one"])
    # A file whose name has the sign in it is a file.
    (tmp_path / "a=b").write_text("x\n")
    assert find_system(f"n={tmp_path / 'a=b'}").name == "n"


def test_an_evaluation_comes_back_as_it_was_kept(run):
    system = find_system(str(run))
    assert (system.name, system.references, system.sources) == ("run", REFERENCES, SOURCES)
    assert (system.tokenizer, system.language) == ("13a", "de")
    assert system.hypotheses == HYPOTHESES
    by_file = find_system(f"x={run / 'evaluation' / 'first.json'}")
    assert (by_file.name, by_file.hypotheses) == ("x", system.hypotheses)

    # Before version 0.1 neither side was kept, nor how it was scored.
    (run / "evaluation" / "first.ref.txt").unlink()
    (run / "evaluation" / "first.src.txt").unlink()
    (run / "evaluation" / "first.json").write_text(json.dumps({"metrics": {}}))
    system = find_system(str(run))
    assert (system.references, system.sources, system.tokenizer) == (None, None, None)


def test_the_program_that_searched_is_kept_shown_and_compared(tmp_path):
    hypotheses = [Hypothesis(text=text, tokens=(), log_prob=-1.0, score=-1.0) for text in "ab"]
    translations = [Translation(hypotheses=(hypothesis,)) for hypothesis in hypotheses]
    own = translator()
    theirs = own.with_runtime(SimpleNamespace(name="Another 1.0", params=own.params))
    scoring = Scoring(ter=False, resamples=0)
    scores, pages = [], []
    for name, searched in (("own", own), ("theirs", theirs)):
        how = {"directory": tmp_path, "scoring": scoring, "examples": 1}
        how["translated"] = (translations, 1.0)
        files = evaluate.evaluate(searched, SOURCES, REFERENCES, name=name, **how).files
        scores.append(json.loads(files.scores.read_text()))
        pages.append(files.page.read_text())
    assert scores[0].keys() == scores[1].keys() - {"runtime"}
    assert scores[1]["runtime"] == "Another 1.0"
    assert "; searched by Another 1.0</p>" in pages[1] and "searched by" not in pages[0]

    notes = []
    systems = [f"{name}={tmp_path / name}.json" for name in ("own", "theirs")]
    compare(systems, methods=["randomization"], trials=10, note=notes.append)
    of_runtime = "runtime Another 1.0, not flaxformer_mt"
    assert notes == [f"theirs: was searched otherwise than own: {of_runtime}"]


def test_several_references_come_back_with_those_that_are_missing(tmp_path):
    several = [REFERENCES, ["A B", None], ["a", ""]]
    system = find_system(str(kept(tmp_path, references=several)))
    assert system.references == several
    theirs = tmp_path / "set.ref2.txt"
    assert theirs.read_text() == "A B\n\n" and (tmp_path / "set.ref3.txt").exists()
    assert common_text([system])[0].missing() == [[], [2], []]
    for other, message in (
        (REFERENCES, "was evaluated on 3 references, not 1: evaluate all"),
        ([*several[:2], ["a", None]], r"a different reference \(line 2 differs\)"),
    ):
        with pytest.raises(ScoringError, match=message):
            common_text([system], references=other)

    theirs.write_text("A B\n")
    with pytest.raises(ScoringError, match=r"set.ref2.txt: has no line 2: evaluate that run again"):
        find_system(str(tmp_path / "set.json"))
    kept(tmp_path)
    assert not theirs.exists() and read_kept(tmp_path, "set").references == REFERENCES


@pytest.mark.parametrize("damaged", [{}, [], [2], [[], "2", []], [[], ["2"], []], [[True]]])
def test_damaged_numbers_of_missing_references_are_named(tmp_path, damaged):
    scores = kept(tmp_path, references=[REFERENCES, ["A B", None], ["a", ""]])
    scores.write_text(json.dumps(json.loads(scores.read_text()) | {"missing_references": damaged}))
    message = "set.json: missing_references must be a list of line numbers for each reference"
    with pytest.raises(ScoringError, match=message):
        find_system(str(scores))


def test_what_is_missing_or_no_text_is_named(run, tmp_path):
    (tmp_path / "bad").write_bytes(b"good\n\xff\n")
    for path, message in (
        ("nowhere", "nowhere: does not exist"),
        ("x.json", "does not exist"),
        ("bad", r"bad:2: is not UTF-8 text \(byte 1\)"),
        ("run/evaluation", "is a folder"),
    ):
        with pytest.raises(ScoringError, match=message):
            find_system(str(tmp_path / path))
    kept(run / "evaluation", "second")
    with pytest.raises(ScoringError, match="several evaluations: .* --set: first, second"):
        find_system(str(run))
    with pytest.raises(ScoringError, match=r"no evaluation 'third' \(it has: first, second\)"):
        find_system(str(run), evaluation="third")
    assert find_system(str(run), evaluation="second").hypotheses == HYPOTHESES
    (run / "evaluation" / "second.json").unlink()
    (run / "evaluation" / "first.hyp.txt").unlink()
    with pytest.raises(ScoringError, match="first.hyp.txt does not exist: evaluate that run again"):
        find_system(str(run))
    for path in (run / "evaluation").iterdir():
        path.unlink()
    with pytest.raises(ScoringError, match="has no evaluation: run `evaluate`"):
        find_system(str(run))


def test_all_have_one_text():
    plain = System(name="a", hypotheses=["x", "y"])
    brought = System(name="b", hypotheses=["x", "y"], references=REFERENCES, sources=SOURCES)
    assert common_text([plain, brought]) == (References.of(REFERENCES), SOURCES)
    assert common_text([plain], references=["r"]) == (References.of(["r"]), None)
    with pytest.raises(ScoringError, match="no reference to compare with: give --ref"):
        common_text([plain])
    with pytest.raises(ScoringError, match=r"b: was evaluated on a different .*\(line 2 differs\)"):
        common_text([brought], references=[REFERENCES[0], "other"])
    with pytest.raises(ScoringError, match="line 3 differs"):
        common_text([brought], references=[*REFERENCES, "more"])


def test_all_have_one_source_or_none():
    first = System(name="one", hypotheses=[], references=REFERENCES, sources=SOURCES)
    unlike = System(name="other", hypotheses=[], references=REFERENCES, sources=["A", "X"])
    plain = System(name="plain", hypotheses=[], references=REFERENCES)
    notes: list[str] = []
    systems = [plain, first, plain, unlike]
    assert common_text(systems, note=notes.append) == (References.of(REFERENCES), None)
    assert notes[0].startswith("other: translated a different source than one (line 2 differs): ")
    with pytest.raises(ScoringError, match=r"line 2 differs\): choose one with --src FILE"):
        common_text(systems, need_sources=True, note=notes.append)

    # What is said outright holds.
    text = common_text(systems, sources=SOURCES, need_sources=True, note=notes.append)
    assert text == (References.of(REFERENCES), SOURCES)
    assert common_text([first, plain, first], note=notes.append) == text
    assert len(notes) == 1


def test_all_were_scored_in_one_way(tmp_path):
    ways = {"cased": {}, "raw": {"tokenizer": "none"}, "blind": {"lowercase": True}}
    systems = (find_system(str(kept(tmp_path, name, **how))) for name, how in ways.items())
    plain, (cased, raw, blind) = System(name="a", hypotheses=[]), systems
    assert common_scoring([plain]) == Scoring()
    assert common_scoring([raw, plain]).tokenizer == "none"
    with pytest.raises(ScoringError, match=r"different tokenisation \(13a, none\): choose one"):
        common_scoring([cased, raw])
    assert common_scoring([blind, plain]).lowercase
    assert not common_scoring([cased, plain]).lowercase
    with pytest.raises(ScoringError, match="some of the systems were evaluated with --lowercase"):
        common_scoring([cased, blind])


@needs_clients
def test_an_evaluation_in_a_bucket(gcs, bucket):
    run = f"gs://{bucket}/runs/one"
    kept(as_path(run) / "evaluation", "first")
    kept(as_path(run) / "evaluation", "second")
    write_text(as_path(run) / "config.json", "{}")
    system = find_system(run, evaluation="second")
    assert (system.name, system.references, system.sources) == ("one", REFERENCES, SOURCES)
    plain = find_system(f"x={run}/evaluation/first.hyp.txt")
    assert plain == System(name="x", hypotheses=system.hypotheses)


def test_nothing_of_the_evaluation_before_stays(tmp_path, monkeypatch):
    endings = ["html", "hyp.txt", "json", "ref.txt", "src.txt"]
    kept(tmp_path, examples=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"set.{end}" for end in endings]
    kept(tmp_path, sources=None)
    assert {path.name for path in tmp_path.iterdir()} == {"set.hyp.txt", "set.json", "set.ref.txt"}
    assert read_kept(tmp_path, "set").sources is None

    # After a failure no scores stand beside another evaluation's text.
    def fail(broken: str, path: Path, text: str) -> None:
        if path.name == broken:
            raise RunDirectoryError(f"{path}: the disk is full")
        write_text(path, text)

    for broken in ("set.hyp.txt", "set.ref.txt", "set.src.txt"):
        kept(tmp_path, examples=2)
        with monkeypatch.context() as patched:
            patched.setattr(evaluate, "write_text", functools.partial(fail, broken))
            with pytest.raises(RunDirectoryError, match="the disk is full"):
                kept(tmp_path, examples=2)
        assert kept_names(tmp_path) == []
    (tmp_path / "set.json").mkdir()
    with pytest.raises(RunDirectoryError, match=r"set.json: cannot be removed: "):
        kept(tmp_path)


def test_what_cannot_be_scored_or_kept_is_refused_beforehand(tmp_path):
    with pytest.raises(ScoringError, match="1 sources for 2 references"):
        check("x", ["a"], ["b", "c"], tmp_path)
    with pytest.raises(ScoringError, match="no sentences"):
        check("x", [], [], tmp_path)
    for name in ("../x", "", "a/b", ".hidden"):
        with pytest.raises(ScoringError, match="cannot name files"):
            check(name, ["a"], ["b"], tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        check("x", ["a"], ["b"], tmp_path / "file" / "in")
