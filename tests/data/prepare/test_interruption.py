"""A stopped `prepare` leaves nothing that counts: the next call makes what an only one makes."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.data.prepare import PrepareError, encode, encode_corpora, make, prepare as whole
from flaxformer_mt.data.store_writer import StoreWriter
from flaxformer_mt.files import atomic
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


@pytest.mark.parametrize("empty", [False, True])
def test_stopped_between_the_last_two_steps_it_takes_its_vocabulary_back(
    prepared: tuple[Any, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    empty: bool,
) -> None:
    def stop(path: Path) -> None:
        if path.name == "manifest.json":
            assert (tmp_path / "run" / "vocabulary" / "vocabulary.json").exists()
            raise Interrupt

    if empty:
        (tmp_path / "run" / "vocabulary").mkdir(parents=True)
    monkeypatch.setattr(atomic, "_force_to_disk", stop)
    with pytest.raises(Interrupt):
        prepare(prepared[0], seed=1, directory=tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("vocabulary", ["trained", "empty", "in place", "found", "another"])
def test_what_a_killed_call_left_is_removed_and_said(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path, vocabulary: str
) -> None:
    config, expected = prepared
    run, aside = tmp_path / "run", tmp_path / "run" / "data.partial"
    other = dataclasses.replace(config.vocabulary, size=150)
    prepare(dataclasses.replace(config, vocabulary=other), seed=1, directory=run)
    # Killed between the last two steps, unless the vocabulary is still aside.
    (run / "data").rename(aside)
    if vocabulary in ("trained", "empty"):
        (run / "vocabulary").rename(aside / "vocabulary")
    if vocabulary == "empty":
        (run / "vocabulary").mkdir()
    if vocabulary == "found":
        text = (aside / "manifest.json").read_text()
        (aside / "manifest.json").write_text(text.replace('"found": false', '"found": true'))
    if vocabulary == "another":
        # Somebody has put one there since: it is not the call's.
        shutil.rmtree(run / "vocabulary")
        another = dataclasses.replace(config.vocabulary, size=140)
        prepare(dataclasses.replace(config, vocabulary=another), seed=1, directory=tmp_path / "b")
        (tmp_path / "b" / "vocabulary").rename(run / "vocabulary")
    lines: list[str] = []
    prepare(config, seed=1, directory=run, report=lines.append)
    assert lines[0] == (
        f"prepare: starting over: an interrupted call left {aside}, which is removed"
    )
    if kept := {"found": 150, "another": 140}.get(vocabulary):
        assert "using the vocabulary in" in lines[1] and f"{kept} types" in lines[1]
    else:
        assert contents(run) == expected


def test_a_damaged_leftover_is_removed(
    prepared: tuple[Any, dict[str, bytes]], tmp_path: Path
) -> None:
    config, expected = prepared
    aside = tmp_path / "run" / "data.partial"
    aside.mkdir(parents=True)
    (aside / "manifest.json").write_text("{")
    prepare(config, seed=1, directory=tmp_path / "run")
    assert contents(tmp_path / "run") == expected


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
