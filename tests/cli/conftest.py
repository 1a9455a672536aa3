"""Commands called in this process, which spares each test the seconds that imports take."""

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.grammar.text import pairs
from tests.data.prepare.corpora import write
from tests.decoding.runs import make_run


class Done(NamedTuple):
    """How a command ended: an error that is not explained is raised instead."""

    status: int
    output: str
    errors: str

    @property
    def last(self) -> str:
        """The last line for people."""
        return self.errors.rstrip("\n").rpartition("\n")[2]


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Runs a command, which ends with `status` if given; its exit status and what it wrote."""

    def call(*arguments: object, stdin: bytes = b"", status: int | None = None) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        ended_with = exit_status(*arguments)
        output, errors = (text.decode() for text in capfdbinary.readouterr())
        assert status is None or ended_with == status, errors
        return Done(ended_with, output, errors)

    return call


def run_captured(*arguments: object) -> Done:
    """Runs a command for a module's fixture, where `capfdbinary` can't be used."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = exit_status(*arguments)
    texts = []
    for stream in (output, errors):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Done(status, *texts)


def exit_status(*arguments: object) -> int:
    """Runs a command; the status may come from argparse."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.fixture(scope="session")
def workdir(tmp_path_factory):
    """A run of an untrained model with two checkpoints, which no test changes."""
    return make_run(tmp_path_factory.mktemp("runs") / "run", {1: 10.0, 2: 20.0}).path


@pytest.fixture
def corpus(tmp_path):
    """A folder with train and valid in two languages."""
    write(tmp_path / "corpus", "train", pairs("train", 120))
    write(tmp_path / "corpus", "valid", pairs("valid", 12))
    return tmp_path / "corpus"


def settings(folder: Path, **changes: object) -> list[str]:
    """Arguments for the built-in config `files:small`; `a__b=1` sets `a.b`."""
    values: dict[str, object] = {
        "model.dtype": "float32",
        "data.folder": folder,
        "data.train.mine.src": "train.en",
        "data.train.mine.tgt": "train.de",
        "data.valid.src": "valid.en",
        "data.valid.tgt": "valid.de",
        "data.vocabulary.size": 150,
        "data.batch.tokens": 4096,
    }
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    overrides = [f"--config.{key}={value}" for key, value in values.items()]
    return ["--config", "files:small", *overrides]
