"""The table of chips: no name twice, figures of the right size and in agreement with each other."""

import importlib
import types

import pytest

from flaxformer_mt.parallel import chips
from flaxformer_mt.parallel.chips import CHIPS, chip_of

try:
    tpu_info = importlib.import_module("jax._src.tpu_info")
except ModuleNotFoundError:  # before JAX 0.12
    tpu_info = importlib.import_module("jax._src.pallas.mosaic.tpu_info")


def test_a_name_leads_to_one_chip_whose_figures_are_of_the_right_size():
    names = [kind.casefold() for chip in CHIPS for kind in (chip.name, *chip.aliases)]
    assert len(set(names)) == len(names)
    for chip in CHIPS:
        for kind in (chip.name, *chip.aliases):
            assert chip_of(kind) is chip
            assert chip_of(f" {kind.upper()} ") is chip
    for kind in ("cpu", "", "TPU", "TPU v55", "NVIDIA"):
        assert chip_of(kind) is None
    for chip in CHIPS:
        assert 20e12 <= chip.bf16_flops < 5e15, chip


TPUS = pytest.mark.parametrize(
    "chip", [chip for chip in CHIPS if chip.name.startswith("TPU")], ids=lambda chip: chip.name
)


@TPUS
def test_a_tpu_s_figures_are_of_the_right_size(chip):
    assert 8 * 2**30 <= chip.hbm_bytes < 300e9
    assert 0.2e12 <= chip.hbm_bandwidth < 10e12
    assert 0.5e9 <= chip.clock < 3e9
    assert 0 < chip.dcn_bandwidth < chip.hbm_bandwidth / 10


@TPUS
def test_a_tpu_has_a_whole_number_of_matrix_units(chip):
    """A unit makes 2 x 128 x 128 FLOPs per cycle."""
    units = chip.bf16_flops / chip.clock / (2 * 128 * 128)
    assert units == pytest.approx(round(units), rel=0.01)
    assert round(units) in (1, 2, 4, 8, 16)


@TPUS
def test_a_tpu_agrees_with_the_table_inside_jax(chip):
    """The table of JAX's kernel language rounds differently (a v3 has 140 or 123 TFLOP/s)."""
    version = tpu_info.chip_version_from_device_kind((*chip.aliases, chip.name)[0])
    assert version is not None
    cores = version.num_physical_tensor_cores_per_chip // chip.devices_per_chip
    theirs = tpu_info._get_tpu_info_impl(version, cores)
    assert chip.bf16_flops == pytest.approx(cores * theirs.bf16_ops_per_second, rel=0.15)
    assert chip.hbm_bytes == pytest.approx(cores * theirs.hbm_capacity_bytes, rel=0.08)
    assert chip.hbm_bandwidth == pytest.approx(cores * theirs.mem_bw_bytes_per_second, rel=0.13)


@pytest.mark.parametrize(
    ("platform", "capability", "features", "dtype"),
    [
        ("cpu", None, {"avx2", "amx_bf16"}, "bfloat16"),
        ("cpu", None, {"avx512_bf16"}, "bfloat16"),
        ("cpu", None, {"avx512f", "avx2"}, "float32"),
        ("tpu", None, set(), "bfloat16"),
        ("gpu", "8.0", set(), "bfloat16"),
        ("gpu", "7.5", set(), "float32"),
        ("gpu", "12.0", set(), "bfloat16"),
        ("gpu", "gfx90a", set(), "bfloat16"),
    ],
)
def test_auto_is_bfloat16_where_the_hardware_multiplies_it(
    monkeypatch, platform, capability, features, dtype
):
    monkeypatch.setattr(chips, "cpu_features", lambda: frozenset(features))
    named = {} if capability is None else {"compute_capability": capability}
    assert chips.fastest_dtype(types.SimpleNamespace(platform=platform, **named)) == dtype
