"""What holds for every test: the CPU, one compilation cache, and no silent broadcasting."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
pytest_plugins = ["tests.rundir.buckets"]  # buckets for any room

# A launcher that ignores them (nohup, a shell's background job) must not change what a test sees.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Set in the environment and before JAX is imported, so that commands started by a test have it too.
os.environ["JAX_PLATFORMS"] = "cpu"
# Most of a test's time is compiling, which takes half as long without LLVM's optimisations, and
# half of that without XLA's fusions by way of MLIR (a newer XLA has no others, and would end the
# process for a flag that it doesn't know). .ci/run leaves both on for what extended tests compute
# themselves.
_PLAIN = "--xla_cpu_use_fusion_emitters=false" * (version("jaxlib") < "0.11")
UNOPTIMISED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": _PLAIN}
if os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1":
    os.environ.setdefault("XLA_FLAGS", _PLAIN)
# Not all of them: JAX 0.10.2 has crashed once, in four thousand tests, while it loaded one, and JAX
# 0.12 crashes about once in some hundreds that it serialises to be written. Few are read again in
# the same suite: 44 of the 437 that took tests/decoding 0.2 s or more.
_LEAST_SECONDS = "1.0" if version("jaxlib") >= "0.12" else "0.2"
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", _LEAST_SECONDS)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# CTranslate2's and PyTorch's threads wait for each other by spinning, on cores that others need.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# [rows] + [rows, length] is nearly always a forgotten axis, and broadcasts to nonsense.
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"

import jax  # noqa: E402

from flaxformer_mt.parallel.compile_cache import keep_compiled  # noqa: E402

# Ours, since JAX's own is not safe for several processes, some of which tests kill. It imports JAX,
# which reads what is above. Programs started by a test are told where it is.
if _kept := keep_compiled(ROOT / ".cache" / "xla", limit=2**30):
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_kept)


# As in pyproject.toml: an unreadable entry of the tests' compilation cache is compiled afresh.
WARNINGS = [
    *("-W", "error"),
    *("-W", "ignore:Error reading persistent compilation cache entry:UserWarning"),
    *("-W", "ignore:Error writing persistent compilation cache entry:UserWarning"),
]


class Killed(BaseException):
    """Ends what runs, as KeyboardInterrupt does, which pytest takes for itself."""


def environment(**variables: str) -> dict[str, str]:
    """Of processes that a test starts: anywhere the same, and for small programs and few steps."""
    return {**os.environ, **UNOPTIMISED, "PYTHONPATH": str(ROOT), **variables}


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits for what another thread or process is about to do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills once for all processes and all later suites of the same sources.

    `make` starts processes, whose `environment` doesn't depend on the suite. A test that changes
    the folder takes a copy.
    """
    digest = hashlib.sha256(repr((sys.version, jax.__version__)).encode())
    sources = [*(ROOT / "flaxformer_mt").rglob("*.py"), *(ROOT / "configs").rglob("*.py")]
    for path in (Path(make.__code__.co_filename), *sorted(sources)):
        digest.update(path.read_bytes())
    folder = ROOT / ".cache" / "runs" / f"{name}-{digest.hexdigest()[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "complete").touch()
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Says under a failure which section of docs/architecture.md holds the contract."""
    report = yield
    room = item.path.relative_to(ROOT / "tests").parts[0]
    if report.failed:
        for line in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines():
            if line.startswith("### ") and f"`flaxformer_mt/{room}`" in line:
                report.sections.append(("contract", f"docs/architecture.md, {line[4:]}"))
    return report


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium by Playwright, for a module's tests; skipped where there is none."""
    # Not for the session: Playwright leaves an event loop running, which other tests start.
    from benchmarks.serving.browser import NoBrowser, chromium

    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(chromium())
        except NoBrowser as reason:
            pytest.skip(str(reason))
        yield running
