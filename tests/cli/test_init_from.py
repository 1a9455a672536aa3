"""Beginning with another run's weights: the first process decides for all."""

import types
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from flaxformer_mt.api import training
from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.synthetic import pairs
from flaxformer_mt.data.vocabulary import train_pair
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir.layout import RunDirectory, create

T = TypeVar("T")


class Second(Processes):
    """The second of two processes, which is given what the first one found."""

    def __init__(self, found: Any) -> None:
        super().__init__(number=1, count=2)
        self.found = found

    def first(self, action: Callable[[], T]) -> Any:
        return self.found


def test_the_first_process_chooses_for_all_and_each_reads_when_it_needs_them(tmp_path, monkeypatch):
    """The other run may be training: a moment later another checkpoint is its best."""
    read: list[object] = []

    def load_params(run: RunDirectory, which: object) -> dict[str, jax.Array]:
        read.append(which)
        return {"w": jnp.ones(2)}

    source = create(tmp_path / "source", {"name": "test"}, ["train"])
    vocabularies = train_pair(list(pairs("train", 60)), VocabularyConfig(size=80, shared=False))
    vocabularies.save(source.vocabulary)
    monkeypatch.setattr(training, "load_params", load_params)
    monkeypatch.setattr(training, "check_same_form", lambda *_: None)
    program: Any = types.SimpleNamespace(abstract=types.SimpleNamespace(params={}))
    weights = training.weights_of(source, vocabularies, program, Second(3))
    assert read == []
    assert isinstance(weights()["w"], np.ndarray), "no device holds them for all of training"
    assert read == [3]


def test_the_first_process_says_whether_a_run_has_begun(tmp_path):
    """Another host may see its folder as it was: it must not go another way than the others."""
    run = RunDirectory(tmp_path / "run")
    assert training.run_to_start_from(run, "no such run", Second(True)) is None
