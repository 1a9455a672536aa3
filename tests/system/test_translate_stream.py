"""`translate` on long inputs as a user's shell runs it: killed, stopped, and run again."""

import json
import os
import signal
import threading
from pathlib import Path

from tests.decoding.runs import PAIRS
from tests.system.conftest import started, wait_until


def committed(path: Path) -> int:
    """Lines that the record of an unfinished output tells of."""
    try:
        return int(json.loads(Path(f"{path}.part.json").read_bytes())["consumed"]["lines"])
    except FileNotFoundError:
        return -1


def test_a_killed_and_stopped_output_is_equal_to_the_byte(run, workdir, tmp_path):
    lines = [source for source, _ in PAIRS]
    source, output, undisturbed = (tmp_path / name for name in ("in", "out", "whole"))
    source.write_text("".join(f"{lines[n % 4]} {lines[n // 4 % 4]}\n" for n in range(240)))
    translate = ("translate", "--workdir", workdir, "--input", source, "--window", 4)
    translate += ("--output-format", "jsonl", "--tokens", "--output")
    run(*translate, undisturbed, status=0)
    process = started(*translate, output)
    wait_until(lambda: committed(output) >= 8, process)
    process.kill()
    process.communicate()
    killed_at = committed(output)

    def terminate() -> None:
        wait_until(lambda: committed(output) > killed_at)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    stopped = run(*translate, output)
    assert stopped.status == 75 and "SIGTERM received; the same command res" in stopped.errors
    assert not output.exists() and committed(output) > killed_at >= 8
    again = run(*translate, output, status=0)
    assert "out.part: resuming after line " in again.errors
    assert output.read_bytes() == undisturbed.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "whole"]
