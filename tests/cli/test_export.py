"""`export` and `import` as a user calls them, with good and with bad input."""

import json

import pytest

from flaxformer_mt.interop import huggingface
from tests.cli.conftest import settings
from tests.decoding.runs import make_run
from tests.interop.marian_models import ENGLISH, GERMAN, write_arrays

pytest.importorskip("ctranslate2", reason="needs the [export] extra")
pytest.importorskip("safetensors", reason="needs the [export] extra")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("made") / "run", {1: None})


@pytest.fixture
def alone(monkeypatch):
    """As where PyTorch is not installed."""
    monkeypatch.setattr(huggingface, "missing", lambda: ["torch", "transformers"])


def test_a_run_is_exported_and_compared(run, trained, tmp_path):
    out, sample = tmp_path / "out", tmp_path / "sample.txt"
    sample.write_text("a dog runs home .\nwho sees the house ?\n")
    arguments = ["export", "--workdir", trained, "--format", "ctranslate2", "--output", out]
    done = run(*arguments, "--sample", sample)
    assert done.status == 0 and done.output == ""
    assert f"on {sample}: greedy outputs equal for 2 of 2 sentences" in done.errors
    assert done.last == f"{out}: weights 'latest, step 1'; README.md explains how to translate"
    parity = json.loads((out / "parity.json").read_text())
    assert parity["sentences"] == 2 and parity["largest"] < 1e-4
    assert {"model.bin", "source.spm", "target.spm", "README.md"} <= {p.name for p in out.iterdir()}

    again = run(*arguments, "--sample", sample)
    assert again.status == 2 and again.last.endswith(
        f"{out}: already exists; choose another folder, or remove it"
    )


def test_without_the_other_program_unchecked_is_needed(run, trained, tmp_path, alone):
    out = tmp_path / "out"
    arguments = ["export", "--workdir", trained, "--format", "huggingface", "--output", out]
    done = run(*arguments)
    assert done.status == 2 and "pip install torch transformers, or use --unchecked" in done.last
    done = run(*arguments, "--unchecked")
    assert done.status == 0 and "outputs not compared (--unchecked)" in done.errors
    assert (out / "model.safetensors").exists() and not (out / "parity.json").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--format", "ctranslate2", "--bound", "1e-12"], 2, "the runtimes disagree: CTranslate2"),
        (["--quantization", "int8"], 2, "'huggingface' is float32 only: int8 is for ctranslate2"),
        (["--unchecked", "--bound", "1"], 2, "--unchecked skips the comparison: leave out"),
        (["--weights", "7"], 1, "has no checkpoint 7; there are 1"),
        (["--output", "gs://bucket/x", "--unchecked"], 2, "gs://bucket/x: is not a local folder"),
    ],
)
def test_wrong_arguments_are_named(run, trained, tmp_path, arguments, status, message):
    usual = ["--workdir", trained, "--format", "huggingface", "--output", tmp_path / "out"]
    done = run("export", *usual, *arguments)
    assert (done.status, message in done.last) == (status, True), done.errors
    assert not list(tmp_path.iterdir())


@pytest.mark.extended
def test_an_imported_run_translates_and_starts_another(run, tmp_path, alone):
    write_arrays(tmp_path / "marian")
    workdir = tmp_path / "run"
    done = run("import", "--from", tmp_path / "marian", "--workdir", workdir)
    assert done.status == 0
    assert "outputs not compared with the original model" in done.errors
    assert f"train --init-from {workdir} --workdir NEW" in done.last

    translate = ["translate", "--workdir", workdir, "--beam-size", "1"]
    done = run(*translate, stdin=b"the cat sees it all .\n\n")
    assert done.status == 0 and done.output.count("\n") == 2 and done.output.endswith("\n\n")
    done = run("train", "--workdir", workdir)
    assert done.status == 0 and "finished at step 0 (imported from" in done.errors
    again = run("import", "--from", tmp_path / "marian", "--workdir", workdir)
    assert again.status == 2 and "run: already exists" in again.last

    for name, texts in (("en", ENGLISH), ("de", GERMAN)):
        (tmp_path / f"train.{name}").write_text("".join(f"{text}\n" for text in texts))
        (tmp_path / f"valid.{name}").write_text("".join(f"{text}\n" for text in texts[::9]))
    changes = {
        "data__batch__tokens": 2048,
        "data__batch__max_shapes": 1,
        "training__steps": 2,
        "training__validate_bleu": "false",
        "training__best_metric": "loss",
    }
    # Of the config that it takes from the other run only what says something else.
    overrides = [
        a for a in settings(tmp_path, **changes)[2:] if "dtype" not in a and "size" not in a
    ]
    done = run("train", "--init-from", workdir, "--workdir", tmp_path / "tuned", *overrides)
    assert done.status == 0 and "finished at step 2" in done.errors, done.errors
    assert "using the vocabulary in" in done.errors
