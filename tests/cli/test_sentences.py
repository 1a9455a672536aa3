"""Lines of several sentences in `translate`, `score` and `evaluate`, by a run's training text."""

import json
import shutil

import pytest

from flaxformer_mt.decoding.text.segments import EOS
from tests.decoding.runs import PAIRS

LINE = " ".join(source.capitalize() for source, _ in PAIRS[2:])
REFERENCE = "Wer sieht das haus ? Sie schlafen !"


@pytest.fixture(scope="module")
def single(workdir, tmp_path_factory):
    """A run whose training text has single sentences alone."""
    run = shutil.copytree(workdir, tmp_path_factory.mktemp("single") / "run")
    lengths = {"src": {"tokens": 100}, "tgt": {"tokens": 100}}
    counts = {"lines": 100, "by_sentences": {"1": 100}}
    (run / "data").mkdir()
    (run / "data" / "manifest.json").write_text(
        json.dumps({"lengths": {"train": lengths}, "sentences": counts})
    )
    return run


@pytest.fixture
def translated(run, single):
    """Translates the line; its tokens, and what is said."""

    def call(*flags):
        form = ("--output-format", "jsonl", "--tokens")
        done = run("translate", "--workdir", single, *form, *flags, stdin=LINE.encode(), status=0)
        return json.loads(done.output)["tokens"], done.errors

    return call


def test_translate_splits_and_says_so(translated):
    tokens, said = translated()
    assert tokens.count(EOS) == 1
    assert "1 line of several sentences, as the training text rarely has them" in said
    assert "may translate only one" not in said


def test_translate_may_keep_the_line(translated):
    tokens, said = translated("--no-split")
    assert EOS not in tokens
    assert "1 line with several sentences, but the model may translate only one" in said


@pytest.mark.parametrize(("flags", "ends"), [((), 2), (("--no-split",), 1)])
def test_score_reads_the_line_as_translate_does(run, single, flags, ends):
    pair = f"{LINE}\t{REFERENCE}\n".encode()
    command = ("score", "--workdir", single, "--per-token", *flags)
    done = run(*command, stdin=pair, status=0)
    assert done.output.count("</s>") == ends


@pytest.mark.parametrize(("flags", "lines"), [((), [1]), (("--no-split",), [])])
def test_evaluate_reads_the_line_as_translate_does(run, single, tmp_path, flags, lines):
    (tmp_path / "test.en").write_text(f"{LINE}\n")
    (tmp_path / "test.de").write_text(f"{REFERENCE}\n")
    files = ("--src", tmp_path / "test.en", "--ref", tmp_path / "test.de")
    command = ("evaluate", "--workdir", single, *files, "--output", tmp_path / "out", *flags)
    done = run(*command, status=0)
    assert ("1 line of several sentences" in done.errors) == bool(lines)
    recorded = json.loads((tmp_path / "out" / "test.json").read_text())
    assert recorded["lines_by_sentence"] == lines
