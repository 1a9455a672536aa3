"""The first minutes on a GPU: every part has its limit, and none costs another one its place."""

import dataclasses
import lzma
import os
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks import carried, first_contact
from benchmarks.carried import CannotCollect, collect_wheels, cut
from benchmarks.contact_parts import Part
from benchmarks.first_contact import all_parts, contact
from flaxformer_mt.reproduction.result_file import read_results

ROOT = Path(__file__).parents[2]
# Beside these, what the lending image has is not wanted here: PyTorch is large.
IMAGE = (
    *("jax==0.11.2", "jaxlib==0.11.2", "flax==0.12.12", "optax==0.2.8"),
    *("orbax-checkpoint==0.12.8", "sentencepiece==0.2.3"),
)
STAND_IN = """\
import sys, time
from pathlib import Path
from flaxformer_mt.reproduction.result_file import this_machine, write_result
def result(rate, device="none"):
    write_result(Path(sys.argv[2]), command="x", config="x", machine=this_machine(device),
        seconds=1.0, metrics={"rate": rate, "good_share": 0.5}, signatures={"rate": "so"})
if sys.argv[1] == "good": result(2.0)
if sys.argv[1] == "partly": result(3.0); sys.exit("no such kernel in /opt/some/where/lib.so")
if sys.argv[1] == "hangs": time.sleep(600)
"""


@pytest.mark.extended
def test_a_part_that_fails_hangs_or_has_no_time_is_recorded_and_the_next_one_runs(tmp_path):
    (tmp_path / "stand_in.py").write_text(STAND_IN, encoding="utf-8")
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}

    def part(name: str, what: str, most: float = 60.0, **more: object) -> Part:
        more |= {"environment": environment, "results": tmp_path / name}
        command = ["stand_in", what, str(tmp_path / name / f"{name}.json")]
        return Part(name=name, command=lambda _: command, most=most, **more)

    parts = [
        part("good", "good"),
        part("beside", "good", beside=True),
        part("hangs", "hangs", most=1.0),
        part("partly", "partly"),
        part("late", "good", least=1e6),
    ]
    output, last = tmp_path / "output", part("last", "good")

    def command(seconds: float) -> list[str]:
        (before,) = read_results(output)
        assert "late_failed" in before.metrics, "the result is written after each"
        return last.command(seconds)

    parts.append(dataclasses.replace(last, command=command))
    end = time.perf_counter() + 300
    contact(parts, tmp_path, output, end, "python -m benchmarks.first_contact", "NVIDIA H200")
    (result,) = read_results(output)
    metrics, signatures = result.metrics, result.signatures
    assert result.machine.accelerator == "NVIDIA H200"
    for name in ("good", "beside", "last"):
        assert metrics[f"{name}_rate"] == 2 and signatures[f"{name}_rate"] == "so"
        assert metrics[f"{name}_seconds"] > 0 and f"{name}_failed" not in metrics
    assert metrics["good_share"] == 0.5  # which bears the part's name already
    assert signatures["hangs_failed"] == "stopped after 1 s" and metrics["hangs_seconds"] < 30
    assert signatures["partly_failed"] == "status 1: no such kernel in .../lib.so"
    assert metrics["partly_rate"] == 3, "what a part has written before it failed is kept"
    assert "no time was left for it" in signatures["late_failed"]
    assert "no such kernel" in (output / "first_contact.log").read_text(encoding="utf-8")
    assert "stopped after 1 s" in (output / "first_contact.md").read_text(encoding="utf-8")


def test_the_last_part_has_its_time_kept():
    parts = {part.name: part for part in all_parts(Path("work"), Path("data"), toy=False)}
    names = ["doctor", "prepare", "paper_base", "attention", "decoding", "paper_big", "text"]
    assert list(parts) == names
    text = parts["text"].command(200.0)
    assert text[text.index("--seconds") + 1] == f"{200 - first_contact.SCORING:.0f}"
    # What `train` is to go on with is what `prepare` has prepared.
    settings = [each for each in text if each.startswith("--config.")]
    assert set(settings) < set(parts["prepare"].command(60.0))
    assert "text" not in [part.name for part in all_parts(Path(), None, toy=False)]


@pytest.fixture
def europarl(tmp_path: Path) -> Path:
    folder = tmp_path / "europarl"
    folder.mkdir()
    for part in carried.PAIRS:
        for side in ("en", "fr"):
            lines = [f"{side} {number} " + "word " * (number % 40) for number in range(200)]
            with lzma.open(folder / f"{part}.{side}.xz", "wt", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
    return folder


def test_a_cut_holds_the_first_pairs_and_is_refused_where_it_is_too_large(
    tmp_path, europarl, monkeypatch
):
    monkeypatch.setattr(carried, "PAIRS", {"train-500k": 50, "test": 50})
    cut(europarl, tmp_path / "cut")
    for part, last in {"train-500k": 49, "test": 60}.items():
        for side in ("en", "fr"):
            with lzma.open(tmp_path / "cut" / f"{part}.{side}.xz", "rt") as file:
                lines = file.readlines()
            assert len(lines) == 50 and lines[-1].startswith(f"{side} {last} ")
    monkeypatch.setattr(carried, "MOST_TEXT", 1e-5)
    with pytest.raises(CannotCollect, match="at most 1e-05 MB can be taken along"):
        cut(europarl, tmp_path / "cut")


@pytest.mark.extended
def test_it_runs_in_an_image_that_has_no_more_than_jax(tmp_path, europarl):
    """Python 3.12 with JAX 0.11 and the few that an image has, and what is collected for it."""
    python, site = image(), tmp_path / "site"
    collect_wheels(tmp_path / "wheels")
    wheels = map(str, (tmp_path / "wheels").iterdir())
    install(python, "--no-index", "--no-deps", "--target", str(site), *wheels)
    command = [python, "-m", "benchmarks.first_contact", "--toy", "--parts", "text"]
    command += ["--minutes", "9", "--data", str(europarl), "--output", str(tmp_path / "output")]
    variables = os.environ | {"PYTHONPATH": str(site), "XLA_FLAGS": ""}  # of another XLA
    done = subprocess.run(command, cwd=ROOT, env=variables)
    assert done.returncode == 0
    (result,) = read_results(tmp_path / "output")
    assert result.versions["jax"] == "0.11.2"
    assert not [name for name in result.metrics if name.endswith("_failed")], result.signatures
    assert {"text_sacrebleu_13a", "text_loss_after_1_steps"} <= set(result.metrics)


def image() -> Path:
    """The Python of that environment, which is made once in .cache; skips where it cannot be."""
    place = ROOT / ".cache" / "image-jax-0.11"
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        make = [os.environ.get("FLAXFORMER_PYTHON_312", "python3.12"), "-m", "venv", "--clear"]
        try:
            subprocess.run([*make, str(place)], check=True, capture_output=True)
            install(python, *IMAGE)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(
                f"needs Python 3.12 (FLAXFORMER_PYTHON_312) and an index of wheels: {error}"
            )
        (place / "complete").touch()
    return python


def install(python: Path, *what: str) -> None:
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    subprocess.run(pip, check=True)
