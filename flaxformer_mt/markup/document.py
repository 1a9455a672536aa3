"""A document as texts to translate and what stays between them.

A reader of a format (`html.py`, `xml.py`) makes a `Document` with `segments.py`; `placing.py` puts
the translations in.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from flaxformer_mt.errors import UserError

Raw = tuple[str | int, ...]
"""Text as it stands in the document, and in between the numbers of segments to be put there."""


class Unescaped(str):
    """Text of a translation among marks, without the format's escapes."""

    __slots__ = ()


LARGEST = 10_000_000  # characters of a document


class MarkupError(UserError):
    """A document that can't be translated, because of something in a `line` if there is one."""

    def __init__(self, reason: str, line: int | None = None, *, name: str = "") -> None:
        place = f"{name}:{line}" if name else f"line {line}"
        super().__init__(f"{place if line else name}: {reason}" if line or name else reason)
        self.reason, self.line = reason, line

    def of_file(self, name: str) -> "MarkupError":
        """The same of a file with a name."""
        return MarkupError(self.reason, self.line, name=name)


@dataclasses.dataclass(frozen=True)
class Mark:
    """An inline element around the characters `start` to `end - 1` of a segment's text, or, if
    both are equal, anything that stands there: an element without text, a comment, a tag without
    its other half.

    `opening` and `closing` are what stands before and after the characters. `parent` is the number
    of the mark around this one, or -1. `blank_before` and `blank_after` say whether there is white
    space beside a point.
    """

    start: int
    end: int
    opening: Raw
    closing: Raw = ()
    parent: int = -1
    blank_before: bool = False
    blank_after: bool = False

    @property
    def is_point(self) -> bool:
        return self.start == self.end


@dataclasses.dataclass(frozen=True)
class Segment:
    """A text to translate, without markup, with single blanks between words and none outside.

    `marks` are in the document's order. If the tags of a text don't match each other, or are very
    deep, each is a mark of its own, `in_order`: these are never put in another order. `blanks` says
    how blanks are written that aren't just white space, by their places in `text`: those that no
    line may break at, and none ("") beside a line break. `quote` is the quotation mark around an
    attribute's value, "" in content. A `plain` text was written without any entity or tag, and its
    "&" stay as they are.
    """

    text: str
    marks: tuple[Mark, ...] = ()
    in_order: bool = False
    blanks: Mapping[int, str] = dataclasses.field(default_factory=dict)
    quote: str = ""
    plain: bool = False
    write: "Callable[[Segment, Raw], Raw] | None" = None

    @functools.cached_property
    def needs_alignment(self) -> bool:
        """Whether a mark's place depends on which word is translated by which."""
        edges = {0, len(self.text)}
        inner = any(not {mark.start, mark.end} <= edges for mark in self.marks)
        return inner or bool(self.blanks)


@dataclasses.dataclass(frozen=True)
class Document:
    """What is between the segments, and their numbers in the places where they belong. A segment of
    an attribute, a text box or a note may be in the marks of a later one instead."""

    parts: Raw
    segments: tuple[Segment, ...]

    def joined(self, contents: Sequence[Raw]) -> str:
        """The document with these contents for its segments."""
        texts = ["".join(part for part in raw if isinstance(part, str)) for raw in contents]
        for number, raw in enumerate(contents):
            # Numbers here are lower than `number`, so these texts are whole: `Assembler.value` and
            # `include` add the inner segments when the marks are read, and the segment around them
            # is added when its paragraph ends.
            if any(isinstance(part, int) for part in raw):
                texts[number] = "".join(
                    texts[part] if isinstance(part, int) else part for part in raw
                )
        return "".join(texts[part] if isinstance(part, int) else part for part in self.parts)


def joined_all(documents: Sequence[Document], contents: Sequence[Raw]) -> list[str]:
    """Each document with those of the contents that are for its segments."""
    texts = []
    first = 0
    for document in documents:
        end = first + len(document.segments)
        texts.append(document.joined(contents[first:end]))
        first = end
    return texts
