"""The XML of a Word text. A paragraph there is a list of runs, each with one format: neighbours
with the same are read as one, the most common format is the paragraph's own, and text in another
one is inline and moves with its words."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from flaxformer_mt.markup.document import Document, Raw, Segment, Unescaped
from flaxformer_mt.markup.placing import escaped
from flaxformer_mt.markup.segments import Assembler, has_text
from flaxformer_mt.markup.xml import XmlEvent, element_end, read_events

_NAMESPACE = re.compile(
    r"""xmlns(?::([\w.-]+))?\s*=\s*["']http://(?:schemas\.openxmlformats\.org/wordprocessingml/2006"""
    r"""|purl\.oclc\.org/ooxml/wordprocessingml)/main["']"""
)
_FIELD_KIND = re.compile(r"""fldCharType\s*=\s*["'](\w+)["']""")
# Elements around runs, which move with these.
_AROUND = ("hyperlink", "ins", "smartTag", "sdt", "sdtContent", "fldSimple", "moveTo", "bdo", "dir")
# What Word itself found out and writes again.
_DROPPED = ("proofErr", "lastRenderedPageBreak")
_BLANKS = ("tab", "br", "cr")
# What must stay before or behind all text, since it comes in pairs.
_STARTS = ("bookmarkStart", "commentRangeStart", "moveToRangeStart", "permStart")
_ENDS = ("bookmarkEnd", "commentRangeEnd", "moveToRangeEnd", "permEnd")
_DEEPEST = 3  # text boxes within one another that are translated


def read_word(text: str) -> Document:
    """The document of a part of a Word file. The paragraphs of text boxes are texts of their own,
    also within a field; deleted text and other fields than links stay as they are.

    Raises MarkupError.
    """
    namespace = _NAMESPACE.search(text)
    name = namespace[1] if namespace else "w"
    return _document(read_events(text), f"{name}:" if name else "", within=0)


def _document(events: Iterable[XmlEvent], prefix: str, within: int) -> Document:
    """That of a file, or of a part within so many paragraphs."""
    reader = _WordReader(prefix, within)
    for event in events:
        reader.read(event)
    return reader.assembler.document()


