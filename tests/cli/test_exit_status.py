"""Which errors end a command for good, and which the next attempt may not meet."""

from __future__ import annotations

import ast
import errno
import gzip
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import flaxformer_mt
from flaxformer_mt.bulk.state import OutputError
from flaxformer_mt.cli.exit_status import _FINAL, is_final
from flaxformer_mt.config import ConfigError
from flaxformer_mt.data.corpus.pairs import CorpusError
from flaxformer_mt.data.corpus.paths import require_file
from flaxformer_mt.data.corpus.text_files import zstd
from flaxformer_mt.data.prepare.workers import WorkerDied
from flaxformer_mt.export.errors import ModelImportError
from flaxformer_mt.planning.topology import TopologyError
from flaxformer_mt.rundir.errors import RunDirectoryError, WorkdirError
from flaxformer_mt.storage.files import JsonError
from flaxformer_mt.training.recovery import DivergenceError

# The next attempt may find what this one has not: a disk, a bucket, memory, a port, a run that
# another process has let go of.
PASSING = """
    cli.streams.Stopped
    data.pipeline.WorkerError data.prepare.workers.WorkerDied
    evaluation.comet.CometError
    parallel.processes.ProcessError
    rundir.errors.CheckpointError rundir.errors.DamagedError rundir.errors.RunDirectoryError
    rundir.errors.UnreadError
    serving.server.ServerError
    training.goodput.GoodputError training.trial.TrialError
""".split()
# Caught by their own rooms, or answered to a client.
WITHIN = """
    bulk.state._Damage data.corpus.json_records.NoText data.grammar.phrases.DeadEnd
    serving.batching.ModelEnded serving.batching.NotServing serving.batching.QueueFull
    serving.engine.PairRefused serving.refusals.Refusal
""".split()


def errors() -> Iterator[str]:
    """Every exception class of the package, by module and name."""
    package = Path(flaxformer_mt.__file__).parent
    known = {"BaseException", "Exception", "OSError", "RuntimeError", "ValueError"}
    classes = []
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                classes.append((module, node.name, bases))
    before = -1
    while before != len(known):  # until no class has a base that has been found since
        before = len(known)
        known |= {name for _, name, bases in classes if bases & known}
    return (f"{module}.{name}" for module, name, bases in classes if bases & known)


def test_every_error_is_decided_on() -> None:
    """A new one belongs into `exit_status`, or into one of the lists here."""
    final = [name.removeprefix("flaxformer_mt.") for name in _FINAL]
    assert sorted(errors()) == sorted([*final, *PASSING, *WITHIN])


def raised(error: Exception, cause: BaseException | None = None) -> Exception:
    error.__cause__ = cause
    return error


UNKNOWN = jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no such topology")
SAFETENSORS = type("SafetensorError", (Exception,), {"__module__": "safetensors._rust"})()
LARGE = "RESOURCE_EXHAUSTED: "


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("x"),
        DivergenceError("x"),
        WorkdirError("x"),
        raised(WorkdirError("x"), OSError(errno.ENAMETOOLONG, "x")),
        raised(CorpusError("x"), FileNotFoundError(errno.ENOENT, "x")),
        raised(ConfigError("x"), ZeroDivisionError()),
        raised(CorpusError("x"), JsonError("x")),
        raised(CorpusError("x"), gzip.BadGzipFile("x")),
        raised(CorpusError("x"), OSError("bz2's, of invalid data")),
        raised(CorpusError("x"), zstd.ZstdError("x")),
        raised(ModelImportError("x"), SAFETENSORS),
        raised(CorpusError("x"), OSError(errno.ELOOP, "x")),
        raised(RunDirectoryError("x"), OSError(errno.ELOOP, "x")),
        raised(OutputError("x"), raised(RunDirectoryError("x"), OSError(errno.ENAMETOOLONG, "x"))),
        raised(TopologyError("x"), UNKNOWN),
        NotADirectoryError(errno.ENOTDIR, "x"),
        # As libtpu says it of a program that exceeds the memory.
        jax.errors.JaxRuntimeError(f"{LARGE}XLA:TPU compile permanent error. Ran out of memory"),
    ],
)
def test_what_no_repetition_mends(error: Exception) -> None:
    assert is_final(error)


@pytest.mark.parametrize(
    "error",
    [
        RunDirectoryError("x"),
        raised(WorkdirError("x"), OSError(errno.EIO, "x")),
        WorkerDied("a kind of PrepareError, but no fault of the data"),
        raised(CorpusError("x"), ConnectionResetError(errno.ECONNRESET, "x")),
        raised(CorpusError("x"), type("HttpError", (Exception,), {"__module__": "gcsfs"})()),
        raised(OutputError("x"), RunDirectoryError("x")),
        raised(OutputError("x"), OSError(errno.ENOSPC, "x")),
        OSError(errno.EIO, "x"),
        MemoryError(),
        jax.errors.JaxRuntimeError(f"{LARGE}Out of memory while trying to allocate"),
        jax.errors.JaxRuntimeError("UNAVAILABLE: Socket closed"),
    ],
)
def test_what_the_next_attempt_may_not_meet(error: Exception) -> None:
    assert not is_final(error)


def test_a_missing_file_is_final_and_a_store_that_does_not_answer_is_not(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as missing:
        require_file("absent", str(tmp_path), "data.train.mine.src")
    assert is_final(missing.value)
