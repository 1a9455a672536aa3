"""`train --dry-run`: whether the longest batch fits, the time of a step, and the ETA."""

from flaxformer_mt.api import say
from flaxformer_mt.api.preparation import begin_folder, open_data, planner_of, prepare_only
from flaxformer_mt.api.settings import continued, settled_by_first
from flaxformer_mt.config import ConfigError, ExperimentConfig
from flaxformer_mt.data.plan import longest
from flaxformer_mt.data.planner import planned_pass
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.parallel.process_settings import share_one_heap
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir.layout import RunDirectory, has_record
from flaxformer_mt.rundir.lock import locked
from flaxformer_mt.rundir.paths import is_remote
from flaxformer_mt.training.instruments import Peak, duration, find_peak
from flaxformer_mt.training.program import build, mesh_of
from flaxformer_mt.training.try_step import Trial, try_step

_MIB = 1 << 20


def dry_run(run: RunDirectory, config: ExperimentConfig, processes: Processes) -> int:
    """Prepares the data if necessary and tries a step; leaves no record of a run."""
    if processes.count == 1:
        share_one_heap()

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

    config = settled_by_first(processes, begin, str(run))
    vocabularies, store = open_data(run)
    planner = planner_of(config, store, vocabularies)
    planned_pass(store.valid, config.data.batch)
    program = build(
        config, src_vocab_size=vocabularies.src.size, tgt_vocab_size=vocabularies.tgt.size
    )
    config = program.config
    peak, line = find_peak(
        list(program.mesh.devices.flat), config.training.chip_tflops, config.model.dtype
    )
    say(line)
    trial = try_step(program, longest(planner.shapes), longest=config.model.max_length)
    if processes.is_first:
        print(table(trial, config, len(planner.shapes), vocabularies.tgt.size, peak))
    return 0


def table(
    trial: Trial, config: ExperimentConfig, shapes: int, tgt_vocab_size: int, peak: Peak | None
) -> str:
    """A trial step's sizes, memory and time, a line each."""
    shape, seconds = trial.shape, trial.step_seconds
    memory = {
        "state and batch": trial.arguments,
        "temporary": trial.temporary,
        "peak": trial.peak,
        "used at most": trial.in_use,
        "there are": trial.limit,
    }
    known = [f"{name} {size / _MIB:,.0f} MiB" for name, size in memory.items() if size is not None]
    rows = {
        f"longest of {shapes} shapes" if shapes > 1 else "the batches' shape": (
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
    if peak is not None:
        flops = training_flops(  # of a whole batch, as if it had no padding
            config.model,
            tgt_vocab_size,
            src_tokens=shape.rows * shape.src_length,
            tgt_tokens=shape.rows * shape.tgt_length,
            src_keys=shape.src_length,
            tgt_keys=shape.tgt_length,
        )
        rows["mfu"] = f"{100 * flops / seconds / peak.flops:.1f}% of {peak.source}"
    steps = config.training.steps
    rows[f"{steps:,} steps"] = (
        f"{duration(steps * seconds)} if all have this shape, plus validation and checkpoints"
    )
    return "\n".join(f"{name:<24}{text}" for name, text in rows.items())