_Kind = Literal["text", "open", "close", "point", "blank", "start", "end", "field"]


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Something in a paragraph: text with a format, or XML."""

    kind: _Kind
    raw: str = ""
    text: str = ""
    format: str = ""
    box: Document | None = None  # the same with paragraphs of its own, to translate


class _Markup(str):
    """XML between the texts of a paragraph."""

    __slots__ = ()


class _Format(str):
    """Where text in a format begins or ends."""

    is_end: bool

    def __new__(cls, format: str, is_end: bool) -> _Format:
        instance = super().__new__(cls, format)
        instance.is_end = is_end
        return instance


class _WordReader:
    def __init__(self, prefix: str, within: int) -> None:
        self.assembler = Assembler()
        self._prefix, self._within = prefix, within
        self._paragraph: list[XmlEvent] | None = None
        self._depth = 0  # of paragraphs within a paragraph

    def read(self, event: XmlEvent) -> None:
        is_paragraph = event.meaning == f"{self._prefix}p" and event.kind in ("start", "end")
        if self._paragraph is None:
            self.assembler.block((event.raw,))
            if is_paragraph and event.kind == "start":
                self._paragraph = []
            return
        if is_paragraph and event.kind == "end" and not self._depth:
            _Paragraph(self._paragraph, self._prefix, self._within).put(self.assembler)
            self._paragraph = None
            self.assembler.block((event.raw,))
            return
        if is_paragraph:
            self._depth += 1 if event.kind == "start" else -1
        self._paragraph.append(event)


class _Paragraph:
    def __init__(self, events: Sequence[XmlEvent], prefix: str, within: int) -> None:
        self._events, self._prefix, self._within = events, prefix, within
        self._around = [prefix + name for name in _AROUND]

    def put(self, assembler: Assembler) -> None:
        """Gives the paragraph to an assembler; one that has no text or only part of a field stays
        as it is, but for text boxes."""
        pieces = list(self._pieces())
        fields = [piece.text for piece in pieces if piece.kind == "field"]
        is_complete = fields == ["begin", "separate", "end"] * (len(fields) // 3)
        inner = list(_with_fields(pieces)) if is_complete else []
        if not has_text("".join(piece.text for piece in inner if piece.kind == "text")):
            self._put_boxes(assembler)
            return
        assembler.block(tuple(piece.raw for piece in pieces if piece.kind == "start"))
        assembler.block(assembler.include(self._document(inner)))
        assembler.block(tuple(piece.raw for piece in pieces if piece.kind == "end"))

    def _put_boxes(self, assembler: Assembler) -> None:
        """Gives the paragraph as it is, but for text boxes in it."""
        box = self._box(self._events)
        raw = "".join(event.raw for event in self._events)
        assembler.block(assembler.include(box) if box else (raw,))

    def _document(self, pieces: Sequence[_Piece]) -> Document:
        letters: Counter[str] = Counter()
        for piece in pieces:
            if piece.kind == "text":
                letters[piece.format] += len(piece.text)
        usual_format = letters.most_common(1)[0][0]
        writer = WordWriter(self._prefix, usual_format)
        pieces = list(_outer_blanks_apart(list(_joined(pieces)), writer))
        assembler = Assembler()
        for piece in pieces:
            _put(piece, usual_format, assembler)
        document = assembler.document()
        segments = [
            segment if segment.write else dataclasses.replace(segment, write=writer)
            for segment in document.segments
        ]
        return Document(document.parts, tuple(segments))

    def _pieces(self) -> Iterator[_Piece]:
        place = 0
        while place < len(self._events):
            event = self._events[place]
            name = event.meaning.removeprefix(self._prefix)
            if event.meaning in self._around:
                kind: _Kind = "open" if event.kind == "start" else "close"
                yield _Piece(kind, event.raw, event.meaning)
                place += 1
                continue
            end = element_end(self._events, place)
            raw = "".join(one.raw for one in self._events[place:end])
            if name == "r" and event.kind == "start":
                yield from self._run(self._events[place + 1 : end - 1])
            elif name == "pPr" or name in _STARTS:
                yield _Piece("start", raw)
            elif name in _ENDS:
                yield _Piece("end", raw)
            elif name not in _DROPPED:
                yield _Piece("point", raw)
            place = end

    def _run(self, events: Sequence[XmlEvent]) -> Iterator[_Piece]:
        """The pieces of a run: what isn't text becomes a run of its own."""
        format = ""
        place = 0
        while place < len(events):
            end = element_end(events, place)
            inner = events[place:end]
            raw = "".join(event.raw for event in inner)
            name = inner[0].meaning.removeprefix(self._prefix)
            alone = f"<{self._prefix}r>{format}{raw}</{self._prefix}r>"
            if name == "rPr":
                format = raw
            elif name == "t":
                yield _Piece("text", alone, _text_of(inner), format)
            elif name == "fldChar":
                yield _Piece("field", alone, "".join(_FIELD_KIND.findall(raw)[:1]))
            elif name in _BLANKS:
                yield _Piece("blank", alone)
            elif box := self._box(inner):
                around = f"<{self._prefix}r>{format}", f"</{self._prefix}r>"
                parts = (around[0], *box.parts, around[1])
                yield _Piece("point", alone, box=dataclasses.replace(box, parts=parts))
            elif name not in _DROPPED and not raw.isspace():
                yield _Piece("point", alone)
            place = end

    def _box(self, events: Sequence[XmlEvent]) -> Document | None:
        """The document of something in a paragraph that has paragraphs, such as a text box."""
        name = f"{self._prefix}p"
        if self._within >= _DEEPEST or all(event.meaning != name for event in events):
            return None
        return _document(events, self._prefix, self._within + 1)


def _text_of(events: Sequence[XmlEvent]) -> str:
    return "".join(event.meaning for event in events if event.kind in ("text", "cdata"))


