"""A stopped `prepare` goes on where it was, and its result is that of one that never stopped."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
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


REST: list[tuple[Any, str, int, bool]] = [
    (make, "train_vocabulary", 1, True),
    *((Encoder, "__call__", call, False) for call in (1, 2, 8, 20, 26)),
    (progress.Progress, "write", 2, False),
    (progress.Progress, "write", 3, True),
    (StoreWriter, "flush", 2, True),
    (StoreWriter, "append_flat", 9, True),
    (StoreWriter, "begin_corpus", 2, True),
    (StoreWriter, "finish", 1, False),
    (make, "_finish", 1, True),
    (Vocabularies, "save", 2, True),
    (make, "_remove_leftovers", 1, False),
]
MOMENTS = [
    (Encoder, "__call__", 14, False),
    (StoreWriter, "finish", 1, True),
    # The vocabulary is trained aside, then put into its place.
    (Vocabularies, "save", 2, False),
    *(pytest.param(*moment, marks=pytest.mark.extended) for moment in REST),
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


def stopped_then_complete(config: Any, run: Path, change: Callable[[], Any]) -> list[str]:
    """What the call after a stopped one says, `change` having been made between them."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupt):
        interrupt_at(patch, Encoder, "__call__", 8)
        prepare(config, seed=1, directory=run)
    assert (run / "data.partial" / "progress.json").exists()
    lines: list[str] = []
    prepare(change() or config, seed=1, directory=run, report=lines.append)
    return lines


def test_what_other_settings_or_another_version_left_is_begun_anew(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path
) -> None:
    config, expected = prepared
    other = dataclasses.replace(config, filter=FilterConfig(max_length=17))
    lines = stopped_then_complete(other, tmp_path / "a", lambda: config)
    assert "is of other data or settings and is started anew: " in lines[0]
    assert "data.filter.max_length: 17 then, 40 now" in lines[0]

    file = tmp_path / "b" / "data.partial" / "progress.json"

    def older() -> None:
        file.write_text(file.read_text().replace("sentencepiece 0", "sentencepiece 9"))

    assert "training the vocabulary" in stopped_then_complete(config, tmp_path / "b", older)[0]
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == expected


def test_changed_inputs_begin_anew_and_say_so(tmp_path: Path) -> None:
    config = two_corpora(tmp_path / "text", 420)
    path = tmp_path / "text" / "two.de"

    def rewrite() -> None:
        path.write_bytes(path.read_bytes().replace(b"ist", b"war"))

    lines = stopped_then_complete(config, tmp_path / "run", rewrite)
    assert f"data.train.two.tgt: the contents of {path} are not those that were read" in lines[0]
    prepare(config, seed=1, directory=tmp_path / "fresh")
    assert contents(tmp_path / "run") == contents(tmp_path / "fresh")


def test_a_vocabulary_put_there_meanwhile_begins_anew(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path
) -> None:
    config, _ = prepared
    small = dataclasses.replace(config.vocabulary, size=150)
    prepare(dataclasses.replace(config, vocabulary=small), seed=1, directory=tmp_path / "small")

    def put() -> None:
        shutil.copytree(tmp_path / "small" / "vocabulary", tmp_path / "run" / "vocabulary")

    lines = stopped_then_complete(config, tmp_path / "run", put)
    assert "the vocabulary is not the one it was begun with" in lines[0]
    assert "using the vocabulary in" in lines[1] and "150 types" in lines[1]


def test_a_call_that_had_done_nothing_leaves_nothing(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        interrupt_at(patch, make, "train_vocabulary", 1)
        prepare(prepared[0], seed=1, directory=tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


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
