"""Which errors end a command for good, and which the next attempt may not meet."""

import errno
import gzip
import re
from pathlib import Path

import jax
import pytest

import flaxformer_mt
from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.config import ConfigError
from flaxformer_mt.data.corpus.pairs import CorpusError
from flaxformer_mt.data.corpus.text_files import zstd
from flaxformer_mt.data.prepare.encode_corpora import WorkerDied
from flaxformer_mt.errors import FAILED, FINAL, exit_status
from flaxformer_mt.files.reading import JsonError
from flaxformer_mt.interop import ExportError
from flaxformer_mt.planning import PlanningError
from flaxformer_mt.rundir import RunDirectoryError, WorkdirError
from flaxformer_mt.training.progress import DivergenceError

# Caught by their own rooms, answered to a client, or raised as a stop.
WITHIN = {"DeadEnd", "NotACandidate", "Refusal", "Stopped"}


def test_every_error_that_a_user_sees_has_the_one_base():
    rooted = re.compile(r"^class (\w+)\((?:Base|Runtime|Value|OS)?(?:Exception|Error)\):", re.M)
    files = Path(flaxformer_mt.__file__).parent.rglob("*.py")
    names = {name for path in files for name in rooted.findall(path.read_text(encoding="utf-8"))}
    assert names == {*WITHIN, "FlaxformerError"}


def raised(error: Exception, cause: BaseException | None = None) -> Exception:
    error.__cause__ = cause
    return error


UNKNOWN = jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no such topology")
SAFETENSORS = type("SafetensorError", (Exception,), {"__module__": "safetensors._rust"})()
GCSFS = type("HttpError", (Exception,), {"__module__": "gcsfs"})()
LARGE = "RESOURCE_EXHAUSTED: "

# No repetition mends these.
HOPELESS = [
    ConfigError("x"),
    DivergenceError("x"),
    raised(WorkdirError("x"), OSError(errno.ENAMETOOLONG, "x")),
    raised(CorpusError("x"), FileNotFoundError(errno.ENOENT, "x")),
    raised(CorpusError("x"), JsonError("x")),
    raised(CorpusError("x"), gzip.BadGzipFile("x")),
    raised(CorpusError("x"), zstd.ZstdError("x")),
    raised(ExportError("x"), SAFETENSORS),
    raised(OutputError("x"), raised(RunDirectoryError("x"), OSError(errno.ENAMETOOLONG, "x"))),
    raised(PlanningError("x"), UNKNOWN),
    NotADirectoryError(errno.ENOTDIR, "x"),
    # As libtpu says it of a program that exceeds the memory.
    jax.errors.JaxRuntimeError(f"{LARGE}XLA:TPU compile permanent error. Ran out of memory"),
]
# The next attempt may not meet these.
PASSING = [
    RunDirectoryError("x"),
    raised(WorkdirError("x"), OSError(errno.EIO, "x")),
    WorkerDied("a kind of PrepareError, but no fault of the data"),
    raised(CorpusError("x"), ConnectionResetError(errno.ECONNRESET, "x")),
    raised(CorpusError("x"), GCSFS),
    raised(OutputError("x"), OSError(errno.ENOSPC, "x")),
    OSError(errno.EIO, "x"),
    MemoryError(),
    jax.errors.JaxRuntimeError(f"{LARGE}Out of memory while trying to allocate"),
]


@pytest.mark.parametrize(
    ("error", "status"),
    [*((error, FINAL) for error in HOPELESS), *((error, FAILED) for error in PASSING)],
)
def test_the_exit_status_says_whether_a_repetition_helps(error, status):
    assert exit_status(error) == status
