"""The real compiler, for GPUs that are not there: a small step, one card and eight."""

import importlib.util

import pytest

from flaxformer_mt.planning import SETTINGS
from flaxformer_mt.planning.gpus import PLUGIN
from tests.planning.golden import planned

pytestmark = [
    pytest.mark.gpu_compiler,
    pytest.mark.extended,
    pytest.mark.skipif(
        importlib.util.find_spec(PLUGIN) is None,
        reason="needs the GPU compiler: pip install -e '.[cuda]', Python 3.12 or later",
    ),
]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """As it was, afterwards."""
    for name in (*SETTINGS, "XLA_FLAGS"):
        monkeypatch.setenv(name, "")


SMALL = (
    *("--config=wmt14_en_de:base", "--config.model.encoder_layers=1"),
    *("--config.model.decoder_layers=1", "--config.data.vocabulary.size=4000"),
    *("--config.data.batch.tokens=8192", "--lengths=64,64"),
)


def test_a_step_keeps_bfloat16_and_calls_cudnn_s_attention():
    narrow = planned(*SMALL, "--topology=h100")
    assert narrow["platform"] == "gpu" and narrow["fits"] and narrow["chip"] == "NVIDIA H100"
    attention = [part for part in narrow["compute"]["parts"] if part["name"] == "attention kernel"]
    assert attention[0]["count"] == 6  # three layers' attention, forward and backward
    # The products are those of the formula, but for the columns that the loss adds.
    flops = sum(part["flops"] for part in narrow["compute"]["parts"])
    assert narrow["step_flops"] < flops < 1.15 * narrow["step_flops"]
    wide = planned(*SMALL, "--topology=h100", "--config.model.activation_dtype=float32")
    moved = [sum(part["bytes"] for part in plan["compute"]["parts"]) for plan in (narrow, wide)]
    assert moved[0] < 0.7 * moved[1]
    assert narrow["step_seconds"] < 0.8 * wide["step_seconds"]


def test_a_search_needs_few_programs_whose_steps_read_little_more_than_they_must():
    values = planned(*SMALL, "--topology=h100", "--decode")
    assert values["fits"]
    stages = [(item["name"], item["rows"], item["room"]) for item in values["programs"]]
    # Few rows, or as many as before, move to a larger cache.
    short = [("begin", 256, 64), ("advance", 256, 64)]
    short += [(name, rows, 114) for rows in (8, 256) for name in ("reshape", "advance")]
    assert stages == [("begin", 64, 256), ("advance", 64, 256), *short]
    for program in values["programs"]:
        assert program["fits"] and program["compile_seconds"] > 0
        if program["name"] == "advance":
            moved = sum(cost["bytes"] for cost in program["step"]["operations"])
            assert 1 < moved / program["least_bytes"] < 3


def test_the_largest_batch_of_a_card_is_found():
    values = planned(*SMALL, "--topology=h100", "--fit")
    assert values["fits_as_it_is"] and not values["remedies"]
    assert values["largest"][0]["largest"]["shape"]["rows"] >= 128
    assert all(tried["fits"] for tried in values["largest"][0]["tried"][:1])


def test_eight_cards_exchange_what_the_formula_says():
    values = planned(*SMALL, "--topology=h100:8")
    assert values["mesh"]["data"] == 8 and not values["replications"]
    assert {item["network"] for item in values["collectives"]} == {"NVLink"}
    assert values["collective_bytes"] == pytest.approx(values["expected_collective_bytes"], rel=0.1)
