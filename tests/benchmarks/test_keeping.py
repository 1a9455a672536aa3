"""What the benchmark of kept text puts into lines, and how it counts."""

import random

from benchmarks.keeping import SHARE, Line, with_item, with_unknown


def test_items_go_into_a_share_of_the_lines():
    rng = random.Random(1)
    lines = [with_item("A dog runs home.", rng) for _ in range(2000)]
    changed = [line for line in lines if line.added is not None]
    assert abs(len(changed) / len(lines) - SHARE) < 0.03
    assert all(line.without(line.text) == "A dog runs home." for line in lines)
    assert len({line.added for line in changed}) > 100


def test_a_word_goes_where_a_word_was():
    rng = random.Random(1)
    lines = {with_unknown("A dog.", rng).text for _ in range(200)}
    assert "A dog." in lines and "Łukasz A dog." in lines and "A Łukasz dog." in lines


def test_what_counts_as_kept():
    line = Line("A {name} dog.", "{name}")
    assert line.is_kept("Ein {name} Hund.") and line.without("Ein {name} Hund.") == "Ein Hund."
    assert not line.is_kept("Ein Hund.") and not line.is_kept("{name} {name}")
    assert line.without("Ein Hund {name}.") == "Ein Hund."
    assert not Line("A dog.").is_kept("Ein Hund.")
