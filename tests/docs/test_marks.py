"""Blocks of the pages are run, or say why not: a misspelt mark would hide that one is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.markdown import blocks, guides, prose

BETWEEN = ("<!-- results:begin -->", "<!-- results:end -->")


@pytest.mark.parametrize("page", guides(), ids=lambda page: page.name)
def test_every_mark_is_understood_and_has_a_block(page: Path) -> None:
    comments = [line for _, line in prose(page) if "<!--" in line and line not in BETWEEN]
    marked = [block for block in blocks(page) if block.not_run or block.fails]
    assert len(comments) == len(marked), comments
    for block in marked:
        assert block.language in ("bash", "python"), f"{block.place}: only these are run at all"
        assert len(block.not_run.split()) >= 2 or block.fails, f"{block.place}: why not?"


def test_marks_and_titles_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: needs a GPU -->\n```bash\nnvidia-smi\n```\n\n<!-- fails: no such file -->\n"
        '```bash\ncat gone\n```\n\n```python title="a.py"\nprint(1)\n```\n\n~~~~text\n```\n~~~~\n'
    )
    first, second, third, fourth = blocks(page)
    assert (first.not_run, first.fails, first.text) == ("needs a GPU", "", "nvidia-smi\n")
    assert (second.not_run, second.fails, second.line) == ("", "no such file", 7)
    assert (third.language, third.title, third.not_run) == ("python", "a.py", "")
    assert fourth.text == "```\n"
    assert [number for number, line in prose(page) if re.search(r"\S", line)] == [1, 6]
