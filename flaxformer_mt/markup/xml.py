"""XML as a document. Expat says where everything is; nothing is loaded that it refers to.

What is inline can't be told by names. An element that has text of its own, not just white space, is
a text with all that is in it; the elements around such elements part texts.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from html.entities import html5
from typing import Literal
from xml.parsers import expat

from flaxformer_mt.markup.document import LARGEST, Document, MarkupError
from flaxformer_mt.markup.segments import Assembler

# Those that documents declare under the names of HTML's mean the same.
_ENTITIES = {f"&{name}": meaning for name, meaning in html5.items() if name.endswith(";")}
_LONGEST_ENTITY = 1000  # characters of what a document may declare an entity to mean
_Kind = Literal["start", "end", "text", "other", "cdata", "end of cdata"]


def read_xml(text: str, *, keep: Collection[str] = ()) -> Document:
    """The document of an XML file; elements with the names in `keep`, as written, aren't
    translated, and neither are CDATA sections, nor elements with the attribute `translate="no"` or
    `its:translate="no"`.

    Raises MarkupError, with the line, for what isn't well-formed or has entities that refer to
    others, and for a document that is too large.
    """
    if len(text) > LARGEST:
        raise MarkupError(f"{len(text):,} characters; a document has at most {LARGEST:,}")
    events = list(read_events(text))
    reader = _XmlReader(_with_text(events), frozenset(keep))
    for number, event in enumerate(events):
        reader.read(number, event)
    return reader.assembler.document()


@dataclasses.dataclass(frozen=True)
class XmlEvent:
    """Something that Expat has found: how it is written, and an element's name or a text."""

    kind: _Kind
    raw: str
    meaning: str = ""
    kept: bool | None = None  # None: as what is around


def read_events(text: str) -> Iterator[XmlEvent]:
    """All of the document, in order and without gaps."""
    content = text.encode()
    listener = _Listener()
    listener.parse(content)
    ends = [start for _, start, _, _ in listener.heard[1:]] + [len(content)]
    in_cdata = False
    for (kind, start, meaning, is_kept), end in zip(listener.heard, ends, strict=True):
        in_cdata = in_cdata or kind == "cdata"
        effective_kind: _Kind = "cdata" if in_cdata else kind
        in_cdata = in_cdata and kind != "end of cdata"
        yield XmlEvent(effective_kind, content[start:end].decode(), meaning, is_kept)


def element_end(events: Sequence[XmlEvent], place: int) -> int:
    """Behind the element that begins at a place, or behind what else is there."""
    depth = 0
    while place < len(events):
        depth += (events[place].kind == "start") - (events[place].kind == "end")
        place += 1
        if depth <= 0:
            break
    return place


class _Listener:
    """Collects what Expat says, with the place of each beginning, in bytes."""

    def __init__(self) -> None:
        self.heard: list[tuple[_Kind, int, str, bool | None]] = []
        # The text's own encoding, whatever its declaration says.
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.ordered_attributes = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = lambda name: self._hear("end", name)
        parser.CharacterDataHandler = lambda data: self._hear("text", data)
        parser.StartCdataSectionHandler = lambda: self._hear("cdata")
        parser.EndCdataSectionHandler = lambda: self._hear("end of cdata")
        parser.EntityDeclHandler = self._declare
        # Not the one that expands entities: these stay as they are.
        parser.DefaultHandler = lambda data: self._hear("other")

    def parse(self, content: bytes) -> None:
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            raise MarkupError(
                f"not well-formed XML: {expat.ErrorString(error.code)}", error.lineno
            ) from error

    def _hear(self, kind: _Kind, meaning: str = "", kept: bool | None = None) -> None:
        self.heard.append((kind, self._parser.CurrentByteIndex, meaning, kept))

    def _start(self, name: str, attributes: list[str]) -> None:
        values = dict(zip(attributes[::2], attributes[1::2], strict=True))
        translate = values.get("translate", values.get("its:translate"))
        is_kept = None if translate not in ("yes", "no") else translate == "no"
        self._hear("start", name, is_kept)

    def _declare(self, name: str, is_parameter: bool, value: str | None, *_: str | None) -> None:
        if value is None:  # in another file, which isn't read
            return
        if len(value) > _LONGEST_ENTITY or not {"&", "%"}.isdisjoint(value):
            raise MarkupError(
                f"the entity {name!r} is long or refers to others: write what it means instead",
                self._parser.CurrentLineNumber,
            )


def _with_text(events: list[XmlEvent]) -> frozenset[int]:
    """The numbers of the start tags of elements that have text of their own."""
    with_text = set()
    open_: list[int] = []
    for number, event in enumerate(events):
        if event.kind == "start":
            open_.append(number)
        elif event.kind == "end":
            open_.pop()
        elif event.kind == "text" and open_ and not event.meaning.isspace():
            with_text.add(open_[-1])
    return frozenset(with_text)


@dataclasses.dataclass(frozen=True)
class _OpenTag:
    name: str
    kept: bool
    is_inline: bool
    has_text: bool  # of its own, or around it


class _XmlReader:
    def __init__(self, with_text: frozenset[int], keep: frozenset[str]) -> None:
        self.assembler = Assembler()
        self._with_text, self._keep = with_text, keep
        self._open = [_OpenTag("", kept=False, is_inline=False, has_text=False)]

    def read(self, number: int, event: XmlEvent) -> None:
        outer = self._open[-1]
        match event.kind:
            case "start":
                is_kept = event.meaning in self._keep or (
                    outer.kept if event.kept is None else event.kept
                )
                has_text = outer.has_text or number in self._with_text
                tag = _OpenTag(event.meaning, is_kept, outer.has_text, has_text)
                self._open.append(tag)
                self._tag(tag, event)
            case "end":
                self._open.pop()
                self._tag(outer, event)
            case "text" if not outer.kept:
                self.assembler.text([(event.raw, event.meaning)])
            case "other" if event.raw in _ENTITIES and not outer.kept:
                self.assembler.text([(event.raw, _ENTITIES[event.raw])])
            case "other" if not outer.kept:
                self.assembler.point((event.raw,))
            case _:
                self.assembler.kept(event.raw)

    def _tag(self, tag: _OpenTag, event: XmlEvent) -> None:
        if not tag.is_inline:
            self.assembler.block((event.raw,))
        elif tag.kept:
            self.assembler.kept(event.raw)
        elif event.kind == "start":
            self.assembler.opening(tag.name, (event.raw,))
        else:
            self.assembler.closing(tag.name, (event.raw,))
