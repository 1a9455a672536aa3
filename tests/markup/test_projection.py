"""Spans of source words on the words of a translation."""

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.markup.projection import Span, enclosing, project


def _words(text: str) -> list[str]:
    return text.split()


def _projected(spans, source: str, target: str, links: str, parents=None) -> list[Span]:
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    return project(spans, _words(source), _words(target), pairs, parents=parents)


@st.composite
def _trees(draw, most_words: int = 8) -> tuple[int, list[Span], list[int]]:
    """So many words, and spans over them with their parents."""
    words = draw(st.integers(0, most_words))
    spans: list[Span] = []
    parents: list[int] = []
    ends = {-1: 0}
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([-1, *range(len(spans))]))
        least = max(ends[parent], spans[parent].start if parent >= 0 else 0)
        most = spans[parent].end if parent >= 0 else words
        start = draw(st.integers(least, most))
        end = draw(st.integers(start, most))
        ends[parent], ends[len(spans)] = end, start
        spans.append(Span(start, end))
        parents.append(parent)
    return words, spans, parents


@st.composite
def _cases(draw):
    words, spans, parents = draw(_trees())
    targets = draw(st.integers(0, 8))
    pairs = st.tuples(st.integers(0, max(words - 1, 0)), st.integers(0, max(targets - 1, 0)))
    alignment = draw(st.lists(pairs, max_size=12)) if words and targets else []
    return spans, ["x"] * words, ["y"] * targets, alignment, parents


@given(_cases())
def test_nothing_is_lost_and_all_stays_within_its_parent(case):
    spans, source, target, alignment, parents = case
    projected = project(spans, source, target, alignment, parents=parents)
    assert len(projected) == len(spans)
    for span, parent in zip(projected, parents, strict=True):
        outer = Span(0, len(target)) if parent < 0 else projected[parent]
        assert outer.contains(span)


@given(_cases())
def test_siblings_do_not_cross(case):
    spans, source, target, alignment, parents = case
    projected = project(spans, source, target, alignment, parents=parents)
    for number, span in enumerate(projected):
        for other, parent in zip(projected[:number], parents, strict=False):
            if parent == parents[number]:
                assert span.end <= other.start or other.end <= span.start


@given(_cases())
def test_points_stay_points(case):
    spans, source, target, alignment, parents = case
    projected = project(spans, source, target, alignment, parents=parents)
    for before, span in zip(spans, projected, strict=True):
        assert span.is_point or not before.is_point


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7))))
def test_all_words_stay_all_words(words, pairs):
    alignment = [pair for pair in pairs if pair[0] < words]
    spans = [Span(0, words), Span(0, words), Span(0, 0), Span(words, words)]
    projected = project(spans, ["x"] * words, ["y"] * 8, alignment, parents=[-1, 0, 1, 1])
    assert projected == [Span(0, 8), Span(0, 8), Span(0, 0), Span(8, 8)]


@given(_trees())
def test_the_same_words_in_the_same_order_change_nothing(case):
    words, spans, parents = case
    same = [(word, word) for word in range(words)]
    assert project(spans, ["x"] * words, ["x"] * words, same, parents=parents) == spans


@given(st.permutations(range(6)), st.integers(0, 5))
def test_one_word_goes_where_its_counterpart_is(order, word):
    alignment = list(enumerate(order))
    [span] = project([Span(word, word + 1)], ["x"] * 6, ["y"] * 6, alignment)
    assert span == Span(order[word], order[word] + 1)


@given(st.permutations(range(6)), st.integers(1, 5))
def test_a_point_follows_the_counterpart_of_the_word_on_its_left(order, gap):
    [span] = project([Span(gap, gap)], ["x"] * 6, ["y"] * 6, list(enumerate(order)))
    assert span == Span(order[gap - 1] + 1, order[gap - 1] + 1)


def test_a_span_follows_its_words():
    source, target = "I have seen the dog", "ich habe den Hund gesehen"
    links = "0-0 1-1 2-4 3-2 4-3"
    spans = [Span(2, 3), Span(3, 5), Span(4, 5)]
    assert _projected(spans, source, target, links) == [Span(4, 5), Span(2, 4), Span(3, 4)]


def test_a_stray_link_does_not_widen_a_span():
    links = "0-0 1-1 2-2 1-3 1-4 1-5 0-6"
    assert _projected([Span(0, 1)], "a b c", "A B C B B B A", links) == [Span(0, 1)]


def test_a_gap_of_one_word_is_closed_and_a_longer_one_is_not():
    source = "the dog takes off"
    spans = [Span(2, 4)]
    assert _projected(spans, source, "Der Hund hebt nun ab", "0-0 1-1 2-2 1-3 3-4") == [Span(2, 5)]
    links = "0-0 1-1 2-2 1-3 1-4 3-5"
    assert _projected(spans, source, "Der Hund hebt nun dort ab", links) == [Span(2, 3)]


