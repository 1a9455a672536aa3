"""Links of pages lead somewhere, the site's menu has every page, and blocks of code are run."""

import re

import pytest

from tests.docs.markdown import ROOT, Link, anchors, blocks, guides, links, pages, prose

BETWEEN = ("<!-- results:begin -->", "<!-- results:end -->")
SHELLS = ("sh", "shell", "console", "zsh", "")
# Commands that are ours, or that a reader would take for a thing to type.
TYPED = re.compile(
    r"    (?:[A-Z_]+=\S+ )?(?:launch/|flaxformer-mt |echo |curl |gcloud |docker |pip )"
)


def complaint(link: Link) -> str | None:
    path, _, anchor = link.target.partition("#")
    if "://" in path or path.startswith("mailto:"):
        return None
    target = (link.page.parent / path).resolve() if path else link.page
    if not target.exists():
        return f"{link.place}: {link.target}: no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link.place}: {link.target}: no such heading; there are {sorted(anchors(target))}"
    return None


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    complaints = [text for link in links(page) if (text := complaint(link))]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_is_to_be_typed_stands_in_blocks_that_are_run(page):
    """An indented block is neither highlighted nor run: it would hide a command from the tests."""
    hidden = [f"{page.name}:{number}: {line}" for number, line in prose(page) if TYPED.match(line)]
    assert not hidden, "\n".join(hidden)
    shells = {block.place: block.language for block in blocks(page) if block.language in SHELLS}
    assert not shells, f"say ```bash, which is run: {shells}"


def test_every_page_is_in_the_site_s_menu():
    menu = re.findall(r"^ .*?([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(menu) == sorted(page.name for page in guides())


@pytest.mark.parametrize("page", guides(), ids=lambda page: page.name)
def test_every_mark_is_understood_and_has_a_block(page):
    """A misspelt mark would hide that a block is not run."""
    comments = [line for _, line in prose(page) if "<!--" in line and line not in BETWEEN]
    marked = [block for block in blocks(page) if block.not_run or block.fails]
    assert len(comments) == len(marked), comments
    for block in marked:
        assert block.language in ("bash", "python"), f"{block.place}: only these are run at all"
        assert len(block.not_run.split()) >= 2 or block.fails, f"{block.place}: why not?"
