"""Which code ran: versions of the libraries and the checkout's commit."""

import contextlib
import importlib.metadata
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

PACKAGES = (
    "flaxformer-mt jax jaxlib flax optax orbax-checkpoint numpy sentencepiece sacrebleu sacremoses "
    "ml-collections rensa py3langid".split()
)


def package_versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of these distributions (default: the main dependencies) that are installed."""
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def git_commit(package: Path | None = None) -> str | None:
    """The commit of the checkout that holds this package, with "-dirty" if tracked files differ.

    FLAXFORMER_COMMIT names it for a copy of a checkout; else None outside a checkout of our own.
    """
    package = (package or Path(__file__).parent).resolve()
    copied_commit = os.environ.get("FLAXFORMER_COMMIT") or None
    top = _git(package, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != package.parent:
        return copied_commit
    only_commit = ("--always", "--abbrev=40", "--exclude", "*")
    return _git(package, "describe", "--dirty", *only_commit) or copied_commit


def _git(directory: Path, *arguments: str) -> str | None:
    # Inside a git hook, GIT_DIR and the like point to the repository that runs the hook.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        finished = subprocess.run(
            ["git", "-C", directory, *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            env=environment,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return finished.stdout.strip()
