"""`export` and `import` as a user calls them, with good and with bad input."""

import json

import pytest

from flaxformer_mt.interop import huggingface

pytest.importorskip("ctranslate2", reason="needs the [export] extra")
pytest.importorskip("safetensors", reason="needs the [export] extra")


def test_a_run_is_exported_and_compared(run, workdir, tmp_path):
    out, sample = tmp_path / "out", tmp_path / "sample.txt"
    sample.write_text("a dog runs home .\nwho sees the house ?\n")
    arguments = ["export", "--workdir", workdir, "--format", "ctranslate2", "--output", out]
    done = run(*arguments, "--sample", sample)
    assert done.status == 0 and done.output == ""
    assert f"on {sample}: greedy outputs equal for 2 of 2 sentences" in done.errors
    assert done.last == f"{out}: weights 'best, step 2'; README.md explains how to translate"
    parity = json.loads((out / "parity.json").read_text())
    assert parity["sentences"] == 2 and parity["largest"] < 1e-4
    assert {"model.bin", "source.spm", "target.spm", "README.md"} <= {p.name for p in out.iterdir()}

    again = run(*arguments, "--sample", sample)
    assert again.status == 2 and f"{out}: already exists; choose another folder" in again.last


def test_without_the_other_program_unchecked_is_needed(run, workdir, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "missing", lambda: ["torch", "transformers"])
    out = tmp_path / "out"
    arguments = ["export", "--workdir", workdir, "--format", "huggingface", "--output", out]
    done = run(*arguments)
    assert done.status == 2 and "pip install torch transformers, or use --unchecked" in done.last
    done = run(*arguments, "--unchecked")
    assert done.status == 0 and "outputs not compared (--unchecked)" in done.errors
    assert (out / "model.safetensors").exists() and not (out / "parity.json").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--format", "ctranslate2", "--bound", "1e-12"], 2, "the runtimes disagree: CTranslate2"),
        (
            ["--quantization", "int8"],
            2,
            "'huggingface' is float32 only: int8 is for ctranslate2, argos, bergamot",
        ),
        (["--unchecked", "--bound", "1"], 2, "--unchecked skips the comparison: leave out"),
        (["--weights", "7"], 1, "has no checkpoint 7; there are 1, 2"),
        (["--output", "gs://bucket/x", "--unchecked"], 2, "gs://bucket/x: is not a local folder"),
    ],
)
def test_wrong_arguments_are_named(run, workdir, tmp_path, arguments, status, message):
    usual = ["--workdir", workdir, "--format", "huggingface"]
    if "--output" not in arguments:
        usual += ["--output", tmp_path / "out"]
    done = run("export", *usual, *arguments)
    assert (done.status, message in done.last) == (status, True), done.errors
    assert not list(tmp_path.iterdir())
