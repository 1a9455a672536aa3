"""A stopped `prepare` leaves nothing that counts: the next call makes what an only one makes."""

import dataclasses
import functools
import shutil
from typing import Any

import pytest

from flaxformer_mt.data.prepare import encode, make
from flaxformer_mt.data.prepare.manifest import PrepareError
from flaxformer_mt.data.store_writer import StoreWriter
from tests.conftest import Killed
from tests.data.prepare import corpora
from tests.data.prepare.corpora import contents, two_corpora

# In this process alone, where a test can interrupt it anywhere.
prepare = functools.partial(corpora.prepare, workers=0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A configuration, and what an uninterrupted call makes of it."""
    folder = tmp_path_factory.mktemp("prepared")
    config = two_corpora(folder / "text", 420)
    prepare(config, directory=folder / "run")
    return config, contents(folder / "run")


@pytest.mark.parametrize("vocabulary", ["none", "empty", "put meanwhile"])
def test_a_stopped_call_leaves_nothing_of_its_own(prepared, tmp_path, monkeypatch, vocabulary):
    run, place = tmp_path / "run", tmp_path / "run" / "vocabulary"
    put = vocabulary == "put meanwhile"
    error: BaseException

    def stop(*_, **__):
        if put:
            place.mkdir()
            (place / "vocabulary.json").touch()
        raise error

    if vocabulary == "empty":
        place.mkdir(parents=True)
    monkeypatch.setattr(encode, "CHUNK", 20)
    owners: list[tuple[Any, str]] = [(StoreWriter, "append"), (make, "picture")]
    owners += [(make, "train_vocabulary")] * (vocabulary == "none")
    for owner, name in owners:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stop)
            error = Killed()
            with pytest.raises(Killed):
                prepare(prepared[0], directory=run)
            assert [*contents(run)] == ["vocabulary/vocabulary.json"] * put
            shutil.rmtree(place, ignore_errors=True)
            error = OSError(28, "No space left on device")
            message = r"run/data\.partial: cannot be written: No space left on device$"
            with pytest.raises(PrepareError, match=message):
                prepare(prepared[0], directory=run)
        assert not (run / "data.partial").exists() and not (run / "data").exists()
        shutil.rmtree(place, ignore_errors=True)


def test_what_a_killed_call_left_is_removed_and_said(prepared, tmp_path):
    config, expected = prepared
    run, aside = tmp_path / "run", tmp_path / "run" / "data.partial"
    larger = dataclasses.replace(config.vocabulary, size=150)
    prepare(dataclasses.replace(config, vocabulary=larger), directory=run)
    (run / "data").rename(aside)
    (run / "vocabulary").rename(aside / "vocabulary")
    damaged = shutil.copytree(run, tmp_path / "damaged")
    (damaged / "data.partial" / "manifest.json").write_text("{")
    for run in (damaged, tmp_path / "run"):
        aside, lines = run / "data.partial", list[str]()
        prepare(config, directory=run, say=lines.append)
        message = f"prepare: starting over; removing {aside}, left by an interrupted call"
        assert lines[0] == message and contents(run) == expected

    # The last step of a call that was killed before it is done by the next.
    for empty in (False, True):
        (run / "vocabulary").rename(run / "data" / "vocabulary")
        if empty:
            (run / "vocabulary").mkdir()
        prepare(config, directory=run)
        assert contents(run) == expected
