"""The XML of an OpenDocument text: its paragraphs, and what is inline in them."""

from collections.abc import Iterator, Sequence

from flaxformer_mt.markup.document import Document
from flaxformer_mt.markup.segments import Assembler
from flaxformer_mt.markup.xml import XmlEvent, element_end, read_events

_PARAGRAPHS = ("text:p", "text:h")
_INLINE = ("text:span", "text:a", "text:meta")
_BLANKS = ("text:s", "text:tab", "text:line-break")
_DELETED = "text:tracked-changes"


def read_opendocument(text: str) -> Document:
    """The document of content.xml or styles.xml. Spans and links move with their words; notes,
    frames and fields within a paragraph stay as they are, each at a place between words. What comes
    in pairs, such as the beginning and the end of a bookmark, goes around the whole text.

    Raises MarkupError.
    """
    reader = _OpenDocumentReader()
    for event in read_events(text):
        reader.read(event)
    return reader.assembler.document()


class _OpenDocumentReader:
    def __init__(self) -> None:
        self.assembler = Assembler()
        self._paragraph: list[XmlEvent] | None = None
        self._depth = 0  # of elements in the paragraph
        self._is_deleted = False

    def read(self, event: XmlEvent) -> None:
        if self._paragraph is None:
            self._between(event)
            return
        self._depth += (event.kind == "start") - (event.kind == "end")
        if self._depth >= 0:
            self._paragraph.append(event)
            return
        _put(self._paragraph, self.assembler)
        self._paragraph = None
        self.assembler.block((event.raw,))

    def _between(self, event: XmlEvent) -> None:
        """Something between two paragraphs."""
        self.assembler.block((event.raw,))
        if event.meaning == _DELETED:
            self._is_deleted = event.kind == "start"
        elif event.kind == "start" and event.meaning in _PARAGRAPHS and not self._is_deleted:
            self._paragraph, self._depth = [], 0


def _put(paragraph: Sequence[XmlEvent], assembler: Assembler) -> None:
    """Gives what is in a paragraph to an assembler."""
    pieces = list(_pieces(paragraph))
    assembler.block(tuple(raw for event, raw in pieces if _is_half(event, "start")))
    for event, raw in pieces:
        if not _is_half(event, "start") and not _is_half(event, "end"):
            _put_piece(event, raw, assembler)
    assembler.block(tuple(raw for event, raw in pieces if _is_half(event, "end")))


def _put_piece(event: XmlEvent, raw: str, assembler: Assembler) -> None:
    match event.kind:
        case "text":
            assembler.text([(raw, event.meaning)])
        case "start" if event.meaning in _INLINE:
            assembler.opening(event.meaning, (raw,))
        case "start" if event.meaning in _BLANKS:
            assembler.point((raw,), parts_words=True)
        case "start":
            assembler.kept(raw)
        case "end":
            assembler.closing(event.meaning, (raw,))
        case _:
            assembler.point((raw,))


def _is_half(event: XmlEvent, half: str) -> bool:
    """Whether an element is one of a pair: the one that is the "start", or the "end"."""
    return event.kind == "start" and event.meaning.endswith(f"-{half}")


def _pieces(paragraph: Sequence[XmlEvent]) -> Iterator[tuple[XmlEvent, str]]:
    """What is in a paragraph and how it is written; an element that isn't inline is one piece."""
    place = 0
    while place < len(paragraph):
        event = paragraph[place]
        is_whole = event.kind == "start" and event.meaning not in _INLINE
        end = element_end(paragraph, place) if is_whole else place + 1
        yield event, "".join(inner.raw for inner in paragraph[place:end])
        place = end
