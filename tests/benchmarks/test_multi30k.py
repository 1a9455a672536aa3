"""Seeds of Multi30k: what several results say together, and which of them belong together."""

import pytest

from benchmarks import multi30k
from benchmarks.multi30k import main, write_seeds
from flaxformer_mt.reproduction.result_file import Machine, read_result, read_results, write_result

MACHINE = Machine(cores=2, memory_gib=24.0, accelerator="none")


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
    found = read_result(tmp_path / "multi30k_tiny_seeds.json")
    bleu = {"": 41.0, "_lowest": 40.0, "_highest": 42.0, "_deviation": 1.0}
    for end, value in bleu.items():
        assert found.metrics[f"bleu_tokenized_lc{end}"] == pytest.approx(value)
    assert found.metrics["seeds"] == 3 and found.seconds == 180.0
    assert "sacrebleu_13a" not in found.metrics and "steps" not in found.metrics
    assert sorted(found.command.split("; ")) == ["first", "second", "third"]
    assert found.signatures == {"bleu_tokenized_lc": "nrefs:1|tok:none"}
    left_out = {name: text for name, text in found.details.items() if text.startswith("left out")}
    assert left_out == {
        "multi30k_tiny_bfloat16": "left out: seed 1 counts once, by multi30k_tiny",
        "multi30k_tiny_seed_1": "left out: seed 1 counts once, by multi30k_tiny",
        "multi30k_tiny_seed_2_bfloat16": "left out: seed 2 counts once, by multi30k_tiny_seed_2",
    }


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Runs the benchmark on stand-ins for training and scoring; what was asked for training."""
    asked = []

    def trained(workdir, spec, overrides, *, benchmark):
        asked.append(list(overrides))
        return tmp_path

    def record(run, path, *, command, config, test):
        recorded(tmp_path, path.stem, 40.0 + len(asked), command=command)
        return read_result(path)

    def run(*arguments):
        assert main(["--data", "F", "--workdir", "D", *arguments]) == 0
        return {result.name: result for result in read_results(tmp_path)}

    monkeypatch.setattr(multi30k, "trained", trained)
    monkeypatch.setattr(multi30k, "record", record)
    monkeypatch.setattr(multi30k.evaluate, "main", lambda *_: 0)
    monkeypatch.setattr(multi30k, "RESULTS", tmp_path)
    return run, asked


def test_a_seed_is_trained_named_and_counted(bench):
    run, asked = bench
    # The config's own seed and type are no second run.
    assert run("--seed", "1", "--dtype", "float32").keys() == {"multi30k_tiny"}
    assert asked[-1] == ["data.folder=F"]
    # Another search is no seed.
    assert run("--penalty", "gnmt:1.6").keys() == {"multi30k_tiny", "multi30k_tiny_gnmt_1_6"}
    found = run("--seed", "3", "--dtype", "bfloat16")
    assert asked[-1] == ["data.folder=F", "training.seed=3", "model.dtype=bfloat16"]
    one = found["multi30k_tiny_seed_3_bfloat16"]
    assert one.command.endswith(" --workdir DIR --seed 3 --dtype bfloat16")
    assert found["multi30k_tiny_seeds"].metrics["seeds"] == 2
