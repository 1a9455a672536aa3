"""The exit status of an error: whether the same command may fare better when it is run again.

What restarts commands on machines that may be preempted (`launch/`) looks at nothing else.
"""

from __future__ import annotations

import errno
import gzip
import sys

FAILED = 1  # the next attempt may succeed: a full disk, a network, a machine that fails
FINAL = 2  # argparse's own for wrong usage, and for all else that no repetition mends

# What comes of what a user has asked for or given: settings, files, a training that diverges, which
# the same seed makes diverge again. By name, as other commands' rooms are not imported.
_FINAL = frozenset(
    f"flaxformer_mt.{name}"
    for name in """
    bulk.forms.BadLine bulk.reading.InputError bulk.state.OutputError
    cli.serve.ServeError
    config.freeze.ConfigError
    data.corpus.pairs.CorpusError data.plan.PlanError data.prepare.manifest.PrepareError
    data.sentencepiece_training.VocabularyError data.store.StoreError data.type_table.TypeTableError
    decoding.decode.DecodingError decoding.parts.LineError decoding.parts.OverlongError
    decoding.parts.PrefixError decoding.parts.TargetError
    evaluation.errors.ScoringError
    export.errors.ExportError export.errors.ModelImportError
    figures.errors.FigureError
    parallel.determinism.DeterminismError parallel.mesh.MeshError
    parsing.trees.TreeError
    planning.compile.PlanningError planning.hlo.HloError planning.topology.TopologyError
    reproduction.paper.RowError reproduction.result_file.ResultError
    rundir.errors.WorkdirError
    serving.keys.KeyFileError serving.settings.SettingsError
    storage.buckets.StorageError storage.files.JsonError
    training.optimizer.FreezeError training.profiling.ProfileError
    training.recovery.DivergenceError training.start_from.StartError
    """.split()
)
# A path that cannot be what it is asked to be; the first two can be no path at all.
_NO_PATHS = {errno.ENAMETOOLONG, errno.ELOOP}
_WRONG_PATHS = {*_NO_PATHS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL}
# Packages whose errors tell of damaged files, as those of Python's own decompressors do.
_READERS = {"backports", "safetensors"}


def exit_status(error: Exception) -> int:
    """FINAL or FAILED for an error that ends a command; of several processes the same for all."""
    status = FINAL if is_final(error) else FAILED
    processes = sys.modules.get("flaxformer_mt.parallel.processes")  # else this one is alone
    return status if processes is None else processes.settled_status(error, status)


def is_final(error: BaseException) -> bool:
    """Whether the same command would meet the same error again, as far as can be told.

    An error of ours that was raised from a failure of the machine or of the network is no more
    final than that.
    """
    kind = type(error)
    if kind.__module__.startswith("flaxformer_mt."):
        if getattr(error.__cause__, "errno", None) in _NO_PATHS:
            return True
        named = f"{kind.__module__}.{kind.__qualname__}" in _FINAL
        return named and (error.__cause__ is None or is_final(error.__cause__))
    if isinstance(error, OSError):
        # gzip's and bz2's errors of damaged data have no number.
        unnumbered = kind in (OSError, gzip.BadGzipFile) and error.errno is None
        return unnumbered or error.errno in _WRONG_PATHS
    if isinstance(error, MemoryError):
        return False
    if kind.__module__.split(".")[0] in sys.stdlib_module_names | _READERS:
        return True  # of what was read: no number, no JSON, no package of that name
    # JAX and clients of object stores. XLA names the one kind so; for TPUs it also says so of a
    # program that exceeds their memory.
    text = str(error)
    return "INVALID_ARGUMENT" in text or "compile permanent error" in text
