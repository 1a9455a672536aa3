"""What the pages name in the code is there, and what they compute comes out as they say."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Link, anchors, blocks, guides, links

PAPER = ROOT / "docs" / "paper_to_code.md"
# `model/attention.py:MultiHeadAttention.attend` and `tests/model/test_x.py::test_y`.
NAMED = re.compile(r"`([\w./-]+\.py)(::?)([\w.]+)`")
# The site leads the same names to their lines.
line_of = runpy.run_path(str(ROOT / "docs/site/source_pages.py"))["line_of"]


def named(page: Path) -> list[tuple[Link, str, str, str]]:
    """Links to names: the path as it is written, the colons, the name."""
    matches = [(link, NAMED.fullmatch(link.text)) for link in links(page)]
    return [(link, *match.groups()) for link, match in matches if match is not None]


def complaint(link: Link, path: str, colons: str, name: str) -> str | None:
    file = (link.page.parent / link.target).resolve()
    if not file.is_file():
        return f"{link.place}: {link.target}: no such file"
    if file not in (ROOT / path, ROOT / "flaxformer_mt" / path):
        return f"{link.place}: says {path}, and leads to {link.target}"
    if line_of(file.read_text(encoding="utf-8"), name) == 0:
        return f"{link.place}: {path} has no {name}"
    if (colons == "::") != (name.startswith("test_") and file.name.startswith("test_")):
        return f"{link.place}: `::` is for tests, `:` for everything else"
    return None


@pytest.mark.parametrize("page", guides(), ids=lambda page: page.name)
def test_what_is_named_is_there(page):
    complaints = [text for reference in named(page) if (text := complaint(*reference))]
    assert not complaints, "\n".join(complaints)


def test_every_part_of_the_paper_has_a_place():
    sections = {anchor.split("-")[0] for anchor in anchors(PAPER)}
    of_section_3 = {"31", "321", "322", "323", "33", "34", "35"}
    assert of_section_3 | {"4", "51", "52", "53", "54", "61", "62", "63", "figures"} <= sections
    assert len(named(PAPER)) > 60


SHOWN = [
    (code, output)
    for code, output in zip(blocks(PAPER), blocks(PAPER)[1:], strict=False)
    if code.language == "python" and output.title == "output"
]


@pytest.mark.extended
@pytest.mark.parametrize(("code", "output"), SHOWN, ids=lambda block: f"line {block.line}")
def test_snippets_print_what_the_page_shows(code, output):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.text, code.place, "exec"), {})
    assert printed.getvalue() == output.text


def test_every_snippet_shows_what_it_prints():
    assert len(SHOWN) == sum(block.language == "python" for block in blocks(PAPER)) > 3
