"""`translate` on long inputs as a user's shell runs it: stopped, killed, gone on with, measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.decoding.runs import PAIRS, make_run
from tests.rundir.buckets import bucket, gcs, needs_clients
from tests.system.conftest import ROOT, WARNINGS, Run

__all__ = ["bucket", "gcs"]
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


@pytest.fixture(scope="module")
def whole(command: Run, workdir: Path, source: Path, tmp_path_factory: Any) -> bytes:
    """The output of a call that nothing interrupts."""
    path = tmp_path_factory.mktemp("whole") / "out"
    done = command(*arguments(workdir, source, path))
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *WARNINGS, "-m", "flaxformer_mt.cli.main", *command],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )


def committed(path: Path) -> int:
    """Lines that the record of an unfinished output tells of."""
    try:
        return int(json.loads(Path(f"{path}.part.json").read_bytes())["consumed"]["lines"])
    except FileNotFoundError:
        return -1


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        (signal.SIGTERM, 75, "SIGTERM received; the same command goes on with"),
        (signal.SIGINT, 130, "not finished; the same command goes on with"),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_gone_on_with_is_equal_to_the_byte(
    command: Run,
    workdir: Path,
    source: Path,
    whole: bytes,
    tmp_path: Path,
    kind: signal.Signals,
    status: int,
    message: str,
) -> None:
    output = tmp_path / "out"
    for after in (8, 60) if kind == signal.SIGKILL else (8,):
        process = started(arguments(workdir, source, output))
        while committed(output) < after:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.002)
        process.send_signal(kind)
        _, errors = process.communicate(timeout=100)
        assert process.returncode == status, errors
        assert message in errors and "Traceback" not in errors
        assert not output.exists() and committed(output) >= after
    done = command(*arguments(workdir, source, output))
    assert done.returncode == 0, done.stderr
    assert "out.part: going on after line " in done.stderr
    assert output.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_sigterm_without_an_output_file_acts_as_usual(workdir: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "flaxformer_mt.cli.main", "translate"),
            *("--workdir", str(workdir), "--window", "1", "--beam-size", "1"),
        ],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    # A line at a time, for a program that waits for each answer.
    process.stdin.write(b"the small cat\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.terminate()
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.extended
def test_memory_is_constant(workdir: Path, tmp_path: Path) -> None:
    """Lines that are quickly done, so that there can be many: blank ones, a few with words."""
    program = (
        "import resource, sys\n"
        "from flaxformer_mt.cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)\n"
    )

    def megabytes(count: int) -> int:
        path = tmp_path / "in"
        with open(path, "w") as file:
            for number in range(count):
                file.write("the cat\n" if number % 4096 == 7 else "\n" if number % 3 else "   \n")
        done = subprocess.run(
            [
                *(sys.executable, "-c", program, "translate", "--workdir", str(workdir)),
                *("--beam-size", "1", "--input", str(path), "--output", str(tmp_path / "out")),
            ],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        with open(tmp_path / "out", "rb") as out:
            assert sum(1 for _ in out) == count
        return int(done.stderr.splitlines()[-1])

    few = megabytes(20_000)
    assert megabytes(300_000) < few + 40


@needs_clients
def test_an_input_and_an_output_in_a_bucket(
    command: Run, workdir: Path, source: Path, whole: bytes, gcs: Any, bucket: str
) -> None:
    gcs.put(f"{bucket}/in.txt", source.read_bytes())
    place = f"gs://{bucket}/out.jsonl"
    process = started(arguments(workdir, Path(source), place))
    state = f"{bucket}/out.jsonl.part/state.json"
    deadline = time.monotonic() + 100
    while state not in gcs.objects:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1.0)
    process.terminate()
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 75, errors
    assert f"{bucket}/out.jsonl" not in gcs.objects
    remote = [*arguments(workdir, source, place)]
    remote[remote.index(str(source))] = f"gs://{bucket}/in.txt"
    done = command(*remote)
    assert done.returncode == 0, done.stderr
    assert gcs.objects[f"{bucket}/out.jsonl"] == whole
    assert gcs.names(f"{bucket}/out") == [f"{bucket}/out.jsonl"]
