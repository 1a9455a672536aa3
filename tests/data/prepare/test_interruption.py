"""A stopped `prepare` leaves nothing that counts: the next call makes what an only one makes."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.data.prepare import PrepareError, encode, encode_corpora, make, prepare as whole
from flaxformer_mt.data.store_writer import StoreWriter
from tests.data.prepare.corpora import contents, two_corpora


class Interrupt(BaseException):
    """As KeyboardInterrupt, which pytest takes for itself."""


# In this process alone, where a test can interrupt it anywhere.
prepare = functools.partial(whole, workers=0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, bytes]]:
    """A configuration, and what an uninterrupted call makes of it."""
    folder = tmp_path_factory.mktemp("prepared")
    config = two_corpora(folder / "text", 420)
    prepare(config, seed=1, directory=folder / "run")
    return config, contents(folder / "run")


@pytest.mark.parametrize("vocabulary", ["none", "empty", "put meanwhile"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (make, "train_vocabulary"),
        (StoreWriter, "append"),
        (StoreWriter, "finish"),
        (make, "picture"),
    ],
)
def test_a_stopped_call_leaves_nothing_of_its_own(
    prepared: tuple[Any, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    vocabulary: str,
) -> None:
    run = tmp_path / "run"

    def stop(*_: Any, **__: Any) -> None:
        if vocabulary == "put meanwhile":
            (run / "vocabulary").mkdir()
            (run / "vocabulary" / "vocabulary.json").touch()
        raise Interrupt

    if vocabulary == "empty":
        (run / "vocabulary").mkdir(parents=True)
    monkeypatch.setattr(encode, "CHUNK", 20)
    monkeypatch.setattr(owner, name, stop)
    with pytest.raises(Interrupt):
        prepare(prepared[0], seed=1, directory=run)
    assert [*contents(run)] == ["vocabulary/vocabulary.json"] * (vocabulary == "put meanwhile")
    assert not (run / "data.partial").exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_killed_call_left_is_removed_and_said(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, damaged: bool
) -> None:
    config, expected = prepared
    run, aside = tmp_path / "run", tmp_path / "run" / "data.partial"
    other = dataclasses.replace(config.vocabulary, size=150)
    prepare(dataclasses.replace(config, vocabulary=other), seed=1, directory=run)
    (run / "data").rename(aside)
    (run / "vocabulary").rename(aside / "vocabulary")
    if damaged:
        (aside / "manifest.json").write_text("{")
    lines: list[str] = []
    prepare(config, seed=1, directory=run, report=lines.append)
    assert lines[0] == (
        f"prepare: starting over: an interrupted call left {aside}, which is removed"
    )
    assert contents(run) == expected


@pytest.mark.parametrize("empty", [False, True])
def test_the_last_step_of_a_killed_call_is_done_by_the_next(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, empty: bool
) -> None:
    config, expected = prepared
    run = tmp_path / "run"
    prepare(config, seed=1, directory=run)
    (run / "vocabulary").rename(run / "data" / "vocabulary")
    if empty:
        (run / "vocabulary").mkdir()
    prepare(config, seed=1, directory=run)
    assert contents(run) == expected


def test_a_full_disk_is_an_error_that_leaves_nothing(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, _ = prepared

    def no_space(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(encode_corpora.StoreWriter, "finish", no_space)
    message = r"run/data\.partial: cannot be written: No space left on device$"
    with pytest.raises(PrepareError, match=message):
        prepare(config, seed=1, directory=tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []
