"""The time from the shell to the first step of `flaxformer-mt train`, cold and warm."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.asked_process import ProcessFailed
from benchmarks.training_workloads import Workload

ROOT = Path(__file__).parent.parent
_FIRST = "step 1/"


def command_seconds(workload: Workload, folder: Path, *, seconds: float) -> dict[str, float]:
    """Seconds until the first step's loss is on the screen: "cold" and "warm".

    The corpus in `folder`/run is prepared already. Both start a new run on a copy of it: the first
    with an empty compilation cache, the second with the cache of the first. Raises ProcessFailed.
    """
    cache = folder / "command-cache"
    shutil.rmtree(cache, ignore_errors=True)
    return {
        state: _once(workload, folder / "run", cache, seconds=seconds) for state in ("cold", "warm")
    }


def _once(workload: Workload, prepared: Path, cache: Path, *, seconds: float) -> float:
    settings = [f"--config.{setting}" for setting in workload.settings(bfloat16=False)]
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        run.mkdir()
        for name in ("vocabulary", "data"):
            shutil.copytree(prepared / name, run / name)
        command = [
            *(sys.executable, "-m", "flaxformer_mt", "train", "--workdir", str(run)),
            *("--config", workload.experiment, "--config.training.log_every=1", *settings),
        ]
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache.resolve())},
        )
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        last_line = ""
        try:
            assert process.stderr is not None
            for text in process.stderr:
                if text.startswith(_FIRST):
                    return time.perf_counter() - start
                last_line = text.strip() or last_line
        finally:
            timer.cancel()
            # Nobody needs the checkpoint that it would write as it stops.
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
    raise ProcessFailed(f"train: ended before its first step: {last_line}")
