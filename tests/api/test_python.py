"""What `import flaxformer_mt` gives: a run trained, used, scored and compared from Python."""

import dataclasses
import errno
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

import flaxformer_mt as fm
from flaxformer_mt.data import shortlist
from flaxformer_mt.data.shortlist import ShortlistError
from flaxformer_mt.decoding.run import shortlists
from flaxformer_mt.evaluation.metrics import Metric, ScoringError
from flaxformer_mt.evaluation.scoring import Scoring
from flaxformer_mt.rundir import RunDirectoryError, paths
from flaxformer_mt.rundir.layout import open_run, read_record, read_status
from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.system.conftest import trained as trained

QUICK = Scoring(ter=False, resamples=0)


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(scope="module")
def translator(trained):
    return fm.Translator.load(trained)


def test_a_shortlist_is_learnt_once_and_kept_in_the_run(run, translator, monkeypatch):
    monkeypatch.setattr(shortlists, "LEAST_TYPES", 64)
    monkeypatch.setattr(shortlist, "FREQUENT", 8)
    first = fm.Translator.load(run, shortlist=True)
    shutil.rmtree(run / "data")
    again = fm.Translator.load_ensemble([run], shortlist=True)
    line = "The old dog sleeps."
    assert again.translate(line) == first.translate(line)

    # Among fewer types each is likelier.
    best, unrestricted = (model.translate(line).hypotheses[0] for model in (first, translator))
    assert best.log_prob > unrestricted.log_prob
    assert first.compile([line]) == translator.compile([line])
    evaluations = fm.evaluate(run, {"mine": ([line], [line])}, translator=first, scoring=QUICK)
    scores = json.loads(evaluations["mine"].files.scores.read_text())
    assert scores["shortlist"] == first.shortlist.digest
    (run / "shortlist.npz").unlink()
    with pytest.raises(ShortlistError, match="has no training text"):
        fm.Translator.load(run, shortlist=True)


def test_a_shortlist_of_a_run_that_is_read_only_is_kept_in_memory(run, monkeypatch, caplog):
    read_only = mock.Mock(side_effect=OSError(errno.EROFS, "Read-only file system"))
    with monkeypatch.context() as patch:
        patch.setattr(paths, "write_whole", read_only)
        first = fm.Translator.load(run, shortlist=True)
    message = r"shortlist\.npz: cannot be written: Read-only file system. .* kept in memory"
    assert re.search(message, caplog.text)
    assert not (run / "shortlist.npz").exists()
    assert fm.Translator.load(run, shortlist=True).shortlist.digest == first.shortlist.digest
    (run / "shortlist.npz").unlink()
    os.mkfifo(run / "shortlist.npz")
    with pytest.raises(RunDirectoryError, match="cannot be read: not a regular file"):
        fm.Translator.load(run, shortlist=True)


def test_a_run_goes_on_and_tells_what_its_log_has(run, capfd):
    reports = []
    config = fm.load_config(run, {"training.steps": 25})
    status = fm.train(config, run, on_report=reports.append)
    assert (status.state, status.step, status.reason) == ("finished", 25, "all 25 steps done")
    kinds_and_steps = [(report["kind"], report["step"]) for report in reports]
    assert kinds_and_steps == [("train", 25), ("valid", 25)]
    assert reports == read_metrics(run / "metrics.jsonl")[-2:]
    assert "training.steps: was 20, now 25" in capfd.readouterr().err
    assert len(read_record(open_run(run)).starts) == 2
    assert fm.train(config, run) == status
    assert "finished at step 25 (all 25 steps done); nothing to do" in capfd.readouterr().err


def test_what_a_report_raises_ends_training_in_a_thread_too_and_is_in_its_status(run):
    report = mock.Mock(side_effect=[None, LookupError("no tracker\nand more")])
    config = fm.load_config(run, {"training.steps": 25})
    with ThreadPoolExecutor() as threads, pytest.raises(LookupError):
        threads.submit(fm.train, config, run, on_report=report).result()
    status = read_status(open_run(run))
    assert (status.state, status.step, status.reason) == ("failed", 25, "no tracker")


class Length(Metric):
    """Share of translations with as many words as the reference."""

    signature = "words"

    def row(self, hypothesis, reference):
        return [len(hypothesis.split()) == len(reference.split()), 1]

    def score(self, totals):
        return 100 * totals[..., 0] / totals[..., 1]


