"""Programs of searches on one CPU, kept in memory and, ready to run, in files for the next start.

JAX's cache of compiled programs spares a process the compilation, but not the tracing and lowering
that find out which program it is, and which take longer than a sentence's search. Here a program is
known before that, by its `description`: all that could change it. Where `kept_entries` gives a
store, a file there holds the executable, with a digest. Only what was compiled here is
written: what XLA has read, it can't write again (findings/xla_cpu_serializes_once.sh).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import os
import pickle
import threading
from collections.abc import Hashable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.sharding import Mesh
from jax.stages import Compiled

from flaxformer_mt.data.processes import processors
from flaxformer_mt.parallel.compile_cache import compiled_afresh, kept_entries, machine
from flaxformer_mt.parallel.mesh import on_mesh
from flaxformer_mt.versions import package_versions

_LOGGER = logging.getLogger(__name__)
_PACKAGE = "flaxformer_mt."
_DIGEST = hashlib.sha256().digest_size
# Settings of JAX that say where programs are kept, and not what they are.
_OF_THE_CACHE = ("compilation_cache", "persistent_cache")
# XLA's default, but JAX remembers a program compiled with options apart from the same one without
# any, which may have been read from its cache.
_APART = {"xla_embed_ir_in_executable": False}
# In the place of a program that JAX can't write, so that its own cache is used from then on.
_UNWRITABLE = b"JAX cannot write this program\n"


class KeptPrograms:
    """Compiled programs by what they were compiled for. Each is compiled once, whichever threads
    ask for it."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Future[Compiled]] = {}
        self._lock = threading.Lock()

    def of(
        self, program: Any, arguments: tuple[Any, ...], settings: Mapping[str, Any], mesh: Mesh
    ) -> Compiled:
        """The jitted `program` for arguments of these forms and the static `settings`, which the
        compiled one doesn't take. The arguments may be abstract."""
        leaves, structure = jax.tree.flatten(arguments)
        forms = tuple(map(_form, leaves))
        key = (program, structure, forms, tuple(settings.items()), mesh, _jax_settings())
        with self._lock:
            future = self._known.get(key)
            is_new = future is None
            if future is None:
                future = self._known[key] = Future()
        if is_new:
            try:
                described = description(program, structure, forms, settings, mesh)
                future.set_result(_made(program, arguments, settings, mesh, described))
            except BaseException as error:
                with self._lock:  # it may succeed later
                    del self._known[key]
                future.set_exception(error)
        return future.result()


def description(
    program: Any,
    structure: Any,
    forms: tuple[Hashable, ...],
    settings: Mapping[str, Any],
    mesh: Mesh,
) -> str | None:
    """All that decides what a program is compiled to. None if it can't be told, as with a caller's
    own mask: its code may change."""
    devices = [(device.id, device.platform) for device in mesh.devices.flat]
    parts = [program.__name__, structure, forms, mesh.shape, devices]
    described = _fields([(name, settings[name]) for name in sorted(settings)])
    if described is None:
        return None
    return "\n".join([*map(repr, parts), described, _environment()])


def _described(setting: Any) -> str | None:
    """A static setting as text. None unless it is a plain value, or a tuple or one of our own
    dataclasses that holds only such settings."""
    kind = type(setting)
    if setting is None or kind in (bool, int, float, str):
        return repr(setting)
    if kind is tuple:
        return _fields(enumerate(setting))
    if not dataclasses.is_dataclass(setting) or not kind.__module__.startswith(_PACKAGE):
        return None
    names = [field.name for field in dataclasses.fields(setting)]
    fields = _fields([(name, getattr(setting, name)) for name in names])
    return None if fields is None else f"{kind.__module__}.{kind.__qualname__}{fields}"


def _fields(settings: Iterable[tuple[Any, Any]]) -> str | None:
    """Named settings as text; None if one of them has none."""
    described = {name: _described(setting) for name, setting in settings}
    return None if None in described.values() else repr(described)


def _form(leaf: Any) -> Hashable:
    """What a program knows of an argument."""
    aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    return aval.shape, str(aval.dtype), bool(aval.weak_type)


def sources_digest(package: Path) -> str:
    """A digest of the names and contents of a package's sources. It takes some 10 ms."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.is_file():  # and no editor's dangling link
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package)}\0{len(content)}\n".encode() + content)
    return digest.hexdigest()


# Taken now, with the code that this process runs: by the first search, files may have been edited.
_SOURCES = sources_digest(Path(__file__).parents[2])


def _jax_settings() -> tuple[tuple[str, Hashable], ...]:
    """JAX's settings, as they are in this thread and context, but for those of its cache."""
    return tuple(pair for pair in jax.config.values.items() if not _is_of_the_cache(pair[0]))


@functools.cache
def _is_of_the_cache(name: str) -> bool:
    return any(part in name for part in _OF_THE_CACHE)


def _environment() -> str:
    """Versions, the kind of CPU, and settings of this process."""
    versions = package_versions(("jax", "jaxlib", "flax", "numpy"))
    jax_settings = sorted((name, str(setting)) for name, setting in _jax_settings())
    flags = os.environ.get("XLA_FLAGS", "")
    devices = jax.device_count(), processors()
    return repr([versions, _SOURCES, machine(), jax_settings, flags, devices])


def _made(
    program: Any,
    arguments: tuple[Any, ...],
    settings: Mapping[str, Any],
    mesh: Mesh,
    described: str | None,
) -> Compiled:
    """The program from its file, or compiled and then kept there. JAX's own cache serves those
    that can't be in such a file."""
    entries = kept_entries() if described is not None else None
    name = hashlib.sha256((described or "").encode()).hexdigest()
    content = None if entries is None else entries.get(name)
    if entries is None or content == _UNWRITABLE:
        with on_mesh(mesh):
            return program.lower(*arguments, **settings).compile()
    if content is not None:
        if (compiled := _loaded(content, mesh)) is not None:
            return compiled
        _LOGGER.warning(
            "%s: a kept program is damaged; it is compiled and written again", entries.file(name)
        )

    with on_mesh(mesh), compiled_afresh() as can_be_kept:
        compiled = program.lower(*arguments, **settings).compile(_APART)
    if can_be_kept and (content := _content(compiled)) is not None:
        entries.put(name, content)
    return compiled


def _content(compiled: Compiled) -> bytes | None:
    """A file's content, which says so if JAX can't write the program. None if XLA fails: it may
    write the same program in another process."""
    try:
        pickled = pickle.dumps(serialize(compiled))
    except jax.errors.JaxRuntimeError:
        return None
    except (NotImplementedError, ValueError, TypeError, AttributeError, pickle.PicklingError):
        return _UNWRITABLE
    return hashlib.sha256(pickled).digest() + pickled


def _loaded(content: bytes, mesh: Mesh) -> Compiled | None:
    """The program of a file's content; None if that is damaged."""
    digest, pickled = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(pickled).digest() != digest:
        return None
    try:
        executable, in_tree, out_tree = pickle.loads(pickled)
        devices = [*mesh.devices.flat]
        return deserialize_and_load(executable, in_tree, out_tree, execution_devices=devices)
    except Exception:  # whatever XLA says of a program that it can't load
        return None
