"""A stopped `prepare` goes on where it was, and its result is that of one that never stopped."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.config.schema import FilterConfig
from flaxformer_mt.data.prepare import (
    PrepareError,
    fill,
    make,
    prepare as with_workers,
    progress,
    workers,
)
from flaxformer_mt.data.prepare.encode import Encoder
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.data.vocabulary import Vocabularies
from tests.conftest import ROOT
from tests.data.prepare.corpora import contents, two_corpora


class Interrupt(BaseException):
    """As KeyboardInterrupt, which pytest takes for itself."""


# In this process alone, where a test can interrupt it anywhere.
prepare = functools.partial(with_workers, workers=0)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CHUNK", 20)
    monkeypatch.setattr(progress, "EVERY", 60)


def interrupt_at(
    patch: pytest.MonkeyPatch, owner: Any, name: str, call: int, *, after: bool = False
) -> None:
    """Raises Interrupt in place of, or after, the n-th call of a function."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = 0

    @functools.wraps(real)
    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            raise Interrupt
        result = real(*args, **kwargs)
        if calls == call:
            raise Interrupt
        return result

    patch.setattr(owner, name, counted)


MOMENTS: list[tuple[Any, str, int, bool]] = [
    (make, "train_vocabulary", 1, True),
    (Encoder, "__call__", 1, False),
    *((Encoder, "__call__", call, False) for call in range(2, 27, 6)),
    (progress.Progress, "write", 2, False),
    (progress.Progress, "write", 3, True),
    (StoreWriter, "flush", 2, True),
    (StoreWriter, "append_flat", 9, True),
    (StoreWriter, "begin_corpus", 2, True),
    (StoreWriter, "finish", 1, False),
    (StoreWriter, "finish", 1, True),
    (make, "_finish", 1, True),
    # The vocabulary is trained aside, then put into its place.
    (Vocabularies, "save", 2, False),
    (Vocabularies, "save", 2, True),
    (make, "_remove_leftovers", 1, False),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, bytes]]:
    """A configuration, and what an uninterrupted call makes of it."""
    folder = tmp_path_factory.mktemp("prepared")
    config = two_corpora(folder / "text", 420)
    prepare(config, seed=1, directory=folder / "run")
    return config, contents(folder / "run")


