"""Kills and damages small runs in every phase, and counts those that end with another result.

python -m benchmarks.survive --workdir DIR [--kills 60] [--damages 60]
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.survival.damaging import OUTCOMES, damage_each
from benchmarks.survival.killing import PHASES, kill_until
from flaxformer_mt.reproduction.result_file import write_result


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survive")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR", help="new folder")
    parser.add_argument("--kills", type=int, default=60, metavar="N", help="a third with two")
    parser.add_argument("--damages", type=int, default=60, metavar="N")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    options.workdir.mkdir(parents=True)
    folder = options.workdir.absolute()
    chance = random.Random(options.seed)

    two = options.kills // 3
    groups = [
        kill_until(folder, processes=count, kills=kills, chance=chance)
        for count, kills in ((1, options.kills - two), (2, two))
    ]
    damages = damage_each(folder, cases=options.damages, chance=chance)
    faults = [fault for group in groups for fault in group.faults] + damages.faults
    metrics: dict[str, float] = {"faults": len(faults)}
    for name in ("SIGKILL", "SIGTERM"):
        metrics[f"{name.lower()}s"] = sum(group.by_signal[name] for group in groups)
    for phase in PHASES:
        metrics[f"kills_while_{phase}"] = sum(group.by_phase[phase] for group in groups)
    for group in groups:
        metrics[f"runs_of_{group.processes}"] = group.runs
        metrics[f"bit_equal_runs_of_{group.processes}"] = group.equal
        metrics[f"kills_of_{group.processes}"] = group.total
    metrics["damaged_files"] = damages.total
    metrics["kinds_of_files"] = len(damages.kinds)
    for outcome in OUTCOMES:
        metrics[f"damages_{outcome}"] = damages.outcomes[outcome]
    write_result(
        RESULTS / "survive.json",
        command="python -m benchmarks.survive --workdir DIR",
        config="quickstart",
        seconds=time.perf_counter() - begin,
        metrics=metrics,
        signatures={},
    )
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{len(faults)} fault(s); {RESULTS / 'survive.json'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
