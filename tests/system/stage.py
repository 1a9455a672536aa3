"""A folder in which the blocks of a page run as they stand, on a small scale."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import environment
from tests.launch.scripts import executable
from tests.system.conftest import PROGRAM, PYTHON, SMALL

# What `launch/local.sh` does once its environment is there; making that is test_local.py's matter.
# A server of a block is left running, for the page's next blocks; they find it at its own port.
LAUNCHER = """#!/bin/bash
command=$1; shift
serves=$command
[ "$*" != --no-serve ] || serves= # of demo
if [ "$serves" = serve ] || [ "$serves" = demo ]; then # until it is ready
    [ "$command" = demo ] || set -- "$@" --warm-up 0
    {program} "$command" "$@" --port 0 2> serve.log &
    echo $! >> {folder}/servers
    until grep -qx ready serve.log; do kill -0 $! && sleep 0.1; done
    exit
fi
case $command in
    plan) export XLA_FLAGS= ;; # libtpu may not know the tests' own
esac
case $command in
    train | prepare | plan) set -- "$@" {settings} ;;
    quickstart)
        set -- "$@" {settings} --config.data.train.grammar.size=400 \\
            --config.data.valid.size=20 --config.data.test.grammar.size=20 ;;
esac
exec {program} "$command" "$@"
"""
CURL = """#!/bin/bash
port=$(sed -n 's/.*http:[^ ]*:\\([0-9]*\\).*/\\1/p' serve.log | head -n 1)
exec {curl} --silent --show-error --fail-with-body "${{@//127.0.0.1:8000/127.0.0.1:$port}}"
"""


class Stage:
    """Runs shell blocks and Python blocks in `folder`, where launch/local.sh is a stand-in."""

    def __init__(self, folder: Path, *, settings: Mapping[str, object] = SMALL) -> None:
        self.folder = folder
        self._own = Path(tempfile.mkdtemp())
        launcher = LAUNCHER.format(
            program=shlex.join(PROGRAM),
            folder=self._own,
            settings=" ".join(f"--config.{key}={value}" for key, value in settings.items()),
        )
        (folder / "launch").mkdir()
        executable(folder / "launch" / "local.sh", launcher)
        (folder / ".venv" / "bin").mkdir(parents=True)
        python = folder / ".venv" / "bin" / "python"
        executable(python, f'#!/bin/bash\nexec {shlex.join(PYTHON)} "$@"\n')
        executable(self._own / "flaxformer-mt", launcher)
        executable(self._own / "curl", CURL.format(curl=shutil.which("curl")))
        # Where commands look for sacreBLEU's test sets.
        folders = {"SACREBLEU": str(folder / "sacrebleu")}
        self._environment = environment(
            PATH=f"{self._own}{os.pathsep}{os.environ['PATH']}", **folders
        )

    def shell(self, text: str, *, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return self._run(["bash", "-euo", "pipefail", "-c", text], timeout)

    def python(self, text: str, *, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return self._run([*PYTHON, "-c", text], timeout)

    def close(self) -> None:
        """Ends the servers that blocks have started."""
        servers = self._own / "servers"
        for line in servers.read_text().split() if servers.exists() else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line), signal.SIGTERM)
        shutil.rmtree(self._own)

    def _run(self, command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        # To files: a server that is left running would hold a pipe open.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=timeout,
            )
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, out.read(), err.read())
