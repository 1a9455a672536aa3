"""Markdown pages as what the tests ask of them: blocks of code, links, and places to link to."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"(`{3,}|~{3,}) *(\S*) *(.*)")
MARK = re.compile(r"<!-- (not run|fails): (.+) -->")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
SOURCE = re.compile(r"\bsrc=\"([^\"]+)\"")


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: ```` ```LANGUAGE title="TITLE" ````.

    A comment on the line before it marks a block that no test runs, `<!-- not run: REASON -->`, and
    one whose last command is meant to fail, `<!-- fails: WHAT IT SAYS -->`.
    """

    page: Path
    line: int
    language: str
    title: str
    text: str
    not_run: str
    fails: str

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Link:
    page: Path
    line: int
    text: str
    target: str

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def pages() -> list[Path]:
    """The project's own pages, with the README first."""
    return [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *guides()]


def guides() -> list[Path]:
    return sorted((ROOT / "docs").glob("*.md"))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in their order."""
    page_blocks = []
    lines = page.read_text(encoding="utf-8").splitlines()
    numbered = iter(enumerate(lines, start=1))
    for number, line in numbered:
        if (fence := FENCE.fullmatch(line)) is None:
            continue
        body = []
        for _, inner in numbered:
            if inner == fence[1]:
                break
            body.append(inner)
        before = MARK.fullmatch(lines[number - 2]) if number > 1 else None
        marks = {} if before is None else {before[1]: before[2]}
        title = re.search(r'title="([^"]*)"', fence[3])
        page_blocks.append(
            Block(
                page=page,
                line=number,
                language=fence[2],
                title="" if title is None else title[1],
                text="".join(f"{body_line}\n" for body_line in body),
                not_run=marks.get("not run", ""),
                fails=marks.get("fails", ""),
            )
        )
    return page_blocks


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines outside fenced blocks."""
    fence = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if fence:
            fence = "" if line == fence else fence
        elif match := FENCE.fullmatch(line):
            fence = match[1]
        else:
            yield number, line


def links(page: Path) -> list[Link]:
    """Links and pictures, those of HTML tags among them; not what stands in code."""
    page_links = []
    for number, line in prose(page):
        if line.startswith("    "):
            continue
        # Code in the text of a link belongs to it, other code is no link.
        visible = re.sub(r"(?<!\[)`[^`]*`(?!\])", "", line)
        page_links += [Link(page, number, text, target) for text, target in LINK.findall(visible)]
        page_links += [Link(page, number, "", target) for target in SOURCE.findall(visible)]
    return page_links


def anchors(page: Path) -> set[str]:
    """What `#...` may name: headings as GitHub makes identifiers of them, and mkdocs.yml."""
    counts: dict[str, int] = {}
    names = set()
    for _, line in prose(page):
        if (heading := re.fullmatch(r"#{1,6} +(.+?) *#*", line)) is None:
            continue
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
        name = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        counts[name] = counts.get(name, -1) + 1
        names.add(name if counts[name] == 0 else f"{name}-{counts[name]}")
    return names


def commands(text: str) -> list[str]:
    """The lines of a block of shell, continued ones joined; comments and blank lines dropped."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
