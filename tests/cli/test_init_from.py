"""Taking another run's vocabulary along: whole or not at all."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.cli import resolve, train as command
from flaxformer_mt.config import default_config, freeze
from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.synthetic import pairs
from flaxformer_mt.data.vocabulary import Vocabularies, train_pair
from flaxformer_mt.parallel import Processes
from flaxformer_mt.rundir.layout import RunDirectory, create
from flaxformer_mt.training.instruments import Goodput

T = TypeVar("T")


class Killed(BaseException):
    """In place of a kill."""


_kill_in: list[int] = []
"""How many more files may be opened for writing; empty: any number."""


def _on_open(event: str, arguments: tuple) -> None:
    if event == "open" and _kill_in and isinstance(arguments[1], str):
        if set(arguments[1]) & set("wax+"):
            _kill_in[0] -= 1
            if _kill_in[0] < 0:
                _kill_in.clear()
                raise Killed


sys.addaudithook(_on_open)


@pytest.fixture
def source(tmp_path: Path) -> RunDirectory:
    run = create(tmp_path / "source", {"name": "test"}, ["train"])
    train_pair(list(pairs("train", 60)), VocabularyConfig(size=80, shared=False)).save(
        run.vocabulary
    )
    return run


def test_the_first_process_chooses_for_all_and_each_reads_when_it_needs_them(
    source: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other run may be training: a moment later another checkpoint is its best."""
    read: list[object] = []

    def load_params(run: RunDirectory, which: object) -> dict[str, jax.Array]:
        read.append(which)
        return {"w": jnp.ones(2)}

    class Second(Processes):
        def first(self, action: Callable[[], T]) -> Any:
            return 3  # what `action` gave there

    monkeypatch.setattr(resolve, "load_params", load_params)
    monkeypatch.setattr(resolve, "check_same_form", lambda *_: None)
    program: Any = types.SimpleNamespace(abstract=types.SimpleNamespace(params={}))
    vocabularies = Vocabularies.load(source.vocabulary)
    weights = resolve.weights_of(source, vocabularies, program, Second(1, 2))
    assert read == []
    assert isinstance(weights()["w"], np.ndarray), "no device holds them for all of training"
    assert read == [3]


@pytest.mark.parametrize("files", range(6))
def test_killed_at_any_file_there_is_no_half_a_vocabulary(
    source: RunDirectory, tmp_path: Path, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create(tmp_path / "run", {"name": "test"}, ["train"])
    seen = []

    def prepare(*_: object, directory: Path, **__: object) -> None:
        _kill_in.clear()
        seen.append(Vocabularies.load(directory / "vocabulary").digest)

    monkeypatch.setattr("flaxformer_mt.data.prepare.prepare", prepare)
    config = type("Config", (), {"data": None, "training": type("Training", (), {"seed": 1})})
    _kill_in[:] = [files]
    try:
        command._prepare(run, config, source)
    except Killed:
        assert not run.vocabulary.exists()
        command._prepare(run, config, source)
    finally:
        _kill_in.clear()
    assert seen == [Vocabularies.load(source.vocabulary).digest]


def test_the_first_process_says_whether_a_run_has_begun(tmp_path: Path) -> None:
    """Another host may see its folder as it was: it must not go another way than the others."""
    asked: list[bool] = []

    class Second(Processes):
        def first(self, action: Callable[[], T]) -> T:
            asked.append(True)
            if len(asked) > 1:
                raise Killed
            return True  # type: ignore[return-value]  # there, while this process sees none

    missing: Any = None
    with pytest.raises(Killed):  # and not: there is no run to begin from
        command._train(
            RunDirectory(tmp_path / "run"),
            freeze(default_config(), "made up"),
            "no such run",
            missing,
            missing,
            Second(number=1, count=2),
            Goodput(),
            None,
        )
