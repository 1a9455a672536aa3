"""The whole state saved, read back and compared, beside how often training will save it."""

import uuid
from collections.abc import Iterator

from flaxformer_mt.diagnosis.machine import Finding, RoundTrip, noted, round_trip
from flaxformer_mt.diagnosis.step import program_of
from flaxformer_mt.rehearsal.rehearsed import Rehearsed
from flaxformer_mt.rundir.paths import remove

_OFTEN = 0.5  # of the time between two checkpoints: the next one may come before this one is saved
_GB = 1e9


def check_saving(rehearsed: Rehearsed) -> Iterator[Finding]:
    """A checkpoint of the config's state, with random parameters, there and back."""
    processes = rehearsed.processes
    state = program_of(rehearsed.config).init()
    name = processes.first(lambda: f"doctor-{uuid.uuid4().hex[:8]}")
    folder = rehearsed.folder.parent / name
    try:
        trip = round_trip(folder, state.params, state.opt_state)
    finally:
        processes.first(lambda: remove(folder))
    yield _verdict(rehearsed, trip)


def _verdict(rehearsed: Rehearsed, trip: RoundTrip) -> Finding:
    place, rate = rehearsed.folder.parent, trip.size / trip.saving / 1e6
    text = (
        f"{trip.size / _GB:.2f} GB to {place} in {trip.saving:.1f} s ({rate:,.0f} MB/s) and back "
        f"in {trip.restoring:.1f} s"
    )
    values = trip.values
    if not trip.is_same:
        return Finding("save", "FAIL", f"{text}; it came back changed", "try another disk", values)
    if rehearsed.planned_seconds is None:
        return noted("save", f"{text}, unchanged", values=values)
    interval = rehearsed.config.training.save_every * rehearsed.planned_seconds
    values["interval"] = interval
    text += f", unchanged; one is due every {interval:,.0f} s"
    advice = "raise training.save_every, or save to a faster disk or a bucket in this region"
    if trip.saving > interval:
        return Finding("save", "FAIL", f"{text}: training would wait for it", advice, values)
    return noted("save", text, advice if trip.saving > _OFTEN * interval else "", values)
