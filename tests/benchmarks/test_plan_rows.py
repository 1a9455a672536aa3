"""Rows' steps by one and two of their layers: what is compiled, what is kept, what is recorded."""

import json

import pytest

from benchmarks.plan_rows import DoesNotFit, main
from flaxformer_mt.config import load_config
from flaxformer_mt.reproduction.paper import row_of
from flaxformer_mt.reproduction.planned import (
    compiled_layers,
    planned_by_layers,
    step_digest,
)
from flaxformer_mt.reproduction.records import Records
from flaxformer_mt.reproduction.report import report
from flaxformer_mt.reproduction.result_file import read_results


class Compiler:
    """5 ms and 1 GiB, and 3 ms and a quarter for each layer; says what it was asked."""

    def __init__(self, refuses=False, hbm_bytes=2**34):
        self.asked = []
        self.refuses = refuses
        self.hbm_bytes = hbm_bytes

    def __call__(self, config, topology, settings):
        self.asked.append((config, topology, settings))
        layers = load_config(config, [each.removeprefix("--config.") for each in settings]).model
        assert layers.encoder_layers == layers.decoder_layers
        return {
            "step_seconds": 5e-3 + 3e-3 * layers.encoder_layers,
            "needed_bytes": 2**30 * (1 + layers.encoder_layers / 4),
            "compile_seconds": 10.0,
            "compute": None if self.refuses else {},
            "hbm_bytes": self.hbm_bytes,
        }


@pytest.fixture
def planned(tmp_path):
    """Plans rows; what was asked of the compiler, and the result."""

    def plan(*rows):
        compiler = Compiler()
        path = tmp_path / "plan_rows.json"
        places = ["--workdir", str(tmp_path / "work"), "--output", str(path)]
        assert main([*places, "--rows", *rows], compiler) == 0
        (result,) = read_results(tmp_path)
        return compiler.asked, result

    return plan


def test_rows_are_lines_through_one_and_two_layers_and_share_what_is_compiled(planned, tmp_path):
    asked, result = planned("table3/base", "table3/c_N4", "table3/c_N2", "table3/c_N8")
    assert [settings[0] for _, _, settings in asked] == [
        "--config.model.encoder_layers=1",
        "--config.model.encoder_layers=2",
    ]
    assert {(config, topology) for config, topology, _ in asked} == {("table3:base", "v5e:2x4")}
    for row, layers in (("base", 6), ("c_n4", 4), ("c_n2", 2), ("c_n8", 8)):
        assert result.metrics[f"table3_{row}_v5e_8_step_ms"] == pytest.approx(5 + 3 * layers)
        assert result.metrics[f"table3_{row}_v5e_8_gib"] == pytest.approx(1 + layers / 4)
    assert result.seconds == 20
    # Rows recorded before stay as long as they are the same.
    planned("table3/a_h1")
    path = tmp_path / "plan_rows.json"
    content = json.loads(path.read_text())
    content["details"]["table3_a_h1"] = f"{'0' * 16} {'c' * 40}"
    path.write_text(json.dumps(content))
    _, result = planned("table3/a_h4")
    rows = {"base", "c_n2", "c_n4", "c_n8", "a_h4"}
    assert set(result.details) == {f"table3_{row}" for row in rows} | {"compile_seconds"}
    assert not [name for name in result.metrics if name.startswith("table3_a_h1")]
    assert result.seconds == 40  # without those of the row that is gone


def test_the_report_has_the_rows_that_are_still_the_same(planned):
    """How whole steps stand beside them the recorded page shows."""
    _, result = planned("table3/base", "table3/c_N2")
    page = report(Records(), [result])
    assert "| `table3/base` | 8 v5e | 23.0 | 2.5 | 100,000 | 5.1 |" in page
    assert "| `table3/c_N2` (whole) | 8 v5e | 11.0 | 1.5 | 100,000 | 2.4 |" in page
    base = row_of("table3/base")
    changed = load_config(base.spec, ["model.d_ff=1024"])
    assert planned_by_layers(base, changed, [result]) is None


def test_a_step_that_does_not_fit_has_no_cost(tmp_path):
    places = ["--workdir", str(tmp_path / "work"), "--output", str(tmp_path / "plan_rows.json")]
    with pytest.raises(DoesNotFit, match="table3/base with 1 layers: the compiler refuses"):
        main([*places, "--rows", "table3/base"], Compiler(refuses=True))
    # One layer and two do fit, in 1.25 and 1.5 GiB; the row's six do not.
    with pytest.raises(DoesNotFit, match=r"table3/base: takes 2\.5 GiB of a chip's 2\.0"):
        places[1] = str(tmp_path / "small")
        main([*places, "--rows", "table3/base"], Compiler(hbm_bytes=2**31))
    assert not (tmp_path / "plan_rows.json").exists()


def test_what_decides_a_step_is_in_its_digest_and_a_line_needs_stacks_that_are_alike():
    base = step_digest(load_config("wmt14_en_de:base"))
    assert base == step_digest(load_config("wmt14_en_de:base", ["training.steps=7"]))
    for change in (
        *("model.d_ff=64", "data.batch.tokens=64", "data.vocabulary.size=999"),
        *("data.filter.max_length=99", "training.freeze=embedding"),
    ):
        assert base != step_digest(load_config("wmt14_en_de:base", [change]))
    assert compiled_layers(load_config("wmt14_en_de:base")) == (1, 2)
    with pytest.raises(ValueError, match=r"6 \+ 2 layers: the stacks must be alike"):
        compiled_layers(load_config("wmt14_en_de:base", ["model.decoder_layers=2"]))