def _with_fields(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """The pieces to translate: a field that is a link is around its text, and any other is kept."""
    pieces = [piece for piece in pieces if piece.kind not in ("start", "end")]
    kinds = [piece.text if piece.kind == "field" else "" for piece in pieces]
    place = 0
    while place < len(pieces):
        if pieces[place].kind != "field":
            yield pieces[place]
            place += 1
            continue
        middle, end = kinds.index("separate", place), kinds.index("end", place)
        before = "".join(piece.raw for piece in pieces[place : middle + 1])
        inner = pieces[middle + 1 : end]
        if "HYPERLINK" in before and all(piece.kind in ("text", "blank") for piece in inner):
            yield _Piece("open", before, "field")
            yield from inner
            yield _Piece("close", pieces[end].raw, "field")
        else:
            yield _Piece("field", before)
            yield from (dataclasses.replace(one, kind="field") for one in inner)
            yield _Piece("field", pieces[end].raw)
        place = end + 1


def _joined(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
    """The pieces, with texts of the same format beside each other as one."""
    for (kind, _), group in itertools.groupby(pieces, lambda piece: (piece.kind, piece.format)):
        alike = list(group)
        if kind == "text":
            text = "".join(piece.text for piece in alike)
            yield dataclasses.replace(alike[0], text=text)
        else:
            yield from alike


def _outer_blanks_apart(pieces: Sequence[_Piece], writer: WordWriter) -> Iterator[_Piece]:
    """The pieces, with white space before all text and behind it as runs of its own."""
    texts = [n for n, piece in enumerate(pieces) if piece.kind == "text" and piece.text.strip()]
    for number, piece in enumerate(pieces):
        if piece.kind != "text":
            yield piece
            continue
        text = piece.text
        before = text[: len(text) - len(text.lstrip())] if number <= texts[0] else ""
        text = text[len(before) :]
        behind = text[len(text.rstrip()) :] if number >= texts[-1] else ""
        text = text[: len(text) - len(behind)]
        if before:
            yield _Piece("point", writer.run(before, piece.format))
        if text:
            yield dataclasses.replace(piece, text=text)
        if behind:
            yield _Piece("point", writer.run(behind, piece.format))


def _put(piece: _Piece, own: str, assembler: Assembler) -> None:
    match piece.kind:
        case "text" if piece.format == own:
            assembler.text([(escaped(piece.text), piece.text)])
        case "text":
            assembler.opening("format", (_Format(piece.format, is_end=False),))
            assembler.text([(escaped(piece.text), piece.text)])
            assembler.closing("format", (_Format(piece.format, is_end=True),))
        case "open":
            assembler.opening(piece.text, (_Markup(piece.raw),))
        case "close":
            assembler.closing(piece.text, (_Markup(piece.raw),))
        case "blank":
            assembler.point((_Markup(piece.raw),), parts_words=True)
        case _:
            # Boxes in a field are part of the one point that it is.
            parts = assembler.include(piece.box) if piece.box else (piece.raw,)
            for part in parts:
                assembler.kept(_Markup(part) if isinstance(part, str) else part)


@dataclasses.dataclass(frozen=True)
class WordWriter:
    """Writes the text of a paragraph as runs; `own` is its most common format."""

    prefix: str
    own: str

    def __call__(self, segment: Segment, raw: Raw) -> Raw:
        """The translation as runs between the other elements."""
        return tuple(self._written(raw))

    def run(self, text: str, format: str) -> str:
        """Text as a run, if there is any."""
        return self._run_of(escaped(text), format)

    def _run_of(self, xml: str, format: str) -> str:
        if not xml:
            return ""
        text = f'<{self.prefix}t xml:space="preserve">{xml}</{self.prefix}t>'
        return f"<{self.prefix}r>{format}{text}</{self.prefix}r>"

    def _written(self, raw: Raw) -> Iterator[str | int]:
        formats = [self.own]
        waiting: list[str] = []  # text that isn't written yet
        for part in raw:
            if isinstance(part, _Markup | _Format | int):
                yield self._run_of("".join(waiting), formats[-1])
                waiting.clear()
            if isinstance(part, _Markup | int):
                yield part
            elif isinstance(part, _Format):
                if not part.is_end:
                    formats.append(part)
                elif len(formats) > 1:
                    formats.pop()
            else:
                waiting.append(escaped(part) if isinstance(part, Unescaped) else str(part))
        yield self._run_of("".join(waiting), formats[-1])
