"""One checkpoint on disk: its items, its description, and verified reading.

A checkpoint is a folder of Orbax items. Trees of arrays (`params`, `opt_state`, `ema`) are nested
dictionaries named by path, so that readers don't need the writer's classes. `meta` lists every leaf
with dtype, shape and digest and has a checksum itself: Orbax restores flipped bytes silently.
Adapters belong to the weights in the folder `base` beside it, whose digest and their scale are in
`meta`, too.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
import tensorstore
from jax.experimental import multihost_utils

from flaxformer_mt.files.reading import read_file
from flaxformer_mt.rundir import CheckpointError, DamagedError, UnreadError
from flaxformer_mt.rundir.digests import flatten_paths, tree_digest
from flaxformer_mt.rundir.paths import COMMITTED, check_readable, is_remote

if TYPE_CHECKING:
    import orbax.checkpoint as ocp

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

META_VERSION = 1
BASE = "base"  # weights that don't train, beside the checkpoints of their adapters
_MANIFEST = "manifest.ocdbt"
_PATIENCE = 120  # seconds until all hosts list the same files: NFS may lag by 60
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_REFUSED = re.compile("RESOURCE_EXHAUSTED|PERMISSION_DENIED")
_OS_ERROR = re.compile(r"(?:os_error_code='|OS error )(\d+)")


def composite(trees: Mapping[str, Any], documents: Mapping[str, Any]) -> ocp.args.Composite:
    """Orbax arguments that save `trees` of arrays, JSON `documents`, and their description.

    Digests are taken here, before the caller can donate the arrays.
    """
    import orbax.checkpoint as ocp  # which takes longer to load than weights to read

    # A copy: a thread saves it while the caller may change the content.
    copied: dict[str, Any] = json.loads(json.dumps(documents))
    meta = copied.pop("meta") | {
        "format_version": META_VERSION,
        "leaves": {name: _describe(tree) for name, tree in trees.items()},
        "documents": {name: _checksum(content) for name, content in copied.items()},
    }
    # Orbax refuses a tree without leaves, such as the state of plain gradient descent.
    items: dict[str, Any] = {
        name: ocp.args.StandardSave(_nested(tree))
        for name, tree in trees.items()
        if meta["leaves"][name]
    }
    copied["meta"] = {"content": meta, "sha256": _checksum(meta)}
    items |= {name: ocp.args.JsonSave(content) for name, content in copied.items()}
    return ocp.args.Composite(**items)


def read_meta(folder: Path) -> dict[str, Any]:
    """A checkpoint's description. Raises DamagedError, UnreadError, CheckpointError if too new."""
    document = _read_json(folder, "meta")
    content = document.get("content")
    if not isinstance(content, dict) or document.get("sha256") != _checksum(content):
        raise DamagedError(f"{folder}: meta does not match its checksum")
    if content["format_version"] > META_VERSION:
        version = content["format_version"]
        raise CheckpointError(f"{folder}: has format version {version}: upgrade flaxformer-mt")
    return content


