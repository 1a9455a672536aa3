"""The model's files inside the package, and the run directory that is made of them.

config.json        the resolved configuration of the run that trained it
vocabulary.model   its SentencePiece model, for both sides
training_text.json what is known of the lines that it was trained on
weights.npz        its parameters by path, in bfloat16
README.md          its card: text, licence, recipe, score
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import io
import json
import os
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from flaxformer_mt.config.schema import TrainingConfig
from flaxformer_mt.data.training_text import TrainingText
from flaxformer_mt.data.vocabulary import Vocabularies, Vocabulary
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.rundir import WorkdirError, layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.rundir.layout import RunDirectory, Status
from flaxformer_mt.rundir.paths import as_path, check_writable, is_remote, write_json

_BFLOAT16 = jnp.dtype("bfloat16")
ORIGIN = "the model that comes with flaxformer_mt"


def demo_run(workdir: str | os.PathLike[str]) -> RunDirectory:
    """The run directory `workdir` with the model that comes with the package, made unless it is
    there: for `translate`, `evaluate`, `serve`, or as the start of a run of your own.

    Raises WorkdirError if another run or other files are there, and if it can't be written.
    """
    run = RunDirectory(as_path(workdir))
    check_writable(run.path)
    if is_remote(run.path):
        raise WorkdirError(f"{run}: is not a local folder; write to one, then copy it")
    if _is_there(run):
        return run

    path = run.path.absolute()  # "." has no name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as aside:
            _write_run(aside, importlib.resources.files(__package__))
    except OSError as error:
        reason = error.strerror or error
        raise WorkdirError(f"{error.filename or run}: cannot be written: {reason}") from error
    return run


def _is_there(run: RunDirectory) -> bool:
    """Whether `run` is this model's. Raises WorkdirError if something else is there."""
    if not run.path.exists():
        return False
    if not run.path.is_dir():
        raise WorkdirError(f"{run}: is a file; choose a directory for the demo model")
    if layout.has_record(run):
        status = layout.read_status(run)
        if status is not None and status.reason == ORIGIN:
            return True
        raise WorkdirError(f"{run}: holds another run; choose another directory")
    if any(run.path.iterdir()):
        raise WorkdirError(f"{run}: is not empty; choose another directory")
    return False


def _write_run(path: Path, package: Traversable) -> None:
    run = layout.create(path, _read_json(package, "config.json"), ["demo"])
    write_json(run.training_text, _read_json(package, "training_text.json"))
    vocabulary = Vocabulary((package / "vocabulary.model").read_bytes())
    Vocabularies(vocabulary, vocabulary).save(run.vocabulary)

    params = unflatten_dict(weights((package / "weights.npz").read_bytes()), sep="/")
    with Checkpoints(run.checkpoints, TrainingConfig()) as checkpoints:
        # Without an optimizer's state: other runs start from these weights, but this one can't be
        # resumed.
        checkpoints.save(Snapshot(step=0, params=params, opt_state={}, position={}))
    layout.write_status(run, Status(state="finished", step=0, reason=ORIGIN))


def _read_json(package: Traversable, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((package / name).read_text("utf-8"))
    return content


def weights(content: bytes) -> dict[str, np.ndarray]:
    """The parameters by path, in float32, of a `weights.npz`.

    NumPy's format has no bfloat16: an array holds the 16 bits of each number as an integer.
    """
    with np.load(io.BytesIO(content)) as arrays:
        return {path: bits.view(_BFLOAT16).astype(np.float32) for path, bits in arrays.items()}


def write(
    folder: Path,
    config: Mapping[str, Any],
    vocabularies: Vocabularies,
    params: Mapping[str, Any],
    training_text: TrainingText,
) -> None:
    """Writes the package's files of a model, but not its card, into `folder`.

    `params` are rounded to bfloat16. Raises ValueError for a vocabulary of each side: the files
    hold one of both.
    """
    if not vocabularies.shared:
        raise ValueError("the demo model's sides share one vocabulary")
    write_json(folder / "config.json", dict(config))
    write_json(folder / "training_text.json", dataclasses.asdict(training_text))
    (folder / "vocabulary.model").write_bytes(vocabularies.src.model)
    bits: dict[str, Any] = {  # NumPy's types take any keyword for a switch
        path: np.asarray(array).astype(_BFLOAT16).view(np.uint16)
        for path, array in flatten_paths(params).items()
    }
    np.savez_compressed(folder / "weights.npz", **bits)
