"""Programs of searches in files: found again, unless anything differs or is damaged."""

import contextlib
import dataclasses
import functools
import importlib
import logging
import os
import pkgutil
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.decoding import masks
from flaxformer_mt.decoding.masks.at_least import AtLeast
from flaxformer_mt.decoding.masks.copies import CopiedSymbols
from flaxformer_mt.decoding.masks.forbidden import ForbiddenPhrases
from flaxformer_mt.decoding.masks.repeats import NoRepeats
from flaxformer_mt.decoding.masks.trees import Brackets, TreeShape
from flaxformer_mt.decoding.run import kept_programs, programs
from flaxformer_mt.decoding.run.arrays import empty_arrays
from flaxformer_mt.decoding.run.kept_programs import KeptPrograms, description, sources_digest
from flaxformer_mt.decoding.search.settings import Rules, SearchNumbers
from flaxformer_mt.parallel import compile_cache
from flaxformer_mt.parallel.compile_cache import Entries
from flaxformer_mt.parallel.mesh import local_mesh, on_mesh
from tests.decoding.examples import tiny

TRACED: list[int] = []
HIDDEN: list[bool] = []


@functools.partial(jax.jit, static_argnames=("power",))
def powers(numbers: jax.Array, *, power: int) -> jax.Array:
    TRACED.append(power)
    return numbers**power


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a new start of the program finds what earlier ones have compiled."""
    monkeypatch.setattr(kept_programs, "kept_entries", lambda: Entries(tmp_path, ending="program"))
    TRACED.clear()
    HIDDEN.clear()
    powers.clear_cache()
    return tmp_path


def started(numbers, power: int) -> list[float]:
    """The result in a process that has compiled nothing yet."""
    powers.clear_cache()
    program = KeptPrograms().of(powers, (numbers,), {"power": power}, local_mesh())
    return np.asarray(program(numbers)).tolist()


def test_the_next_start_traces_nothing(folder):
    numbers = np.arange(4, dtype=np.float32)
    assert started(numbers, 3) == started(numbers, 3) == [0, 1, 8, 27]
    assert TRACED == [3] and len(os.listdir(folder)) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda: started(np.arange(4, dtype=np.float32), 2),
        lambda: started(np.arange(5, dtype=np.float32), 3),
        lambda: started(np.arange(4, dtype=np.int32), 3),
        lambda: started(jnp.arange(4, dtype=np.float32) * 1.0, 2),
    ],
    ids=["a setting", "a shape", "a type", "both"],
)
def test_another_program_is_another_file(folder, change):
    started(np.arange(4, dtype=np.float32), 3)
    change()
    assert len(TRACED) == 2 == len(os.listdir(folder))


@pytest.mark.parametrize("changed", ["source", "flags", "JAX", "CPU", "precision"])
def test_a_program_of_another_environment_is_compiled_again(folder, monkeypatch, changed):
    numbers = np.arange(4, dtype=np.float32)
    started(numbers, 3)
    if changed == "source":
        monkeypatch.setattr(kept_programs, "_SOURCES", "others")
    elif changed == "flags":
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_min_max=true")
    elif changed == "JAX":
        monkeypatch.setattr(kept_programs, "package_versions", lambda _: {"jax": "0.0.1"})
    elif changed == "CPU":  # in a folder that machines share
        monkeypatch.setattr(kept_programs, "machine", lambda: "another")
    precise = jax.default_matmul_precision("highest")
    with precise if changed == "precision" else contextlib.nullcontext():
        assert started(numbers, 3) == [0, 1, 8, 27]
    assert TRACED == [3, 3]


def test_a_program_in_memory_is_of_the_settings_that_jax_has_there(folder):
    numbers, kept = np.arange(4, dtype=np.float32), KeptPrograms()

    def compiled() -> int:
        powers.clear_cache()
        return id(kept.of(powers, (numbers,), {"power": 3}, local_mesh()))

    outside = compiled()
    with jax.default_matmul_precision("highest"):
        precise = compiled()
        assert precise == compiled()
    with jax.debug_nans(True):
        checked = compiled()
    assert len({outside, precise, checked}) == 3 and compiled() == outside
    assert TRACED == [3, 3, 3]


def test_an_edit_of_the_same_size_and_time_is_another_source(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("x = 1")
    (tmp_path / ".#module.py").symlink_to("nowhere")
    times, first = (path.stat().st_atime_ns, path.stat().st_mtime_ns), sources_digest(tmp_path)
    path.write_text("x = 2")
    os.utime(path, ns=times)
    edited = sources_digest(tmp_path)
    path.rename(tmp_path / "other.py")
    assert len({first, edited, sources_digest(tmp_path)}) == 3


@pytest.mark.parametrize("damage", [b"", b"x" * 100, "digest", "program"])
def test_a_damaged_file_is_named_and_replaced(folder, caplog, damage):
    numbers = np.arange(4, dtype=np.float32)
    started(numbers, 3)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    if isinstance(damage, str):
        place = {"digest": 0, "program": len(whole) - 1}[damage]
        damage = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert started(numbers, 3) == [0, 1, 8, 27]
    assert f"{path}: a kept program is damaged" in caplog.text
    caplog.clear()
    assert started(numbers, 3) == [0, 1, 8, 27] and not caplog.text
    assert TRACED == [3, 3]


@dataclasses.dataclass(frozen=True)
class CallersMask:
    """Of the same fields as before, whatever its code has become."""

    types: tuple[int, ...] = (3,)


def test_a_caller_s_mask_is_not_kept(folder):
    forms, mesh = (((4,), "float32", False),), local_mesh()
    described = {
        masks: description(
            powers, None, forms, {"rules": Rules(beam_size=4, masks=masks), "room": 3}, mesh
        )
        for masks in ((), (NoRepeats(2),), (NoRepeats(3),), (NoRepeats(2), CallersMask()))
    }
    *ours, others = described.values()
    assert len({*ours}) == 3 and all(ours) and others is None


@jax.jit
def looped(numbers: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ y) + jnp.sort(y), numbers)


def test_what_jax_s_cache_has_is_compiled_again_to_be_kept(folder):
    """XLA writes what it has read without its functions: such a program fails when it is called."""
    numbers, settings = np.eye(64, dtype=np.float32), jax.config
    before = settings.jax_persistent_cache_min_compile_time_secs
    settings.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    try:
        with on_mesh(local_mesh()):
            expected = np.asarray(looped.lower(numbers).compile()(numbers))
            jax.clear_caches()
            looped.lower(numbers).compile()  # it is read, and then in JAX's memory
        for is_known in (True, False):
            if not is_known:
                jax.clear_caches()
            program = KeptPrograms().of(looped, (numbers,), {}, local_mesh())
            assert np.array_equal(program(numbers), expected)
    finally:
        settings.update("jax_persistent_cache_min_compile_time_secs", before)
    assert len(os.listdir(folder)) == 1


def test_threads_that_need_one_program_compile_it_once(folder):
    numbers, programs, together = (
        np.arange(4, dtype=np.float32),
        KeptPrograms(),
        threading.Barrier(4),
    )

    def compiled(_: int) -> int:
        together.wait()
        return id(programs.of(powers, (numbers,), {"power": 5}, local_mesh()))

    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(compiled, range(4))}) == 1
    assert TRACED == [5]


def test_an_error_is_not_kept(folder):
    programs, mesh = KeptPrograms(), local_mesh()
    for _ in range(2):
        with pytest.raises(TypeError):
            programs.of(powers, ({"a": np.ones(1)},), {"power": 2}, mesh)
    assert not os.listdir(folder)


@functools.partial(jax.jit, static_argnames=("mask",))
def watched(numbers: jax.Array, *, mask: object) -> jax.Array:
    HIDDEN.append(compile_cache._is_blind())
    return numbers


def test_jax_s_cache_is_hidden_only_for_what_is_written_here(folder, monkeypatch):
    numbers, mesh = np.ones(2, np.float32), local_mesh()

    def start(mask: object) -> None:
        watched.clear_cache()
        KeptPrograms().of(watched, (numbers,), {"mask": mask}, mesh)

    start(NoRepeats(2))
    start(CallersMask())
    assert HIDDEN == [True, False] and len(os.listdir(folder)) == 1
    # What can't be written is known from the second start on.
    with monkeypatch.context() as patch:
        patch.setattr(kept_programs, "serialize", mock.Mock(side_effect=NotImplementedError))
        for _ in range(3):
            start(NoRepeats(3))
    assert HIDDEN[2:] == [True, False, False]
    monkeypatch.setattr(kept_programs, "kept_entries", lambda: None)
    start(NoRepeats(2))
    assert not HIDDEN[-1]


BUILT_IN = (
    AtLeast(min_length=2, min_ratio=0.5),
    CopiedSymbols(symbols=(7,)),
    ForbiddenPhrases(suppress=(3,)),
    NoRepeats(2),
    TreeShape(Brackets(pairs=((5, 6),), leaves=(7, 8))),
)


class Describing:
    """In the place of kept programs: notes how each would be described, and gives result forms."""

    def __init__(self) -> None:
        self.described: dict[str, list[str | None]] = {}

    def of(self, program, arguments, settings, mesh):
        several = [settings]
        if "rules" in settings:
            rules = settings["rules"]
            several += [
                {**settings, "rules": dataclasses.replace(rules, masks=(mask,))}
                for mask in BUILT_IN
            ]
        self.described[program.__name__] = [
            description(program, None, (), each, mesh) for each in several
        ]
        return lambda *arguments: program.eval_shape(*arguments, **settings)


def test_every_search_with_the_masks_that_exist_can_be_kept(monkeypatch):
    describing = Describing()
    monkeypatch.setattr(programs, "_KEPT", describing)
    monkeypatch.setattr(programs, "is_small", lambda *_: False)  # those use only two programs
    model, params = tiny()
    brackets = BUILT_IN[-1].brackets
    rules, numbers = Rules(beam_size=2, trees=brackets), SearchNumbers(mask_shared=(None, None))
    search = programs.SearchPrograms.of((params,), (model,), rules, numbers, local_mesh())
    begun = search.begin(empty_arrays(2, 8, mask_count=2), length=12, room=8)
    search.reshape(search.advance(begun, 8), np.arange(1)[None], 12)
    counts = {name: len({*all_of} - {None}) for name, all_of in describing.described.items()}
    assert counts == {"begin_search": 6, "advance_search": 6, "reshaped": 1}


def test_no_mask_is_missing_above():
    modules = [
        importlib.import_module(f"{masks.__name__}.{module.name}")
        for module in pkgutil.iter_modules(masks.__path__)
        if module.name != "base"
    ]
    defined = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and hasattr(kind, "banned")
    }
    assert defined == {type(mask) for mask in BUILT_IN}
