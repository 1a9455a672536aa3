"""`translate` on long inputs as a user's shell runs it: stopped, killed, gone on with, measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run
from tests.decoding.runs import PAIRS, make_run
from tests.system.conftest import ROOT, WARNINGS, run_program

__all__ = ["run"]
LINES = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", {1: 10.0}).path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "in.txt"
    path.write_text("".join(f"{LINES[n % 4]} {LINES[n // 4 % 4]}\n" for n in range(240)))
    return path


def arguments(workdir: Path, source: Path, output: object) -> list[str]:
    return [
        *("translate", "--workdir", str(workdir), "--input", str(source)),
        *("--output", str(output), "--window", "4", "--output-format", "jsonl", "--tokens"),
    ]


@pytest.fixture
def whole(run: Run, workdir: Path, source: Path, tmp_path: Path) -> bytes:
    """The output of a call that nothing interrupts."""
    path = tmp_path / "whole" / "out"
    path.parent.mkdir()
    done = run(*arguments(workdir, source, path))
    assert done.status == 0, done.errors
    return path.read_bytes()


def started(command: list[str], **streams: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *WARNINGS, "-m", "flaxformer_mt.cli.main", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        **streams,
    )


def committed(path: Path) -> int:
    """Lines that the record of an unfinished output tells of."""
    try:
        return int(json.loads(Path(f"{path}.part.json").read_bytes())["consumed"]["lines"])
    except FileNotFoundError:
        return -1


ENDS = {
    signal.SIGTERM: (75, "SIGTERM received; the same command goes on with"),
    signal.SIGINT: (130, "not finished; the same command goes on with"),
    signal.SIGKILL: (-9, ""),
}


@pytest.mark.parametrize(
    "kinds",
    [
        (signal.SIGKILL, signal.SIGTERM),
        pytest.param((signal.SIGINT,), marks=pytest.mark.extended),
    ],
)
def test_gone_on_with_is_equal_to_the_byte(
    workdir: Path, source: Path, whole: bytes, tmp_path: Path, kinds: tuple[signal.Signals, ...]
) -> None:
    output = tmp_path / "out"
    for kind, after in zip(kinds, (8, 60), strict=False):
        process = started(arguments(workdir, source, output))
        while committed(output) < after:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.002)
        process.send_signal(kind)
        _, errors = process.communicate(timeout=100)
        status, message = ENDS[kind]
        assert process.returncode == status, errors
        assert message in errors and "Traceback" not in errors
        assert not output.exists() and committed(output) >= after
    done = run_program(*arguments(workdir, source, output))
    assert done.returncode == 0, done.stderr
    assert "out.part: going on after line " in done.stderr
    assert output.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "whole"]


@pytest.mark.extended
def test_sigterm_without_an_output_file_acts_as_usual(workdir: Path) -> None:
    command = ["translate", "--workdir", str(workdir), "--window", "1", "--beam-size", "1"]
    process = started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    # A line at a time, for a program that waits for each answer.
    process.stdin.write("the small cat\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith("\n")
    process.terminate()
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGTERM
