"""`train --dry-run`: whether the longest batch fits, the time of a step, and the ETA."""

from collections.abc import Sequence

import flaxformer_mt as fm
from flaxformer_mt.api.settings import settled
from flaxformer_mt.config import freeze, to_dict
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path


def dry_run(workdir: str, spec: str | None, overrides: Sequence[str], processes: Processes) -> int:
    """Calls `fm.dry_run`; returns the exit status."""
    run = RunDirectory(as_path(workdir))
    # Only the first process reads the run, which could change a moment later.
    config = processes.first(lambda: to_dict(settled(run, spec, overrides)))
    tried = fm.dry_run(freeze(config, workdir), run.path, processes=processes)
    if processes.is_first:
        print(tried)
    return 0
