"""A small corpus in files, and a run trained on it, for tests of whole commands."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from flaxformer_mt.grammar.text import pairs
from tests.cli.conftest import run as run, settings, workdir as workdir
from tests.conftest import ROOT, WARNINGS, environment, made_once
from tests.data.prepare.corpora import write

PYTHON = [sys.executable, *WARNINGS]
PROGRAM = [*PYTHON, "-m", "flaxformer_mt.cli.main"]


def run_program(
    *arguments: object, stdin: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs `flaxformer-mt ARGUMENTS` as a user's shell would."""
    return subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        cwd=ROOT,
        env=environment(**variables),
        timeout=500,
    )


def ran(*command: object) -> subprocess.CompletedProcess[str]:
    """Runs another program to its end."""
    return subprocess.run([*map(str, command)], capture_output=True, encoding="utf-8", timeout=500)


def started(
    *arguments: object, new_group: bool = False, streams: Mapping[str, int] = {}, **variables: str
) -> subprocess.Popen[str]:
    """Starts `flaxformer-mt ARGUMENTS`; what it says is in a pipe."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        cwd=ROOT,
        env=environment(**variables),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=new_group,
        **streams,  # type: ignore[call-overload]
    )


def wait_until(reached: Callable[[], object], *processes: subprocess.Popen[str]) -> None:
    """Waits for something that these living processes are to bring about."""
    while not reached():
        for process in processes:
            assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.005)


# The smallest sensible training; the same keys fit every config.
SMALL = {
    "data.vocabulary.size": 300,
    "data.batch.tokens": 1024,
    "data.batch.max_shapes": 2,
    "data.filter.max_length": 64,
    "model.max_length": 64,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.d_model": 32,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.d_k": 16,
    "model.d_v": 16,
    "training.steps": 20,
    "training.log_every": 5,
    "training.validate_every": 10,
    "training.save_every": 5,
    "training.keep_for_average": 3,
    "decoding.max_extra_tokens": 10,
}


def tiny(corpus: Path) -> list[str]:
    """Arguments of the smallest sensible training on `corpus`."""
    changes = {
        "data.test.held_out.src": "test.en",
        "data.test.held_out.tgt": "test.de",
        **SMALL,
        "model.max_length": 128,  # the test set has sentences of up to 68 tokens
    }
    return settings(corpus, **changes)


def make(folder: Path) -> None:
    """`corpus` with train.en, train.de and so on, of the built-in grammar; `run` trained on it."""
    corpus = folder / "corpus"
    for split, size in (("train", 400), ("valid", 20), ("test", 20)):
        write(corpus, split, pairs(split, size))
    done = run_program("train", *tiny(corpus), "--workdir", folder / "run")
    assert done.returncode == 0 and "finished at step 20" in done.stderr, done.stderr


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The texts that `trained` was trained on."""
    return made_once("trained", make) / "corpus"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run directory."""
    shared = made_once("trained", make) / "run"
    return Path(shutil.copytree(shared, tmp_path_factory.mktemp("trained") / "run"))