def test_sets_are_scored_kept_and_compared(run, translator):
    lines = ["The dog sleeps .", "Who sings ?"]
    scoring = dataclasses.replace(QUICK, others=(Length(name="length"),))
    evaluations = fm.evaluate(run, {"mine": (lines, lines)}, translator=translator, scoring=scoring)
    mine = evaluations["mine"]
    equally_long = [
        len(translation.text.split()) == len(line.split())
        for translation, line in zip(mine.translations, lines, strict=True)
    ]
    assert mine.scores.metrics["length"] == 50 * sum(equally_long)
    assert mine.files.scores == run / "evaluation" / "mine.json"
    assert repr(mine).startswith("<Evaluation mine: sacrebleu_13a ")
    assert "<table>" in mine._repr_html_() and "length" in mine._repr_html_()
    greedy = translator.with_config(beam_size=1)
    assert fm.evaluate(run, "valid", translator=greedy, scoring=QUICK).keys() == {"valid"}
    (run / "others.txt").write_text("\n".join(lines))
    systems = [f"ours={run}", run / "others.txt"]
    both = fm.compare(systems, evaluation="mine", scoring=scoring, methods=["randomization"])
    assert both.systems[1].assessment.scores.metrics["length"] == 100
    assert repr(both).startswith("sacrebleu_13a") and "others.txt" in both._repr_html_()
    for name, said in (("held_out", "is already a set of this run"), ("valid", "choose another")):
        with pytest.raises(ScoringError, match=said):
            fm.evaluate(run, {name: (lines, lines)})


def test_a_set_has_several_references(run, translator, monkeypatch):
    lines = ["The dog sleeps .", "Who sings ?"]
    text = {"mine": (lines, [lines, ["The cat sleeps .", None]])}
    mine = fm.evaluate(run, text, translator=translator, scoring=QUICK)["mine"]
    assert mine.scores.signatures["chrf"].startswith("nrefs:var|")
    both = fm.compare([run, f"again={run}"], evaluation="mine", methods=["randomization"])
    assert both.systems[0].assessment.references.missing() == [[], [2]]
    # Refused before anything is translated.
    monkeypatch.setattr(type(translator), "translate_lines", mock.Mock(side_effect=AssertionError))
    for sides, said in (
        ((lines, [lines, lines]), "COMET takes one reference per sentence"),
        ((lines, [lines, lines[:1]]), "reference 2 has 1 sentence, but the first has 2"),
        ((lines, [lines[:1], lines[:1]]), "mine: 2 sources for 1 references"),
    ):
        with pytest.raises(ScoringError, match=said):
            scoring = dataclasses.replace(QUICK, comet="x")
            fm.evaluate(run, {"mine": sides}, translator=translator, scoring=scoring)


def test_a_set_of_the_run_is_read_from_another_folder(run, translator, tmp_path):
    """Such as where its corpus has moved."""
    for language in ("en", "de"):
        (tmp_path / f"test.{language}").write_text("The dog sleeps .\nWho sings ?\n")
    evaluations = fm.evaluate(
        run, "held_out", translator=translator, scoring=QUICK, folder=str(tmp_path)
    )
    assert len(evaluations["held_out"].translations) == 2


def test_checkpoints_are_averaged_and_the_mean_is_exported(run, tmp_path):
    assert fm.average(run, last=2) == [15, 20]
    assert fm.average(run, best=1) == [20] or fm.average(run, best=1) == [10]
    with pytest.raises(ValueError, match="give either"):
        fm.average(run, last=2, best=1)
    assert repr(fm.Translator.load(run)).startswith("<Translator: the weights 'average of step")
    parity = fm.export(run, tmp_path / "hlo", format="stablehlo")
    assert parity is not None and parity.agrees and (tmp_path / "hlo" / "README.md").exists()


def test_results_show_themselves(translator):
    source = "The dog sleeps ."
    translation = translator.translate(source, n_best=2)
    assert str(translation) == translation.text
    assert repr(translation).startswith(f"<Translation {translation.text!r}, score ")
    (alignment,) = translator.align([(source, translation.tokens)])
    assert alignment._repr_html_().count("<ruby>") == len(alignment.tgt_words)
    attention = translator.attend(source, translation.tokens)
    assert repr(attention).startswith("<Attention: 1 layers of 2 heads, pieces: ")
    html = attention._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "The dog sleeps ." in html


def test_what_is_not_there_is_an_attribute_error_and_what_is_is_listed():
    assert {"Translator", "train", "compare", "__version__"} <= set(dir(fm))
    assert {"Metric", "Sampling", "Scoring", "Terminology"} <= set(dir(fm))
    assert fm.Terminology.of({"dog": "Hund"}).translations("a dog") == ["Hund"]
    assert fm.Sampling(seed=3).seed == 3 and not fm.Scoring(ter=False).ter
    with pytest.raises(AttributeError, match="'flaxformer_mt' has no attribute 'trian'"):
        _ = fm.trian
