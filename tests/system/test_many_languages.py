"""One model of several languages, as a user makes one: sets, directions, and a new language."""

import json
import re
import shutil

import numpy as np
import pytest

import flaxformer_mt as fm
from flaxformer_mt.cli.actions import scoring
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.grammar.text import pairs
from flaxformer_mt.rundir.checkpoint_choice import chosen_weights
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.rundir.weights import load_params
from tests.cli.conftest import run_captured, settings
from tests.data.prepare.corpora import write
from tests.system.conftest import SMALL

SIDES = {"to_de": ("en", "de"), "to_en": ("de", "en")}


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory):
    """Text of the built-in grammar, whose German also stands for another language."""
    folder = tmp_path_factory.mktemp("text")
    for split, size in (("train", 60), ("valid", 6)):
        write(folder, split, pairs(split, size))
        shutil.copy(folder / f"{split}.de", folder / f"{split}.nl")
    return folder


def many(corpus, *, sides=SIDES):
    """Arguments for a training in these directions, each with a validation and a test set."""
    of_one_pair = re.compile(r"--config\.data\.(train|valid|test)\.")
    arguments = [word for word in settings(corpus, **SMALL) if not of_one_pair.match(word)]
    for name, (src, tgt) in sides.items():
        for group, text in (("train", "train"), ("valid_sets", "valid"), ("test", "valid")):
            key = f"--config.data.{group}.{name}"
            arguments += [
                f"{key}={text}.{src},{text}.{tgt}",
                f"{key}.tag=<2{tgt}>",
                f"{key}.src_lang={src}",
                f"{key}.tgt_lang={tgt}",
            ]
    return arguments


@pytest.fixture(scope="module")
def trained_on_both(tmp_path_factory, corpus_folder):
    path = tmp_path_factory.mktemp("many") / "run"
    changes = ("validate_bleu=true", "best_metric=bleu", "best_set=to_en", "steps=4")
    settings = [f"--config.training.{change}" for change in changes]
    done = run_captured("train", "--workdir", path, *many(corpus_folder), *settings)
    assert done.status == 0, done.errors
    return path, done


def test_each_set_is_scored_and_one_decides(trained_on_both):
    path, done = trained_on_both
    reports = [one for one in read_metrics(path / "metrics.jsonl") if one["kind"] == "valid"]
    for report in reports:
        for score in ("loss", "bleu", "chrf"):
            of_sets = [report[f"{score}/{name}"] for name in SIDES]
            assert report[score] == pytest.approx(np.mean(of_sets))
    assert "to_en · loss" in done.errors and "bleu/" not in done.errors
    assert "validation text is the training text" not in done.errors  # of another direction
    assert f"translate --workdir {path} --tag '<2de>' < INPUT" in done.errors
    best = max(reports, key=lambda report: (report["bleu/to_en"], -report["loss"]))
    assert chosen_weights(open_run(path), "best").checkpoint == best["step"]


def test_sets_are_evaluated_by_name_in_their_languages(run, trained_on_both, corpus_folder):
    path, _ = trained_on_both
    call = ("evaluate", "--workdir", path, "--beam-size", 1, "--no-ter", "--resamples", 0, "--json")
    scores = json.loads(run(*call, "--set", "valid", status=0).output)
    assert [*scores] == ["valid.to_de", "valid.to_en"]
    assert scores["valid.to_en"]["scoring"]["language"] == "en"
    assert [*json.loads(run(*call, "--set", "valid.to_en", status=0).output)] == ["valid.to_en"]
    assert [*json.loads(run(*call, status=0).output)] == [*SIDES]
    # The tag is no word of the source.
    sources = (path / "evaluation" / "to_en.src.txt").read_text()
    assert sources == (corpus_folder / "valid.de").read_text()
    done = run(*call, "--set", "valid.to_fr")
    assert done.status == 2 and "it has to_de, to_en, valid.to_de, valid.to_en" in done.last
    done = run(*call, "--set", "valid", "--tag", "<2de>")
    assert done.status == 2 and "the run's own sets have theirs" in done.last


def test_from_python_the_run_s_sets_keep_their_tags(trained_on_both, corpus_folder):
    path, _ = trained_on_both
    translator = fm.Translator.load(path).with_config(beam_size=1)
    scoring = fm.Scoring(ter=False, resamples=0)
    plain = fm.evaluate(path, "to_en", translator=translator, scoring=scoring, examples=0)
    german = translator.with_tag("<2de>")
    tagged = fm.evaluate(path, "to_en", translator=german, scoring=scoring, examples=0)
    hypotheses = [one["to_en"].assessment.hypotheses for one in (plain, tagged)]
    assert hypotheses[0] == hypotheses[1]
    text = {"own": (["the dog sleeps ."], ["der Hund schläft ."])}
    to_english = translator.with_tag("<2en>")
    assert fm.evaluate(path, text, translator=to_english)["own"].assessment.scoring.language == "en"


