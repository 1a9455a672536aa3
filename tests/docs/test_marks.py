"""Blocks of the pages are run, or say why not: a misspelt mark would hide that one is not."""

from __future__ import annotations

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
