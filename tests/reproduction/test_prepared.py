"""What rows share is prepared by one process at a time."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

from flaxformer_mt.config import DataConfig, ExperimentConfig, corpus, default_config, freeze
from flaxformer_mt.reproduction.prepared import take_prepared
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
        second.join(2)
        assert second.is_alive() and not other.data.exists()
    second.join(60)
    assert not second.is_alive()
    manifests = [(tmp_path / run / "data" / "manifest.json").stat().st_ino for run in "ab"]
    assert manifests[0] == manifests[1]
