"""`train --dry-run`: whether the longest batch fits, the time of a step, and the ETA."""

import flaxformer_mt as fm
from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir.layout import RunDirectory


def dry_run(run: RunDirectory, config: ExperimentConfig, processes: Processes) -> int:
    """Calls `fm.dry_run`; returns the exit status."""
    tried = fm.dry_run(config, run.path, processes=processes)
    if processes.is_first:
        print(tried)
    return 0
