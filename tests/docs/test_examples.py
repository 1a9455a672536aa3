"""The scripts of docs/examples, on one small run, and links to all of them."""

from __future__ import annotations

import csv
import io
import runpy
import shutil
import sys

import pytest

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
    told = example("fine_tune", run, "corpus/valid.en", "corpus/valid.de", "new")
    assert "Status(state='finished', step=60" in told and "\nafter:  " in told


@pytest.mark.extended
def test_a_report_becomes_a_table(run, example):
    example("report", run, "reports.csv")
    with open("reports.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["kind"] == "train"] == ["50", "100"]
    assert all(float(row["loss"]) > 0 for row in rows)


def test_two_models_translate_together(run, example, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("The dog sleeps.\n"))
    lines = example("rescore", run, run).splitlines()
    # With itself, a model proposes what it prefers.
    alone, rescored, ensemble = (line.split(None, 1)[1:] for line in lines[1:])
    assert alone == rescored == ensemble


def test_a_metric_of_one_s_own_is_tested(run, example):
    told = example("metric", run, "corpus/valid.de")
    assert "exact match" in told and "p (randomization)" in told
    exact = told[told.rindex("\nexact ") :].splitlines()
    assert exact[3].split()[:2] == ["valid.de", "100.00"]


def test_every_example_is_linked_to():
    named = {link.target for link in links(ROOT / "docs" / "python.md")}
    assert {f"examples/{path.name}" for path in EXAMPLES.glob("*.py")} <= named
