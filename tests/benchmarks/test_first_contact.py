"""How a GPU's first minutes are divided."""

import dataclasses
import math
from pathlib import Path

import pytest

from benchmarks.contact_parts import Part
from benchmarks.first_contact import Plan
from flaxformer_mt.rehearsal.limited import allotted

START = 15.0  # seconds until the first part begins


def begun(minutes: float, data: Path | None = None) -> list[str]:
    """The parts that get their least time, if each one takes all that it may."""
    remaining = 60 * minutes - START
    parts = [part for part in Plan(Path(), data, False).parts() if not part.beside]
    names = []
    for number, part in enumerate(parts):
        seconds = allotted(part, parts[number + 1 :], remaining)
        if seconds is not None:
            assert part.least <= seconds <= part.most
            names.append(part.name)
            remaining -= seconds
    assert remaining >= 0
    return names


def test_every_part_up_to_the_doctor_gets_its_time_in_eight_minutes_and_all_in_twelve():
    record = ["paper_base", "decoding", "paper_big", "attention", "doctor"]
    assert begun(8)[: len(record)] == record
    assert begun(12) == [*record, "greedy", "flax_base", "flax_big", "steps"]
    assert begun(12, Path("europarl"))[: len(record) + 1] == [*record, "text"]


def test_where_the_time_is_short_the_first_parts_have_it():
    assert begun(3) == ["paper_base"]
    assert begun(6) == ["paper_base", "decoding", "paper_big"]


@pytest.mark.parametrize(
    ("remaining", "seconds"), [(9.0, None), (10.0, 10.0), (15.0, 10.0), (40.0, 20.0), (99.0, 50.0)]
)
def test_a_part_leaves_later_ones_the_least_that_they_need(remaining, seconds):
    part = Part(name="a", command=lambda _: [], most=50.0, least=10.0)
    later = [dataclasses.replace(part, least=5.0), dataclasses.replace(part, least=15.0)]
    assert allotted(part, later, remaining) == seconds
    assert allotted(dataclasses.replace(part, most=math.inf), [], 99.0) == 99.0
