"""Each check: what it says when all is well, and that it notices when something is not."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from flaxformer_mt.diagnosis import machine, step as training_step
from flaxformer_mt.diagnosis.machine import Finding, check_collective, examined
from flaxformer_mt.diagnosis.step import (
    TOLERANCES,
    Step,
    check_experiment,
    largest_difference,
    one_step,
)
from flaxformer_mt.parallel.processes import ALONE
from flaxformer_mt.rundir.paths import as_path
from tests.rundir.buckets import needs_clients
from tests.training.examples import tiny


def test_a_check_that_breaks_off_is_a_failure_whose_line_says_what_to_do():
    def broken():
        yield Finding("one", "ok", "fine")
        raise OSError("no\nsuch device")

    passed, two = examined("collective", broken)
    assert passed.line() == "ok   one            fine"
    assert two.line().startswith("FAIL collective     OSError: no such device → see the message")


def test_versions_that_do_not_fit_are_seen(monkeypatch):
    assert f"jax {jax.__version__}" in next(machine.check_versions()).text
    installed = {"jax": "1.0", "jaxlib": "1.0"}
    monkeypatch.setattr(machine, "versions", lambda: installed)
    assert next(machine.check_versions()).advice == ""
    installed["jax-cuda13-plugin"] = "0.9"
    assert "jax-cuda13-plugin 0.9 with jax 1.0: " in next(machine.check_versions()).advice


def test_an_accelerator_that_is_left_out_is_seen(tmp_path, monkeypatch):
    sign = tmp_path / "nvidia0"
    monkeypatch.setattr(machine, "_SIGNS", {"gpu": (str(sign),)})
    assert [finding.state for finding in machine.check_devices(ALONE)] == ["ok"]
    sign.write_text("")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    (finding,) = machine.check_devices(ALONE)
    assert finding.state == "warn" and "JAX_PLATFORMS=cpu excludes it" in finding.advice
    monkeypatch.delenv("JAX_PLATFORMS")
    (finding,) = machine.check_devices(ALONE)
    assert finding.state == "FAIL" and "flaxformer-mt[cuda]" in finding.advice


def test_a_libtpu_that_is_left_out_is_named(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: name == "libtpu")
    monkeypatch.setattr(machine, "tpu_is_there", lambda: False)
    assert "no TPU found, so libtpu isn't loaded" in next(machine.check_devices(ALONE)).text
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert "libtpu" not in next(machine.check_devices(ALONE)).text


def test_little_locked_memory_is_seen_where_a_tpu_is(monkeypatch):
    assert not [*machine.check_locked_memory()]
    monkeypatch.setattr(machine, "tpu_is_there", lambda: True)
    for limit, state in ((machine.resource.RLIM_INFINITY, "ok"), (8 << 20, "warn")):
        limits = (limit, limit)
        monkeypatch.setattr(machine.resource, "getrlimit", lambda _, limits=limits: limits)
        (finding,) = machine.check_locked_memory()
        assert finding.state == state
    assert "at most 8 MiB" in finding.text and "prlimit" in finding.advice


def device(used=1, limit=16, kind="TPU v4"):
    stats = {"bytes_in_use": used << 30, "bytes_limit": limit << 30}
    return SimpleNamespace(platform="tpu", device_kind=kind, memory_stats=lambda: stats)


@pytest.mark.parametrize(
    ("found", "states"),
    [
        (device(), ["ok", "ok"]),
        (device(used=9), ["ok", "warn"]),  # another program holds its memory
        (device(kind="TPU v99"), ["ok", "ok", "warn"]),  # an unknown chip
    ],
)
def test_what_is_wrong_with_a_device_is_seen(monkeypatch, found, states):
    monkeypatch.setattr(jax, "devices", lambda: [found])
    monkeypatch.setattr(jax, "local_devices", lambda: [found])
    findings = list(machine.check_devices(ALONE))
    assert [finding.state for finding in findings] == states
    assert "16.0 GiB per device" in findings[1].text


def test_a_slow_device_is_seen(monkeypatch):
    monkeypatch.setattr(machine, "upload_bandwidth", lambda _: 5e9)
    for flops, state in ((200e12, "ok"), (20e12, "warn")):
        monkeypatch.setattr(machine, "product_flops", lambda *_, flops=flops, **__: flops)
        product, upload = machine.check_speed(device())
        assert (product.state, upload.state) == (state, "ok")
    assert "7% of the peak of TPU v4" in product.text
    # One device has nothing to exchange.
    (finding,) = check_collective()
    assert finding.state == "ok" and "one device" in finding.text


@pytest.mark.extended
def test_every_parameter_moves_and_rounding_is_allowed_and_discriminates():
    """bfloat16 against float32 is more than float32 may differ, and less than bfloat16 may."""
    programs = [training_step._program(dtype, jax.devices()[0]) for dtype in TOLERANCES]
    start = jax.device_get(programs[0].init())
    exact, rounded = (one_step(program, start) for program in programs)
    assert min(float(np.abs(part).max()) for part in exact.moved) > 0
    assert TOLERANCES["float32"] < largest_difference(rounded, exact) < TOLERANCES["bfloat16"]


@pytest.mark.parametrize(
    ("size", "state"), [(0, "ok"), (5e-4, "ok"), (2e-3, "FAIL"), (float("nan"), "FAIL")]
)
def test_one_wrong_number_among_the_parameters_is_seen(monkeypatch, size, state):
    exact = Step(1.0, [np.ones(3), np.full((2, 2), -2.0)])
    wrong = Step(1.0, [exact.moved[0], exact.moved[1] + np.array([[0, 0], [2 * size, 0]])])
    answers = iter([exact, wrong])
    program = SimpleNamespace(init=lambda: None)
    monkeypatch.setattr(training_step, "_program", lambda *_: program)
    monkeypatch.setattr(training_step, "one_step", lambda *_: next(answers))
    tpu = SimpleNamespace(platform="tpu")
    finding = training_step.compared("float32", TOLERANCES["float32"], tpu, jax.devices()[0])
    assert finding.state == state


@needs_clients
@pytest.mark.extended
def test_a_checkpoint_in_a_bucket_goes_there_and_back_and_leaves_nothing(gcs, bucket):
    place = as_path(f"gs://{bucket}/runs")
    (finding,) = machine.check_checkpoint(place, ALONE)
    assert finding.state == "ok" and "digests as saved" in finding.text, finding
    assert not [name for name in gcs.names(f"{bucket}/") if "doctor" in name]
    assert not list(machine.check_space(place, None))


def test_a_place_that_cannot_be_written_or_is_full_is_seen(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (finding,) = examined("checkpoint", lambda: machine.check_checkpoint(tmp_path / "file", ALONE))
    assert finding.state == "FAIL"
    (cache,) = machine.check_cache(tmp_path / "file")
    assert cache.state == "warn" and "FLAXFORMER_CACHE" in cache.advice
    (off,) = machine.check_cache(None)
    assert off.state == "warn" and "not stored" in off.text
    for free, state in ((5e8, "FAIL"), (5e9, "warn"), (5e10, "ok")):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(machine.shutil, "disk_usage", lambda _, usage=usage: usage)
        (space,) = machine.check_space(tmp_path / "not" / "yet", None)
        assert space.state == state


def test_a_state_larger_than_memory_and_a_mesh_that_the_devices_do_not_make_are_seen(monkeypatch):
    (finding,) = check_experiment(tiny())
    assert finding.state == "ok" and "parameters on data" in finding.text
    stats = {"bytes_limit": int(finding.values["state"])}
    small = [SimpleNamespace(memory_stats=lambda: stats)]
    monkeypatch.setattr(jax, "local_devices", lambda: small)
    (finding,) = check_experiment(tiny())
    assert finding.state == "FAIL" and "mesh.fsdp" in finding.advice
    (finding,) = examined("config", lambda: check_experiment(tiny({"mesh.fsdp": 3})))
    assert finding.state == "FAIL" and "does not make 1 device" in finding.text