def test_a_word_of_two_sources_belongs_to_the_span():
    assert _projected([Span(1, 2)], "a dog house", "eine Hundehütte", "0-0 1-1 2-1") == [Span(1, 2)]


def test_words_without_counterpart_take_a_free_neighbour():
    source, target = "a dog house", "eine Hundehütte"
    assert _projected([Span(1, 2)], source, target, "0-0 2-1") == [Span(1, 2)]
    taken = [Span(1, 2), Span(2, 3)]
    assert _projected(taken, source, target, "0-0 2-1") == [Span(0, 1), Span(1, 2)]
    taken = [Span(0, 1), Span(1, 2), Span(2, 3)]
    points = [Span(0, 1), Span(1, 1), Span(1, 2)]
    assert _projected(taken, source, target, "0-0 2-1") == points


def test_words_without_counterpart_take_words_between_their_neighbours():
    assert _projected([Span(1, 2)], "a b c", "A B1 B2 C", "0-0 2-3") == [Span(1, 3)]
    assert _projected([Span(0, 1)], "a b c", "A1 A2 B C", "1-2 2-3") == [Span(0, 2)]
    assert _projected([Span(1, 2)], "c a b", "A1 A2 B C", "0-3 2-2") == [Span(0, 2)]


def test_a_point_finds_its_place_by_words_further_away():
    assert _projected([Span(2, 2)], "a b c d", "A D C B", "0-0 2-2") == [Span(2, 2)]
    assert _projected([Span(2, 2)], "a b c d", "A D C B", "0-0 3-1") == [Span(1, 1)]
    assert _projected([Span(1, 1)], "a b", "A B", "") == [Span(2, 2)]


def test_a_point_does_not_split_a_span():
    # "b" has come to stand within the span, "c" and all.
    links = "0-0 1-2 2-1 3-3"
    spans = [Span(2, 4), Span(1, 1), Span(2, 2)]
    projected = _projected([spans[1], spans[0]], "a b c d", "A C B D", links)
    assert projected == [Span(1, 1), Span(1, 4)]
    [point, span] = _projected([Span(2, 2), Span(2, 4)], "a b c d", "A C B D", links)
    assert (point, span) == (Span(4, 4), Span(1, 4))


def test_parents_say_whether_a_point_at_an_end_is_inside():
    source, target, links = "a b c", "B A C", "0-1 1-0 2-2"
    spans = [Span(0, 2), Span(1, 2), Span(2, 2)]
    assert enclosing(spans) == [-1, 0, -1]
    assert _projected(spans, source, target, links) == [Span(0, 2), Span(0, 1), Span(2, 2)]
    inside = _projected(spans, source, target, links, parents=[-1, 0, 1])
    assert inside == [Span(0, 2), Span(0, 1), Span(1, 1)]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([Span(0, 2), Span(1, 3)], r"Span\(start=1, end=3\) crosses Span\(start=0, end=2\)"),
        ([Span(2, 3), Span(0, 1)], "begins before the span on its left ends"),
        ([Span(2, 4)], "isn't within 3 words"),
        ([Span(2, 1)], "isn't within 3 words"),
    ],
)
def test_spans_that_are_no_tree_are_refused(spans, message):
    with pytest.raises(ValueError, match=message):
        project(spans, ["x"] * 3, ["y"] * 3, [])


def test_links_and_parents_outside_are_refused():
    with pytest.raises(ValueError, match=r"the pair \(0, 3\) isn't within 3 and 3 words"):
        project([], ["x"] * 3, ["y"] * 3, [(0, 3)])
    with pytest.raises(ValueError, match="should come before it"):
        project([Span(0, 1), Span(0, 1)], ["x"], ["y"], [], parents=[1, -1])


@pytest.mark.parametrize("aligned", ["to the first", "all"])
def test_a_long_line_with_many_tags_takes_linear_time(aligned):
    words = 20_000
    spans = [Span(word, word + word % 2) for word in range(words)]
    pairs = [(word, 0) if aligned == "to the first" else (0, word) for word in range(words)]
    assert len(project(spans, ["x"] * words, ["y"] * words, pairs)) == words


def test_a_run_with_more_foreign_words_than_own_ones_begins_again():
    """A far first word with two others behind it doesn't draw the span over these."""
    links = "0-0 3-1 4-2 1-3 2-4"
    assert _projected([Span(0, 3)], "a b c d e", "a d e b c", links) == [Span(3, 5)]
