"""`launch/local.sh`: what it makes, when it makes it again, and what it says when it cannot.

A stand-in for Python records what is asked of it, so that no test installs anything.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.launch.scripts import LAUNCH, ROOT, executable, run, start

pytestmark = pytest.mark.extended

# `-c CODE` answers the script's questions; `-m venv DIR` makes an environment with itself and a
# flaxformer-mt in it; `-m pip` and `-m pytest` are written down in calls.txt.
STAND_IN = r"""#!/bin/bash
case "$1 $2" in
  "-c import sys; sys.exit(sys.version_info < (3, 11))") exit "${OLD_PYTHON:-0}" ;;
  "-c import ensurepip") exit 0 ;;
  "--version ") echo "Python 3.11.0" ;;
  "-m venv")
    echo "venv" >>"$CALLS"
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    program="$3/bin/flaxformer-mt"
    printf '#!/bin/bash\necho "${FLAXFORMER_PROGRAM##*/} $*"\ncat\nexit "${FAILS:-0}"\n' >"$program"
    chmod +x "$program"
    ;;
  "-m pip")
    echo "pip ${*: -1}" >>"$CALLS"
    echo "chatter on stdout"
    [ -z "${PIP_HANGS:-}" ] || sleep 60
    exit "${PIP_FAILS:-0}"
    ;;
  "-m pytest") echo "pytest ${*:3} in $PWD" >>"$CALLS" ;;
  *) echo "unexpected: $*" >&2; exit 99 ;;
esac
"""


class Checkout:
    """A copy of what the script reads, and a PATH whose only Python is the stand-in."""

    def __init__(self, folder: Path):
        # A blank in the path: quoting is part of what is tested.
        self.root = folder / "a checkout"
        (self.root / "launch").mkdir(parents=True)
        shutil.copy2(ROOT / "launch" / "local.sh", self.root / "launch")
        for name in ("pyproject.toml", "constraints.txt"):
            shutil.copy2(ROOT / name, self.root)
        self.venv = self.root / ".venv"
        self.installing = self.root / ".venv.installing"
        self.bin = folder / "bin"
        self.bin.mkdir()
        executable(self.bin / "python3.11", STAND_IN)
        # The tools the script may use, and no other Python of this machine.
        for tool in "bash cat chmod cksum cp dirname ls mkdir rm sleep touch".split():
            (self.bin / tool).symlink_to(shutil.which(tool) or pytest.skip(f"no {tool} here"))
        self.calls = folder / "calls.txt"
        self.script = str(self.root / "launch" / "local.sh")
        self.environment = {"PATH": str(self.bin), "CALLS": str(self.calls)}

    def run(self, *arguments: str, stdin: str = "", **variables: str):
        """The finished process, with what it said, and the calls that it caused."""
        self.calls.write_text("")
        done = run(self.script, *arguments, stdin=stdin, **self.environment | variables)
        return done, self.calls.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_its_users_start_it_by_its_name():
    assert os.access(LAUNCH / "local.sh", os.X_OK)


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), ([], 2)])
def test_help_installs_nothing(checkout, arguments, status):
    done, calls = checkout.run(*arguments)
    assert done.returncode == status and calls == []
    assert "FLAXFORMER_VENV" in done.stdout + done.stderr
    assert not checkout.venv.exists()


def test_first_call_installs_and_later_ones_do_not(checkout):
    # Standard input and output belong to the command.
    done, calls = checkout.run("train", "--workdir", "a b", stdin="ein Satz\n\nnoch einer")
    assert done.returncode == 0 and "chatter" in done.stderr, done.stderr
    assert calls == ["venv", f"pip {checkout.root}"]
    assert done.stdout == "local.sh train --workdir a b\nein Satz\n\nnoch einer"
    assert not checkout.installing.exists()
    done, calls = checkout.run("train", FAILS="75")
    assert (done.returncode, done.stderr, calls) == (75, "", [])


def test_tools_and_extras_are_added_once_and_changed_requirements_install_all(checkout):
    done, calls = checkout.run("x", FLAXFORMER_EXTRAS="tpus")
    assert done.returncode == 2 and calls == []
    assert (
        "'tpus' is not one of tpu, cuda, gcs, export, hub, serve, figures, wandb, mlflow, ray, "
        "dedup, langid, memories, markdown, docs, dev" in done.stderr
    )
    _, calls = checkout.run("x", FLAXFORMER_EXTRAS="tpu,export")
    assert calls == ["venv", f"pip {checkout.root}[tpu,export]"]
    tests = f"pytest -n 2 --dist worksteal -k a or b in {checkout.root}"
    install = f"pip {checkout.root}[dev,export,tpu]"
    assert checkout.run("test", "-k", "a or b")[1] == [install, tests]
    # What is there stays: a plain command installs nothing.
    assert checkout.run("x", FLAXFORMER_EXTRAS="tpu")[1] == []
    for name in ("pyproject.toml", "constraints.txt"):
        with (checkout.root / name).open("a") as file:
            file.write("# changed\n")
        assert checkout.run("x")[1] == [install]


def test_what_fails_is_said_and_tried_again(checkout):
    done, calls = checkout.run("x", OLD_PYTHON="1")
    assert done.returncode == 1 and calls == []
    assert "no Python 3.11 or newer found" in done.stderr
    assert not checkout.venv.exists() and not checkout.installing.exists()
    done, _ = checkout.run("x", PIP_FAILS="1")
    assert done.returncode == 1 and done.stdout == ""
    assert "the installation failed" in done.stderr
    done, calls = checkout.run("x")
    assert done.returncode == 0 and calls == [f"pip {checkout.root}"]


def test_interrupted_installation_is_made_anew(checkout):
    checkout.calls.touch()
    with start(checkout.script, "x", **checkout.environment, PIP_HANGS="1") as process:
        eventually(lambda: "pip" in checkout.calls.read_text())
        os.killpg(process.pid, 9)
    leftover = checkout.venv / "half-installed"
    leftover.touch()
    done, calls = checkout.run("x")
    assert "interrupted: starting over" in done.stderr
    assert done.returncode == 0 and calls == ["venv", f"pip {checkout.root}"]
    assert not leftover.exists() and not checkout.installing.exists()


def test_an_environment_of_the_users_is_never_removed(checkout, tmp_path):
    mine = tmp_path / "mine"
    (mine / "bin").mkdir(parents=True)
    executable(mine / "bin" / "python", STAND_IN)
    executable(mine / "bin" / "flaxformer-mt", "#!/bin/bash\n")
    Path(f"{mine}.installing").write_text("999999999\n")  # an interrupted installation
    done, calls = checkout.run("x", FLAXFORMER_VENV=str(mine))
    assert done.returncode == 0, done.stderr
    assert calls == [f"pip {checkout.root}"]

    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "thesis.tex").touch()
    done, calls = checkout.run("x", FLAXFORMER_VENV=str(documents))
    assert done.returncode == 1 and calls == []
    assert "neither empty nor a Python environment" in done.stderr
    assert (documents / "thesis.tex").exists()


def test_second_call_waits_for_the_first(checkout):
    checkout.run("x")
    before = checkout.venv.stat().st_ino
    checkout.installing.write_text(f"{os.getpid()}\n")
    waiting = start(checkout.script, "x", **checkout.environment)
    assert waiting.stderr is not None
    assert f"waiting for process {os.getpid()}" in waiting.stderr.readline()
    checkout.installing.unlink()
    stdout, _ = waiting.communicate(timeout=60)
    assert stdout == "local.sh x\n" and checkout.venv.stat().st_ino == before
