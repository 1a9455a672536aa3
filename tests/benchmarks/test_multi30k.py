"""The mean and the spread of several seeds of a variant."""

import pytest

from benchmarks.multi30k import write_seeds
from flaxformer_mt.reproduction.result_file import read_result, write_result
from tests.reproduction.made_up import MACHINE


def recorded(folder, name, bleu, *, seconds=60.0, command="python -m benchmarks.multi30k"):
    write_result(
        folder / f"{name}.json",
        command=command,
        config="multi30k:tiny",
        seconds=seconds,
        metrics={"bleu_tokenized_lc": bleu, "chrf": 66.0, "steps": 16_000},
        signatures={"bleu_tokenized_lc": "nrefs:1|tok:none"},
        machine=MACHINE,
    )


def test_several_seeds_have_a_mean_and_a_spread(tmp_path):
    recorded(tmp_path, "multi30k_tiny", 40.0, command="first")
    recorded(tmp_path, "multi30k_tiny_bfloat16", 50.0)
    write_seeds("multi30k_tiny", "multi30k:tiny", tmp_path)
    assert not (tmp_path / "multi30k_tiny_seeds.json").exists(), "one seed has no spread"

    # A seed counts once, and 1 is the config's own.
    recorded(tmp_path, "multi30k_tiny_seed_1", 60.0)
    recorded(tmp_path, "multi30k_tiny_seed_2", 41.0, command="second")
    recorded(tmp_path, "multi30k_tiny_seed_2_bfloat16", 50.0)
    recorded(tmp_path, "multi30k_tiny_seed_13_bfloat16", 42.0, command="third")

    # Other weights or another search than these three:
    for name in ("gnmt_1_6", "seed_2_gnmt_1_6", "raw"):
        recorded(tmp_path, f"multi30k_tiny_{name}", 10.0)
    for _ in range(2):  # its own result is none of them
        write_seeds("multi30k_tiny", "multi30k:tiny", tmp_path)
    result = read_result(tmp_path / "multi30k_tiny_seeds.json")
    bleu = {"": 41.0, "_lowest": 40.0, "_highest": 42.0, "_deviation": 1.0}
    for end, value in bleu.items():
        assert result.metrics[f"bleu_tokenized_lc{end}"] == pytest.approx(value)
    assert result.metrics["seeds"] == 3 and result.seconds == 180.0
    assert "sacrebleu_13a" not in result.metrics and "steps" not in result.metrics
    assert sorted(result.command.split("; ")) == ["first", "second", "third"]
    assert result.signatures == {"bleu_tokenized_lc": "nrefs:1|tok:none"}
    left_out = {name: text for name, text in result.details.items() if text.startswith("left out")}
    assert left_out == {
        "multi30k_tiny_bfloat16": "left out: seed 1 counts once, by multi30k_tiny",
        "multi30k_tiny_seed_1": "left out: seed 1 counts once, by multi30k_tiny",
        "multi30k_tiny_seed_2_bfloat16": "left out: seed 2 counts once, by multi30k_tiny_seed_2",
    }