def read_document(folder: Path, meta: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The JSON document `name`, checked. Raises DamagedError."""
    document = _read_json(folder, name)
    if meta["documents"].get(name) != _checksum(document):
        raise DamagedError(f"{folder}: {name} does not match its checksum")
    return document


def read_tree(folder: Path, meta: Mapping[str, Any], name: str, abstract: Any) -> Any:
    """The tree `name` with the structure and shardings of `abstract`, every leaf checked.

    Leaves of `abstract` are arrays or ShapeDtypeStructs, without a sharding for the first local
    device. Raises CheckpointError for another form, DamagedError for missing files or wrong
    digests, UnreadError where the machine fails, and WorkdirError for a path that can't be read.
    """
    check_readable(folder)
    targets = {path: _target(leaf) for path, leaf in flatten_paths(abstract).items()}
    check_form(folder, meta, name, targets)
    arrays: dict[str, Any] = {}
    with damaged_for_all(f"{folder}: {name}"):
        if targets:
            arrays = reading(folder, name, lambda: _read_arrays(folder / name, targets))

    digests = tree_digest(arrays)
    wrong = [path for path in targets if digests[path] != meta["leaves"][name][path]["digest"]]
    if wrong:
        raise DamagedError(
            f"{folder}: {name}: {len(wrong)} of {len(targets)} arrays do not match their digests, "
            f"the first being {wrong[0]}"
        )
    return jax.tree.unflatten(jax.tree.structure(abstract), [arrays[path] for path in targets])


def read_weights(folder: Path) -> dict[str, Any]:
    """A checkpoint's parameters, or their moving average, as nested dictionaries of arrays."""
    return read_described(folder)[1]


def read_described(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A checkpoint's description, and `read_weights`, whose digests show that they are its own.

    Adapters are merged into the weights beside which they were trained.
    """
    meta = read_meta(folder)
    weights = "ema" if "ema" in meta["leaves"] else "params"
    trained = read_tree(folder, meta, weights, _form(meta, weights))
    if adapters := meta.get("adapters"):
        from flaxformer_mt.low_rank import merged  # most runs have none

        trained = merged(read_base(folder.parent, adapters["base"]), trained, adapters["scale"])
    return meta, trained


def base_digest(directory: Path) -> str:
    """Tells the weights in `directory/base` from others. Raises DamagedError."""
    return _checksum(read_meta(directory / BASE))


def read_base(directory: Path, digest: str, abstract: Any = None) -> Any:
    """The weights with this `base_digest`, which don't train: as they are, or by all processes
    together as `abstract` says. Raises CheckpointError."""
    folder = directory / BASE
    alone = contextlib.nullcontext()
    try:
        with alone if abstract is None else damaged_for_all(f"{folder}:"):
            meta = read_meta(folder)
            if _checksum(meta) != digest:
                raise DamagedError(f"{folder}: holds other weights")
        return read_tree(folder, meta, "params", abstract or _form(meta, "params"))
    except DamagedError as error:
        raise CheckpointError(
            f"{error}; all checkpoints beside it are adapters of the weights that were there: "
            "restore them from a copy of this run"
        ) from error


def _form(meta: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The shapes and dtypes of a tree, from a checkpoint's description."""
    return _nested(
        {
            path: jax.ShapeDtypeStruct(tuple(leaf["shape"]), jax.numpy.dtype(leaf["dtype"]))
            for path, leaf in meta["leaves"][name].items()
        }
    )


def read_back(folder: Path) -> None:
    """Raises DamagedError if a checkpoint just written lacks its description or an index of arrays.

    Orbax writes each process's arrays separately, and in the end merges those that it finds.
    """
    meta = read_meta(folder)
    for name, leaves in meta["leaves"].items():
        if leaves and not reading(folder, name, (folder / name / _MANIFEST).read_bytes):
            raise DamagedError(f"{folder}: {name}/{_MANIFEST} is empty")


def check_form(
    folder: Path, meta: Mapping[str, Any], name: str, expected: Mapping[str, Any]
) -> None:
    """Raises CheckpointError if `name` has other leaves, shapes or dtypes than `expected`."""
    stored = meta["leaves"].get(name)
    advice = "use the settings that the run was started with, or a new run directory"
    if stored is None:
        raise CheckpointError(f"{folder}: has no {name}, which these settings need; {advice}")

    absent = [path for path in expected if path not in stored]
    if absent:
        raise CheckpointError(
            f"{folder}: {name}: the checkpoint lacks {_first_of(absent)}; {advice}"
        )
    unknown = [path for path in stored if path not in expected]
    if unknown:
        raise CheckpointError(
            f"{folder}: {name}: these settings have no {_first_of(unknown)}; {advice}"
        )

    for path, leaf in expected.items():
        shape = tuple(stored[path]["shape"])
        dtype = stored[path]["dtype"]
        if (shape, dtype) != (tuple(leaf.shape), str(leaf.dtype)):
            raise CheckpointError(
                f"{folder}: {name}: {path} is {dtype}{list(shape)}, but "
                f"{leaf.dtype}{list(leaf.shape)} with these settings; {advice}"
            )


def _first_of(paths: Sequence[str]) -> str:
    """The first of some paths, and how many there are besides."""
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def _describe(tree: Any) -> dict[str, Any]:
    digests = tree_digest(tree)
    return {
        path: {"dtype": str(leaf.dtype), "shape": list(leaf.shape), "digest": digests[path]}
        for path, leaf in flatten_paths(tree).items()
    }


def _nested(tree: Any) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, leaf in flatten_paths(tree).items():
        *branches, name = path.split("/")
        branch = nested
        for key in branches:
            branch = branch.setdefault(key, {})
        branch[name] = leaf
    return nested


def _target(leaf: Any) -> jax.ShapeDtypeStruct:
    """The form of a leaf to read, on its devices or on the first local one."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _read_arrays(place: Path, targets: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, Any]:
    """The arrays at their paths: by TensorStore, which Orbax reads with, where that is all that it
    takes; by Orbax if they are for several devices or in a bucket, or if TensorStore fails, since
    Orbax knows its other formats and says what is wrong."""
    if not is_remote(place) and all(
        len(leaf.sharding.device_set) == 1 for leaf in targets.values()
    ):
        try:
            return _read_by_tensorstore(place, targets)
        except MemoryError:  # Orbax would need more
            raise
        except Exception as error:  # TensorStore raises anything
            _LOGGER.debug("%s: TensorStore alone can't read it: %s", place, first_line(error))
    return _read_by_orbax(place, targets)


def _read_by_tensorstore(
    place: Path, targets: Mapping[str, jax.ShapeDtypeStruct]
) -> dict[str, jax.Array]:
    # No address, in which "%", "#" and "?" have meanings of their own.
    base = {"driver": "file", "path": f"{place.absolute()}/"}
    opening = {
        path: tensorstore.open(
            {
                "driver": "zarr",
                "kvstore": {"driver": "ocdbt", "base": base},
                "path": path.replace("/", "."),
                "dtype": str(leaf.dtype),
                "schema": {"domain": {"shape": list(leaf.shape)}},
            }
        )
        for path, leaf in targets.items()
    }
    reading = {path: store.result().read() for path, store in opening.items()}
    return {
        path: jax.device_put(reading[path].result(), leaf.sharding)
        for path, leaf in targets.items()
    }


def _read_by_orbax(place: Path, targets: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, Any]:
    import orbax.checkpoint as ocp
    from etils import epath

    # Without a Checkpointer, at whose end all processes would wait for one that couldn't read.
    with contextlib.closing(ocp.StandardCheckpointHandler()) as reader:
        if not epath.Path(place).exists():
            raise FileNotFoundError(f"{place} is missing")
        tree = reader.restore(epath.Path(place), args=ocp.args.StandardRestore(_nested(targets)))
    return flatten_paths(tree)


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    document = reading(folder, name, lambda: json.loads(read_file(folder / name / "metadata")))
    if not isinstance(document, dict):
        raise DamagedError(f"{folder}: {name} has changed since it was written")
    return document


def _checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def damaged_for_all(place: str) -> Iterator[None]:
    """Raises DamagedError in every process if the block does in one; `place` is for the others."""
    damage = None
    try:
        yield
    except DamagedError as error:
        damage = error
    if not everywhere(damage is None):
        raise damage or DamagedError(f"{place} cannot be read on another host")


def everywhere(ok: bool) -> bool:
    """Whether all processes are `ok`; otherwise those that succeeded would wait forever."""
    if jax.process_count() == 1:
        return ok
    return bool(np.all(multihost_utils.process_allgather(np.asarray(ok))))


def listed_alike(directory: Path, list_steps: Callable[[Path], list[int]]) -> list[int]:
    """The steps of a directory, once every process lists the same. Raises CheckpointError."""
    steps = list_steps(directory)
    if jax.process_count() == 1:
        return steps
    for _ in range(_PATIENCE):  # counted, so that all give up in the same round
        # JAX's int32 holds 31 bits.
        digest = np.int32(zlib.crc32(str(steps).encode()) >> 1)
        if len(np.unique(multihost_utils.process_allgather(digest))) == 1:
            return steps
        time.sleep(1)
        steps = list_steps(directory)
    seen = ", ".join(map(str, steps)) or "none"
    raise CheckpointError(
        f"{directory}: hosts see different checkpoints (here {seen}): check how their shared "
        "folder is mounted"
    )


def reading(folder: Path, name: str, read: Callable[[], T]) -> T:
    """An item of a checkpoint. Raises DamagedError, and UnreadError where the machine fails."""
    try:
        if not is_remote(folder):
            os.stat(folder / name)  # Orbax takes any failure for absence
            _check_files(folder / name)
        return read()
    except DamagedError:
        raise
    except Exception as error:  # Orbax and TensorStore raise anything, from KeyError on
        if not _is_machine_failure(folder, error):
            raise DamagedError(f"{folder}: {name} cannot be read: {first_line(error)}") from error
        raise UnreadError(
            f"{folder}: {name} cannot be read: {first_line(error)}; run the command again; if that "
            "persists, move the folder elsewhere"
        ) from error


def _check_files(item: Path) -> None:
    """Raises DamagedError for a FIFO or a device, whose reading might never end."""
    for path in item.rglob("*"):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise DamagedError(f"{path}: is not a regular file")


def _is_machine_failure(folder: Path, error: Exception) -> bool:
    """Whether memory, permissions, a disk or a store failed, which is no damage."""
    for cause in _chain(error):
        if isinstance(cause, MemoryError) or _REFUSED.search(str(cause)):
            return True
    if not is_remote(folder):
        return not _os_errors(error) <= _MISSING
    try:
        (folder / COMMITTED).read_bytes()
    except Exception as refused:
        return not isinstance(refused, FileNotFoundError)
    return False


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes: Orbax wraps TensorStore's, which give the reason."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def _os_errors(error: BaseException) -> set[int]:
    codes: set[int] = set()
    for link in _chain(error):
        codes.update(int(code) for code in _OS_ERROR.findall(str(link)))
        if isinstance(link, OSError):  # Orbax's own have no number
            missing = isinstance(link, FileNotFoundError)
            codes.add(link.errno or (errno.ENOENT if missing else errno.EIO))
    return codes


def hush() -> None:
    """Silences Orbax for this process, which logs a failure several times: users get one error."""
    for logger in ("absl", "asyncio"):
        logging.getLogger(logger).addFilter(_is_news)  # adding it again has no effect
    if getattr(sys.unraisablehook, "func", None) is not _complain:
        sys.unraisablehook = functools.partial(_complain, sys.unraisablehook)


def first_line(error: BaseException) -> str:
    """The error in one line, its reason first; TensorStore adds pages of specification."""
    text = str(error).strip().split("\n", 1)[0][:300]
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    reasons = [os.strerror(code) for code in sorted(_os_errors(error))]
    return ": ".join([*(reason for reason in reasons if reason not in line), line])


def _is_news(record: logging.LogRecord) -> bool:
    abandoned = "exception was never retrieved" in record.getMessage()
    return not abandoned and "/orbax/checkpoint/" not in record.pathname


def _complain(hook: Callable[[Any], Any], unraisable: Any) -> None:
    """Passes on all but failed reads' coroutines and closed event loops."""
    source = getattr(unraisable.object, "cr_code", None)
    abandoned = source is not None and "/orbax/checkpoint/" in source.co_filename
    if not abandoned and str(unraisable.exc_value) != "Event loop is closed":
        hook(unraisable)
