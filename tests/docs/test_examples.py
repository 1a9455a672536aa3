"""The scripts of docs/examples, on one small run, and the notebook, as Jupyter runs it."""

import csv
import importlib.util
import io
import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import flaxformer_mt as fm
from flaxformer_mt.grammar.text import pairs as grammar_pairs
from tests.conftest import ROOT, made_once
from tests.docs.markdown import links
from tests.system.conftest import make

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch):
    shutil.copytree(made_once("trained", make), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


@pytest.fixture
def example(monkeypatch, capfd):
    """Runs a script and returns what it printed."""

    def call(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capfd.readouterr().out

    return call


@pytest.mark.extended
def test_a_run_is_fine_tuned_on_new_text_alone(run, example):
    output = example("fine_tune", run, "corpus/valid.en", "corpus/valid.de", "new")
    assert "Status(state='finished', step=60" in output and "\nafter:  " in output
    assert [Path(corpus.tgt).name for corpus in fm.load_config("new").data.train] == ["valid.de"]


@pytest.mark.extended
def test_a_student_learns_from_the_run_s_translations(run, example):
    output = example("distill", run, "corpus/valid.en", "out.de", "student", "model.d_ff=16")
    assert f"done')\nteacher: {Path('out.de').read_text().splitlines()[0]}\nstudent: " in output
    config = fm.load_config("student")
    recorded = *(corpus.tgt for corpus in config.data.train), config.model.d_ff
    assert recorded == (str(Path("out.de").resolve()), 16)


@pytest.mark.extended
def test_a_report_becomes_a_table(run, example):
    example("report", run, "reports.csv")
    with open("reports.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["kind"] == "train"] == ["50", "100", "120"]
    assert all(float(row["loss"]) > 0 for row in rows)


def test_two_models_translate_together(run, example, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("The dog sleeps.\n"))
    lines = example("rescore", run, run).splitlines()
    # With itself, a model proposes what it prefers.
    alone, rescored, ensemble = (line.split(None, 1)[1:] for line in lines[1:])
    assert alone == rescored == ensemble


def test_a_metric_of_one_s_own_is_tested(run, example):
    output = example("metric", run, "corpus/valid.de")
    assert "exact match" in output and "p (randomization)" in output
    scores = [line.split() for line in output.splitlines() if line.startswith("valid.de ")]
    assert scores[-1][1] == "100.00"


@pytest.mark.extended
def test_numbers_and_urls_are_masked_and_put_back(example, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    values = ["12", "1,250.5", "https://example.org/a?b=1", "a.b@example.org", "12:30"]
    pairs = [
        (f"{source[:-1]} {value}.", f"{target[:-1]} {value}!")
        for (source, target), value in zip(grammar_pairs("train", 400), values * 80, strict=True)
    ]
    pairs += [("Two and 2 and 2, 7.", "Zwei und 2, 7."), ("No number.", "Nummer 5.")] * 10
    for side, language in enumerate(("en", "de")):
        Path(f"train.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    command = example("placeholders", "mask", "train.en", "train.de")
    assert "--config.data.train=train.en.masked,train.de.masked" in command
    masked = [Path(f"train.{code}.masked").read_text("utf-8").splitlines() for code in ("en", "de")]
    assert all(line.endswith(" ｟1｠.") for line in masked[0][:400])
    assert all(line.endswith(" ｟1｠!") for line in masked[1][:400])
    assert masked[0][400:402] == ["Two and 2 and 2, ｟1｠.", "No number."]  # 2 is there once more
    assert masked[1][400:402] == ["Zwei und 2, ｟1｠.", "Nummer 5."]

    words = shlex.split(command)
    settings = [word.removeprefix("--config.") for word in words if "--config." in word]
    changes = dict(setting.split("=", 1) for setting in settings)
    changes |= {"model.d_model": "32", "model.d_ff": "32", "training.steps": "2"}
    fm.train(fm.load_config("files", changes), "run")
    line = "A cat, 12 dogs and 7 at 12:30 in https://example.org/x?y=2. Write to a@example.org, 12!"
    text = io.TextIOWrapper(io.BytesIO(f"{line}\n\nNothing.\n".encode()), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", text)
    output, blank, plain = example("placeholders", "translate", "run").splitlines()
    for value in ("7", "12:30", "https://example.org/x?y=2", "a@example.org"):
        assert output.count(value) >= 1
    assert output.count("12") >= 3  # twice, and in 12:30
    assert blank == "" and "｟" not in plain


def test_attention_is_drawn_with_the_model_that_needs_no_training():
    """A toy model's attention shows little, and its translations are wrong."""
    page = (ROOT / "docs" / "attention.md").read_text("utf-8")
    assert set(re.findall(r"--workdir (\S+)", page)) == {"runs/demo"}
    notebook = json.loads((ROOT / "docs" / "quickstart.ipynb").read_text("utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"]]
    (load,) = [text for text in code if "Translator.load" in text]
    assert "fm.demo_run(" in load


def test_every_example_is_linked_to():
    named = {link.target for link in links(ROOT / "docs" / "python.md")}
    assert {f"examples/{path.name}" for path in EXAMPLES.glob("*.py")} <= named


@pytest.mark.docs_site
@pytest.mark.skipif(
    None in map(importlib.util.find_spec, ("nbclient", "ipykernel", "matplotlib")),
    reason="needs pip install -e '.[docs,figures]'",
)
@pytest.mark.filterwarnings("default")  # Jupyter's own are not ours to mend
def test_the_notebook_trains_draws_and_translates(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [
        next((o["data"] for o in cell.outputs if o["output_type"] == "execute_result"), {})
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    trained, before, losses, after, translation, _, alignment, attention, scores = outputs
    assert "state='finished', step=120" in trained["text/plain"]
    assert "<svg" in before["image/svg+xml"] != after["image/svg+xml"]
    assert "(180, 'valid', " in losses["text/plain"]
    assert translation["text/plain"].startswith("<Translation 'Wo kann ich ")
    assert "<ruby>" in alignment["text/html"] and "<iframe srcdoc=" in attention["text/html"]
    assert "sacrebleu_13a" in scores["text/html"]
