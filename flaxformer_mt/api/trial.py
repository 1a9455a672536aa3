"""Tries a training before it begins: whether its longest batch fits, and how long a step takes."""

from __future__ import annotations

import dataclasses
import os

from flaxformer_mt.api import say
from flaxformer_mt.api.prepared_text import begin_folder, open_data, planner_of, prepare_only
from flaxformer_mt.api.settings import continued, settled_by_first
from flaxformer_mt.config import ConfigError, ExperimentConfig
from flaxformer_mt.data.plan import longest
from flaxformer_mt.data.planner import planned_pass
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.parallel.process_settings import share_one_heap
from flaxformer_mt.parallel.processes import ALONE, Processes
from flaxformer_mt.rundir.layout import RunDirectory, has_record
from flaxformer_mt.rundir.lock import locked
from flaxformer_mt.rundir.paths import as_path, is_remote
from flaxformer_mt.training.instruments import Peak, duration, find_peak
from flaxformer_mt.training.program import build, mesh_of
from flaxformer_mt.training.try_step import Trial, try_step

_MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class DryRun:
    """A training that was tried with its longest batches."""

    config: ExperimentConfig
    trial: Trial  # memory and time of a step
    shapes: int  # of batches
    tgt_vocab_size: int
    peak: Peak | None  # of the devices; None if unknown

    @property
    def mfu(self) -> float | None:
        """Of a whole batch, as if it had no padding; None where the peak is unknown."""
        if self.peak is None:
            return None
        shape = self.trial.shape
        flops = training_flops(
            self.config.model,
            self.tgt_vocab_size,
            src_tokens=shape.rows * shape.src_length,
            tgt_tokens=shape.rows * shape.tgt_length,
            src_keys=shape.src_length,
            tgt_keys=shape.tgt_length,
        )
        return flops / self.trial.step_seconds / self.peak.flops

    def __str__(self) -> str:
        """The trial step's sizes, memory and time, a line each."""
        trial, shape, seconds = self.trial, self.trial.shape, self.trial.step_seconds
        memory = {
            "state and batch": trial.arguments,
            "temporary": trial.temporary,
            "peak": trial.peak,
            "used at most": trial.in_use,
            "there are": trial.limit,
        }
        known = [
            f"{name} {size / _MIB:,.0f} MiB" for name, size in memory.items() if size is not None
        ]
        rows = {
            f"longest of {self.shapes} shapes" if self.shapes > 1 else "the batches' shape": (
                f"{shape.rows} rows of {shape.src_length} + {shape.tgt_length} positions"
            ),
            "compiled in": f"{trial.compile_seconds:.1f} s",
            "memory of a device": ", ".join(known),
            "one step": f"{1000 * seconds:,.0f} ms (best of {trial.steps})",
            "positions": (
                f"{shape.rows * shape.src_length / seconds:,.0f} source + "
                f"{shape.rows * shape.tgt_length / seconds:,.0f} target per second"
            ),
        }
        if self.peak is not None and self.mfu is not None:
            rows["mfu"] = f"{100 * self.mfu:.1f}% of {self.peak.source}"
        steps = self.config.training.steps
        rows[f"{steps:,} steps"] = (
            f"an estimate: {duration(steps * seconds)} if all have this shape, plus validation and "
            "checkpoints"
        )
        return "\n".join(f"{name:<24}{text}" for name, text in rows.items())


def dry_run(
    config: ExperimentConfig,
    workdir: str | os.PathLike[str],
    *,
    processes: Processes = ALONE,
) -> DryRun:
    """Prepares the data in `workdir` if necessary and tries a step; leaves no record of a run.

    `print(dry_run(...))` shows memory, time and the ETA. Several `processes` try together. Raises
    ConfigError, also for a run in a bucket that isn't prepared, and what preparing data and a step
    raise.
    """
    if processes.count == 1:
        share_one_heap()
    run = RunDirectory(as_path(workdir))

    def begin() -> ExperimentConfig:
        settings = config
        if has_record(run):
            settings, _ = continued(run, config)
        elif is_remote(run.path):
            raise ConfigError(f"{run}: no run here yet: `prepare` one, or try a local one")
        else:
            begin_folder(run, config)
        mesh_of(settings)  # raises its errors before the data is prepared
        with locked(run, "preparing its data for a dry run"):
            prepare_only(run, settings)
        return settings

    settings = settled_by_first(processes, begin, str(run))
    vocabularies, store = open_data(run)
    planner = planner_of(settings, store, vocabularies)
    planned_pass(store.valid, settings.data.batch)
    program = build(
        settings, src_vocab_size=vocabularies.src.size, tgt_vocab_size=vocabularies.tgt.size
    )
    training = program.config.training
    peak, line = find_peak(
        list(program.mesh.devices.flat), training.chip_tflops, program.config.model.dtype
    )
    say(line)
    return DryRun(
        config=program.config,
        trial=try_step(program, longest(planner.shapes), longest=program.config.model.max_length),
        shapes=len(planner.shapes),
        tgt_vocab_size=vocabularies.tgt.size,
        peak=peak,
    )
