"""Writes translations as Markdown: so that text stays text, and emphasis emphasis."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from markdown_it import MarkdownIt
from markdown_it.common.html_blocks import block_names

from flaxformer_mt.markup.document import Raw, Segment, Unescaped
from flaxformer_mt.markup.markdown_inline import (
    Environment,
    InlineStep,
    delimiters,
    read_steps,
)
from flaxformer_mt.markup.placing import unescaped

_NUMBER = "\0"  # stands for the number of a segment; neither text nor markup has it
_ENTITY = re.compile(r"&(#[xX]?[0-9a-fA-F]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});")
_ELEMENTS = {"em": "em", "strong": "strong", "s": "del"}
# What begins a block at the beginning of a line, and the place of the sign to escape.
_BLOCK_STARTS = (
    re.compile(r"()#{1,6}(?=\s|$)"),
    re.compile(r"()(?:[-+*](?=\s|$)|---)"),
    re.compile(r"(\d{1,9})[.)](?=\s|$)"),
    re.compile(r"()>"),
    re.compile(r"()[-=:|][-=:|\s]*$"),
)
_BLOCK_NAMES = "|".join([*block_names, "pre", "script", "style", "textarea"])
_HTML_START = re.compile(rf"<(?:[!?]|/?(?:{_BLOCK_NAMES})(?=[\s/>]))", re.IGNORECASE)
_HEADING_END = re.compile(r"(?:(?<=\s)|^)#+$")
BlockKind = Literal["text", "heading", "underlined heading", "cell"]
Style = Literal["as it was", "unlike neighbours", "unlike parents", "elements"]
_STYLES: tuple[Style, ...] = get_args(Style)


class Delimiter(str):
    """A sign that begins or ends emphasis."""

    name: str  # "em", "strong" or "s"
    is_end: bool

    def __new__(cls, sign: str, name: str, is_end: bool) -> Delimiter:
        delimiter = super().__new__(cls, sign)
        delimiter.name, delimiter.is_end = name, is_end
        return delimiter


class Break(str):
    """A line break that is meant, with the end of its line."""

    __slots__ = ()


class WebAddress(str):
    """An address in the text, which letters beside it would become a part of."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class MarkdownWriter:
    """Writes the segments of one block. `line_break` is what the document has for a line end within
    it, with the signs of the containers around it."""

    parser: MarkdownIt = dataclasses.field(repr=False)
    environment: Environment = dataclasses.field(repr=False)
    line_break: str = "\n"
    kind: BlockKind = "text"

    def __call__(self, segment: Segment, raw: Raw) -> Raw:
        """The translation, in which everything is still what it was: signs of emphasis that would
        mean something else beside other letters are written in another way."""
        raw = tuple(_with_text_first(_with_inner_breaks(raw)))
        candidates = [_Candidate(raw, style, self.kind) for style in _STYLES]
        if any(isinstance(part, Delimiter) for part in raw):
            expected_shape = self._shape(
                _Candidate(unescaped(segment, segment.text), "as it was").text
            )
            fitting = [
                candidate
                for candidate in candidates
                if self._shape(candidate.text) == expected_shape
            ]
            candidates = fitting or candidates[-1:]
        return _with_numbers(self.finished(candidates[0].text), raw)

    def finished(self, text: str) -> str:
        """A text of one line or several, as it stands in the document."""
        if self.kind == "cell":
            text = text.replace("|", "\\|")
            text += " " * text.endswith("\\")  # which would escape the cell's end
        return text.replace("\n", self.line_break)

    def title(self, opening: str) -> MarkdownTitleWriter:
        """Writes a link's title, which begins with this quotation mark."""
        return MarkdownTitleWriter(self, opening)

    def _shape(self, text: str) -> Counter[str]:
        """How often there is what in an inline text."""
        return Counter(_shape(text, read_steps(self.parser, text, self.environment)))


@dataclasses.dataclass(frozen=True)
class MarkdownTitleWriter:
    """Writes titles of links."""

    block: MarkdownWriter
    opening: str

    def __call__(self, segment: Segment, raw: Raw) -> Raw:
        signs = "()" if self.opening == "(" else self.opening
        text = "".join(_kept_characters("".join(map(str, raw)), signs))
        return (self.block.finished(text),)


def _kept_characters(text: str, signs: str) -> Iterator[str]:
    for place, character in enumerate(_without_controls(text)):
        is_entity = character == "&" and _ENTITY.match(text, place) is not None
        yield "\\" * (is_entity or character in "\\" + signs) + character


