"""What the tests of launch/ share: running a script, and a `gcloud` that rents nothing."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LAUNCH = ROOT / "launch"
OTHERS = {name: text for name, text in os.environ.items() if not name.startswith("FLAXFORMER_")}


def start(
    script: str, *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.Popen[str]:
    """A script in a group of its own; `variables` join the environment, without its own."""
    return subprocess.Popen(
        ["bash", LAUNCH / script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**OTHERS, **variables},
        cwd=cwd,
        start_new_session=True,
    )


def run(
    script: str, *arguments: str, stdin: str = "", cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A script of launch/ to its end, as `start` starts it."""
    process = start(script, *arguments, cwd=cwd, **variables)
    stdout, stderr = process.communicate(stdin, timeout=60)
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


# Its world is the folder $CLOUD: `states` holds what describe answers, one line a call until one is
# left; no such file means no such TPU. `created` is what states become by create. `ends` holds how
# the remote commands end, one line each: an exit status, or a state that the TPU falls into.
GCLOUD = r"""#!/bin/bash
echo "$*" >>"$CLOUD/calls"
pop() {
  head -n 1 "$1"
  if [ "$2" = all ] || [ "$(wc -l <"$1")" -gt 1 ]; then sed -i 1d "$1"; fi
}
case "$4" in
  describe)
    if [ -e "$CLOUD/broken" ]; then cat "$CLOUD/broken" >&2; exit 1; fi
    if [ ! -e "$CLOUD/states" ]; then echo "ERROR: NOT_FOUND: no $5" >&2; exit 1; fi
    pop "$CLOUD/states" ;;
  create)
    if [ -s "$CLOUD/creates" ]; then
      status=$(pop "$CLOUD/creates" all)
      [ "$status" = 0 ] || { echo "ERROR: no capacity" >&2; exit "$status"; }
    fi
    cp "$CLOUD/created" "$CLOUD/states" ;;
  delete) rm "$CLOUD/states" ;;
  ssh)
    [ ! -e "$CLOUD/hang" ] || { touch "$CLOUD/hanging"; exec sleep 60; }
    end=0
    [ ! -s "$CLOUD/ends" ] || end=$(pop "$CLOUD/ends" all)
    case $end in
      [0-9]*) exit "$end" ;;
      *) echo "$end" >"$CLOUD/states"; exit 255 ;;
    esac ;;
esac
"""


@dataclass
class Cloud:
    """A folder that stands for Google's side, and what was asked of it."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, *, created: str = "READY\n") -> Cloud:
        folder.mkdir()
        executable(folder / "gcloud", GCLOUD)
        (folder / "created").write_text(created)
        (folder / "calls").touch()
        return cls(folder)

    def write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "CLOUD": str(self.folder),
            "FLAXFORMER_POLL": "0",
            "CLOUDSDK_COMPUTE_ZONE": "",
        }

    def lines(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def calls(self) -> list[str]:
        """The verb of each call, and for what: `create tpu-vm`, `ssh tpu-vm`, ..."""
        return [f"{words[3]} {words[2]}" for words in map(str.split, self.lines())]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run("tpu_vm.sh", *arguments, **self.environment)