def test_a_known_test_set_gets_the_tag_of_its_languages(run, trained_on_both, monkeypatch):
    path, _ = trained_on_both
    text = ["the dog sleeps ."], ["der Hund schläft ."], 0
    monkeypatch.setattr(scoring, "load_testset", lambda name, langpair: text)
    call = ("evaluate", "--workdir", path, "--beam-size", 1, "--no-ter", "--resamples", 0)
    call += ("--json", "--testset", "known", "--langpair")
    done = json.loads(run(*call, "en-de", status=0).output)
    assert done["known.en-de"]["scoring"]["language"] == "de"
    done = json.loads(run(*call, "de-en", status=0).output)
    assert done["known.de-en"]["scoring"]["language"] == "en"
    done = run(*call, "en-fr")
    assert done.status == 2 and "this run translates en to de and de to en; to score" in done.last


def test_heads_are_searched_for_with_the_tag(run, trained_on_both, corpus_folder):
    path, _ = trained_on_both
    call = ("attention", "--workdir", path, "--find", "--input", corpus_folder / "valid.en")
    output = run(*call, "--beam-size", 1, "--kind", "cross", "--tag", "<2de>", status=0).output
    assert "--tag '<2de>'" in output


def test_a_tag_is_given_once_for_all_lines(run, trained_on_both, corpus_folder):
    path, _ = trained_on_both
    call = ("translate", "--workdir", path, "--beam-size", 1)
    done = run(*call, "--tag", "<2de>", stdin=b"the dog sleeps .\n", status=0)
    without = run(*call, stdin=b"<2de> the dog sleeps .\n", status=0)
    assert done.output == without.output
    hint = "all training text of this model has tags: give --tag (<2de>, <2en>), or begin lines so"
    assert hint in without.errors and hint not in done.errors
    done = run(*call, "--tag", "<2fr>", stdin=b"a\n")
    assert done.status == 2 and "knows no tag '<2fr>'; it knows <2de>, <2en>" in done.last

    texts = ("--src", corpus_folder / "valid.de", "--ref", corpus_folder / "valid.en")
    scoring = ("--beam-size", 1, "--no-ter", "--resamples", 0, "--json", "--name", "own")
    done = run("evaluate", "--workdir", path, *texts, *scoring, "--tag", "<2en>", status=0)
    of_set = run("evaluate", "--workdir", path, "--set", "to_en", *scoring[:-2], status=0)
    own, named = json.loads(done.output)["own"], json.loads(of_set.output)["to_en"]
    assert own["metrics"] == named["metrics"] and own["scoring"]["language"] == "en"


def test_a_new_language_gets_a_tag_when_fine_tuning(run, trained_on_both, corpus_folder, tmp_path):
    path, _ = trained_on_both
    fine = tmp_path / "fine"
    new = many(corpus_folder, sides=SIDES | {"to_nl": ("en", "nl")})
    slow = "--config.training.schedule.peak=1e-7"  # so that a step changes hardly anything
    steps = ("--config.training.steps=1", slow, "--config.data.vocabulary.symbols=<x1/>")
    done = run("train", "--workdir", fine, "--init-from", path, *new, *steps, status=0)
    assert "2 new types after all others: <2nl>, <x1/>; their embeddings" in done.errors
    before, after = (Vocabularies.load(folder / "vocabulary").src for folder in (path, fine))
    assert after.pieces() == [*before.pieces(), "<2nl>", "<x1/>"]
    rows, extended = (
        np.asarray(load_params(open_run(folder), which)["embedding"]["shared"])
        for folder, which in ((path, chosen_weights(open_run(path), "auto").checkpoint), (fine, 1))
    )
    assert np.allclose(extended[: len(rows)], rows, atol=1e-6)
    mean = np.broadcast_to(rows.mean(axis=0), (2, rows.shape[1]))
    assert np.allclose(extended[len(rows) :], mean, atol=1e-6)

    done = run("train", "--workdir", fine, *new, *steps[1:], "--config.training.steps=2", status=0)
    assert "resuming after step 1" in done.errors
    call = ("translate", "--workdir", fine, "--beam-size", 1, "--tag", "<2nl>")
    assert run(*call, stdin=b"the dog sleeps .\n", status=0).output


def test_weights_that_a_start_never_came_to_are_those_of_the_next(
    run, trained_on_both, corpus_folder, tmp_path
):
    path, _ = trained_on_both
    fine = tmp_path / "fine"
    new = many(corpus_folder, sides=SIDES | {"to_nl": ("en", "nl")})
    steps = ("--config.training.steps=1", "--config.training.schedule.peak=1e-7")
    frozen = "--config.training.freeze=embedding/*"
    done = run("train", "--workdir", fine, "--init-from", path, *new, *steps, frozen)
    assert done.status == 2 and "embeddings in embedding/shared would all stay alike" in done.last

    done = run("train", "--workdir", fine, "--config.training.freeze=", status=0)
    assert f"starting from {path}, as the run's first start was to" in done.errors
    chosen = chosen_weights(open_run(path), "auto").checkpoint
    rows, others = (
        np.asarray(load_params(open_run(folder), which)["embedding"]["shared"])
        for folder, which in ((path, chosen), (fine, 1))
    )
    assert np.allclose(others[: len(rows)], rows, atol=1e-6)
