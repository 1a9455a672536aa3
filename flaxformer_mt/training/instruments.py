"""What watches a training run without having a say in it: time, utilisation, a trace."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.training.goodput import Goodput, GoodputFile
from flaxformer_mt.training.profiling import NoProfiler, Profiler
from flaxformer_mt.training.utilization import Utilization


@dataclasses.dataclass(frozen=True)
class Instruments:
    """By default only the time of this start is counted. `utilization` None: no peak is known."""

    goodput: Goodput = dataclasses.field(default_factory=Goodput)
    goodput_file: GoodputFile = dataclasses.field(default_factory=lambda: GoodputFile(None))
    profiler: Profiler = dataclasses.field(default_factory=NoProfiler)
    utilization: Utilization | None = None

    def keep(self, step: int) -> None:
        """Writes down where the time went up to this step."""
        self.goodput.done(step)
        self.goodput_file.save(self.goodput)
