"""Bad input to `prepare`: one line with file and line and what to do, no trace, nothing lost."""

import re

import pytest

from tests.cli.conftest import settings


def test_sides_and_sets_that_are_one_file_are_pointed_out(run, corpus):
    arguments = settings(corpus, data__valid__src="train.en", data__valid__tgt="train.de")
    done = run("prepare", *arguments, "--workdir", corpus.parent / "one", status=0)
    said = "data.valid.src: validation text is the training text of data.train.mine"
    assert f"prepare: warning: {said}" in done.errors
    (corpus / "copy.de").write_bytes((corpus / "train.en").read_bytes())
    arguments = settings(corpus, data__train__mine__tgt="copy.de")
    done = run("prepare", *arguments, "--workdir", corpus.parent / "two", status=0)
    said = "data.train.mine.src and data.train.mine.tgt have the same contents"
    assert f"prepare: warning: {said}" in done.errors
    arguments = settings(corpus, data__train__mine__tgt="train.en", data__tgt_lang="de")
    done = run("prepare", *arguments, "--workdir", corpus.parent / "three")
    said = "data.train.mine.src and data.train.mine.tgt name the same file, 'train.en'"
    assert done.status == 2 and said in done.last


def test_what_is_in_the_way_is_named_before_anything_is_made(run, corpus):
    folder = corpus.parent / "run"
    folder.mkdir()
    for name in ("data", "data.partial", "vocabulary"):
        (folder / name).write_text("mine")
        done = run("prepare", *settings(corpus), "--workdir", folder)
        assert done.status == 2 and f"{folder / name}: is a file, but must be a folder" in done.last
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink()
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "shared.model").write_bytes(b"half")
    done = run("prepare", *settings(corpus), "--workdir", folder)
    assert done.status == 2 and "vocabulary: holds files but no vocabulary.json" in done.last
    assert "training the vocabulary" not in done.errors


def test_validation_that_fits_no_batch_is_told_by_what_prepares(run, corpus):
    """While all settings may still be changed. The training text fits."""
    for language in ("en", "de"):
        text = (corpus / f"valid.{language}").read_text()
        (corpus / f"valid.{language}").write_text(" ".join(text.splitlines()[:4]) + "\n")
    changes = {"data__batch__tokens": 8 * 64, "data__vocabulary__size": 400}
    for command in (("prepare",), ("train", "--dry-run")):
        done = run(*command, *settings(corpus, **changes), "--workdir", corpus.parent / command[0])
        assert done.status == 2
        assert "data.valid: 8 rows of " in done.last
        assert "exceed data.batch.tokens = 512: raise it, or lower" in done.last


@pytest.mark.parametrize(
    "command", [("train",), ("train", "--dry-run"), ("prepare",)], ids=lambda words: words[-1]
)
def test_what_cannot_be_used_leaves_no_run_folder(run, corpus, command):
    """Neither a mistyped name nor text that only its reader finds wrong."""
    workdir = corpus.parent / "new" / "run"
    (corpus / "wide.de").write_text("Eine Zeile.\n" * 120, encoding="utf-16")
    for name, said in (
        ("trian.de", "data.train.mine.tgt: .*trian.de does not exist"),
        ("wide.de", "wide.de: is UTF-16 text: convert it to UTF-8"),
    ):
        done = run(*command, *settings(corpus, data__train__mine__tgt=name), "--workdir", workdir)
        assert done.status == 2 and re.search(said, done.last), done.errors
        assert not workdir.parent.exists()
    done = run(*command, *settings(corpus), "--workdir", corpus / "wide.de")
    assert done.status == 2 and "wide.de: is a file; choose a directory for the run" in done.last
