"""Files of a run cut short, overwritten, emptied and removed, one at a time."""

import contextlib
import dataclasses
import io
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.survival.runs import SAVE_EVERY, STEPS, Ending, Group, ending, train_arguments
from flaxformer_mt.cli.main import main as command

NEWEST = STEPS - SAVE_EVERY  # the step from which a restart would go on


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    for at in range(middle, min(middle + 64, len(content))):
        content[at] ^= 0x55
    path.write_bytes(bytes(content))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _remove(path: Path) -> None:
    path.unlink()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": _cut,
    "flipped": _flip,
    "emptied": _empty,
    "missing": _remove,
}


OUTCOMES = ("recovered", "refused", "told")


@dataclasses.dataclass
class Damages:
    """What became of runs of which one file was damaged."""

    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    kinds: set[str] = dataclasses.field(default_factory=set)  # of files
    faults: list[str] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())


def damage_each(folder: Path, *, cases: int, chance: random.Random) -> Damages:
    """Every kind of file at least once, in as many cases as asked for or there are.

    An outcome is "recovered" (the run ended bit-equal), "refused" (an error that names the file or
    its step), "told" (reports are lost, which a warning says by name; all else is bit-equal), or a
    fault: another end, or an error that does not say what is wrong.
    """
    origin = folder / "whole"
    if Group(origin, 1, folder / "said").wait(600) != [0]:
        raise RuntimeError(f"{origin}: the undisturbed run has failed")
    wanted = ending(origin)
    shutil.rmtree(origin / "checkpoints" / str(STEPS))
    status = json.loads((origin / "status.json").read_text())
    (origin / "status.json").write_text(json.dumps(status | {"state": "stopped", "step": NEWEST}))

    found = Damages()
    for relative, name in _cases(origin, cases, chance):
        workdir = folder / "damaged"
        shutil.rmtree(workdir, ignore_errors=True)
        shutil.copytree(origin, workdir)
        DAMAGES[name](workdir / relative)
        found.kinds.add(_kind(relative))
        outcome, message = _go_on(workdir, wanted, relative)
        found.outcomes[outcome] += 1
        if outcome not in OUTCOMES:
            found.faults.append(f"{relative} {name}: {outcome}: {message}")
        print(f"{found.total}: {relative} {name}: {outcome}")
    return found


def _cases(origin: Path, cases: int, chance: random.Random) -> list[tuple[Path, str]]:
    """Files with a damage each: a first round over all kinds of files, then whatever comes."""
    newest = origin / "checkpoints" / str(NEWEST)
    folders = [newest, origin / "vocabulary", origin / "data"]
    files = [file for each in folders for file in sorted(each.rglob("*")) if file.is_file()]
    files += [origin / name for name in ("config.json", "status.json", "metrics.jsonl")]
    everything = [(file.relative_to(origin), name) for file in files for name in DAMAGES]
    chance.shuffle(everything)
    first = list({_kind(relative): (relative, name) for relative, name in everything}.values())
    rest = [case for case in everything if case not in first]
    return [*first, *rest][: max(cases, len(first))]


def _kind(relative: Path) -> str:
    """A file's place, without the parts of its name that differ between runs."""
    parts = [part for part in relative.parts if part != str(NEWEST)]
    name = parts[-1]
    if parts[-2:-1] == ["d"]:
        name = "HASH"
    return "/".join([*parts[:-1], name])


def _go_on(workdir: Path, wanted: Ending, relative: Path) -> tuple[str, str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            status = command(train_arguments(workdir))
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    text = said.getvalue()
    if status:
        [*_, last] = [line for line in text.splitlines() if "error:" in line] or [""]
        place = str(workdir / relative.parent)
        named = any(word in last for word in (relative.name, place, f"checkpoints/{NEWEST}"))
        return ("refused" if named else "unclear", text[-300:])
    try:
        end = ending(workdir)
        if end == wanted:
            return "recovered", ""
        told = f"warning: {workdir / relative}" in text
        same = dataclasses.replace(end, reports=wanted.reports) == wanted
        return ("told" if told and same else "wrong", text[-300:])
    except Exception as error:
        return "wrong", str(error)
