"""Makes segments of the text, tags and other things that a reader finds in a document.

A reader calls the `Assembler` in the document's order. What is inline goes into a run, which ends
at a block; of a run with letters or digits a segment is made, any other stays as it is.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from flaxformer_mt.markup.document import Document, Mark, Raw, Segment

DEEPEST = 50  # inline elements within one another that move with their words
_HARD = "\xa0\u202f\u2007"
Kind = Literal["word", "blank", "opening", "closing", "point", "kept"]


@dataclasses.dataclass(frozen=True)
class _Item:
    """A part of a run: characters of a word, white space, or markup. `text` is what a word's
    characters or white space mean, or an element's name."""

    kind: Kind
    raw: Sequence[str | int]
    text: str = ""


class Assembler:
    """Collects a document. `one_by_one` are the names of elements which, if a run has text
    in several of them and none between them, are translated one by one, as links of a menu are."""

    def __init__(self, *, one_by_one: frozenset[str] = frozenset()) -> None:
        self._one_by_one = one_by_one
        self._parts: list[str | int] = []
        self._segments: list[Segment] = []
        self._run: list[_Item] = []
        self._kept: list[str | int] = []  # of the last item, if it is kept

    def block(self, raw: Raw) -> None:
        """Markup between two texts."""
        self._end_run()
        self._parts += raw

    def text(self, chunks: Iterable[tuple[str, str]]) -> None:
        """Text, in parts as they are written and what they mean."""
        for raw, meaning in chunks:
            self._run += _words_and_blanks(raw, meaning)

    def opening(self, name: str, raw: Raw) -> None:
        self._run.append(_Item("opening", raw, name))

    def closing(self, name: str, raw: Raw) -> None:
        self._run.append(_Item("closing", raw, name))

    def point(self, raw: Raw, *, parts_words: bool = False) -> None:
        """Anything inline without text; it may part words, as a line break does."""
        self._run.append(_Item("point", raw))
        if parts_words:
            self._run.append(_Item("blank", (), " "))

    def kept(self, raw: str | int) -> None:
        """A part of something inline that isn't translated, or a segment's number; neighbouring
        parts are one point."""
        if not self._run or self._run[-1].kind != "kept":
            self._kept = []
            self._run.append(_Item("kept", self._kept))
        self._kept.append(raw)

    def value(self, meaning: str, quote: str) -> Raw:
        """What to put in the place of an attribute's value, given between quotation marks."""
        text = " ".join(meaning.split())
        self._segments.append(Segment(text, quote=quote))
        return (len(self._segments) - 1,)

    def include(self, document: Document) -> Raw:
        """The parts of another document, whose segments become some of this one's."""
        first = len(self._segments)
        self._segments += [
            dataclasses.replace(
                segment,
                marks=tuple(
                    dataclasses.replace(
                        mark,
                        opening=_renumbered(mark.opening, first),
                        closing=_renumbered(mark.closing, first),
                    )
                    for mark in segment.marks
                ),
            )
            for segment in document.segments
        ]
        return _renumbered(document.parts, first)

    def document(self) -> Document:
        """All of it."""
        self._end_run()
        return Document(tuple(self._parts), tuple(self._segments))

    def _end_run(self) -> None:
        run, self._run = self._run, []
        for items in _one_by_one(run, self._one_by_one):
            if any(map(_is_text, items)):
                self._parts += self._segment(items)
            else:
                for item in items:
                    self._parts += item.raw

    def _segment(self, items: Sequence[_Item]) -> Raw:
        """The number of a new segment, with the white space around it."""
        words = [number for number, item in enumerate(items) if item.kind == "word"]
        first, last = words[0], words[-1]
        before = _leading_blanks(items[:first])
        after = _leading_blanks(reversed(items[last + 1 :]))
        items = items[len(before) : len(items) - len(after)]
        self._segments.append(_SegmentMaker(items, first - len(before), last - len(before)).made())
        outside = [part for item in before for part in item.raw]
        return (
            *outside,
            len(self._segments) - 1,
            *[part for item in reversed(after) for part in item.raw],
        )


def _renumbered(raw: Raw, first: int) -> Raw:
    """With numbers that count from `first`."""
    return tuple(part + first if isinstance(part, int) else part for part in raw)


def _leading_blanks(items: Iterable[_Item]) -> list[_Item]:
    blanks = []
    for item in items:
        if item.kind != "blank":
            break
        blanks.append(item)
    return blanks


def _words_and_blanks(raw: str, meaning: str) -> Iterator[_Item]:
    """The words and the white space of a text; one that isn't written as it is meant, such as an
    entity, is one of them as a whole."""
    if raw != meaning and meaning.isspace():
        yield _Item("blank", (raw,), meaning)
        return
    start = 0
    while start < len(meaning):
        end, is_blank = start + 1, meaning[start].isspace()
        while end < len(meaning) and meaning[end].isspace() == is_blank:
            end += 1
        text = meaning[start:end]
        yield _Item("blank" if is_blank else "word", (raw if text == meaning else text,), text)
        start = end


