"""Versions, and whether they fit each other."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax

from flaxformer_mt.diagnosis.finding import Finding
from flaxformer_mt.rundir.versions import git_commit

_PACKAGES = (
    *("flaxformer-mt", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint"),
    *("libtpu", "jax-cuda13-plugin", "jax-cuda12-plugin"),
    *("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
)
# Built together with jaxlib: another version of one of them is refused or crashes.
_PLUGINS = ("jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin")
_DRIVER = Path("/proc/driver/nvidia/version")


def versions() -> dict[str, str]:
    """Of Python, the libraries that are installed, the GPU driver and this code."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if _DRIVER.exists() and (match := re.search(r"Module\D+([\d.]+)", _DRIVER.read_text())):
        found["nvidia driver"] = match[1]
    if commit := git_commit():
        found["commit"] = commit[:12]
    return found


def check_versions() -> Iterator[Finding]:
    found = versions()
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    mismatch = mismatched(found)
    if mismatch:
        yield Finding(
            "versions", "warn", text, f"{mismatch}: install them at one version", dict(found)
        )
    else:
        yield Finding("versions", "ok", text, values=dict(found))
    # CUDA's and cuDNN's versions, or libtpu's build, as the running backend has them.
    running = " ".join(jax.devices()[0].client.platform_version.split())
    yield Finding("runtime", "ok", running, values={"platform_version": running})


def mismatched(found: Mapping[str, str]) -> str:
    """Names what does not fit jax, if anything: "jaxlib 0.10.1 with jax 0.10.2"."""
    wrong = [name for name in _PLUGINS if name in found and found[name] != found["jax"]]
    return ", ".join(f"{name} {found[name]} with jax {found['jax']}" for name in wrong)
