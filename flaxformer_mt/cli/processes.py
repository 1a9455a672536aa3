"""Flags by which a run's processes find each other, if nothing else tells them."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flaxformer_mt.parallel import Cluster


def add_processes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "several processes",
        "TPU pod slices, GKE, Slurm and Open MPI are detected and need no flags. Elsewhere run "
        "the same command in every process, with these three flags.",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of the first process")
    group.add_argument("--num-processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process-id", type=int, metavar="I", help="this process's number, from 0")
    group.add_argument(
        "--heartbeat",
        type=int,
        metavar="SECONDS",
        help="when a process dies, the others exit within this many seconds (default: 100)",
    )


def cluster(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Cluster | None:
    """What the flags of `add_processes` say; None where there are none."""
    from flaxformer_mt.parallel import Cluster

    found = (options.coordinator, options.num_processes, options.process_id)
    if options.heartbeat is not None and options.heartbeat < 1:
        parser.error(f"--heartbeat {options.heartbeat}: must be at least 1 second")
    if found == (None, None, None):
        return None
    if None in found:
        parser.error("--coordinator, --num-processes and --process-id go together")
    if not re.fullmatch(r".+:\d+", options.coordinator):
        parser.error(f"--coordinator {options.coordinator}: write HOST:PORT")
    if not 0 <= options.process_id < options.num_processes:
        parser.error(
            f"--process-id {options.process_id}: must lie between 0 and --num-processes - 1"
        )
    return Cluster(options.coordinator, options.num_processes, options.process_id)
