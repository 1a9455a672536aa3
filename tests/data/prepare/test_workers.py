"""Workers: the same bytes for any number, deaths reported, nothing left behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import open_source
from flaxformer_mt.data.prepare import (
    PrepareError,
    encode,
    encode_corpora,
    prepare,
    sample,
)
from flaxformer_mt.data.prepare.encode import Chunk
from flaxformer_mt.data.prepare.encode_corpora import WorkerDied, Workers
from flaxformer_mt.data.vocabulary import Vocabularies
from tests.data.prepare.corpora import contents, two_corpora

ROOT = Path(__file__).parents[3]
GRAMMAR = open_source(CorpusConfig(kind="synthetic", size=1))


def chunks(count: int) -> Any:
    return (Chunk("train", GRAMMAR, number + 1, [(b"a", b"b")]) for number in range(count))


# In place of the encoder, in a worker process.


def slow(chunk: Chunk) -> int:
    """The first chunks take longest."""
    time.sleep(0.2 / chunk.first_line)
    return chunk.first_line


def killed(chunk: Chunk) -> int:
    if chunk.first_line == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return chunk.first_line


def test_any_number_of_workers_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = two_corpora(tmp_path / "text", 600)
    prepare(config, seed=1, directory=tmp_path / "0", workers=0)
    expected = contents(tmp_path / "0")
    monkeypatch.setattr(encode, "CHUNK", 23)
    monkeypatch.setattr(sample, "_AT_A_TIME", 5)
    prepare(config, seed=1, directory=tmp_path / "3", workers=3)
    assert contents(tmp_path / "3") == expected


def test_parts_of_a_corpus_give_what_the_whole_does(tmp_path: Path) -> None:
    """`encode_range` needs nothing but its arguments, which can be sent anywhere."""
    config = two_corpora(tmp_path / "text", 300)
    prepare(config, seed=1, directory=tmp_path / "run", workers=0)
    vocabularies = Vocabularies.load(tmp_path / "run" / "vocabulary")
    made = encode.Settings(vocabularies, config, ("Latn", "Latn"))
    source = open_source(config.train[0], config.folder)

    def encoded(*ranges: tuple[int, int | None]) -> list[Any]:
        account = encode_corpora.new_account("train", "one")
        tokens = []
        for first, stop in ranges:
            part = pickle.loads(pickle.dumps((encode.Range("train", source, first, stop), made)))
            for chunk, done in encode.encode_range(*part):
                encode_corpora.add_chunk(account, chunk, done)
                tokens += [*done.src.tolist(), *done.tgt_lengths.tolist(), *done.hashes.tolist()]
        return [account, sorted(tokens)]

    assert encoded((0, None)) == encoded((0, 33), (33, 34), (34, 140), (140, None))
    assert encoded((0, None)) != encoded((0, 33), (34, None))


@pytest.mark.extended
def test_results_come_in_order_and_reading_is_not_far_ahead() -> None:
    with Workers(slow, 3) as processes:  # type: ignore[arg-type]
        assert [result for _, result in processes.encode(chunks(12))] == list(range(1, 13))
    read = itertools.count()
    with Workers(slow, 1) as processes:  # type: ignore[arg-type]
        results = processes.encode(chunk for chunk in chunks(50) if next(read) >= 0)
        next(results)
        assert next(read) <= encode_corpora.SHORT + 3


@pytest.mark.extended
def test_short_corpora_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_corpora, "_default_count", lambda: 2)
    for count in (0, 1, encode_corpora.SHORT - 1, encode_corpora.SHORT):
        with Workers(slow) as processes:  # type: ignore[arg-type]
            assert len(list(processes.encode(chunks(count)))) == count
            assert (processes._pool is not None) == (count == encode_corpora.SHORT)


def test_a_killed_worker_is_reported() -> None:
    with (
        pytest.raises(WorkerDied, match="a worker process of `prepare` died"),
        Workers(killed, 2) as processes,  # type: ignore[arg-type]
    ):
        list(processes.encode(chunks(40)))
    assert issubclass(WorkerDied, PrepareError)


SCRIPT = """
import pickle, sys
from pathlib import Path
from flaxformer_mt.data.prepare import prepare, encode

if __name__ == "__main__":
    encode.CHUNK = 20
    folder = Path(sys.argv[1])
    config = pickle.loads((folder / "config").read_bytes())
    try:
        prepare(config, seed=1, directory=folder / "run", workers=2)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@contextlib.contextmanager
def running(tmp_path: Path) -> Any:
    """A `prepare` in a process group of its own, with two workers at work; killed in the end."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "config").write_bytes(pickle.dumps(two_corpora(tmp_path / "text", 6_000)))
    process = subprocess.Popen(
        [sys.executable, script, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        shard = tmp_path / "run" / "data.partial" / "train-00000.src.tokens"
        while not (shard.exists() and shard.stat().st_size):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def children(process: subprocess.Popen[bytes]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not listed.exists():
        pytest.skip("needs Linux's list of a process's children")
    return [int(number) for number in listed.read_text().split()]


def wait_until_gone(processes: list[int]) -> None:
    """The test's own limit ends it where a worker outlives its parent."""
    for process in processes:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{process}/stat")
            while stat.read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.05)


@pytest.mark.extended
def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        started = children(process)
        assert len(started) >= 2
        process.kill()
        wait_until_gone(started)


@pytest.mark.extended
def test_ctrl_c_ends_quietly_and_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        started = children(process)
        # As a terminal does it: to every process of the group.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
        assert process.returncode == 130 and errors == b""
        wait_until_gone(started)
        assert not list((tmp_path / "run").iterdir())
