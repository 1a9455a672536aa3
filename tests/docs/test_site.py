"""The site of docs/, built strictly: every link, every heading that is linked to, no other host."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, guides
from tests.docs.test_references import PAPER, named, site

pytestmark = [
    pytest.mark.docs_site,
    pytest.mark.skipif(
        importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None,
        reason="needs MkDocs: pip install -e '.[docs]'",
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_there(built: Path) -> None:
    for page in guides():
        assert (built / f"{page.stem}.html").is_file()
    assert not list(built.rglob("*.py"))


def test_no_page_fetches_anything_from_another_host(built: Path) -> None:
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^>]*>")
    for page in built.rglob("*.html"):
        found = [
            tag
            for tag in fetched.findall(page.read_text(encoding="utf-8"))
            if "canonical" not in tag
        ]
        assert not found, f"{page.name}: {found}"
    for style in built.rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8")


def test_names_lead_to_their_lines(built: Path) -> None:
    html = (built / "paper_to_code.html").read_text(encoding="utf-8")
    for link, _, _, name in named(PAPER):
        file = (link.page.parent / link.target).resolve()
        line = site().line_of(file.read_text(encoding="utf-8"), name)
        place = f"source/{file.relative_to(ROOT)}.html"
        assert f'href="{place}#__codelineno-0-{line}"' in html
    shown = (built / "source/flaxformer_mt/model/layers.py.html").read_text(encoding="utf-8")
    assert 'id="__codelineno-0-12"' in shown and "LayerNorm" in shown
