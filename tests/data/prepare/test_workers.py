"""Workers: the same bytes for any number, deaths reported, nothing left behind."""

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import open_source
from flaxformer_mt.data.prepare import encode, encode_corpora, prepare, sample
from flaxformer_mt.data.prepare.encode import Chunk
from flaxformer_mt.data.prepare.encode_corpora import WorkerDied, Workers
from flaxformer_mt.data.vocabulary import Vocabularies
from tests.conftest import environment
from tests.data.prepare.corpora import contents, two_corpora

GRAMMAR = open_source(CorpusConfig(kind="synthetic", size=1))


def chunks(count: int) -> Any:
    return (Chunk("train", GRAMMAR, number + 1, [(b"a", b"b")]) for number in range(count))


def slow(chunk: Chunk) -> int:
    """In place of the encoder. The first chunks take longest, and the 20th kills its worker."""
    if chunk.first_line == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2 / chunk.first_line)
    return chunk.first_line


def test_any_number_of_workers_and_any_parts_give_the_same(tmp_path, monkeypatch):
    config = two_corpora(tmp_path / "text", 600)
    prepare(config, seed=1, directory=tmp_path / "0", workers=0)
    vocabularies = Vocabularies.load(tmp_path / "0" / "vocabulary")
    made = encode.Settings(vocabularies, config, ("Latn", "Latn"))
    source = open_source(config.train[0], config.folder)

    def encoded(*ranges):
        """`encode_range` needs nothing but its arguments, which can be sent anywhere."""
        account = encode_corpora.Account("one", "train")
        tokens = []
        for first, stop in ranges:
            part = pickle.loads(pickle.dumps((encode.Range("train", source, first, stop), made)))
            for chunk, done in encode.encode_range(*part):
                account.add(chunk, done)
                tokens += [*done.src.tolist(), *done.tgt_lengths.tolist(), *done.hashes.tolist()]
        return [account, sorted(tokens)]

    assert encoded((0, None)) == encoded((0, 33), (33, 34), (34, 140), (140, None))
    assert encoded((0, None)) != encoded((0, 33), (34, None))
    monkeypatch.setattr(encode, "CHUNK", 23)
    monkeypatch.setattr(sample, "_AT_A_TIME", 5)
    prepare(config, seed=1, directory=tmp_path / "3", workers=3)
    assert contents(tmp_path / "3") == contents(tmp_path / "0")


def test_results_come_in_order_reading_is_not_far_ahead_and_death_is_reported(
    tmp_path, monkeypatch
):
    # A script without `if __name__ == "__main__":`, which workers must not run.
    script = types.ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    Path(script.__file__).write_text("raise SystemExit('run again')")
    monkeypatch.setitem(sys.modules, "__main__", script)
    read = itertools.count()
    with Workers(slow, 2) as processes:
        results = processes.encode(chunk for chunk in chunks(50) if next(read) >= 0)
        assert next(results)[1] == 1
        assert next(read) <= encode_corpora.SHORT + 2 * 3
        for number, (_, result) in enumerate(itertools.islice(results, 10), 2):
            assert result == number
        assert sys.modules["__main__"] is script
        with pytest.raises(WorkerDied, match="a worker process of `prepare` was killed"):
            list(results)


SCRIPT = """
import pickle, sys
from pathlib import Path
from flaxformer_mt.data.prepare import prepare, encode

encode.CHUNK = 20
folder = Path(sys.argv[1])
config = pickle.loads((folder / "config").read_bytes())
try:
    prepare(config, seed=1, directory=folder / "run", workers=2)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.extended
@pytest.mark.parametrize("end", ["killed", "Ctrl-C"])
def test_workers_end_with_their_parent(tmp_path, end):
    """Killed, or by Ctrl-C, which ends it quietly and leaves nothing."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    (tmp_path / "config").write_bytes(pickle.dumps(two_corpora(tmp_path / "text", 6_000)))
    process = subprocess.Popen(
        [sys.executable, script, tmp_path],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        if not children.exists():
            pytest.skip("needs Linux's list of a process's children")
        shard = tmp_path / "run" / "data.partial" / "train-00000.src.tokens"
        while not (shard.exists() and shard.stat().st_size):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        workers = children.read_text().split()
        assert len(workers) >= 2
        if end == "killed":
            process.kill()
        else:  # As a terminal does it: to every process of the group.
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate()
            assert process.returncode == 130 and errors == b""
            assert not list((tmp_path / "run").iterdir())
        # The test's own limit ends it where a worker outlives its parent.
        for worker in workers:
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{worker}/stat")
                while stat.read_text().rpartition(")")[2].split()[0] != "Z":
                    time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
