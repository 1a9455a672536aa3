"""The quickstart as a notebook, run as Jupyter would."""

from __future__ import annotations

import importlib.util

import pytest

from tests.conftest import ROOT

NEEDED = ("nbclient", "ipykernel", "matplotlib")
pytestmark = [
    pytest.mark.docs_site,
    pytest.mark.skipif(
        None in map(importlib.util.find_spec, NEEDED), reason="needs pip install -e '.[docs]'"
    ),
]


@pytest.mark.filterwarnings("default")  # Jupyter's own are not ours to mend
def test_the_notebook_trains_draws_and_translates(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [
        next((o["data"] for o in cell.outputs if o["output_type"] == "execute_result"), {})
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    trained, before, losses, after, translation, _, alignment, attention, scores = shown
    assert "state='finished', step=120" in trained["text/plain"]
    assert "<svg" in before["image/svg+xml"] != after["image/svg+xml"]
    assert "(180, 'valid', " in losses["text/plain"]
    assert translation["text/plain"].startswith("<Translation ")
    assert "<ruby>" in alignment["text/html"] and "<iframe srcdoc=" in attention["text/html"]
    assert "sacrebleu_13a" in scores["text/html"]
