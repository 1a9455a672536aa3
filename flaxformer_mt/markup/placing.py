"""Puts the marks of a segment around the words of its translation.

Unescaped are cut where marks begin or end and between letters and punctuation, as "dog" and "." of
"<b>dog</b>.", so that marks can be there. What is aligned to what follows from the alignment of
whole words.
"""

import bisect
import dataclasses
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from flaxformer_mt.markup.document import Mark, Raw, Segment, Unescaped
from flaxformer_mt.markup.projection import Span, project

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_QUOTES = {'"': "&quot;", "'": "&#39;"}


@dataclasses.dataclass(frozen=True)
class AlignedSentence:
    """A sentence of a segment and its translation, with the places of their first characters, and
    pairs of indices of their words. Words (default: what is between white space) have no white
    space inside. Without pairs (None), they are aligned by their places."""

    source: str
    target: str
    source_start: int = 0
    target_start: int = 0
    links: Sequence[tuple[int, int]] | None = None
    source_words: Sequence[str] = ()
    target_words: Sequence[str] = ()


def placed(segment: Segment, text: str, sentences: Sequence[AlignedSentence] = ()) -> Raw:
    """The segment's translation `text` with its marks, as it stands in the document.

    `sentences` are in order, and needed if `segment.needs_alignment`. Takes time linear in the
    text and the marks, times the depth of the marks.
    """
    if segment.plain:
        return (escaped(text).replace("&amp;", "&"),)
    parts = unescaped(segment, text, sentences)
    if segment.write is not None:
        return segment.write(segment, parts)
    return tuple(
        escaped(part, segment.quote) if isinstance(part, Unescaped) else part for part in parts
    )


def unescaped(segment: Segment, text: str, sentences: Sequence[AlignedSentence] = ()) -> Raw:
    """As `placed`, but with the text `Unescaped`."""
    if not segment.marks and not segment.blanks:
        return (Unescaped(text),)
    tokens = _Tokens(segment, sentences or [AlignedSentence(segment.text, text)], text)
    spans = [_span(mark, tokens.source) for mark in segment.marks]
    projected = project(
        spans,
        [token.text for token in tokens.source],
        [token.text for token in tokens.target],
        tokens.links,
        parents=[mark.parent for mark in segment.marks],
    )
    if segment.in_order:
        projected = _in_order(projected)
    return tuple(_Writer(segment, text, tokens, projected).written())


def escaped(text: str, quote: str = "") -> str:
    """A text as HTML and XML write it, in content or between quotation marks; without control
    characters, which neither can have."""
    allowed = (character for character in text if character >= " " or character in "\t\n\r")
    escapes = _ESCAPES if not quote else _ESCAPES | {quote: _QUOTES[quote]}
    return "".join(
        escapes.get(character, character)
        for character in allowed
        if not (character in "\x7f\ufffe\uffff" or "\ud800" <= character <= "\udfff")
    )


def _in_order(points: Sequence[Span]) -> list[Span]:
    """The points, none before the one on its left."""
    place = 0
    ordered = []
    for point in points:
        place = max(place, point.start)
        ordered.append(Span(place, place))
    return ordered


_Part = Literal["lead", "core", "trail"]
_PARTS: tuple[_Part, ...] = ("lead", "core", "trail")


class _Token(NamedTuple):
    """Part of a word: some of its letters ("core") or of the punctuation around them."""

    start: int
    text: str
    part: _Part

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _span(mark: Mark, tokens: Sequence[_Token]) -> Span:
    """The tokens within a mark."""
    start = _first_at(mark.start, tokens)
    return Span(start, start if mark.is_point else _first_at(mark.end, tokens))


def _first_at(place: int, tokens: Sequence[_Token]) -> int:
    """The number of the first token that begins at a place or behind it."""
    return bisect.bisect_left(tokens, place, key=lambda token: token.start)


