"""Environments of packages that a benchmark compares with, made when they are first needed.

`peers/NAME.txt` has an environment's requirements, and `peers/NAME.alone.txt`, if it exists, those
installed without their dependencies. None of them contains this project.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "peers"
_MADE = "made-of.txt"  # in a complete environment: the digest of its requirements


class EnvironmentMissing(RuntimeError):
    """An environment that doesn't exist, or couldn't be made; the message says what to do."""


class Environments:
    """Those below `folder`, by name.

    `present` has interpreters of existing environments, which are used as they are. `install` says
    whether to make an environment that is missing or whose requirements have changed.
    """

    def __init__(
        self, folder: Path, *, install: bool, present: Mapping[str, Path] | None = None
    ) -> None:
        self._folder, self._install = folder, install
        self._present = dict(present or {})
        self._failed: dict[str, str] = {}

    def python(self, name: str) -> Path:
        """The interpreter of an environment. Raises EnvironmentMissing."""
        if name in self._present:
            if not self._present[name].exists():
                raise EnvironmentMissing(f"{self._present[name]}: there is no such interpreter")
            return self._present[name]
        place = self._folder / name
        if _text(place / _MADE) != digest(name):
            if not self._install:
                raise EnvironmentMissing(
                    f"the environment '{name}' is not there: --install makes it, "
                    f"--python {name}=PYTHON names one"
                )
            if name not in self._failed:
                self._failed[name] = _make(name, place)
            if self._failed[name]:
                raise EnvironmentMissing(self._failed[name])
        return place / "bin" / "python"


def files(name: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Requirement files of an environment, in order, each with pip's further options."""
    requirements = REQUIREMENTS / f"{name}.txt"
    without_dependencies = REQUIREMENTS / f"{name}.alone.txt"
    if not without_dependencies.exists():
        return [(requirements, ())]
    return [(requirements, ()), (without_dependencies, ("--no-deps",))]


def digest(name: str) -> str:
    """The digest of an environment's requirements and this Python's version."""
    text = "".join(path.read_text(encoding="utf-8") for path, _ in files(name))
    return hashlib.sha256(f"{sys.version_info[:2]}{text}".encode()).hexdigest()


def _make(name: str, place: Path) -> str:
    """Makes the environment; returns an error message, empty if that succeeded."""
    print(f"making the environment '{name}'", file=sys.stderr, flush=True)
    shutil.rmtree(place, ignore_errors=True)
    # This environment's pip installs into that one, which then holds nothing but the peer.
    pip = [sys.executable, "-m", "pip", "--python", str(place), "--disable-pip-version-check"]
    steps = [
        [sys.executable, "-m", "venv", "--without-pip", str(place)],
        *(
            [*pip, "install", "--quiet", *options, "--requirement", str(path)]
            for path, options in files(name)
        ),
    ]
    for command in steps:
        completed = subprocess.run(command, capture_output=True, text=True)
        if completed.returncode:
            errors = [line for line in completed.stderr.splitlines() if line.startswith("ERROR")]
            last = completed.stderr.strip().splitlines()[-1:]
            reason = [*errors, *last, "pip said nothing"][0]
            return f"the environment '{name}' could not be made: {reason}"
    (place / _MADE).write_text(digest(name), encoding="utf-8")
    return ""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
