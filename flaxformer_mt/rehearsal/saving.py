"""The whole state saved, read back and compared, beside how often training will save it."""

import time
import uuid
from collections.abc import Iterator

import jax
import numpy as np

from flaxformer_mt.config import TrainingConfig, expected_types
from flaxformer_mt.diagnosis.machine import Finding, noted
from flaxformer_mt.rehearsal.rehearsed import Rehearsed
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.paths import remove
from flaxformer_mt.training.program import build

_OFTEN = 0.5  # of the time between two checkpoints: the next one may come before this one is saved
_GB = 1e9


def check_saving(rehearsed: Rehearsed) -> Iterator[Finding]:
    """A checkpoint of the config's state, with random parameters, there and back."""
    config, processes = rehearsed.config, rehearsed.processes
    src_types, tgt_types = expected_types(config.data.vocabulary)
    program = build(config, src_vocab_size=src_types, tgt_vocab_size=tgt_types)
    state = program.init()
    name = processes.first(lambda: f"doctor-{uuid.uuid4().hex[:8]}")
    folder = rehearsed.folder.parent / name
    try:
        start = time.perf_counter()
        with Checkpoints(folder, TrainingConfig()) as checkpoints:
            snapshot = Snapshot(
                step=1, params=state.params, opt_state=state.opt_state, position={"n": 1}
            )
            checkpoints.save(snapshot)
            checkpoints.wait()
            saved = time.perf_counter() - start
            abstract = program.abstract
            found = checkpoints.restore(abstract.params, abstract.opt_state)
        restored = time.perf_counter() - start - saved
        same = _are_equal((found.params, found.opt_state), (state.params, state.opt_state))
    finally:
        processes.first(lambda: remove(folder))
    yield _finding(rehearsed, _bytes_of((state.params, state.opt_state)), saved, restored, same)


def _are_equal(found: object, wanted: object) -> bool:
    """Whether this process's parts of both trees have the same bits."""
    return all(
        np.array_equal(np.asarray(one.data), np.asarray(other.data))
        for leaf, expected in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
        for one, other in zip(leaf.addressable_shards, expected.addressable_shards, strict=True)
    )


def _bytes_of(tree: object) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _finding(rehearsed: Rehearsed, size: int, saved: float, restored: float, same: bool) -> Finding:
    place, rate = rehearsed.folder.parent, size / saved / 1e6
    text = (
        f"{size / _GB:.2f} GB to {place} in {saved:.1f} s ({rate:,.0f} MB/s) and back in "
        f"{restored:.1f} s"
    )
    values = {"bytes": float(size), "save_seconds": saved, "restore_seconds": restored}
    if not same:
        return Finding("save", "FAIL", f"{text}; it came back changed", "try another disk", values)
    if rehearsed.planned_seconds is None:
        return noted("save", f"{text}, unchanged", values=values)
    interval = rehearsed.config.training.save_every * rehearsed.planned_seconds
    values["interval"] = interval
    text += f", unchanged; one is due every {interval:,.0f} s"
    advice = "raise training.save_every, or save to a faster disk or a bucket in this region"
    if saved > interval:
        return Finding("save", "FAIL", f"{text}: training would wait for it", advice, values)
    return noted("save", text, advice if saved > _OFTEN * interval else "", values)
