"""Plain text and subtitles: lines, some of which are text.

Subtitles are read line by line and not with pysubs2 or srt: these write files that have lost notes,
styles and settings of cues, and count them again.
"""

import dataclasses
import html
import re
import unicodedata
from collections.abc import Iterator, Sequence

from flaxformer_mt.markup.document import LARGEST, Document, MarkupError, Raw, Segment, Unescaped
from flaxformer_mt.markup.placing import escaped
from flaxformer_mt.markup.segments import Assembler

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_WEBVTT = re.compile(r"WEBVTT(?![^ \t\r\n])")
_TIME = r"(?:\d+:)?\d+:\d+(?:[.,]\d+)?"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
# With its name, without WebVTT's classes: </c> ends <c.loud>.
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*+)?+[^<>]*+>|\{\\?[^{}]*\}")
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_DIALOGUE = re.compile(r"\s*[-–—]\s*")


def read_plain(text: str) -> Document:
    """The document of a text of which each line is one. Raises MarkupError."""
    _check_size(text)
    assembler = Assembler()
    for line_match in _LINE.finditer(text):
        _put(line_match[1], assembler, PlainWriter())
        assembler.block((line_match[2],))
    return assembler.document()


def read_subtitles(text: str) -> Document:
    """The document of an SRT or WebVTT file: the text of its cues. Numbers, times, settings, notes
    and styles stay as they are. A cue on several lines is translated as one text, and written on as
    many; lines that begin with a dash are texts of their own. In WebVTT, which begins with its
    name, "&amp;" and the like are read and written as in HTML.

    Raises MarkupError for text without any cue that isn't WebVTT.
    """
    _check_size(text)
    assembler = Assembler()
    is_webvtt = _WEBVTT.match(text) is not None
    cue: list[re.Match[str]] = []
    in_cue = has_cues = False
    for line_match in _LINE.finditer(text):
        has_times = _TIMES.match(line_match[1]) is not None
        if in_cue and line_match[1].strip() and not has_times:
            cue.append(line_match)
            continue
        # The next cue may follow without an empty line.
        number = cue.pop()[0] if has_times and cue and cue[-1][1].strip().isdecimal() else ""
        _put_cue(cue, assembler, is_webvtt=is_webvtt)
        cue = []
        in_cue = has_times
        has_cues = has_cues or in_cue
        assembler.block((number, line_match[0]))
    _put_cue(cue, assembler, is_webvtt=is_webvtt)
    if not has_cues and not is_webvtt:
        raise MarkupError("not subtitles: it has no line such as 00:00:01,000 --> 00:00:04,000")
    return assembler.document()


def _check_size(text: str) -> None:
    if len(text) > LARGEST:
        raise MarkupError(f"{len(text):,} characters; a file has at most {LARGEST:,}")


def _put_cue(lines: Sequence[re.Match[str]], assembler: Assembler, *, is_webvtt: bool) -> None:
    if not lines:
        return
    one_line = PlainWriter(has_references=is_webvtt)
    if all(_DIALOGUE.match(line[1]) for line in lines):
        for line in lines:
            dash = _DIALOGUE.match(line[1])
            assembler.block((dash[0] if dash else "",))
            _put_tagged(line[1][dash.end() if dash else 0 :], assembler, one_line)
            assembler.block((line[2],))
        return
    text = "\n".join(line[1] for line in lines)
    writer = dataclasses.replace(one_line, lines=len(lines), line_end=lines[0][2])
    _put_tagged(text, assembler, writer)
    assembler.block((lines[-1][2],))


def _put(text: str, assembler: Assembler, writer: "PlainWriter") -> None:
    inner = Assembler()
    inner.text([(text, text)])
    _include(inner, assembler, writer)


def _put_tagged(text: str, assembler: Assembler, writer: "PlainWriter") -> None:
    """Puts text with tags such as <i>, <v Anna> and {\\an8}."""
    inner = Assembler()
    end = 0
    for tag in _TAG.finditer(text):
        inner.text(writer.chunks(text[end : tag.start()]))
        end = tag.end()
        if not tag[2]:
            inner.point((CueTag(tag[0]),))
        elif tag[1]:
            inner.closing(tag[2], (CueTag(tag[0]),))
        else:
            inner.opening(tag[2], (CueTag(tag[0]),))
    inner.text(writer.chunks(text[end:]))
    _include(inner, assembler, writer, text)


def _include(
    inner: Assembler, assembler: Assembler, writer: "PlainWriter", text: str | None = None
) -> None:
    document = inner.document()
    if text is not None and not document.segments:
        assembler.block((text.replace("\n", writer.line_end),))
        return
    segments = [dataclasses.replace(segment, write=writer) for segment in document.segments]
    assembler.block(assembler.include(Document(document.parts, tuple(segments))))


class CueTag(str):
    """A tag in a subtitle, which takes no place on the screen."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class PlainWriter:
    """Writes a text on so many lines of about the same length."""

    lines: int = 1
    line_end: str = "\n"
    has_references: bool = False  # such as "&amp;"

    def chunks(self, text: str) -> Iterator[tuple[str, str]]:
        """Parts of a text as they are written, and what they mean."""
        end = 0
        for reference in _REFERENCE.finditer(text) if self.has_references else ():
            yield text[end : reference.start()], text[end : reference.start()]
            yield reference[0], html.unescape(reference[0])
            end = reference.end()
        yield text[end:], text[end:]

    def __call__(self, segment: Segment, raw: Raw) -> Raw:
        """The translation as it is."""
        parts = [part for raw_part in raw for part in _words(raw_part)]
        written = [
            escaped(part) if self.has_references and isinstance(part, Unescaped) else str(part)
            for part in parts
        ]
        return tuple(self._broken(written, [_width(part) for part in parts]))

    def _broken(self, parts: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        """The parts, with line ends in the place of blanks."""
        total, place, written = sum(widths), 0, 1
        for number, part in enumerate(parts):
            place += widths[number]
            due = total * written / self.lines
            following = sum(widths[number + 1 : number + 2])
            is_best = abs(place - due) <= abs(place + following + 1 - due) or place >= due
            if part == " " and written < self.lines and is_best and 0 < place < total:
                written += 1
                yield self.line_end
                continue
            yield "".join(
                character
                for character in part
                if unicodedata.category(character) not in ("Cc", "Cs")
            )


def _words(part: str | int) -> Iterator[str | int]:
    """The words of a text and the blanks between them; a tag is one of them."""
    if isinstance(part, Unescaped):
        yield from (Unescaped(word) for word in re.split("( )", part) if word)
    else:
        yield part


def _width(part: str | int) -> int:
    return 0 if isinstance(part, CueTag | int) else len(part)
