"""The XML of an OpenDocument text: its paragraphs, and what is inline in them."""

from collections.abc import Iterable, Iterator, Sequence

from flaxformer_mt.markup.document import Document
from flaxformer_mt.markup.segments import Assembler
from flaxformer_mt.markup.xml import XmlEvent, element_end, read_events

_PARAGRAPHS = ("text:p", "text:h")
_INLINE = ("text:span", "text:a", "text:meta")
_BLANKS = ("text:s", "text:tab", "text:line-break")
_DELETED = "text:tracked-changes"
_DEEPEST = 3  # text boxes and notes within one another that are translated


def read_opendocument(text: str) -> Document:
    """The document of content.xml or styles.xml. Spans and links move with their words; notes,
    frames and fields within a paragraph are each at a place between words. The paragraphs of notes
    and frames are texts of their own; comments and fields stay as they are. What comes in pairs,
    such as the beginning and the end of a bookmark, goes around the whole text.

    Raises MarkupError.
    """
    return _document(read_events(text), depth=0)


def _document(events: Iterable[XmlEvent], depth: int) -> Document:
    """That of a file, or of a part within so many paragraphs."""
    reader = _OpenDocumentReader(depth)
    for event in events:
        reader.read(event)
    return reader.assembler.document()


class _OpenDocumentReader:
    def __init__(self, depth: int) -> None:
        self._within = depth  # so many paragraphs
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
        _put(self._paragraph, self.assembler, self._within)
        self._paragraph = None
        self.assembler.block((event.raw,))

    def _between(self, event: XmlEvent) -> None:
        """Something between two paragraphs."""
        self.assembler.block((event.raw,))
        if event.meaning == _DELETED:
            self._is_deleted = event.kind == "start"
        elif event.kind == "start" and event.meaning in _PARAGRAPHS and not self._is_deleted:
            self._paragraph, self._depth = [], 0


def _put(paragraph: Sequence[XmlEvent], assembler: Assembler, within: int) -> None:
    """Gives what is in a paragraph to an assembler."""
    pieces = list(_pieces(paragraph))
    assembler.block(tuple(_raw(piece) for piece in pieces if _is_half(piece[0], "start")))
    for piece in pieces:
        if not _is_half(piece[0], "start") and not _is_half(piece[0], "end"):
            _put_piece(piece, assembler, within)
    assembler.block(tuple(_raw(piece) for piece in pieces if _is_half(piece[0], "end")))


def _put_piece(piece: Sequence[XmlEvent], assembler: Assembler, within: int) -> None:
    event, raw = piece[0], _raw(piece)
    match event.kind:
        case "text":
            assembler.text([(raw, event.meaning)])
        case "start" if event.meaning in _INLINE:
            assembler.opening(event.meaning, (raw,))
        case "start" if event.meaning in _BLANKS:
            assembler.point((raw,), parts_words=True)
        case "start" if within < _DEEPEST and _has_paragraphs(piece):
            assembler.point(assembler.include(_document(piece, within + 1)))
        case "start":
            assembler.kept(raw)
        case "end":
            assembler.closing(event.meaning, (raw,))
        case _:
            assembler.point((raw,))


def _is_half(event: XmlEvent, half: str) -> bool:
    """Whether an element is one of a pair: the one that is the "start", or the "end"."""
    return event.kind == "start" and event.meaning.endswith(f"-{half}")


def _has_paragraphs(element: Sequence[XmlEvent]) -> bool:
    """Whether it is a note, a text box or a drawing with text."""
    name = element[0].meaning
    return (name == "text:note" or name.startswith("draw:")) and any(
        event.meaning in _PARAGRAPHS for event in element
    )


def _raw(piece: Sequence[XmlEvent]) -> str:
    return "".join(event.raw for event in piece)


def _pieces(paragraph: Sequence[XmlEvent]) -> Iterator[Sequence[XmlEvent]]:
    """What is in a paragraph; an element that isn't inline is one piece."""
    place = 0
    while place < len(paragraph):
        event = paragraph[place]
        is_whole = event.kind == "start" and event.meaning not in _INLINE
        end = element_end(paragraph, place) if is_whole else place + 1
        yield paragraph[place:end]
        place = end
