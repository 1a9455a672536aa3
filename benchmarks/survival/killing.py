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
    """What was done to the runs of one number of processes, and what came of it."""

    processes: int
    by_phase: Counter[str] = dataclasses.field(default_factory=Counter)
    by_signal: Counter[str] = dataclasses.field(default_factory=Counter)
    runs: int = 0
    equal: int = 0  # of these, such as ended bit-equal to the undisturbed one
    faults: list[str] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.by_signal.values())


def kill_until(folder: Path, *, processes: int, kills: int, chance: random.Random) -> Kills:
    """Runs, each killed a few times and brought to its end, until there were so many kills."""
    found = Kills(processes)
    undisturbed = folder / f"undisturbed-{processes}"
    if Group(undisturbed, processes, folder / "said").wait(PATIENCE) != [0] * processes:
        raise RuntimeError(f"{undisturbed}: the undisturbed run has failed")
    wanted = ending(undisturbed)
    while found.total < kills:
        workdir = folder / f"killed-{processes}-{found.runs}"
        _one_run(workdir, processes, found, kills, chance, folder / "said")
        found.runs += 1
        try:
            same = ending(workdir) == wanted
        except Exception as error:
            same = False
            found.faults.append(f"{workdir.name}: {error}")
        found.equal += same
        if not same:
            found.faults.append(f"{workdir.name}: ended otherwise than the undisturbed run")
        print(
            f"{processes} process(es): {found.total} kills, {found.equal}/{found.runs} runs equal"
        )
    return found


def _one_run(
    workdir: Path, processes: int, found: Kills, kills: int, chance: random.Random, said: Path
) -> None:
    budget = chance.randint(3, 8)  # kills of this run; then it may come to its end
    while True:
        group = Group(workdir, processes, said)
        hit = budget > 0 and found.total < kills and _strike(workdir, group, found, chance)
        budget -= hit
        try:
            statuses = group.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            found.faults.append(f"{workdir.name}: hung: {group.said()[-500:]}")
            return
        if statuses == [0] * processes:
            return
        if not hit:
            found.faults.append(
                f"{workdir.name}: failed by itself {statuses}: {group.said()[-500:]}"
            )
            return


def _strike(workdir: Path, group: Group, found: Kills, chance: random.Random) -> bool:
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
    found.by_phase[phase] += 1
    found.by_signal[number.name] += 1
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
