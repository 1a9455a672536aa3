"""`kill -9` and SIGTERM at random moments, until the run has ended all the same."""

import dataclasses
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from benchmarks.survival.runs import STEPS, Group, ending
from flaxformer_mt.rundir.checkpoint_choice import list_steps

PHASES = ("preparing", "training", "saving")
PATIENCE = 600.0  # seconds for a group to end; a loaded machine is slow


@dataclasses.dataclass
class Kills:
    """The kills of runs of one number of processes, and how these runs ended."""

    processes: int
    by_phase: Counter[str] = dataclasses.field(default_factory=Counter)
    by_signal: Counter[str] = dataclasses.field(default_factory=Counter)
    runs: int = 0
    equal: int = 0  # runs that ended bit-equal to the undisturbed one
    faults: list[str] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.by_signal.values())


def kill_until(folder: Path, *, processes: int, kills: int, chance: random.Random) -> Kills:
    """Runs, each killed a few times and brought to its end, until there were so many kills."""
    record = Kills(processes)
    undisturbed = folder / f"undisturbed-{processes}"
    if Group(undisturbed, processes, folder / "said").wait(PATIENCE) != [0] * processes:
        raise RuntimeError(f"{undisturbed}: the undisturbed run has failed")
    expected = ending(undisturbed)
    while record.total < kills:
        workdir = folder / f"killed-{processes}-{record.runs}"
        _one_run(workdir, processes, record, kills, chance, folder / "said")
        record.runs += 1
        try:
            is_equal = ending(workdir) == expected
        except Exception as error:
            is_equal = False
            record.faults.append(f"{workdir.name}: {error}")
        record.equal += is_equal
        if not is_equal:
            record.faults.append(f"{workdir.name}: ended otherwise than the undisturbed run")
        print(
            f"{processes} process(es): {record.total} kills, "
            f"{record.equal}/{record.runs} runs equal"
        )
    return record


def _one_run(
    workdir: Path, processes: int, record: Kills, kills: int, chance: random.Random, said: Path
) -> None:
    budget = chance.randint(3, 8)  # kills of this run; then it may come to its end
    while True:
        group = Group(workdir, processes, said)
        hit = budget > 0 and record.total < kills and _strike(workdir, group, record, chance)
        budget -= hit
        try:
            statuses = group.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            record.faults.append(f"{workdir.name}: hung: {group.said()[-500:]}")
            return
        if statuses == [0] * processes:
            return
        if not hit:
            record.faults.append(
                f"{workdir.name}: failed by itself {statuses}: {group.said()[-500:]}"
            )
            return


def _strike(workdir: Path, group: Group, record: Kills, chance: random.Random) -> bool:
    """Waits for a moment of a random phase and sends the signal; False if the run ended before."""
    aim = chance.choice(PHASES)
    # Once it speaks: processes that still wait for a dead one do so for minutes.
    while group.running and not (group.said().strip() and _is(aim, workdir)):
        time.sleep(0.002)
    time.sleep(chance.uniform(0, {"preparing": 2.0, "training": 2.0, "saving": 0.15}[aim]))
    if not group.running:
        return False
    phase = next((phase for phase in ("saving", "training") if _is(phase, workdir)), "preparing")
    number = chance.choice([signal.SIGKILL, signal.SIGTERM])
    chance.choice(group.processes).send_signal(number)
    record.by_phase[phase] += 1
    record.by_signal[number.name] += 1
    return True


def _is(phase: str, workdir: Path) -> bool:
    checkpoints = workdir / "checkpoints"
    if phase == "preparing":
        # Also the moments between two preparations: a restart verifies what there is.
        return (workdir / "config.json").exists()
    if phase == "saving":
        return any(".orbax-checkpoint-tmp" in path.name for path in _listed(checkpoints))
    return bool(list_steps(checkpoints)) and max(list_steps(checkpoints)) < STEPS


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