@pytest.mark.parametrize(("owner", "name", "call", "after"), MOMENTS)
def test_stopped_anywhere_the_result_is_the_same(
    prepared: tuple[Any, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    call: int,
    after: bool,
) -> None:
    config, expected = prepared
    run = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        interrupt_at(patch, owner, name, call, after=after)
        prepare(config, seed=1, directory=run)
    prepare(config, seed=1, directory=run)
    assert contents(run) == expected


def test_the_next_call_does_not_begin_anew(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, expected = prepared
    run = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        interrupt_at(patch, Encoder, "__call__", 16)
        prepare(config, seed=1, directory=run)
    # 11 chunks of corpus one; of corpus two 3 chunks before the progress was last written.
    state = json.loads((run / "data.partial" / "progress.json").read_text())
    assert (len(state["accounts"]), state["lines"]) == (2, 60)
    lines: list[str] = []
    encoded: list[int] = []
    real = Encoder.__call__

    def counting(self: Encoder, chunk: Any) -> Any:
        encoded.append(len(chunk.records))
        return real(self, chunk)

    monkeypatch.setattr(Encoder, "__call__", counting)
    prepare(config, seed=1, directory=run, report=lines.append)
    assert contents(run) == expected
    assert lines[0] == f"prepare: going on with what an earlier call left in {run / 'data.partial'}"
    assert lines[1] == "prepare: data.train.two: going on after 60 pairs"
    # 280 pairs in corpus two, 20 in the validation corpus.
    assert sum(encoded) == 280 - 60 + 20
    assert not any("training the vocabulary" in line for line in lines)


def stopped(config: Any, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        interrupt_at(patch, Encoder, "__call__", 8)
        prepare(config, seed=1, directory=run)
    assert (run / "data.partial" / "progress.json").exists()


def test_other_settings_begin_anew_and_say_so(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, expected = prepared
    other = dataclasses.replace(config, filter=FilterConfig(max_length=17))
    stopped(other, tmp_path / "run", monkeypatch)
    lines: list[str] = []
    prepare(config, seed=1, directory=tmp_path / "run", report=lines.append)
    assert contents(tmp_path / "run") == expected
    assert "is of other data or settings and is started anew: " in lines[0]
    assert "data.filter.max_length: 17 then, 40 now" in lines[0]


def test_changed_inputs_begin_anew_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = two_corpora(tmp_path / "text", 420)
    stopped(config, tmp_path / "run", monkeypatch)
    path = tmp_path / "text" / "two.de"
    path.write_bytes(path.read_bytes().replace(b"ist", b"war"))
    lines: list[str] = []
    prepare(config, seed=1, directory=tmp_path / "run", report=lines.append)
    assert f"data.train.two.tgt: the contents of {path} are not those that were read" in lines[0]
    prepare(config, seed=1, directory=tmp_path / "fresh")
    assert contents(tmp_path / "run") == contents(tmp_path / "fresh")


def test_what_another_version_left_is_not_gone_on_with(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, expected = prepared
    run = tmp_path / "run"
    stopped(config, run, monkeypatch)
    file = run / "data.partial" / "progress.json"
    file.write_text(file.read_text().replace("sentencepiece 0", "sentencepiece 9"))
    lines: list[str] = []
    prepare(config, seed=1, directory=run, report=lines.append)
    assert "training the vocabulary" in lines[0]
    assert contents(run) == expected


def test_a_vocabulary_put_there_meanwhile_begins_anew(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, _ = prepared
    small = dataclasses.replace(config.vocabulary, size=150)
    prepare(dataclasses.replace(config, vocabulary=small), seed=1, directory=tmp_path / "small")
    stopped(config, tmp_path / "run", monkeypatch)
    shutil.copytree(tmp_path / "small" / "vocabulary", tmp_path / "run" / "vocabulary")
    lines: list[str] = []
    prepare(config, seed=1, directory=tmp_path / "run", report=lines.append)
    assert "the vocabulary is not the one it was begun with" in lines[0]
    assert "using the vocabulary in" in lines[1] and "150 types" in lines[1]


def test_a_call_that_had_done_nothing_leaves_nothing(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        interrupt_at(patch, make, "train_vocabulary", 1)
        prepare(prepared[0], seed=1, directory=tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


SCRIPT = """
import sys
from pathlib import Path
from flaxformer_mt.data.prepare import prepare, progress, workers
from tests.data.prepare.corpora import two_corpora

if __name__ == "__main__":
    progress.EVERY, workers.CHUNK = 200, 50
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    config = two_corpora(folder / "text", 2500)
    prepare(config, seed=1, directory=folder / "run", workers=count)
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [0, 2])
def test_killed_again_and_again_the_result_is_the_same(tmp_path: Path, count: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    random_seconds = random.Random(count)
    partial = tmp_path / "run" / "data.partial"
    kills = 0
    while True:
        process = subprocess.Popen(
            [sys.executable, tmp_path / "script.py", tmp_path, str(count)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        at_work = partial / ("progress.json" if kills == 0 else "train-00000.src.tokens")
        while process.poll() is None and not at_work.exists():
            time.sleep(0.01)
        if kills < 2:
            # The first at once: on a quick machine there is not much left to do.
            time.sleep(random_seconds.uniform(0, 0.4) if kills else 0)
        else:
            process.wait()
        if process.poll() is not None:
            assert process.returncode == 0
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills
    config = two_corpora(tmp_path / "text", 2500)
    prepare(config, seed=1, directory=tmp_path / "whole")
    expected, found = contents(tmp_path / "whole"), contents(tmp_path / "run")
    # The script wrote the texts anew each time: their times of change differ, nothing else.
    manifests = [json.loads(files.pop("data/manifest.json")) for files in (expected, found)]
    for manifest in manifests:
        for file in manifest["inputs"]:
            file.pop("mtime_ns")
    assert found == expected and manifests[0] == manifests[1]


def test_a_full_disk_keeps_what_was_done(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, expected = prepared
    with monkeypatch.context() as patch:

        def no_space(*args: Any) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(fill.StoreWriter, "finish", no_space)
        message = r"run/data\.partial: cannot be written: No space left on device; the same command"
        with pytest.raises(PrepareError, match=message):
            prepare(config, seed=1, directory=tmp_path / "run")
    prepare(config, seed=1, directory=tmp_path / "run")
    assert contents(tmp_path / "run") == expected