def _without_controls(text: str) -> str:
    return "".join(
        " " if character in "\t\n\r" else character
        for character in text
        if not (unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n\r")
    )


def _with_numbers(text: str, raw: Raw) -> Raw:
    """The text with the numbers of segments in their places."""
    numbers = [part for part in raw if isinstance(part, int)]
    first, *following = text.split(_NUMBER)
    return (first, *[part for pair in zip(numbers, following, strict=True) for part in pair])


def _shape(text: str, steps: Sequence[InlineStep]) -> Iterator[str]:
    for step in steps:
        written = text[step.start : step.end]
        if step.kind.endswith("break"):
            yield step.kind
        elif step.kind in ("code_inline", "html_inline", "image", "footnote_ref"):
            yield f"{step.kind} {written}"
        elif step.kind == "link_open":
            yield step.kind if step.inner else f"{step.kind} {written}"
            yield from _shape(text, step.inner)
        elif step.kind not in ("text", "text_special") or written[0] in "*_~":
            delimited = delimiters(text, step)
            yield from (
                f"{delimiter.name} {delimiter.is_end}" for delimiter in delimited if delimiter.name
            )


class _Candidate:
    """A translation, written in one of the styles."""

    def __init__(self, raw: Raw, style: Style, kind: BlockKind = "text") -> None:
        self._kind = kind
        self._parts = list(_styled(raw, style))
        # All characters, and whether each is text.
        self._all = "".join(self._parts)
        self._is_text = [
            isinstance(part, Unescaped) for part in self._parts for _ in range(len(part))
        ]
        self._coded = set(self._coded_places())
        self._starts = self._places_of_block_starts()
        self.text = "".join(self._written()).strip(" ")

    def _written(self) -> Iterator[str]:
        for place, character in enumerate(self._all):
            if not self._is_text[place]:
                yield character
            elif character == " " and self._before(place) == "\n":
                continue
            elif place in self._coded and self._is_text[place]:
                yield f"&#{ord(character)};"
            else:
                yield "\\" * self._is_markup(place) + character

    def _before(self, place: int) -> str:
        return self._all[place - 1] if place else "\n"

    def _is_markup(self, place: int) -> bool:
        """Whether a character of the text would be more than that."""
        character = self._all[place]
        if place in self._starts or character in "\\`[]":
            return True
        if character in "*~_":
            return self._is_emphasis(place)
        after = self._all[place + 1 : place + 2]
        match character:
            case "<":
                return after.isalpha() or after in ("/", "!", "?")
            case "&":
                return _ENTITY.match(self._all, place) is not None
            case "!" | "^":
                return after == "["
        return False

    def _is_emphasis(self, place: int) -> bool:
        """Whether a sign could begin or end emphasis: not between blanks, nor "_" in a word."""
        before, after = self._before(place), self._all[place + 1 : place + 2] or " "
        around = self._is_text[max(0, place - 1) : place + 2]
        is_inside = before.isalnum() and after.isalnum() and all(around)
        is_alone = before.isspace() and after.isspace()
        return not is_alone and not (self._all[place] == "_" and is_inside)

    def _places_of_block_starts(self) -> set[int]:
        places = set()
        start = 0
        for line in self._all.split("\n"):
            indent = len(line) - len(line.lstrip(" "))
            for pattern in _BLOCK_STARTS:
                if match := pattern.match(line, indent):
                    places.add(start + match.end(1))
            start += len(line) + 1
        if self._kind == "heading" and (end := _HEADING_END.search(self._all)):
            places.add(end.start())
        return places

    def _coded_places(self) -> Iterator[int]:
        """Letters that keep emphasis from beginning or ending beside them: as entities they count
        as punctuation, which doesn't."""
        if self._kind == "underlined heading":  # which with "|" is a table
            yield from (place for place, character in enumerate(self._all) if character == "|")
        place = 0
        for part in self._parts:
            end = place + len(part)
            if isinstance(part, Delimiter):
                outside, inside = (end, place - 1) if part.is_end else (place - 1, end)
                if self._is_letter(outside) and (part[0] == "_" or not self._is_letter(inside)):
                    yield outside
            place = end

    def _is_letter(self, place: int) -> bool:
        """Whether a character of the text is neither white space nor punctuation."""
        if not 0 <= place < len(self._all) or not self._is_text[place]:
            return False
        character = self._all[place]
        return not character.isspace() and unicodedata.category(character)[0] not in "PS"


def _styled(raw: Raw, style: Style) -> Iterator[str]:
    """The parts, with signs of emphasis in this style."""
    open_: list[Delimiter] = []
    last = ""  # the sign before, if nothing is between
    for part in _apart(raw):
        if isinstance(part, int):
            part = _NUMBER
        if isinstance(part, Unescaped) or part == " ":
            part = Unescaped(_without_controls(part))
        if isinstance(part, Delimiter):
            part = _in_style(part, style, open_, last)
        if part:
            last = part[0] if isinstance(part, Delimiter) else ""
            yield part


def _in_style(part: Delimiter, style: Style, open_: list[Delimiter], last: str) -> str:
    """A sign as a style has it; `open_` are those around it, and `last` is the one before it."""
    if style == "elements":
        return f"<{'/' if part.is_end else ''}{_ELEMENTS[part.name]}>"
    if style == "as it was" or part.name == "s":
        return part
    if part.is_end:
        return Delimiter(open_.pop() if open_ else part, part.name, is_end=True)
    parent = open_[-1][0] if open_ else ""
    neighbour = last if style == "unlike neighbours" else parent
    sign = "_" if neighbour == "*" else "*" if neighbour == "_" else part[0]
    open_.append(Delimiter(sign * len(part), part.name, is_end=False))
    return open_[-1]


def _apart(raw: Raw) -> Iterator[str | int]:
    """The parts, with a blank between an address and letters that would become a part of it."""
    before: str | int = ""
    for part in raw:
        if _would_join(before, part) or _would_join(part, before, is_before=True):
            yield Unescaped(" ")
        before = part
        yield part


def _with_text_first(parts: Sequence[str | int]) -> Iterator[str | int]:
    """The parts, none of which begins a block of HTML at the beginning of a line."""
    waiting: list[str] = []
    is_first = True
    for part in parts:
        if is_first and isinstance(part, str) and _HTML_START.match(part):
            waiting.append(part)
            continue
        yield part
        if isinstance(part, Break):
            is_first = True
        elif is_first and not str(part).isspace() and part != "":
            is_first = False
        if isinstance(part, Unescaped) and part.strip():
            yield from waiting
            waiting.clear()
    yield from waiting


def _with_inner_breaks(raw: Raw) -> Sequence[str | int]:
    """The parts, with text before each line break and behind the last one: else it would be none,
    or end the block. One that can't be there becomes a tag."""
    # A line end that isn't meant would, behind a break, end the block.
    parts = [" " if part == "\n" else part for part in raw]
    gaps, break_gaps = _gaps(parts)
    breaks = [place for place, part in enumerate(parts) if isinstance(part, Break)]
    moved_breaks = [parts[place] for place in breaks]
    for place in breaks[: len(gaps)]:
        is_apart = " " in (*parts[place - 1 : place], *parts[place + 1 : place + 2])
        parts[place] = Unescaped("" if is_apart else " ")
    for place in breaks[len(gaps) :]:
        parts[place] = "<br>"
    for number, part in zip(
        _spread(break_gaps[: len(gaps)], len(gaps)), moved_breaks, strict=False
    ):
        parts[gaps[number - 1]] = part
    return parts


def _gaps(parts: Sequence[str | int]) -> tuple[list[int], list[int]]:
    """The places where a line may end, between pieces of text; and of each break, how many pieces
    are before it."""
    gaps: list[int] = []
    break_gaps: list[int] = []
    begun = False  # whether a piece is, behind the last gap
    for place, part in enumerate(parts):
        if not isinstance(part, Break) and part != " ":
            begun = begun or _is_seen(part)
            continue
        if begun:
            gaps.append(place)
        elif gaps and not isinstance(parts[gaps[-1]], Break):
            gaps[-1] = place
        begun = False
        break_gaps += [len(gaps)] * isinstance(part, Break)
    return gaps if begun else gaps[:-1], break_gaps


def _spread(wanted: Sequence[int], last: int) -> Sequence[int]:
    """Different numbers from 1 to `last`, in order and near those wanted."""
    numbers: list[int] = []
    for number in wanted:
        numbers.append(max(number, numbers[-1] + 1 if numbers else 1))
    for place in reversed(range(len(numbers))):
        numbers[place] = min(numbers[place], last)
        last = numbers[place] - 1
    return numbers


def _is_seen(part: str | int) -> bool:
    """Whether a part is more than white space, emphasis or a comment."""
    if isinstance(part, int):
        return True
    is_hidden = isinstance(part, Delimiter) or part.isspace() or not part
    return not is_hidden and not _HTML_START.match(part)


def _would_join(address: str | int, other: str | int, *, is_before: bool = False) -> bool:
    """Whether a part is an address, and the other, behind or before it, would be part of it."""
    if not (isinstance(address, WebAddress) and isinstance(other, Unescaped) and other):
        return False
    return other[-1].isalnum() if is_before else not other[0].isspace() and other[0] not in ".,;:!?"
