"""Moves spans of a sentence's words onto its translation, by a word alignment.

Spans form a tree: two of them either have no word in common, or one lies within the other. Spans
are placed from the outside in. Within its parent, a span gets the run of words that has as many of
its own words and as few others as possible, and none of another span's: so spans stay nested and
never cross.
"""

import bisect
import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_ROOT = -1


@dataclasses.dataclass(frozen=True)
class Span:
    """Words `start` to `end - 1`. If both are equal, a point before the word `start`."""

    start: int
    end: int

    @property
    def is_point(self) -> bool:
        return self.start == self.end

    def contains(self, other: "Span") -> bool:
        return self.start <= other.start and other.end <= self.end


def project(
    spans: Sequence[Span],
    source_words: Sequence[str],
    target_words: Sequence[str],
    alignment: Iterable[tuple[int, int]],
    *,
    parents: Sequence[int] | None = None,
) -> list[Span]:
    """The span of target words for each span of source words, in the same order.

    `alignment` has pairs of indices (source word, target word), in any order and number. Spans are
    in the order of their start tags, outer ones first. `parents` has for each one the index of the
    span around it, or -1; it matters only at ends, where words leave open whether a span is inside
    another one or behind it. Without `parents`, a span that begins where another ends is behind it.

    - Spans stay within their parents and have no word in common with other spans.
    - A span over all words of its parent covers the parent. So a span over all words covers all.
    - A span whose words have no counterpart covers the words between its neighbours' counterparts,
      or shares a neighbour's that belongs to no other span, or else becomes a point.
    - A point goes behind the counterpart of the word on its left, or before that of the word on its
      right if the left one has none; then words further away count. At an edge of its parent it
      stays at that edge.

    Takes time linear in the words and spans, times the depth of the tree. Raises ValueError for
    spans or pairs outside of the words, and for spans that cross.
    """
    if parents is None:
        parents = enclosing(spans)
    _check(spans, parents, len(source_words))
    links = _links(alignment, len(source_words), len(target_words))

    children: list[list[int]] = [[] for _ in range(len(spans) + 1)]  # of the root: the last
    for number, parent in enumerate(parents):
        children[parent].append(number)
    outer, onto = Span(0, len(source_words)), Span(0, len(target_words))
    projected = [onto] * len(spans)
    for parent in (_ROOT, *range(len(spans))):
        if not children[parent]:
            continue
        if parent != _ROOT:
            outer, onto = spans[parent], projected[parent]
        level = _Level(outer, onto, [spans[child] for child in children[parent]], links)
        for child, span in zip(children[parent], level.projected(), strict=True):
            projected[child] = span
    return projected


def enclosing(spans: Sequence[Span]) -> list[int]:
    """For each span the index of the innermost earlier one around it, or -1. A span that begins
    where another ends is behind it."""
    parents = []
    open_: list[int] = []
    for number, span in enumerate(spans):
        while open_ and not _is_inside(span, spans[open_[-1]]):
            open_.pop()
        parents.append(open_[-1] if open_ else _ROOT)
        open_.append(number)
    return parents


def _is_inside(span: Span, outer: Span) -> bool:
    return outer.start <= span.start < outer.end or (span == outer and not span.is_point)


def _check(spans: Sequence[Span], parents: Sequence[int], words: int) -> None:
    """Raises ValueError unless the spans are a tree, in order, over so many words."""
    ends = {_ROOT: 0}  # of the last span within each one
    for number, (span, parent) in enumerate(zip(spans, parents, strict=True)):
        if not 0 <= span.start <= span.end <= words:
            raise ValueError(f"{span} isn't within {words} words")
        if not _ROOT <= parent < number:
            raise ValueError(f"the parent of {span} should come before it")
        if parent != _ROOT and not spans[parent].contains(span):
            raise ValueError(f"{span} crosses {spans[parent]}")
        if span.start < ends[parent]:
            raise ValueError(f"{span} begins before the span on its left ends")
        ends[parent], ends[number] = span.end, span.start


@dataclasses.dataclass(frozen=True)
class _Links:
    targets: Sequence[Sequence[int]]  # by source word, ascending
    sources: Sequence[Sequence[int]]  # by target word, ascending


def _links(alignment: Iterable[tuple[int, int]], source_count: int, target_count: int) -> _Links:
    targets: list[list[int]] = [[] for _ in range(source_count)]
    sources: list[list[int]] = [[] for _ in range(target_count)]
    for source, target in sorted(set(alignment)):
        if not (0 <= source < source_count and 0 <= target < target_count):
            raise ValueError(
                f"the pair ({source}, {target}) isn't within "
                f"{source_count} and {target_count} words"
            )
        targets[source].append(target)
        sources[target].append(source)
    return _Links(targets, sources)


class _Neighbour(NamedTuple):
    """A source word, and the end of its place that is nearer to the gap whose neighbour it is."""

    word: int
    edge: int


