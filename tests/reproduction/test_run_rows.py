"""RowRunner around training: what is kept, goes on, fails and stops; training itself is faked.

Of a parser: F1 of linearised output, and gold trees that do not fit.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from flaxformer_mt.config import freeze
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.grammar.text import pairs
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.records import experiment_state, read_records
from flaxformer_mt.reproduction.run_rows import Ending, RowRunner, gold_trees, parse_f1
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from tests.data.prepare import corpora
from tests.reproduction.made_up import TOY, experiment, result, write

TINY = ("data.vocabulary.size=200", "data.batch.tokens=1024")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("corpus")
    for split, size in (("train", 150), ("valid", 12)):
        corpora.write(place, split, pairs(split, size))
    return place


def toy(folder: Path, name: str = "base", **settings) -> Experiment:
    arguments = {"corpus": TOY, "folder": str(folder), "overrides": TINY, "scale": 1e-5, **settings}
    return experiment(f"table3/{name}", **arguments)


class Training:
    """Stands for `train`: remembers its calls, and ends as it is told to."""

    def __init__(self, *endings: Ending | Exception) -> None:
        self.endings = list(endings)
        self.calls: list[tuple[RunDirectory, list[str]]] = []

    def __call__(self, run: RunDirectory, overrides: Sequence[str]) -> Ending:
        self.calls.append((run, list(overrides)))
        ending = self.endings.pop(0)
        if isinstance(ending, Exception):
            raise ending
        return ending


def runner(
    tmp_path: Path, train: Training, explain: Callable[[Exception], str | None] = str
) -> RowRunner:
    (tmp_path / "results").mkdir(exist_ok=True)
    return RowRunner(
        workdir=tmp_path,
        results=tmp_path / "results",
        train=train,
        explain=explain,
        say=lambda line: None,
        command=["flaxformer-mt", "reproduce"],
    )


def test_a_failure_is_noted_and_the_others_go_on(tmp_path, folder, capsys):
    errors = (OSError("no room\nmore"), ValueError("no sense"), ZeroDivisionError("a bug"))
    train = Training(*errors, "stopped")
    names = ["base", "a_h1", "c_N2"]
    rows = [toy(folder, name) for name in (*names, "c_N4", "c_N8")]

    def explain(error: Exception) -> str | None:
        return None if isinstance(error, ZeroDivisionError) else str(error)

    outcomes = runner(tmp_path, train, explain).run(rows)
    # A stop ends all; the same command goes on with it.
    assert [outcome.kind for outcome in outcomes] == [*["failed"] * 3, "stopped"]
    messages = ["no room", "no sense", "ZeroDivisionError: a bug"]
    assert [outcome.message for outcome in outcomes[:3]] == messages
    failures = read_records(tmp_path / "results").failures
    assert {failure.label: failure.message for failure in failures} == {
        f"table3/{name}": message for name, message in zip(names, messages, strict=True)
    }
    # A bug keeps its trace.
    assert capsys.readouterr().err.count("Traceback") == 1


def test_a_stopped_row_goes_on_in_its_own_run(tmp_path, folder):
    train = Training(*["stopped"] * 4)
    (tmp_path / "before").mkdir()
    running = runner(tmp_path / "before", train)
    for overrides in ((), ("training.log_every=3", "data.workers=1"), ("model.dropout=0.05",)):
        running.run([toy(folder, overrides=(*TINY, *overrides))])
    (first, none), (second, changed), (third, fresh) = train.calls
    assert first == second and none == fresh == []
    # What a run may change is changed; what makes it another run is another directory.
    assert "data.workers=1" in changed
    assert {override.partition("=")[0] for override in changed} <= {
        "data.workers",
        "training.log_every",
    }
    assert third != first and third.path.name != first.path.name

    # The working directory may be moved: where the extract now lies is no change of the run.
    (tmp_path / "before").rename(tmp_path / "after")
    runner(tmp_path / "after", train).run([toy(folder)])
    moved, changed = train.calls[3]
    assert changed == [] and moved.path == tmp_path / "after" / "runs" / first.path.name


def test_rows_share_the_first_pairs(tmp_path, folder):
    """A hundred-thousandth of 4.5 million."""
    train = Training("stopped", "stopped")
    written = []
    for name in ("base", "c_N2"):
        runner(tmp_path, train).run([toy(folder, name)])
        (corpus,) = freeze(read_record(train.calls[-1][0]).config, "run").data.train
        written.append((corpus.src, os.stat(corpus.src).st_mtime_ns))
    (base, _), (smaller, _) = train.calls
    for run, layers in ((base, 6), (smaller, 2)):
        config = freeze(read_record(run).config, "run")
        assert config.model.encoder_layers == layers and config.training.steps == 1
    assert written[0] == written[1], "it is written once"
    lines = Path(written[0][0]).read_text().split("\n")[:-1]
    assert lines == (folder / "train.en").read_text().split("\n")[:45]


def test_what_is_done_is_kept(tmp_path, folder):
    train = Training("stopped")
    running, done = runner(tmp_path, train), toy(folder)
    write(running.results, result(done))
    assert [outcome.kind for outcome in running.run([done])] == ["kept"]
    assert not train.calls


def test_what_is_stale_is_measured_anew(tmp_path, folder):
    """Its digest differs, as in a release in which the row has another dropout."""
    running, done = runner(tmp_path, Training("stopped")), toy(folder)
    said: list[str] = []
    path = write(running.results, result(done, details={"digest": "0" * 64}))
    talking = dataclasses.replace(running, say=said.append)
    assert [outcome.kind for outcome in talking.run([done])] == ["stopped"]
    assert any(line.startswith(f"stale: {path} has different settings") for line in said)
    assert experiment_state(done, running.results).state == "stale"


@pytest.mark.parametrize(
    "files", [{"train": ("gone", "train.de")}, {"valid": ("valid.en", "gone")}]
)
def test_missing_text_is_named_before_anything_is_trained(tmp_path, folder, files):
    train = Training()
    wrong = toy(folder, corpus=dataclasses.replace(TOY, **files))
    (outcome,) = runner(tmp_path, train).run([wrong])
    assert outcome.kind == "failed" and "gone" in outcome.message
    assert not train.calls


GOLD = "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))\n"


def silent(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture
def target(tmp_path):
    (tmp_path / "test.trees").write_text(GOLD * 2)
    return tmp_path / "test.tgt"


def test_f1_counts_brackets_and_malformed_outputs(target):
    gold, sources = gold_trees(target, 2, say=silent), ["The cat sleeps ."] * 2
    right = "(S (NP XX XX )NP (VP XX )VP XX )S"
    assert parse_f1(sources, [right, right], gold) == (100.0, 0)
    # Without its VP: 3 + 2 of 3 + 3 brackets, 3 + 2 predicted.
    f1, malformed = parse_f1(sources, [right, "(S (NP XX XX )NP XX XX )S"], gold)
    assert f1 == pytest.approx(100 * 2 * 5 / (5 + 6)) and malformed == 0
    assert parse_f1(sources, [right, "(S (NP XX XX )NP (VP XX"], gold)[1] == 1


def test_gold_trees_may_hold_traces(tmp_path):
    text = "( (S (NP-SBJ-1 (PRP He)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1)))) (. .)))\n"
    (tmp_path / "test.trees").write_text(text)
    gold = gold_trees(tmp_path / "test.tgt", 1, say=silent)
    output = "(S (NP XX )NP (VP XX (VP XX )VP )VP XX )S"
    assert parse_f1(["He was seen ."], [output], gold) == (100.0, 0)


def test_gold_trees_without_words_have_no_line(tmp_path, target):
    (tmp_path / "test.trees").write_text(GOLD + "(TOP (S (-NONE- *)))\n" + GOLD)
    said: list[str] = []
    gold = gold_trees(tmp_path / "test.tgt", 2, say=said.append)
    assert [tree.words for tree in gold] == [("The", "cat", "sleeps", ".")] * 2
    assert [line.rpartition(": ")[2] for line in said] == ["1"] and "without words" in said[0]
    # Where every tree has a line none is left out.
    assert len(gold_trees(tmp_path / "test.tgt", 3, say=silent)) == 3
    with pytest.raises(CorpusError, match=r"3 trees \(1 without words\) and .* has 1 lines"):
        gold_trees(tmp_path / "test.tgt", 1, say=silent)


def test_gold_trees_that_do_not_fit_are_named(tmp_path, target):
    (tmp_path / "test.trees").write_text(GOLD * 2)
    with pytest.raises(CorpusError, match="has 2 trees and .* has 3 lines"):
        gold_trees(target, 3, say=silent)
    with pytest.raises(CorpusError, match=r"other\.trees: cannot read other"):
        gold_trees(tmp_path / "other.tgt", 1, say=silent)
    with pytest.raises(CorpusError, match="sentence 1: its gold tree has different words"):
        parse_f1(["A dog barks ."], ["(S XX XX XX XX )S"], gold_trees(target, 2, say=silent)[:1])
