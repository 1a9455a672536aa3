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

import flaxformer_mt as fm
from benchmarks.survival.runs import SAVE_EVERY, SETTINGS, STEPS, Ending, Group, ending
from flaxformer_mt.errors import FlaxformerError
from flaxformer_mt.parallel.compile_cache import keep_compiled
from flaxformer_mt.rundir.cache import cache_folder

NEWEST = STEPS - SAVE_EVERY  # the step from which a restart would resume


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    for place in range(middle, min(middle + 64, len(content))):
        content[place] ^= 0x55
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
    """The outcomes of runs after one of their files was damaged."""

    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    kinds: set[str] = dataclasses.field(default_factory=set)  # of files
    faults: list[str] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())


def damage_each(folder: Path, *, cases: int, chance: random.Random) -> Damages:
    """Damages every kind of file at least once, in `cases` cases or as many as there are.

    An outcome is "recovered" (the run ended bit-equal), "refused" (an error that names the file or
    its step), "told" (reports are lost, and a warning names their file; the rest is bit-equal), or
    a fault: another end, or an error that doesn't name the problem.
    """
    origin = folder / "whole"
    if Group(origin, 1, folder / "said").wait(600) != [0]:
        raise RuntimeError(f"{origin}: the undisturbed run has failed")
    undisturbed = ending(origin)
    shutil.rmtree(origin / "checkpoints" / str(STEPS))
    status = json.loads((origin / "status.json").read_text())
    (origin / "status.json").write_text(json.dumps(status | {"state": "stopped", "step": NEWEST}))

    damages = Damages()
    for relative, name in _cases(origin, cases, chance):
        workdir = folder / "damaged"
        shutil.rmtree(workdir, ignore_errors=True)
        shutil.copytree(origin, workdir)
        DAMAGES[name](workdir / relative)
        damages.kinds.add(_kind(relative))
        outcome, message = _resume(workdir, undisturbed, relative)
        damages.outcomes[outcome] += 1
        if outcome not in OUTCOMES:
            damages.faults.append(f"{relative} {name}: {outcome}: {message}")
        print(f"{damages.total}: {relative} {name}: {outcome}")
    return damages


def _cases(origin: Path, cases: int, chance: random.Random) -> list[tuple[Path, str]]:
    """Files and names of damages: one of each kind of file, then others in random order."""
    newest = origin / "checkpoints" / str(NEWEST)
    folders = [newest, origin / "vocabulary", origin / "data"]
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    files += [origin / name for name in ("config.json", "status.json", "metrics.jsonl")]
    all_cases = [(file.relative_to(origin), name) for file in files for name in DAMAGES]
    chance.shuffle(all_cases)
    first = list({_kind(relative): (relative, name) for relative, name in all_cases}.values())
    others = [case for case in all_cases if case not in first]
    return [*first, *others][: max(cases, len(first))]


def _kind(relative: Path) -> str:
    """A file's place, without the parts of its name that differ between runs."""
    parts = [part for part in relative.parts if part != str(NEWEST)]
    name = parts[-1]
    if parts[-2:-1] == ["d"]:
        name = "HASH"
    return "/".join([*parts[:-1], name])


def _resume(workdir: Path, undisturbed: Ending, relative: Path) -> tuple[str, str]:
    """The outcome of resuming a run whose file `relative` is damaged, and a message for a fault."""
    keep_compiled(cache_folder() / "xla")  # as the command does
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            fm.train(fm.load_config("quickstart", SETTINGS), workdir)
    except FlaxformerError as error:
        place = str(workdir / relative.parent)
        named = any(word in str(error) for word in (relative.name, place, f"checkpoints/{NEWEST}"))
        return ("refused" if named else "unclear", str(error)[-300:])
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"

    text = stderr.getvalue()
    try:
        end = ending(workdir)
        if end == undisturbed:
            return "recovered", ""
        has_warning = f"warning: {workdir / relative}" in text
        lacks_only_reports = dataclasses.replace(end, reports=undisturbed.reports) == undisturbed
        return ("told" if has_warning and lacks_only_reports else "wrong", text[-300:])
    except Exception as error:
        return "wrong", str(error)
