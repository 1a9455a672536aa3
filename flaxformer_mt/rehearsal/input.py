"""How fast this host plans and assembles batches, beside how fast the devices take them."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flaxformer_mt.api.prepared_text import planner_of
from flaxformer_mt.data.batch import Share
from flaxformer_mt.data.pipeline import Batches
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.diagnosis.machine import Finding, noted
from flaxformer_mt.parallel.mesh import batch_share
from flaxformer_mt.rehearsal.rehearsed import Rehearsed, on_built_in_text
from flaxformer_mt.training.program import mesh_of

SECONDS = 5.0
_FIRST = 8  # batches that are ready when the clock starts
_SPARE = 1.5  # times what the devices take: less leaves no room for the host's other work


def check_input(rehearsed: Rehearsed, seconds: float = SECONDS) -> Iterator[Finding]:
    """Positions a second of this host's share of batches, from built-in text."""
    share = Share(*batch_share(mesh_of(rehearsed.config)))
    rate = positions_per_second(rehearsed, share, seconds)
    config = rehearsed.config.data
    workers = f"{config.workers} workers" if config.workers else "a thread"
    text = f"{rate:,.0f} positions/s of batches ({config.batch.form}), by {workers}"
    values = {"positions_per_second": rate}
    if rehearsed.plan is None:
        yield noted("input", text, values=values)
        return
    part = len(share.numbers) / share.count
    needed = part * float(rehearsed.plan["positions_per_second"])
    values["needed"] = needed
    text += f"; the devices take {needed:,.0f}: {rate / needed:.1f} times that"
    advice = "raise data.workers"
    if rate < needed:
        yield Finding("input", "FAIL", text, f"the devices would wait: {advice}", values)
    else:
        yield noted("input", text, advice if rate < _SPARE * needed else "", values)


def positions_per_second(rehearsed: Rehearsed, share: Share, seconds: float) -> float:
    """Source and target positions, with padding, that `next` gives this process."""
    config = on_built_in_text(rehearsed.config)
    with tempfile.TemporaryDirectory(prefix="flaxformer-input-") as folder:
        store = prepare(config.data, seed=config.training.seed, directory=Path(folder))
        vocabularies = Vocabularies.load(Path(folder) / "vocabulary")
        planner = planner_of(config, store, vocabularies)
        with Batches(planner, share=share, workers=config.data.workers) as batches:
            for _ in range(_FIRST):
                next(batches)
            start, positions = time.perf_counter(), 0
            while (elapsed := time.perf_counter() - start) < seconds:
                batch, _ = next(batches)
                positions += batch.src.size + batch.tgt_in.size
    return positions / elapsed
