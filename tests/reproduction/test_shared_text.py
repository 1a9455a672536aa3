"""What rows share is prepared by one process at a time."""

from __future__ import annotations

import dataclasses
import fcntl
import threading
from pathlib import Path

import pytest

from flaxformer_mt.config import (
    CorpusConfig,
    DataConfig,
    ExperimentConfig,
    corpus,
    default_config,
    freeze,
)
from flaxformer_mt.reproduction import shared_text
from flaxformer_mt.reproduction.shared_text import take_prepared
from flaxformer_mt.rundir.layout import RunDirectory


def data() -> DataConfig:
    config = default_config()
    config.data.train.toy = corpus(kind="synthetic", size=60)
    config.data.valid = corpus(kind="synthetic", split="valid", size=8)
    config.data.vocabulary.size = 200
    found: ExperimentConfig = freeze(config, "test")
    return found.data


def test_a_second_process_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    take_prepared(RunDirectory(tmp_path / "a"), data(), seed=1, folder=tmp_path / "p", say=print)
    (place,) = (tmp_path / "p").iterdir()
    said: list[str] = []
    waiting = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        waiting.set()

    other = RunDirectory(tmp_path / "b")
    second = threading.Thread(
        target=take_prepared,
        args=(other, data()),
        kwargs={"seed": 1, "folder": tmp_path / "p", "say": say},
    )
    # Locks are of an open file: within this process as between two.
    with open(place / "lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        second.start()
        assert waiting.wait(60)
        assert said == [f"{place}: another process prepares the same text; waiting for it"]
        second.join(0.5)
        assert second.is_alive() and not other.data.exists()
    second.join(60)
    assert not second.is_alive()
    manifests = [(tmp_path / run / "data" / "manifest.json").stat().st_ino for run in "ab"]
    assert manifests[0] == manifests[1]


def test_a_share_of_the_text_is_written_by_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written again while it is being prepared is another text than was begun with."""
    for side in ("src", "tgt"):
        (tmp_path / f"train.{side}").write_text("one\ntwo\nthree\n")
    train = CorpusConfig(
        name="toy", src=str(tmp_path / "train.src"), tgt=str(tmp_path / "train.tgt")
    )
    of_two = dataclasses.replace(data(), train=(train,))
    began, go_on, said = threading.Event(), threading.Event(), list[str]()
    read_pairs = shared_text.read_pairs

    def slow(*args, **kwargs):
        began.set()
        assert go_on.wait(60)
        yield from read_pairs(*args, **kwargs)

    def say(line: str) -> None:
        said.append(line)
        go_on.set()

    def take(say=print) -> Path:
        found = shared_text.first_pairs(of_two, {"toy": 2}, folder=tmp_path / "x", say=say)
        return Path(found.train[0].src)

    monkeypatch.setattr(shared_text, "read_pairs", slow)
    first = threading.Thread(target=take)
    first.start()
    assert began.wait(60)
    # As the second is let go on by what it says, it has not read anything by then.
    path = take(say)
    first.join(60)
    assert said == [f"{path.parent}: another process prepares the same text; waiting for it"]
    assert path.read_text() == "one\ntwo\n"
