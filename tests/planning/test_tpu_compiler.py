"""The real compiler, for TPUs that are not there: golden tables, and what is said of failures."""

import functools
import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.planning import SETTINGS, set_for_compiler
from flaxformer_mt.planning.describe import describe, name_of
from tests.planning import golden

pytestmark = [
    pytest.mark.tpu_compiler,
    pytest.mark.extended,
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None,
        reason="needs the TPU compiler: pip install -e '.[tpu]'",
    ),
]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """As it was, afterwards."""
    for name in (*SETTINGS, "XLA_FLAGS"):  # the tests' own flag is one that libtpu may not know
        monkeypatch.setenv(name, "")


@functools.cache
def found(name: str) -> dict[str, Any]:
    return golden.summary(name)


def assert_as_recorded(name: str, actual: dict[str, Any]) -> None:
    """`python -m tests.planning.golden` writes the table anew."""
    recorded = json.loads((golden.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    for key in ("shape", "step_flops", "shardings", "collectives", "replications"):
        assert actual[key] == recorded[key], key
    for kind, size in recorded["memory"].items():
        assert actual["memory"][kind] == pytest.approx(size, rel=0.05, abs=2**20), kind
    assert actual["compute_ms"] == pytest.approx(recorded["compute_ms"], rel=0.05)


@pytest.mark.parametrize("name", ["tiny_v5e", "tiny_v4_two_slices"])
def test_as_in_the_golden_table(name):
    assert_as_recorded(name, found(name))


def test_base_is_as_in_its_table_and_products_hide_most_of_what_is_sent():
    """Of two layers, all but the vocabulary's table, which comes first and last."""
    arguments = golden.CASES["base_v5e"]
    values = golden.planned(*arguments)  # once: it compiles for a minute
    shardings = golden.planned(*arguments, "--shardings")
    assert_as_recorded("base_v5e", golden.table(values, shardings))
    exposed = values["exposed"]["most"]
    assert values["step_seconds"] == pytest.approx(
        values["unoverlapped_step_seconds"] - values["collective_seconds"] + exposed
    )
    table = 37_000 * 512 * 4 * 7 / 8 / 100e9  # seconds to gather or to scatter it over two links
    assert exposed < 2.6 * table  # gathered, then scattered
    assert exposed < values["collective_seconds"]


@pytest.mark.parametrize(
    "name", ["v5e:2x4", "v5e:1x1", "v6e:2x4", "v5p:2x2x1", "v4:2x2x2", "v2:2x2", "tpu7x:2x2x1"]
)
def test_devices_are_called_as_the_topology_that_has_them(name):
    set_for_compiler()
    assert name_of(describe(name).devices) == (name, 1)
    assert name_of(describe("v5e:2x4", 2).devices) == ("v5e:2x4", 2)


def test_only_gradients_and_parameters_go_over_the_data_centre():
    """No more than a device's part of the model: summed there, updated in parts, gathered again."""
    table = found("tiny_v4_two_slices")
    between = {kind: size for kind, network, size in table["collectives"] if network == "DCN"}
    assert between.keys() <= {"all-reduce", "reduce-scatter", "all-gather"} and between
    # A fsdp x tensor = 4th of the float32 parameters, and what the rules leave whole.
    assert max(between.values()) < 1.5 * table["memory"]["arguments"] / 2


def test_bfloat16_between_chips_halves_the_sums_of_gradients():
    """Which are whole on a v5e: as many bytes as the formula has for sums in parts and a gather."""
    chips = ("--config=quickstart", "--topology=v5e:2x4", "--config.model.dtype=bfloat16")
    wide = golden.planned(*chips)
    narrow = golden.planned(*chips, "--config.training.exchange_dtype=bfloat16")
    for values in (wide, narrow):
        sent = {row["kind"]: row["sent"] for row in values["collectives"]}
        assert sent["all-reduce"] == pytest.approx(values["expected_collective_bytes"], rel=0.01)
        # Parameters, which the compiler may gather in bfloat16 in any case.
        assert sent["all-gather"] < 0.5 * values["expected_collective_bytes"]
        assert sent.keys() == {"all-reduce", "all-gather"}
    expected = wide["expected_collective_bytes"] / 2
    assert narrow["expected_collective_bytes"] == pytest.approx(expected, rel=0.01)


def test_gradients_are_sent_once_where_the_update_is_whole_too():
    """More chips than the update is split over: 64."""
    batch = ("--config.data.batch.multiple=64", "--config.data.batch.tokens=32768")
    values = golden.planned("--config=quickstart", "--topology=v5e:8x8", *batch)
    assert values["mesh"]["data"] == 64
    sent, expected = values["collective_bytes"], values["expected_collective_bytes"]
    assert 0.9 * expected < sent < 1.1 * expected


def test_a_search_chooses_its_candidates_in_few_passes_of_known_cost():
    """Of base, 64 rows and a beam of 4: 0.176 ms on a v5e, where the logits take 0.051."""
    layers = ("--config.model.encoder_layers=1", "--config.model.decoder_layers=1")
    base = ("--config=wmt14_en_de:base", "--topology=v5e:1x1", *layers)
    search = ("--decode", "--lengths=64,64", "--config.decoding.batch_tokens=16384")
    step = golden.planned(*base, *search)["step"]
    milliseconds = {part["name"]: 1e3 * part["seconds"] for part in step["parts"]}
    assert 0.05 < milliseconds["logits"] < milliseconds["candidates"] < 0.2
    assert not [cost for cost in step["unestimated"] if cost["name"].startswith("custom-call")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topology=v5e:3x5"], "does not know the topology 'v5e:3x5'"),
        (["--topology=v5e:2x4", "--config.mesh.data=3"], "'mesh': data 3 x fsdp 1 x tensor 1"),
        (
            ["--topology=v5e:2x4", "--slices=2", "--config.mesh.data=1", "--config.mesh.fsdp=16"],
            "must be a multiple of the 2 slices",
        ),
        (["--topology=v5e:4x4"], "'data.batch.multiple' = 8 must be divisible by"),
    ],
)
def test_errors(arguments, message, capfd):
    assert main(["plan", "--config=quickstart", *arguments]) == 2
    *before, error = capfd.readouterr().err.splitlines()
    assert message in error
    assert all(line.startswith("compiling for") for line in before)


def test_what_does_not_fit_is_said_in_our_words_alone():
    """In a process of its own: the compiler's words go past Python."""
    command = [sys.executable, "-m", "flaxformer_mt.cli.main", "plan", "--config=quickstart"]
    command += ["--topology=v5e:1x1", "--config.data.batch.tokens=30000000"]
    command += ["--config.training.loss_chunk=0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "DOES NOT FIT: needs" in done.stdout
    assert "15.75" in done.stdout and "or try --fit" in done.stdout
    assert all(line.startswith("compiling for") for line in done.stderr.splitlines())