def _one_by_one(items: Sequence[_Item], names: frozenset[str]) -> list[Sequence[_Item]]:
    """The run itself; or each of several elements with these names, if all words are in them, and
    what is between them."""
    elements = [of for of in _outermost(items) if items[of.start].text in names]
    element_of = {number: of for of in elements for number in of}
    around = [element_of.get(number) for number, item in enumerate(items) if _is_text(item)]
    if None in around or len(set(around)) < 2:
        return [items]
    cuts = [0, *[cut for element in elements for cut in (element.start, element.stop)], len(items)]
    return [items[start:end] for start, end in itertools.pairwise(cuts)]


def _outermost(items: Sequence[_Item]) -> list[range]:
    """Where the elements are that aren't within others; one without an end isn't counted."""
    elements = []
    start = depth = 0
    for number, item in enumerate(items):
        if item.kind == "opening":
            start = start if depth else number
            depth += 1
        elif item.kind == "closing" and depth:
            depth -= 1
            if not depth:
                elements.append(range(start, number + 1))
    return elements


def _is_text(item: _Item) -> bool:
    return item.kind == "word" and has_text(item.text)


def has_text(text: str) -> bool:
    """Whether there is anything to translate in a text: not in "|", "»" or "..."."""
    return any(character.isalnum() for character in text)


@dataclasses.dataclass
class _Open:
    """An element that isn't closed yet."""

    name: str
    mark: int  # its number
    words: int  # before it
    blank_before: bool


class _SegmentMaker:
    """Makes one segment of a run's items; those outside of `first` to `last` have no words."""

    def __init__(self, items: Sequence[_Item], first: int, last: int) -> None:
        self._items, self._first, self._last = items, first, last
        self._text: list[str] = []
        self._length = 0
        self._words = 0  # items of words
        self._marks: list[Mark] = []
        self._open: list[_Open] = []
        self._blanks: dict[int, str] = {}
        # Of the item before: whether it is white space, and whether it is the last mark, a point.
        self._behind_blank = self._behind_point = False

    def made(self) -> Segment:
        matched = _match(self._items)
        for number, item in enumerate(self._items):
            match item.kind:
                case "word":
                    self._add(item.text)
                    self._words += 1
                    self._behind_blank = self._behind_point = False
                case "blank":
                    self._blank(number, item)
                case "opening" if matched:
                    self._begin(item)
                case "closing" if matched:
                    self._end(item)
                case _:
                    self._point((*item.raw,), blank_before=self._behind_blank)
        return Segment(
            "".join(self._text), tuple(self._marks), in_order=not matched, blanks=self._blanks
        )

    def _add(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)

    @property
    def _parent(self) -> int:
        return self._open[-1].mark if self._open else -1

    def _blank(self, number: int, item: _Item) -> None:
        if not self._first < number < self._last:
            # Before all words or after them it stays as it is, whatever it is within.
            if item.raw:
                self._point((*item.raw,))
            return
        if item.raw:  # not only what a line break means
            if self._behind_point:
                self._marks[-1] = dataclasses.replace(self._marks[-1], blank_after=True)
            self._behind_blank, self._behind_point = True, False
        if self._text[-1] == " ":
            if item.raw and self._blanks.get(self._length - 1) == "":
                del self._blanks[self._length - 1]
            return
        if not item.raw or any(character in _HARD for character in item.text):
            self._blanks[self._length] = "".join(map(str, item.raw))
        self._add(" ")

    def _point(self, raw: Raw, *, blank_before: bool = False) -> None:
        place = self._length
        self._marks.append(Mark(place, place, raw, parent=self._parent, blank_before=blank_before))
        self._behind_blank, self._behind_point = False, True

    def _begin(self, item: _Item) -> None:
        parent = self._parent
        element = _Open(item.text, len(self._marks), self._words, self._behind_blank)
        self._open.append(element)
        self._marks.append(Mark(self._length, self._length, (*item.raw,), parent=parent))
        self._behind_blank = self._behind_point = False

    def _end(self, item: _Item) -> None:
        element = self._open.pop()
        mark = self._marks[element.mark]
        if element.words == self._words:
            # An element without words is a point, with all that is in it.
            inner = self._marks[element.mark :]
            del self._marks[element.mark :]
            raw = tuple(part for point in inner for part in (*point.opening, *point.closing))
            self._point((*raw, *item.raw), blank_before=element.blank_before)
            return
        self._marks[element.mark] = dataclasses.replace(
            mark, end=self._length, closing=(*item.raw,)
        )


def _match(items: Sequence[_Item]) -> bool:
    """Whether each end tag belongs to the last start tag before it that has none yet, and elements
    aren't too deep."""
    names: list[str] = []
    for item in items:
        if item.kind == "opening":
            names.append(item.text)
            if len(names) > DEEPEST:
                return False
        elif item.kind == "closing" and (not names or names.pop() != item.text):
            return False
    return not names