class _Level:
    """The spans directly within one span, `outer`, whose target words are `onto`."""

    def __init__(self, outer: Span, onto: Span, children: Sequence[Span], links: _Links) -> None:
        self._outer, self._onto, self._children, self._links = outer, onto, children, links
        self._placed: dict[int, Span] = {}  # by child
        # The child that each source word and each gap inside a placed child belongs to.
        self._owners: dict[int, int] = {}
        self._around: dict[int, int] = {}
        self._taken: set[int] = set()  # target words of children

    def projected(self) -> list[Span]:
        """The target spans of the children."""
        if self._onto.is_point:
            return [self._onto] * len(self._children)
        self._place_words()
        left, right = self._nearest()
        for number, child in enumerate(self._children):
            if child.is_point:
                gap = self._gap(child.start, left, right)
                self._place(number, Span(gap, gap))
        return [self._placed[number] for number in range(len(self._children))]

    def _place_words(self) -> None:
        """Places the children that have words: those with counterparts first."""
        wide = {number: child for number, child in enumerate(self._children) if not child.is_point}
        for number, child in wide.items():
            self._owners |= dict.fromkeys(range(child.start, child.end), number)
        runs = self._best_runs()
        for number, child in wide.items():
            if child == self._outer:
                self._place(number, self._onto)
            elif number in runs:
                self._place(number, runs[number])

        left, right = self._nearest()
        for number in wide:
            if number not in self._placed:
                self._place(number, self._without_counterpart(wide[number], left, right))

    def _place(self, number: int, span: Span) -> None:
        self._placed[number] = span
        self._taken.update(range(span.start, span.end))
        self._around |= dict.fromkeys(range(span.start + 1, span.end), number)

    def _best_runs(self) -> dict[int, Span]:
        """For each child with counterparts the run of target words with the most of its own words
        less others; of equal runs the longest. (Kadane's maximum subarray, for all at once.)"""
        best: dict[int, tuple[int, Span]] = {}
        active, start, score, foreign = _ROOT, 0, 0, 0
        for word in range(self._onto.start, self._onto.end):
            sources = self._links.sources[word]
            if not sources:
                continue  # counts neither for nor against a run
            owner = self._owner(sources)
            if owner == _ROOT:
                foreign += 1
                continue
            if owner == active and score >= foreign:
                score += 1 - foreign
            else:
                active, start, score = owner, word, 1
            foreign = 0
            run = Span(start, word + 1)
            if owner not in best or _is_better(score, run, *best[owner]):
                best[owner] = (score, run)
        return {owner: run for owner, (_, run) in best.items()}

    def _owner(self, sources: Sequence[int]) -> int:
        """The child with most of these source words; the root's own words count for nothing."""
        owners = collections.Counter(
            self._owners[source] for source in sources if source in self._owners
        )
        return max(owners, key=owners.__getitem__, default=_ROOT)

    def _nearest(self) -> tuple[dict[int, _Neighbour], dict[int, _Neighbour]]:
        """For each gap between source words the nearest word on its left, and on its right, that
        has a place."""
        left: dict[int, _Neighbour] = {}
        right: dict[int, _Neighbour] = {}
        start, end = self._outer.start, self._outer.end
        nearest = None
        for word in range(start, end):
            if place := self._place_of(word):
                nearest = _Neighbour(word, place.end)
            if nearest:
                left[word + 1] = nearest
        nearest = None
        for word in range(end - 1, start - 1, -1):
            if place := self._place_of(word):
                nearest = _Neighbour(word, place.start)
            if nearest:
                right[word] = nearest
        return left, right

    def _counterpart(self, word: int) -> Span | None:
        """From the first to the last counterpart of a source word among this level's words."""
        targets = self._links.targets[word]
        first = bisect.bisect_left(targets, self._onto.start)
        end = bisect.bisect_left(targets, self._onto.end)
        return Span(targets[first], targets[end - 1] + 1) if first < end else None

    def _place_of(self, word: int) -> Span | None:
        """Where a source word went: its child's words, or its own, without part of any child."""
        if word in self._owners:
            return self._placed.get(self._owners[word])
        counterpart = self._counterpart(word)
        if counterpart is None:
            return None
        start, end = self._around.get(counterpart.start), self._around.get(counterpart.end)
        return Span(
            counterpart.start if start is None else self._placed[start].start,
            counterpart.end if end is None else self._placed[end].end,
        )

    def _gap(self, gap: int, left: dict[int, _Neighbour], right: dict[int, _Neighbour]) -> int:
        """Where a point between source words goes."""
        if gap == self._outer.start:
            return self._onto.start
        if gap == self._outer.end:
            return self._onto.end
        before, behind = left.get(gap), right.get(gap)
        if before and (not behind or gap - 1 - before.word <= behind.word - gap):
            return before.edge
        return behind.edge if behind else self._onto.end

    def _without_counterpart(
        self, child: Span, left: dict[int, _Neighbour], right: dict[int, _Neighbour]
    ) -> Span:
        """The target words for a child that no target word is aligned to."""
        before, behind = left.get(child.start), right.get(child.end)
        begin = first = before.edge if before else self._onto.start
        while self._is_free(begin) and not self._links.sources[begin]:
            begin += 1
        if first < begin:
            return Span(first, begin)
        end = last = behind.edge if behind else self._onto.end
        while self._is_free(end - 1) and not self._links.sources[end - 1]:
            end -= 1
        if end < last:
            return Span(end, last)

        if self._may_share(behind, child.end, last):
            return Span(last, last + 1)
        if self._may_share(before, child.start - 1, first - 1):
            return Span(first - 1, first)
        gap = self._gap(child.start, left, right)
        return Span(gap, gap)

    def _may_share(self, neighbour: _Neighbour | None, word: int, target: int) -> bool:
        """Whether `word` is this neighbour, belongs to no child, and its `target` word is free."""
        if not neighbour or neighbour.word != word or word in self._owners:
            return False
        return self._is_free(target)

    def _is_free(self, word: int) -> bool:
        return self._onto.start <= word < self._onto.end and word not in self._taken


def _is_better(score: int, run: Span, best_score: int, best_run: Span) -> bool:
    return (score, run.end - run.start) > (best_score, best_run.end - best_run.start)
