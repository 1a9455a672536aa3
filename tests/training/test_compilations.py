"""A run compiles the programs that it is known to need, each once: no shape slips in."""

import collections
import contextlib
import dataclasses
import logging
import re
from collections.abc import Iterator
from unittest import mock

import jax

from flaxformer_mt.data.pipeline import one_pass
from flaxformer_mt.training import program
from tests.training.examples import build_tiny, tiny, uneven_batch
from tests.training.runs import VALID, Run

COMPILING = re.compile(r"Compiling (?:jit\()?([\w<>.]+)\)? with global shapes")


def test_a_run_compiles_its_shapes_and_nothing_else(tmp_path, caplog):
    """Over more than an epoch of batches of several shapes, validations, and a restart."""
    changes = {"training.steps": 40, "training.validate_every": 10}
    run = Run(tmp_path, changes, on=build_tiny())
    with caplog.at_level(logging.WARNING), logged_compilations():
        run.start(stop_after=15)
        first = compiled(caplog)
        caplog.clear()
        run.start()
        second = compiled(caplog)
    trained = {batch.shape for batch in run.batches}
    validated = {batch.shape for batch in one_pass(VALID, tiny(changes).data.batch)}
    assert len(trained) > 1
    assert (first + second)["train_step"] == len(trained)
    assert (first + second)["eval_step"] == len(validated)
    # The state is drawn once; digests of checkpoints have a program for each kind of array, which
    # other tests of this process may have compiled.
    assert (first + second)["<lambda>"] == 1 and not second["<lambda>"]
    leaves = jax.tree.leaves(run.on.abstract)
    assert first["_lanes_on_device"] <= len({(leaf.shape, leaf.dtype) for leaf in leaves})
    assert not second["_lanes_on_device"]
    known = {"train_step", "eval_step", "<lambda>", "_lanes_on_device"}
    assert (first + second).keys() <= known, first + second


def test_the_first_step_is_compiled_before_there_is_a_batch_for_it(tmp_path, monkeypatch):
    """Beside the draw of the state, which is traced once; the first call waits for nothing."""
    traced = mock.Mock(wraps=program.initial_params)
    monkeypatch.setattr(program, "initial_params", traced)
    on, compiling = build_tiny(), []

    def noted(*arguments):
        with logged_times("backend_compile_duration") as times:
            result = on.train_step(*arguments)
        compiling.append(times)
        return result

    run = Run(tmp_path, {"training.steps": 1}, on=dataclasses.replace(on, train_step=noted))
    with logged_times("backend_compile_duration") as compiled_steps:
        run.start()
    assert compiling == [[]] and compiled_steps
    assert on.compilations() == traced.call_count == 1


def test_an_accelerator_compiles_all_steps_before_the_first():
    on, batches = build_tiny(), [uneven_batch(rows) for rows in (8, 16)]
    first, second = (batch.shape for batch in batches)
    # A device that is no CPU by its name alone; the compiler gets the one there is.
    described = mock.Mock(**{"devices.flat": [mock.Mock(platform="tpu")]})
    with dataclasses.replace(on, mesh=described).compiling(first, [second], [first, second]):
        state = on.init()
    with logged_times("backend_compile_duration") as times:
        for batch in batches:
            state, _ = on.train_step(state, batch)
            on.eval_step(state.params if state.ema is None else state.ema, batch)
    assert times == [] and on.compilations() == 2


@contextlib.contextmanager
def logged_times(event: str) -> Iterator[list[float]]:
    """The seconds of each such event of JAX, in all threads."""
    durations: list[float] = []

    def listen(name: str, seconds: float, **_: object) -> None:
        if name.endswith(event):
            durations.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield durations
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@contextlib.contextmanager
def logged_compilations() -> Iterator[None]:
    """In all threads: `jax.log_compiles` is of one, and the first step is compiled in another."""
    before = jax.config.jax_log_compiles
    jax.config.update("jax_log_compiles", True)
    try:
        yield
    finally:
        jax.config.update("jax_log_compiles", before)


def compiled(caplog) -> collections.Counter[str]:
    """How often each function was compiled, by name."""
    matches = (COMPILING.search(record.getMessage()) for record in caplog.records)
    return collections.Counter(match[1] for match in matches if match)
