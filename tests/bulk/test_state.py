"""The record beside an unfinished output: read as it was written, or called damaged."""

from __future__ import annotations

import copy
import json

import pytest

from flaxformer_mt.bulk.state import Consumed, OutputError, Recorded, read_state, write_state

WHO = {"weights": "average", "sampling": None, "columns": (1, 2)}
DONE = Recorded(
    consumed=Consumed(lines=2, size=8, sha256="ab", sums={"split": 1, "log_prob": -0.5}),
    output=9,
    finished=True,
)


def test_it_comes_back_as_it_was(tmp_path):
    path = tmp_path / "out.part.json"
    write_state(path, WHO, DONE)
    assert read_state(path, WHO) == DONE
    with pytest.raises(OutputError, match="tells of a call with weights 'average'"):
        read_state(path, {**WHO, "weights": "best"})
    write_state(path, WHO, Recorded())
    assert read_state(path, {}) == Recorded(), "of nothing, anyone may begin"


PLACES = [
    (),
    *((name,) for name in ("identity", "output", "finished", "consumed")),
    *(("consumed", name) for name in ("lines", "size", "sha256", "sums")),
]
WRONG = [None, "2", -1, 2.5, True, [], {}, {"a": "b"}, {"a": None}]


def fits(place: tuple[str, ...], value: object) -> bool:
    kind = {"identity": dict, "finished": bool, "sha256": str}.get(place[-1] if place else "")
    return (kind is not None and isinstance(value, kind)) or (
        place[-1:] == ("sums",) and value == {}
    )


@pytest.mark.parametrize(
    "place, wrong",
    [(place, wrong) for place in PLACES for wrong in WRONG if not fits(place, wrong)],
)
def test_what_has_other_types_is_damaged(tmp_path, place, wrong):
    """Well-formed JSON, as a hand or a failing disk may leave it."""
    path = tmp_path / "out.part.json"
    write_state(path, WHO, DONE)
    content = json.loads(path.read_text())
    changed = copy.deepcopy(content)
    if place:
        within = changed["consumed"] if len(place) > 1 else changed
        within[place[-1]] = wrong
    path.write_text(json.dumps(changed if place else wrong))
    with pytest.raises(OutputError, match=r"out\.part\.json: is damaged: .*; begin anew"):
        read_state(path, WHO)
    if place:
        del within[place[-1]]
        path.write_text(json.dumps(changed))
        with pytest.raises(OutputError, match="is damaged"):
            read_state(path, WHO)
