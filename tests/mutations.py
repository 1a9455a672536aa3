"""Breaks the package in one place at a time and checks that the default tests notice.

    python -m tests.mutations [--only NAME] [--record]

Each fault of mutations.toml goes into a copy of the checkout, where the tests nearest to it run
until one fails: first the one that caught it before, by mutations.json, the last result on record.
A fault that no longer applies counts as missed until it is placed anew.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = "flaxformer_mt"
LEAST_CAUGHT = 0.95
RECORD = ROOT / "tests" / "mutations.json"


class Fault(NamedTuple):
    function: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function}: {self.old} -> {self.new or '(nothing)'}"


def faults() -> list[Fault]:
    """All that the list names."""
    listed = tomllib.loads((ROOT / "tests" / "mutations.toml").read_text())
    return [
        Fault(*fault, tuple(tests.split()))
        for tests, of in listed.items()
        for fault in of["faults"]
    ]


def placed(fault: Fault, root: Path) -> tuple[Path, str] | None:
    """The one file that has the fault's function and piece, and its text with the fault."""
    piece = re.compile(r"\s+".join(re.escape(word) for word in fault.old.split()))
    name, places = fault.function.rpartition(".")[2], []
    for path in sorted((root / PACKAGE).rglob("*.py")):
        text = path.read_text()
        if f"def {name}(" not in text:
            continue
        for first, last in _spans(ast.parse(text), fault.function):
            lines = text.splitlines(keepends=True)
            body = "".join(lines[first:last])
            if len(piece.findall(body)) == 1:
                broken = piece.sub(lambda _: fault.new, body)
                places.append((path, "".join([*lines[:first], broken, *lines[last:]])))
    return places[0] if len(places) == 1 else None


def _spans(tree: ast.AST, function: str) -> Iterator[tuple[int, int]]:
    """The lines of each function of that name, a method's with its class's."""
    owner, _, name = function.rpartition(".")
    for parent in ast.walk(tree):
        if owner and not (isinstance(parent, ast.ClassDef) and parent.name == owner):
            continue
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                yield node.lineno - 1, node.end_lineno or node.lineno


def _checkout(folder: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _caught_by(fault: Fault, root: Path, before: str) -> str:
    """The test that failed; empty if none did."""
    place = placed(fault, root)
    if place is None:
        return ""
    path, broken = place
    sound = path.read_text()
    path.write_text(broken)
    try:
        return (before and _failing([before], root)) or _failing(fault.tests, root)
    finally:
        path.write_text(sound)


def _failing(tests: Sequence[str], root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", *tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    # 1: a test failed. 2: none could be collected, as a syntax error would have it: no catch.
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed and done.returncode == 1 else ""


def main() -> int:
    """Exit status 1 if fewer than 95% of all faults are caught."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="faults whose function contains this")
    parser.add_argument("--record", action="store_true", help="write mutations.json")
    parser.add_argument("--processes", type=int, default=2)
    flags = parser.parse_args()
    chosen = [fault for fault in faults() if flags.only in fault.function]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(flags.processes) as pool:
        free: Queue[Path] = Queue()
        for number in range(flags.processes):
            free.put(_checkout(Path(folder) / str(number)))

        def tried(fault: Fault) -> str:
            root, start = free.get(), time.perf_counter()
            try:
                by = _caught_by(fault, root, record.get(str(fault), ""))
            finally:
                free.put(root)
            seconds = time.perf_counter() - start
            print(f"{'caught' if by else 'MISSED'} {seconds:5.0f} s  {fault}", flush=True)
            return by

        results: dict[str, str] = {}
        for fault, by in zip(chosen, pool.map(tried, chosen), strict=True):
            results[str(fault)] = by
            if flags.record:
                known = record | results
                recorded = {name: known.get(name, "") for name in map(str, faults())}
                RECORD.write_text(json.dumps(recorded, indent=1) + "\n")
    caught = sum(map(bool, results.values()))
    print(f"{caught} of {len(results)} faults caught")
    return 0 if caught >= LEAST_CAUGHT * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
