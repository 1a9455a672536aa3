"""Each check: what it says when all is well, and that it notices when something is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.diagnosis import machine, step as training_step, storage
from flaxformer_mt.diagnosis.machine import Finding, check_collective, examined
from flaxformer_mt.diagnosis.step import TOLERANCES, check_experiment, largest_difference, one_step
from flaxformer_mt.parallel import ALONE
from flaxformer_mt.rundir.paths import as_path
from tests.rundir.buckets import bucket, gcs, needs_clients
from tests.training.examples import tiny

__all__ = ["bucket", "gcs"]


def test_a_line_says_what_to_do():
    assert Finding("space", "ok", "much").line() == "ok   space          much"
    assert Finding("space", "FAIL", "none", "make some").line().endswith("none → make some")


def test_a_check_that_breaks_off_is_a_failure():
    def broken() -> Iterator[Finding]:
        yield Finding("one", "ok", "fine")
        raise OSError("no\nsuch device")

    one, two = examined("collective", broken)
    assert one.state == "ok"
    assert (two.name, two.state, two.text) == ("collective", "FAIL", "OSError: no such device")


# --- software and devices ---------------------------------------------------------------------


def test_versions_are_those_installed():
    findings = list(machine.check_versions())
    assert f"jax {jax.__version__}" in findings[0].text
    assert machine.mismatched({"jax": "1.0", "jaxlib": "1.0"}) == ""
    wrong = machine.mismatched({"jax": "1.0", "jaxlib": "1.0", "jax-cuda13-plugin": "0.9"})
    assert wrong == "jax-cuda13-plugin 0.9 with jax 1.0"


def test_an_accelerator_that_jax_leaves_out_is_seen(tmp_path, monkeypatch):
    sign = tmp_path / "nvidia0"
    monkeypatch.setattr(machine, "_SIGNS", {"gpu": (str(sign),)})
    assert [f.state for f in machine.check_devices(ALONE)] == ["ok"]
    sign.write_text("")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (finding,) = machine.check_devices(ALONE)
    assert finding.state == "warn" and "JAX_PLATFORMS=cpu leaves it out" in finding.advice
    monkeypatch.delenv("JAX_PLATFORMS")
    (finding,) = machine.check_devices(ALONE)
    assert finding.state == "FAIL" and "flaxformer-mt[cuda]" in finding.advice


def device(**changes: Any) -> Any:
    stats = changes.pop("stats", {"bytes_in_use": 1 << 30, "bytes_limit": 16 << 30})
    return SimpleNamespace(
        **{"platform": "tpu", "device_kind": "TPU v4", "memory_stats": lambda: stats, **changes}
    )


def test_memory_that_another_program_holds_is_seen():
    (well,) = machine._memory([device()])
    assert well.state == "ok" and "16.0 GiB a device" in well.text
    (held,) = machine._memory([device(stats={"bytes_in_use": 9 << 30, "bytes_limit": 16 << 30})])
    assert held.state == "warn"
    assert not list(machine._memory([device(stats=None)]))


def test_an_unknown_chip_is_seen(monkeypatch):
    for kind, states in (("TPU v4", ["ok", "ok"]), ("TPU v99", ["ok", "ok", "warn"])):
        found = [device(device_kind=kind)]
        monkeypatch.setattr(jax, "devices", lambda found=found: found)
        monkeypatch.setattr(jax, "local_devices", lambda found=found: found)
        assert [f.state for f in machine.check_devices(ALONE)] == states


# --- a step -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def step() -> Any:
    cpu = jax.devices()[0]
    program = training_step._program("float32", cpu)
    start = training_step._initial(program)
    return program, start, one_step(program, start)


@pytest.mark.extended
def test_rounding_is_allowed_and_discriminates(step):
    """bfloat16 against float32 is more than float32 may differ, and less than bfloat16 may."""
    _, start, exact = step
    rounded = one_step(training_step._program("bfloat16", jax.devices()[0]), start)
    difference = largest_difference(rounded, exact)
    assert TOLERANCES["float32"] < difference < TOLERANCES["bfloat16"]


def test_every_parameter_moves(step):
    _, _, exact = step
    assert min(float(np.abs(part).max()) for part in exact.moved) > 0


@pytest.mark.parametrize("size", [2e-3, float("nan")])
def test_one_wrong_number_among_the_parameters_is_seen(step, monkeypatch, size):
    program, _, exact = step
    assert largest_difference(exact, exact) == 0
    wrong = [part.copy() for part in exact.moved]
    wrong[3].flat[0] += size * max(float(np.abs(part).max()) for part in exact.moved)
    answers = iter([exact, dataclasses.replace(exact, moved=wrong)])
    monkeypatch.setattr(training_step, "_program", lambda *_: program)
    monkeypatch.setattr(training_step, "one_step", lambda *_: next(answers))
    other = SimpleNamespace(platform="tpu")
    finding = training_step.compared("float32", TOLERANCES["float32"], other, jax.devices()[0])
    assert finding.state == "FAIL"


@pytest.mark.extended
def test_a_cpu_repeats_itself():
    (single, half) = training_step.check_step(jax.devices()[0])
    assert (single.state, half.state) == ("ok", "ok")
    assert single.values["difference"] == 0


# --- collective, speed, storage ---------------------------------------------------------------


def test_one_device_has_nothing_to_exchange():
    (finding,) = check_collective()
    assert finding.state == "ok" and "one device" in finding.text


def test_a_slow_device_is_seen(monkeypatch):
    monkeypatch.setattr(machine, "upload_bandwidth", lambda _: 5e9)
    for flops, state in ((200e12, "ok"), (20e12, "warn")):
        monkeypatch.setattr(machine, "product_flops", lambda *_, flops=flops, **__: flops)
        product, upload = machine.check_speed(device())
        assert (product.state, upload.state) == (state, "ok")
    assert "7% of the peak of TPU v4" in product.text


def test_a_checkpoint_goes_there_and_back_and_leaves_nothing(tmp_path):
    (finding,) = storage.check_checkpoint(tmp_path, ALONE)
    assert finding.state == "ok", finding
    assert "digests as saved" in finding.text
    assert not list(tmp_path.iterdir())


@needs_clients
@pytest.mark.extended
def test_so_it_does_in_a_bucket(gcs: Any, bucket: str) -> None:
    place = as_path(f"gs://{bucket}/runs")
    (finding,) = storage.check_checkpoint(place, ALONE)
    assert finding.state == "ok", finding
    assert not [name for name in gcs.objects if "doctor" in name]
    assert not list(storage.check_space(place, None))


def test_a_place_that_cannot_be_written_is_seen(tmp_path):
    (tmp_path / "file").write_text("")
    (finding,) = examined("checkpoint", lambda: storage.check_checkpoint(tmp_path / "file", ALONE))
    assert finding.state == "FAIL"
    (cache,) = storage.check_cache(tmp_path / "file")
    assert cache.state == "warn" and "FLAXFORMER_CACHE" in cache.advice
    (off,) = storage.check_cache(None)
    assert off.state == "warn" and "not kept" in off.text


@pytest.mark.parametrize(("free", "state"), [(5e8, "FAIL"), (5e9, "warn"), (5e10, "ok")])
def test_space_that_will_not_do_is_seen(tmp_path, monkeypatch, free, state):
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    (finding,) = storage.check_space(tmp_path / "not" / "yet", None)
    assert finding.state == state


# --- a configuration --------------------------------------------------------------------------


def test_a_state_larger_than_memory_is_seen(monkeypatch):
    (finding,) = check_experiment(tiny())
    assert finding.state == "ok" and "parameters on data" in finding.text
    small = [device(stats={"bytes_limit": int(finding.values["state"])})]
    monkeypatch.setattr(jax, "local_devices", lambda: small)
    (finding,) = check_experiment(tiny())
    assert finding.state == "FAIL" and "mesh.fsdp" in finding.advice


def test_a_mesh_that_the_devices_do_not_make_is_a_failure():
    (finding,) = examined("config", lambda: check_experiment(tiny({"mesh.fsdp": 3})))
    assert finding.state == "FAIL" and "does not make 1 device" in finding.text
