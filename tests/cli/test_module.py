"""`python -m flaxformer_mt` is the command."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FROZEN = Path(__file__).parent.parent / "frozen" / "format_1"

TYPED = """
import sys
from flaxformer_mt.bulk.reading import open_lines
with open_lines(None) as lines:
    lines.prompt = "> "
    read = list(lines)
open(sys.argv[1], "w", encoding="utf-8").write(repr(read))
"""

NO_TPU = """
from jax._src import hardware_utils, xla_bridge
def tried(*_):
    print("tried libtpu")
    raise RuntimeError
xla_bridge.make_tpu_client = tried
hardware_utils.num_available_tpu_chips_and_device_id = lambda: (0, None)
from flaxformer_mt.cli.main import main
main()
"""

SLOW_IMPORT = """
import os, signal, sys
from flaxformer_mt.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(name, *_):
        if name == "jax":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
sys.argv = ["flaxformer-mt", "train", "--workdir", "nowhere"]
sys.exit(main())
"""


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_trace():
    done = subprocess.run([sys.executable, "-c", SLOW_IMPORT], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_standard_output_that_cannot_be_written_is_an_error_without_a_trace():
    command = [sys.executable, "-m", "flaxformer_mt", "config", "--config", "quickstart"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    message = "flaxformer-mt config: error: No space left on device; free some and repeat"
    assert done.returncode == 1 and done.stderr == f"{message} the command\n"


def test_nobody_takes_a_run_for_finished_whose_output_is_not_read():
    command = f'"{sys.executable}" -m flaxformer_mt config --config quickstart 2>&1 | true'
    assert subprocess.run(["bash", "-c", f"{command}; exit $PIPESTATUS"]).returncode == 141


def test_closed_streams_are_no_bug():
    command = f'"{sys.executable}" -m flaxformer_mt config --config quickstart <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command]).returncode == 0


@pytest.mark.skipif(os.path.exists("/dev/accel0"), reason="there is a TPU")
@pytest.mark.parametrize(
    ("platforms", "tried"), [(None, ""), ("", ""), ("tpu,cpu", "tried libtpu\n")]
)
def test_a_command_tries_libtpu_on_a_machine_without_a_tpu_only_if_told_to(
    tmp_path, platforms, tried
):
    run = tmp_path / "run"
    shutil.copytree(FROZEN, run)
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    if platforms is not None:
        environment["JAX_PLATFORMS"] = platforms
    command = [sys.executable, "-c", NO_TPU, "average", "--workdir", run, "--last", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == tried, done.stderr


def test_a_typed_line_can_be_edited_and_called_back(tmp_path):
    """With the left arrow a letter is inserted; the arrow up gives the line before."""
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-c", TYPED, str(tmp_path / "read")]
    environment = os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    with subprocess.Popen(command, env=environment, **streams) as program:
        os.close(terminal)
        screen = b""
        for keys in ("Hund Stra\xdfe\x1b[D\x1b[D\x1b[D!\r", "\x1b[A?\r", "\x04"):
            while screen.count(b"> ") == 0:
                screen += os.read(keyboard, 1000)
            screen = b""
            os.write(keyboard, keys.encode())
        assert program.wait(timeout=60) == 0
    os.close(keyboard)
    first = "Hund Str!a\xdfe"
    assert (tmp_path / "read").read_text("utf-8") == repr([first.encode(), f"{first}?".encode()])
