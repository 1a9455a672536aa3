"""The XML of an OpenDocument text: its paragraphs, and what is inline in them."""

from flaxformer_mt.markup.document import Document
from flaxformer_mt.markup.segments import Assembler
from flaxformer_mt.markup.xml import XmlEvent, read_events

_PARAGRAPHS = ("text:p", "text:h")
_INLINE = ("text:span", "text:a", "text:meta")
_BLANKS = ("text:s", "text:tab", "text:line-break")


def read_opendocument(text: str) -> Document:
    """The document of content.xml or styles.xml. Spans and links move with their words; notes,
    frames and fields within a paragraph stay as they are, each at a place between words.

    Raises MarkupError.
    """
    reader = _OpenDocumentReader()
    for event in read_events(text):
        reader.read(event)
    return reader.assembler.document()


class _OpenDocumentReader:
    def __init__(self) -> None:
        self.assembler = Assembler()
        self._in_paragraph = False
        self._kept = 0  # elements of a paragraph that are kept, each within the one before

    def read(self, event: XmlEvent) -> None:
        if not self._in_paragraph:
            self.assembler.block((event.raw,))
            self._in_paragraph = event.kind == "start" and event.meaning in _PARAGRAPHS
        elif self._kept or (event.kind == "start" and event.meaning not in _INLINE):
            self._keep(event)
        elif event.kind == "start":
            self.assembler.opening(event.meaning, (event.raw,))
        elif event.kind == "end" and event.meaning in _INLINE:
            self.assembler.closing(event.meaning, (event.raw,))
        elif event.kind == "end":
            self.assembler.block((event.raw,))
            self._in_paragraph = False
        elif event.kind == "text":
            self.assembler.text([(event.raw, event.meaning)])
        else:
            self.assembler.point((event.raw,))

    def _keep(self, event: XmlEvent) -> None:
        if event.kind == "start" and not self._kept and event.meaning in _BLANKS:
            self.assembler.point((event.raw,), parts_words=True)
        elif event.raw:
            self.assembler.kept(event.raw)
        self._kept += (event.kind == "start") - (event.kind == "end")
