"""This project's own step, called as `train` calls it."""

import math
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from benchmarks.training_contestants.contest import Job, read_batches, serve
from flaxformer_mt.config import read_config
from flaxformer_mt.data.batch import Batch
from flaxformer_mt.parallel.compile_cache import keep_compiled
from flaxformer_mt.parallel.process_settings import keep_freed_memory, share_one_heap
from flaxformer_mt.rundir.cache import cache_folder
from flaxformer_mt.training.program import build as build_program


class OurTrainer:
    """A `Program` with its state; metrics of a step are fetched while the next one is under way."""

    def __init__(self, job: Job) -> None:
        share_one_heap()
        keep_compiled(cache_folder() / "xla")
        config = read_config(job.experiment, job.overrides)
        self._program = build_program(
            config, src_vocab_size=job.vocabulary, tgt_vocab_size=job.vocabulary
        )
        self._batches = [Batch(**arrays) for arrays in read_batches(job.batches)]
        self._state: Any = self._program.init()
        self._pending: Any = None
        self.shapes: Sequence[tuple[int, ...]] = [
            (batch.shape.rows, batch.shape.src_length, batch.shape.tgt_length)
            for batch in self._batches
        ]
        leaves = jax.tree.leaves(self._program.abstract.params)
        self.parameters = sum(math.prod(leaf.shape) for leaf in leaves)
        device = jax.devices()[0]
        where = (
            f"CPU, {len(os.sched_getaffinity(0))} cores"
            if device.platform == "cpu"
            else f"{len(jax.devices())} x {device.device_kind}"
        )
        self.setup = f"this repository, JAX {jax.__version__}, {job.precision}, {where}"

    def step(self, number: int) -> None:
        self._state, metrics = self._program.train_step(self._state, self._batches[number])
        before, self._pending = self._pending, metrics
        if before is not None:
            jax.device_get(before)
        elif number == 0:
            jax.block_until_ready(metrics)
            keep_freed_memory()

    def loss(self) -> float:
        jax.block_until_ready(self._state)
        return float(np.asarray(self._pending["loss"]))

    def device_bytes(self) -> int | None:
        stats = jax.local_devices()[0].memory_stats() or {}
        return stats.get("peak_bytes_in_use")


if __name__ == "__main__":
    serve(OurTrainer)