class _Tokens:
    """The tokens of a segment and its translation, and pairs of those that are aligned."""

    def __init__(self, segment: Segment, sentences: Sequence[AlignedSentence], text: str) -> None:
        self.source: list[_Token] = []
        self.target: list[_Token] = []
        self.links: list[tuple[int, int]] = []
        self._cuts = sorted({place for mark in segment.marks for place in (mark.start, mark.end)})

        source_end = target_end = 0
        for sentence in sentences:
            self._between(
                segment.text[source_end : sentence.source_start],
                source_end,
                text[target_end : sentence.target_start],
                target_end,
            )
            self._sentence(sentence)
            source_end = sentence.source_start + len(sentence.source)
            target_end = sentence.target_start + len(sentence.target)
        self._between(segment.text[source_end:], source_end, text[target_end:], target_end)

    def _between(self, source: str, source_start: int, target: str, target_start: int) -> None:
        """Text between sentences, which isn't translated: quotation marks."""
        firsts = len(self.source), len(self.target)
        for start, word in _words(source, source_start):
            self.source += _parts(word, start, self._inside(start, word))
        for start, word in _words(target, target_start):
            self.target += _parts(word, start, ())
        counts = len(self.source) - firsts[0], len(self.target) - firsts[1]
        if counts[0] == counts[1]:
            self.links += [(firsts[0] + number, firsts[1] + number) for number in range(counts[0])]

    def _inside(self, start: int, word: str) -> list[int]:
        """Where marks cut a word, counted from its beginning."""
        first = bisect.bisect_right(self._cuts, start)
        end = bisect.bisect_left(self._cuts, start + len(word))
        return [cut - start for cut in self._cuts[first:end]]

    def _sentence(self, sentence: AlignedSentence) -> None:
        source = _words(sentence.source, sentence.source_start, sentence.source_words)
        target = _words(sentence.target, sentence.target_start, sentence.target_words)
        links = sentence.links
        if links is None:
            links = [(word * len(source) // len(target), word) for word in range(len(target))]
            links = links if source else []

        of_source: list[range] = []  # the numbers of each word's tokens
        for start, word in source:
            of_source.append(_added(self.source, _parts(word, start, self._inside(start, word))))
        sources_of: dict[int, list[int]] = {}
        for source_word, target_word in links:
            sources_of.setdefault(target_word, []).append(source_word)
        first_link = len(self.links)
        for number, (start, word) in enumerate(target):
            sources = sources_of.get(number, [])
            # A name or number that is the same in both languages is cut in the same places.
            cuts = [cut for of in sources for cut in _same_cuts(*source[of], word, self._cuts)]
            tokens = _added(self.target, _parts(word, start, cuts))
            for of in sources:
                self._link(of_source[of], tokens)
        if of_source and target:
            self._link_ends(of_source[-1][-1], tokens[-1], first_link)

    def _link(self, source: range, target: range) -> None:
        """Links the tokens of two words: letters to letters, punctuation to punctuation."""
        for part in _PARTS:
            ours = [number for number in source if self.source[number].part == part]
            theirs = [number for number in target if self.target[number].part == part]
            if [self.source[of].text for of in ours] == [self.target[of].text for of in theirs]:
                self.links += zip(ours, theirs, strict=True)
            else:
                self.links += itertools.product(ours, theirs)

    def _link_ends(self, source: int, target: int, first_link: int) -> None:
        """The mark at a sentence's end is that at its translation's, whatever they follow."""
        if self.source[source].part != "trail":
            return
        if self.target[target].part == "trail":
            inner = [link for link in self.links[first_link:] if link[1] != target]
            self.links[first_link:] = inner
        self.links.append((source, target))


def _words(text: str, start: int, given: Sequence[str] = ()) -> list[tuple[int, str]]:
    """The words, and where they begin if the text begins at `start`."""
    words = []
    place = 0
    for word in given or text.split():
        place = text.index(word, place)
        words.append((start + place, word))
        place += len(word)
    return words


def _parts(word: str, start: int, cuts: Iterable[int]) -> list[_Token]:
    """A word's tokens; `cuts` are places within it. One of punctuation alone is all core."""
    first, end = 0, len(word)
    while first < end and _is_punctuation(word[first]):
        first += 1
    while end > first and _is_punctuation(word[end - 1]):
        end -= 1
    if first == end:
        first, end = 0, len(word)
    places = sorted({0, first, end, len(word), *cuts})
    return [
        _Token(
            start + begin,
            word[begin:stop],
            "lead" if stop <= first else "trail" if begin >= end else "core",
        )
        for begin, stop in itertools.pairwise(places)
    ]


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character).startswith("P")


def _same_cuts(start: int, source: str, target: str, cuts: Sequence[int]) -> list[int]:
    """Where marks cut a source word, if the target word has the same letters."""
    first, end = bisect.bisect_right(cuts, start), bisect.bisect_left(cuts, start + len(source))
    if first == end:
        return []
    letters = "".join(token.text for token in _parts(source, 0, ()) if token.part == "core")
    place = target.find(letters)
    if place < 0:
        return []
    offset = place - source.index(letters) - start
    return [cut + offset for cut in cuts[first:end] if 0 < cut + offset < len(target)]


def _added(tokens: list[_Token], more: Sequence[_Token]) -> range:
    """The numbers that tokens get in a list."""
    first = len(tokens)
    tokens += more
    return range(first, len(tokens))


class _Event(NamedTuple):
    """Markup to write: the beginning or the end of a mark, or a point."""

    raw: Raw
    kind: Literal["opening", "closing", "point"]
    blank_before: bool = False
    blank_after: bool = False


class _Writer:
    """Writes a translation with its marks."""

    def __init__(
        self, segment: Segment, text: str, tokens: _Tokens, projected: Sequence[Span]
    ) -> None:
        self._segment, self._text, self._tokens = segment, text, tokens
        self._events: list[list[_Event]] = [[] for _ in range(len(tokens.target) + 1)]
        for gap, event in _events(segment, projected):
            self._events[gap].append(event)
        self._blanks = self._written_blanks()

    def written(self) -> Iterator[str | int]:
        end = 0
        target = self._tokens.target
        for gap in range(len(target) + 1):
            start = target[gap].start if gap < len(target) else len(self._text)
            blank = self._blanks.get(gap, Unescaped(self._text[end:start]))
            yield from self._gap(gap, blank)
            if gap < len(target):
                yield Unescaped(target[gap].text)
                end = target[gap].end

    def _gap(self, gap: int, blank: str) -> Iterator[str | int]:
        """The markup between two tokens, with the white space there at the best place: behind what
        ends and before what begins."""
        events = self._events[gap]
        before = list(itertools.takewhile(_is_before_blank, events))
        for event in before:
            yield from event.raw
        yield blank

        behind = events[len(before) :]
        if self._is_word(gap):
            behind.append(_Event((), "opening"))
        owes = bool(before) and before[-1].blank_after
        yield from _with_blanks(behind, spaced=blank != "" or gap == 0, owes=owes)

    def _is_word(self, gap: int) -> bool:
        """Whether a gap is before a word, not before its last punctuation."""
        target = self._tokens.target
        return gap < len(target) and target[gap].part != "trail"

    def _written_blanks(self) -> dict[int, str]:
        """What is written in the gaps between target tokens where the source has a blank that isn't
        just white space, between the same two words."""
        if not self._segment.blanks:
            return {}
        sources: list[set[int]] = [set() for _ in self._tokens.target]
        for source, target in self._tokens.links:
            sources[target].add(source)
        written_as: dict[int, str] = {}
        before = {
            _first_at(place, self._tokens.source): written
            for place, written in self._segment.blanks.items()
        }
        for gap in range(1, len(sources)):
            if self._tokens.target[gap - 1].end == self._tokens.target[gap].start:
                continue
            for source in sources[gap] & before.keys():
                if source - 1 in sources[gap - 1] and (before[source] or self._has_point(gap)):
                    written_as[gap] = before[source]
        return written_as

    def _has_point(self, gap: int) -> bool:
        """Whether something parts the words beside a gap even without white space."""
        return any(event.kind == "point" for event in self._events[gap])


def _is_before_blank(event: _Event) -> bool:
    """Whether markup between two words comes before the white space there."""
    return event.kind == "closing" or (event.kind == "point" and not event.blank_before)


def _with_blanks(events: Sequence[_Event], *, spaced: bool, owes: bool) -> Iterator[str | int]:
    """Markup with white space beside points that have some: `spaced` is whether there is some
    before it, and `owes` whether the point there needs some behind it."""
    for event in events:
        if not spaced and (event.blank_before or owes) and event.kind != "closing":
            yield " "
        yield from event.raw
        if event.kind == "point":
            spaced, owes = False, event.blank_after
        elif event.kind == "opening":
            spaced = True


def _events(segment: Segment, projected: Sequence[Span]) -> Iterator[tuple[int, _Event]]:
    """The markup in the order in which it is written, each with the gap where it goes."""
    children: list[list[int]] = [[] for _ in range(len(projected) + 1)]  # of the root: the last
    for number, mark in enumerate(segment.marks):
        children[mark.parent].append(number)
    if not segment.in_order:
        for of in children:
            of.sort(key=lambda number: (projected[number].start, projected[number].end))

    waiting = [(number, False) for number in reversed(children[-1])]
    while waiting:
        number, is_end = waiting.pop()
        mark, span = segment.marks[number], projected[number]
        if is_end:
            yield span.end, _Event(mark.closing, "closing")
        elif mark.is_point:
            event = _Event(mark.opening, "point", mark.blank_before, mark.blank_after)
            yield span.start, event
        else:
            yield span.start, _Event(mark.opening, "opening")
            waiting.append((number, True))
            waiting += [(child, False) for child in reversed(children[number])]
