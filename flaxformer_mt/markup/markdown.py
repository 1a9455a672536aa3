"""Markdown as a document: CommonMark with tables, strikethrough, footnotes and front matter.

markdown-it-py says on which lines a block stands and what its inline text is; all other characters
of the source are kept.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from markdown_it.token import Token as MarkdownToken

from flaxformer_mt.markup.document import LARGEST, Document, MarkupError, Segment
from flaxformer_mt.markup.html import KEPT, HtmlReader
from flaxformer_mt.markup.markdown_inline import (
    Environment,
    InlineStep,
    delimiters,
    make_parser,
    read_steps,
)
from flaxformer_mt.markup.markdown_writing import (
    BlockKind,
    Break,
    Delimiter,
    MarkdownWriter,
    WebAddress,
)
from flaxformer_mt.markup.segments import Assembler, has_text
from flaxformer_mt.markup.tags import Token, tokens

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
# Text that is an address.
_ADDRESS = re.compile(
    r"(?:https?://|www\.)[^\s<]*[^\s<?!.,:;*_~'\")\]]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"
)
# The box of a task, and the first line of an alert.
_LEADS = re.compile(r"\[[ xX]\](?=\s)|\[![A-Za-z]+\](?=\n|$)")
_HEADING_LEAD = re.compile(r"#{1,6}[ \t]\s*")
_TITLE = re.compile(r"""[ \t\n](?P<mark>["'(])(?P<title>.*)["')][ \t\n]*\)$""", re.DOTALL)


def read_markdown(text: str, *, keep: Collection[str] = ()) -> Document:
    """The document of a Markdown file. HTML in it is read as by `read_html`; code, addresses,
    front matter and definitions of links stay as they are.

    Raises MarkupError for a document that is too large.
    """
    if len(text) > LARGEST:
        raise MarkupError(f"{len(text):,} characters; a document has at most {LARGEST:,}")
    reader = _MarkdownReader(text, keep)
    reader.read()
    return reader.assembler.document()


@dataclasses.dataclass(frozen=True)
class _Line:
    """A line of the source: where it begins, and its end, "\\n" or the like."""

    start: int
    text: str
    end: str


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a block's text is in the source, and what is between its lines there."""

    start: int
    end: int
    line_break: str


class _MarkdownReader:
    def __init__(self, text: str, keep: Collection[str]) -> None:
        self.assembler = Assembler()
        self._text, self._keep = text, keep
        self._parser = make_parser()
        self._environment: Environment = {}
        self._lines = [
            _Line(line_match.start(), line_match[1].replace("\0", "\ufffd"), line_match[2])
            for line_match in _LINE.finditer(text)
        ]
        self._end = 0  # of what is read
        self._html = HtmlReader("", frozenset())

    def read(self) -> None:
        source = "\n".join(line.text for line in self._lines)
        blocks = self._parser.parse(source, self._environment)
        self._html = _html_reader(self._keep)
        row: list[MarkdownToken] = []
        for before, block in zip([None, *blocks], blocks, strict=False):
            if block.type == "tr_close":
                self._row(row)
                row = []
            elif block.type == "html_block":
                self._html_block(block)
            elif block.type == "inline" and before is not None:
                if before.type in ("th_open", "td_open"):
                    row.append(block)
                else:
                    self._inline_block(block, before)
        self._keep_to(len(self._text))

    def _keep_to(self, place: int) -> None:
        self.assembler.block((self._text[self._end : place],))
        self._end = place

    def _put(self, document: Document, place: _Place) -> None:
        """Puts a document in the place of a block's text; without text in it, that stays."""
        if not document.segments:
            return
        self._keep_to(place.start)
        self.assembler.block(self.assembler.include(document))
        self._end = place.end

    def _inline_block(self, block: MarkdownToken, before: MarkdownToken) -> None:
        content = block.content.strip()  # also of what is white space to Unicode alone
        if not content or self._html.kept:
            return
        kind: BlockKind = "text"
        if before.type == "heading_open":
            kind = "heading" if before.markup.startswith("#") else "underlined heading"
        place = self._place(block, content.split("\n"), is_heading=kind == "heading")
        writer = MarkdownWriter(self._parser, self._environment, place.line_break, kind)
        self._put(self._document(content, writer), place)

    def _document(self, content: str, writer: MarkdownWriter) -> Document:
        lead = _LEADS.match(content)
        start = lead.end() if lead else 0
        if content[start : start + 1].isspace():
            start += 1
        reader = _InlineReader(content[start:], writer, _html_reader(self._keep))
        document = reader.document()
        finished = writer.finished(content[:start])
        return Document((finished, *document.parts), document.segments)

    def _place(self, block: MarkdownToken, content: Sequence[str], *, is_heading: bool) -> _Place:
        lines = self._lines[slice(*(block.map or ()))]
        if not is_heading:
            lines = _from_text(lines, content[0].strip())
        lines = lines[: len(content)]
        before = [_before(line.text, part) for line, part in zip(lines, content, strict=True)]
        if is_heading:
            before = [_before_heading(lines[0].text, content[0])]
        start = lines[0].start + before[0]
        stop = lines[-1].start + before[-1] + len(content[-1].strip())
        between = lines[1].text[: before[1]] if len(lines) > 1 else ""
        return _Place(start, stop, (lines[0].end or "\n") + between)

    def _html_block(self, block: MarkdownToken) -> None:
        content = block.content.removesuffix("\n")
        place = self._place(block, content.split("\n"), is_heading=False)
        assembler = Assembler(one_by_one=frozenset({"a"}))
        self._html.go_on(content.strip(), assembler)
        for token in tokens(content.strip()):
            self._html.read(token)
        self._put(_between_lines(assembler.document(), place.line_break), place)

    def _row(self, cells: Sequence[MarkdownToken]) -> None:
        """A table's row: the text of a cell doesn't say where it is."""
        if not any(cell.content for cell in cells) or self._html.kept:
            return
        line = self._lines[(cells[0].map or [0])[0]]
        contents = [cell.content.strip() for cell in cells]
        writer = MarkdownWriter(self._parser, self._environment, kind="cell")
        for content, start in zip(contents, _cells(line.text, contents), strict=True):
            if content:
                end = start + len(content.replace("|", "\\|"))
                place = _Place(line.start + start, line.start + end, "")
                self._put(self._document(content, writer), place)


def _html_reader(keep: Collection[str]) -> HtmlReader:
    return HtmlReader("", frozenset(name.lower() for name in keep) | KEPT)


def _from_text(lines: list[_Line], text: str) -> list[_Line]:
    """The lines from the one that ends with a text: those before have only white space, such as
    no-break spaces, which the parser removes."""
    for number, line in enumerate(lines):
        if line.text.rstrip().endswith(text):
            return lines[number:]
    return lines


def _before(line: str, content: str) -> int:
    """Where the text of a block begins in a line that ends with it."""
    content = content.strip()
    return len(line.rstrip()) - len(content) if content else len(line.rstrip())


def _before_heading(line: str, content: str) -> int:
    """The same of a heading, which may have signs behind it as well."""
    for lead in _HEADING_LEAD.finditer(line):
        if line.startswith(content, lead.end()):
            return lead.end()
    raise AssertionError(f"no heading {content!r} in {line!r}")


def _cells(line: str, contents: Sequence[str]) -> list[int]:
    """Where the cells of a row begin in its line, behind the signs of the containers around it."""
    for start in range(len(line)):
        parts = _split_cells(line[start:].rstrip())
        if parts and not parts[0][1]:
            parts = parts[1:]
        places = [start + place + len(text) - len(text.lstrip()) for place, text in parts]
        texts = [text.strip().replace("\\|", "|") for _, text in parts]
        texts += [""] * (len(contents) - len(texts))
        if texts[: len(contents)] == list(contents):
            return [*places, *[len(line)] * len(contents)][: len(contents)]
    raise AssertionError(f"no row {contents!r} in {line!r}")


def _split_cells(row: str) -> list[tuple[int, str]]:
    """The parts of a row between "|", and where they begin."""
    cuts = [-1, *(bar.start() for bar in re.finditer(r"(?<!\\)\|", row)), len(row)]
    return [(cut + 1, row[cut + 1 : end]) for cut, end in itertools.pairwise(cuts)]


def _between_lines(document: Document, line_break: str) -> Document:
    """The document, with what is between its lines in the place of each line end."""
    if line_break == "\n":
        return document

    def raw(parts: Sequence[str | int]) -> tuple[str | int, ...]:
        return tuple(
            part.replace("\n", line_break) if isinstance(part, str) else part for part in parts
        )

    segments = [
        dataclasses.replace(
            segment,
            marks=tuple(
                dataclasses.replace(mark, opening=raw(mark.opening), closing=raw(mark.closing))
                for mark in segment.marks
            ),
        )
        for segment in document.segments
    ]
    return Document(raw(document.parts), tuple(segments))


class _InlineReader:
    """Reads one block's inline text."""

    def __init__(
        self, content: str, writer: MarkdownWriter, html: HtmlReader, *, titles: bool = True
    ) -> None:
        self._content, self._writer, self._html, self._titles = content, writer, html, titles
        self._assembler = Assembler()
        html.go_on(content, self._assembler)
        self._plain: list[str] = []  # text that isn't with the assembler yet

    def document(self) -> Document:
        steps = read_steps(self._writer.parser, self._content, self._writer.environment)
        return self.document_of(steps)

    def document_of(self, steps: Sequence[InlineStep]) -> Document:
        self._read(steps)
        self._flush()
        document = self._assembler.document()
        segments = tuple(
            segment
            if segment.quote or segment.write
            else dataclasses.replace(segment, write=self._writer)
            for segment in document.segments
        )
        parts = tuple(
            self._writer.finished(part) if isinstance(part, str) else part
            for part in document.parts
        )
        return Document(parts, segments)

    def _read(self, steps: Sequence[InlineStep]) -> None:
        for step in steps:
            written = self._content[step.start : step.end]
            if step.kind == "html_inline":
                self._flush()
                self._tag(step)
            elif self._html.kept:
                self._flush()
                self._assembler.kept(written)
            elif step.tokens and step.kind not in ("text_special", "softbreak"):
                self._markup(step, written)
            elif step.kind == "text_special" and written != step.tokens[0].content:
                self._flush()
                self._assembler.text([(written, step.tokens[0].content)])
            else:
                self._plain.append(written)

    def _markup(self, step: InlineStep, written: str) -> None:
        match step.kind:
            case "hardbreak":
                blanks = self._flush(before_break=True)
                self._assembler.point((Break(blanks + written),), parts_words=True)
            case "link_open" if step.tokens[0].info != "auto":
                self._flush()
                self._link(step)
            case "image" | "footnote_ref" if step.inner:
                self._flush()
                self._with_label(step)
            case "code_inline" | "link_open" | "image" | "footnote_ref":
                self._flush()
                self._assembler.kept(written)
            case _:
                self._emphasis(step)

    def _emphasis(self, step: InlineStep) -> None:
        for delimiter in delimiters(self._content, step):
            if not delimiter.name:
                self._plain.append(delimiter.sign)
                continue
            self._flush()
            sign = Delimiter(delimiter.sign, delimiter.name, delimiter.is_end)
            if delimiter.is_end:
                self._assembler.closing(delimiter.name, (sign,))
            else:
                self._assembler.opening(delimiter.name, (sign,))

    def _link(self, step: InlineStep) -> None:
        label_end = step.inner[-1].end if step.inner else step.start + 1
        label = self._content[step.start + 1 : label_end]
        self._assembler.opening("[", ("[",))
        self._read(step.inner)
        self._flush()
        self._assembler.closing("[", self._target(self._content[label_end : step.end], label))

    def _with_label(self, step: InlineStep) -> None:
        """An image with its alternative text, or a footnote with its own."""
        label_start = self._content.index("[", step.start) + 1
        label_end = label_start + step.inner[-1].end
        label = self._content[label_start:label_end]
        opening = self._content[step.start : label_start]
        target: tuple[str | int, ...] = (self._content[label_end : step.end],)
        if step.kind == "image":
            target = self._target(self._content[label_end : step.end], label)
        html = HtmlReader("", KEPT)
        reader = _InlineReader(label, self._writer, html, titles=False)
        document = reader.document_of(step.inner)
        self._assembler.point((opening, *self._assembler.include(document), *target))

    def _target(self, written: str, label: str) -> tuple[str | int, ...]:
        """What stands behind the text of a link or an image. A reference by this text becomes one
        by its name, since the text changes."""
        if written in ("]", "][]"):
            return (written if label[:1] == "^" or not label else f"][{label}]",)
        title = _TITLE.search(written) if self._titles and written.startswith("](") else None
        if title is None or not has_text(title["title"]):
            return (written,)
        (token,) = read_steps(self._writer.parser, f"[a{written}", self._writer.environment)
        meaning = str(token.tokens[0].attrs.get("title", ""))
        segment = Segment(" ".join(meaning.split()), write=self._writer.title(title["mark"]))
        start, end = title.span("title")
        return (
            written[:start],
            *self._assembler.include(Document((0,), (segment,))),
            written[end:],
        )

    def _tag(self, step: InlineStep) -> None:
        raw = self._content[step.start : step.end]
        tag_tokens = list(tokens(raw))
        if len(tag_tokens) != 1 or tag_tokens[0].kind == "text":
            self._assembler.point((raw,))
            return
        self._html.read(_moved(tag_tokens[0], step.start))

    def _flush(self, *, before_break: bool = False) -> str:
        """Gives the assembler the text before something else; not the blanks that, before a line
        break, belong to it: returns these."""
        text = "".join(self._plain)
        self._plain.clear()
        blanks = ""
        if before_break:
            stripped = text.rstrip(" ")
            text, blanks = stripped, text[len(stripped) :]
        end = 0
        for address in _ADDRESS.finditer(text):
            self._assembler.text(_as_written(text[end : address.start()]))
            self._assembler.kept(WebAddress(address[0]))
            end = address.end()
        self._assembler.text(_as_written(text[end:]))
        return blanks


def _as_written(text: str) -> Iterator[tuple[str, str]]:
    if text:
        yield text, text


def _moved(token: Token, by: int) -> Token:
    attributes = tuple(
        dataclasses.replace(attribute, start=attribute.start + by, end=attribute.end + by)
        if attribute.start >= 0
        else attribute
        for attribute in token.attributes
    )
    return dataclasses.replace(
        token, start=token.start + by, end=token.end + by, attributes=attributes
    )
