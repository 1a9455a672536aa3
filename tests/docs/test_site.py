"""The site of docs/, built strictly: every link, every heading that is linked to, no other host."""

import importlib.util
import re
import subprocess
import sys

import pytest

from tests.docs.markdown import ROOT, guides
from tests.docs.test_references import PAPER, line_of, named

pytestmark = [
    pytest.mark.docs_site,
    pytest.mark.skipif(
        importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None,
        reason="needs MkDocs: pip install -e '.[docs]'",
    ),
]


FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(?:https?:)?//[^>]*>")


def test_the_site_is_whole_and_fetches_nothing_from_another_host(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {page.stem for page in guides()} <= {page.stem for page in tmp_path.glob("*.html")}
    assert not list(tmp_path.rglob("*.py"))
    for page in tmp_path.rglob("*.html"):
        fetched = [
            tag for tag in FETCHED.findall(page.read_text("utf-8")) if "canonical" not in tag
        ]
        assert not fetched, f"{page.name}: {fetched}"
    for style in tmp_path.rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8")

    # Names lead to their lines.
    html = (tmp_path / "paper_to_code.html").read_text(encoding="utf-8")
    for link, _, _, name in named(PAPER):
        file = (link.page.parent / link.target).resolve()
        line = line_of(file.read_text(encoding="utf-8"), name)
        place = f"source/{file.relative_to(ROOT)}.html"
        assert f'href="{place}#__codelineno-0-{line}"' in html
    source_page = (tmp_path / "source/flaxformer_mt/model/layers.py.html").read_text("utf-8")
    assert 'id="__codelineno-0-12"' in source_page and "LayerNorm" in source_page
