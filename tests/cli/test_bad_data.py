"""Bad input to `prepare`: one line with file and line and what to do, no trace, nothing lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flaxformer_mt.rundir.layout import open_run, read_record
from tests.cli.conftest import Run, settings


def prepare(run: Run, corpus: Path, **changes: object) -> tuple[int, str]:
    done = run("prepare", *settings(corpus, **changes), "--workdir", corpus.parent / "run")
    return done.status, done.last


@pytest.mark.parametrize(
    ("content", "change", "message"),
    [
        ("hé\n".encode("utf-16") * 120, {}, "train.en: is UTF-16 text: convert it to UTF-8"),
        (b"", {}, "train.en has 0 lines and"),
        (None, {"data__folder": "~nobody_of_this_name/x"}, "there is no such user's home"),
        (None, {"data__train__mine__src": "ftp://host/x"}, "neither a local path nor one in a"),
        (None, {"data__train__mine__src": "x" * 5000}, "File name too long"),
    ],
)
def test_what_is_no_corpus_is_refused(run, corpus, content, change, message):
    if content is not None:
        (corpus / "train.en").write_bytes(content)
    status, last = prepare(run, corpus, **change)
    assert status == 2 and message in last


def test_what_is_unusual_is_no_error(run, corpus):
    """A mark of the byte order, line ends of Windows, no last line end, a line of megabytes."""
    lines = (corpus / "train.en").read_bytes()
    exotic = "👩‍👩‍👧‍👦 שלום \u202e\u200d e\u0301 \u2028 \u0085 \U0001f1e9\U0001f1ea".encode()
    huge = b"word " * 400_000
    content = b"\n".join([b"\xef\xbb\xbf" + lines.rstrip(b"\n"), exotic, huge])
    (corpus / "train.en").write_bytes(content.replace(b"\n", b"\r\n"))
    with open(corpus / "train.de", "ab") as stream:
        stream.write(exotic + b"\n" + huge)
    status, last = prepare(run, corpus)
    assert status == 0, last
    manifest = json.loads((corpus.parent / "run" / "data" / "manifest.json").read_text())
    account = manifest["corpora"][0]
    assert account["read"] == 122 and account["dropped"] == {"too long": 1}


def test_the_vocabulary_s_sample_tells_of_defects(run, corpus):
    """Where nearly all is defective, a complaint about the vocabulary's size alone misleads."""
    lines = (corpus / "train.en").read_bytes().split(b"\n")
    (corpus / "train.en").write_bytes(b"\n".join(lines[:3] + [b"\0" + x for x in lines[3:120]]))
    arguments = settings(corpus, data__vocabulary__size=5000)
    done = run("prepare", *arguments, "--workdir", corpus.parent / "run")
    assert done.status == 2 and "set it to" in done.last
    assert "on 3 pairs, leaving out 117 control character" in done.errors


def test_sides_and_sets_that_are_one_file_are_pointed_out(run, corpus):
    done = run(
        *("prepare", *settings(corpus, data__valid__src="train.en", data__valid__tgt="train.de")),
        *("--workdir", corpus.parent / "one"),
    )
    assert done.status == 0
    assert "data.valid.src has the contents of data.train.mine.src: what is" in done.errors
    done = run(
        *("prepare", *settings(corpus, data__train__mine__tgt="train.en", data__tgt_lang="de")),
        *("--workdir", corpus.parent / "two"),
    )
    said = "data.train.mine.src and data.train.mine.tgt have the same contents"
    assert done.status == 0 and said in done.errors


def test_what_is_in_the_way_is_named_before_anything_is_made(run, corpus):
    folder = corpus.parent / "run"
    folder.mkdir()
    for name in ("data", "data.partial", "vocabulary"):
        (folder / name).write_text("mine")
        status, last = prepare(run, corpus)
        assert status == 2 and f"{folder / name}: is a file where a folder is to be" in last
        assert (folder / name).read_text() == "mine"
        (folder / name).unlink()
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "shared.model").write_bytes(b"half")
    done = run("prepare", *settings(corpus), "--workdir", folder)
    assert done.status == 2 and "vocabulary: holds files but no vocabulary.json" in done.last
    assert "training the vocabulary" not in done.errors


def test_an_impossible_run_directory_is_named(run, corpus):
    done = run("prepare", *settings(corpus), "--workdir", corpus / ("x" * 300))
    assert done.status == 2 and "File name too long; choose a shorter name" in done.last


def test_a_first_attempt_binds_nobody(run, corpus):
    """What failed for a setting goes on with another one, and the record says with which."""
    status, last = prepare(run, corpus, data__vocabulary__size=100_000)
    assert status == 2 and "set it to" in last
    status, last = prepare(run, corpus, data__vocabulary__size=160)
    assert status == 0, last
    record = read_record(open_run(corpus.parent / "run"))
    assert record.config["data"]["vocabulary"]["size"] == 160
    status, last = prepare(run, corpus, data__vocabulary__size=170)
    assert status == 2 and "data.vocabulary.size: 160 then, 170 now" in last
    record = read_record(open_run(corpus.parent / "run"))
    assert record.config["data"]["vocabulary"]["size"] == 160


def test_damage_says_what_to_do(run, corpus):
    assert prepare(run, corpus)[0] == 0
    for name, content in (
        ("data/manifest.json", b'{"format": 1}'),
        ("data/manifest.json", b"[" * 100_000),
        ("data/store.json", b"1" * 5000),
        ("data/train-00000.src.tokens", None),
        ("vocabulary/vocabulary.json", b"\xff" * 1000),
        ("vocabulary/shared.model", b""),
        ("config.json", b'{"format_version"'),
    ):
        path = corpus.parent / "run" / name
        whole = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        status, last = prepare(run, corpus)
        assert status == 2 and str(path) in last and len(last) < 1000
        assert "run `prepare` again" in last or "restore" in last
        path.write_bytes(whole)
    assert prepare(run, corpus)[0] == 0
    shutil.rmtree(corpus.parent / "run" / "data")
    assert prepare(run, corpus)[0] == 0


def test_validation_that_fits_no_batch_is_told_by_what_prepares(run, corpus):
    """While all settings may still be changed. The training text fits."""
    for language in ("en", "de"):
        text = (corpus / f"valid.{language}").read_text()
        (corpus / f"valid.{language}").write_text(" ".join(text.splitlines()[:4]) + "\n")
    changes = {"data__batch__tokens": 8 * 64, "data__vocabulary__size": 400}
    for command in (("prepare",), ("train", "--dry-run")):
        done = run(*command, *settings(corpus, **changes), "--workdir", corpus.parent / command[0])
        assert done.status == 2
        assert "data.valid: 8 rows (data.batch.multiple) of the longest pair" in done.last
        assert "data.batch.tokens is 512: raise it, or lower" in done.last
