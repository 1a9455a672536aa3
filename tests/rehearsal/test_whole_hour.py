"""`doctor --tpu-hour` whole, on a CPU that stands in for an accelerator."""

import json
from pathlib import Path

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.config import read_config
from tests.rehearsal.plans import plan_of

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]
CONFIG = """
from flaxformer_mt.config import corpus, default_config

def get_config(variant=""):
    config = default_config()
    config.name = "a small stand-in"
    config.model.update({
        "encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 64, "num_heads": 2,
        "d_k": 16, "d_v": 16, "max_length": 64,
    })
    config.data.train.grammar = corpus(kind="synthetic", split="train", size=100)
    config.data.valid = corpus(kind="synthetic", split="valid", size=10)
    config.data.filter.max_length = 64
    config.data.vocabulary.size = 500
    config.data.batch.update({"form": "pack", "tokens": 2048, "src_length": 64, "tgt_length": 64})
    config.decoding.beam_size = 2
    config.decoding.max_extra_tokens = 5
    return config
"""


def hour(folder: Path, *words: str, step_seconds: float) -> int:
    config = folder / "small.py"
    config.write_text(CONFIG)
    plan = folder / "plan.json"
    plan.write_text(json.dumps(plan_of(read_config(str(config)), step_seconds)))
    where = ["--workdir", str(folder), "--config", str(config), "--plan", str(plan)]
    return main(["doctor", "--tpu-hour", *where, *words])


def test_every_part_runs_and_leaves_nothing(tmp_path, capsys):
    assert hour(tmp_path, step_seconds=10.0) == 0
    printed, said = capsys.readouterr()
    for name in ("machine", "steps", "input", "save", "train", "resume", "decode"):
        assert f"{name}: passed" in said
    words = ("times the plan", "SIGTERM received", "finished at step 60", "sentences in")
    assert all(text in printed for text in words)
    assert "FAIL" not in printed and not (tmp_path / "tpu-hour").exists()


def test_it_stops_at_steps_that_are_slower_than_their_plan(tmp_path, capsys):
    assert hour(tmp_path, "--only", "steps", "save", "--json", step_seconds=1e-6) == 2
    printed, said = capsys.readouterr()
    *_, finding = [one for one in json.loads(printed) if one["state"] == "FAIL"]
    assert finding["name"] == "step time" and finding["values"]["ratio"] > 1.5
    assert "steps: failed" in said and "save:" not in said
