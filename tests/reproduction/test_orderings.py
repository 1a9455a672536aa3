"""Which runs are compared with the base: made-up output of several seeds, and no training."""

import json
import lzma
import random
import shutil
from pathlib import Path

import pytest

from flaxformer_mt.evaluation.evaluate import read_kept
from flaxformer_mt.evaluation.metrics import Measured, measure
from flaxformer_mt.evaluation.significance import approximate_randomization
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.orderings import write_orderings
from flaxformer_mt.reproduction.result_file import Result, ResultError, write_result
from flaxformer_mt.reproduction.scoring import row_scoring
from flaxformer_mt.rundir.layout import RunDirectory
from tests.reproduction.made_up import TOY, experiment, result

CHANCE = random.Random(1)
REFERENCES = [" ".join(CHANCE.choices("abcdefghijklmnop", k=12)) for _ in range(40)]


class Folder:
    """Results and runs, as calls with one `--workdir` leave them."""

    def __init__(self, path: Path) -> None:
        self.path, self.results = path, path / "results"

    def run_of(self, of: Experiment) -> RunDirectory:
        return RunDirectory(self.path / "runs" / of.run_name)

    def add(self, label: str, seed: int, noise: float, **settings: object) -> None:
        """A measured run, `noise` of whose words are wrong."""
        of, chance = experiment(label, seed=seed, **settings), random.Random(f"{seed}{label}")
        evaluation = self.run_of(of).evaluation
        evaluation.mkdir(parents=True)
        output = [
            " ".join("x" if chance.random() < noise else word for word in line.split())
            for line in REFERENCES
        ]
        for kind, lines in (("hyp", output), ("ref", REFERENCES)):
            text = "".join(f"{line}\n" for line in lines)
            (evaluation / f"{of.kept_as}.{kind}.txt").write_text(text, encoding="utf-8")
        path = self.results / f"{of.name}.json"
        content = {key: result(of)[key] for key in ("metrics", "signatures", "details")}
        content |= {"command": "c", "config": "c", "seconds": 1, "release": "1.0"}
        write_result(path, hypotheses={of.test: output}, **content)

    def counts(self, label: str) -> list[Measured]:
        """All seeds' outputs of a row, sentence by sentence."""
        measured = []
        for of in (experiment(label, seed=seed) for seed in (1, 2, 3)):
            evaluation = read_kept(self.run_of(of).evaluation, of.kept_as)
            metrics = row_scoring(of).metrics(evaluation.references)
            paper = [metric for metric in metrics if metric.name == "bleu_paper"]
            measured += measure(paper, evaluation.hypotheses, evaluation.references)
        return [
            Measured(measured[0].metric, sum(seed_measured.counts for seed_measured in measured))
        ]

    def compared(self, seed: int, **settings: object) -> Result | None:
        """What a call with this seed writes."""
        full_settings = experiment(seed=seed, **settings).settings
        return write_orderings(full_settings, run_of=self.run_of, results=self.results)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    measured = Folder(tmp_path)
    for seed in (1, 2, 3):
        measured.add("table3/base", seed, 0.1)
        measured.add("table3/c_N2", seed, 0.3)
    return measured


def test_a_call_with_one_seed_compares_all_that_were_measured(folder: Folder) -> None:
    orderings = folder.compared(1)
    assert orderings is not None and orderings.metrics["c_n2_seeds"] == 3
    totals = folder.counts("table3/base"), folder.counts("table3/c_N2")
    (by_exchange,) = approximate_randomization(*totals)
    assert orderings.metrics["c_n2_p_randomization"] == by_exchange.p_value


def test_a_setting_that_decides_nothing_is_no_reason_to_compare_less(folder: Folder) -> None:
    first = folder.compared(1)
    again = folder.compared(3, overrides=("model.remat=true",))
    assert first is not None and again is not None and again.metrics == first.metrics
    assert " --seeds 1 2 3" in again.command


def test_runs_that_are_gone_are_compared_if_one_is_left(folder: Folder) -> None:
    """Their outputs are stored with the results."""
    first = folder.compared(1)
    folder.add("table3/c_N2", 9, 0.3)  # a seed that the base hasn't
    shutil.rmtree(folder.run_of(experiment(seed=1)).path)
    (folder.run_of(experiment(seed=2)).evaluation / "valid.ref.txt").unlink()
    again = folder.compared(1)
    assert first is not None and again is not None and again.metrics == first.metrics


def test_seeds_of_other_settings_are_not_compared(folder: Folder) -> None:
    assert folder.compared(1, corpus=TOY) is None
    folder.add("table3/base", 4, 0.1, scale=0.5)
    folder.add("table3/c_N2", 4, 0.3, scale=0.5)
    orderings, at_half_scale = folder.compared(1), folder.compared(4, scale=0.5)
    assert orderings is not None and orderings.metrics["c_n2_seeds"] == 3
    assert at_half_scale is not None and at_half_scale.metrics["c_n2_seeds"] == 1


def test_outputs_other_than_the_recorded_ones_are_refused(folder: Folder) -> None:
    outputs = folder.results / f"{experiment(seed=2).name}.valid.hyp.xz"
    outputs.write_bytes(lzma.compress(b"other\n"))
    with pytest.raises(ResultError, match="is not what table3_base_.*_2.json recorded"):
        folder.compared(1)
    outputs.unlink()
    with pytest.raises(ResultError, match="cannot be read"):
        folder.compared(1)
    shutil.rmtree(folder.path / "runs")
    assert folder.compared(1) is None


def test_references_with_which_a_recorded_score_would_differ_are_refused(folder: Folder) -> None:
    base = folder.results / f"{experiment(seed=1).name}.json"
    recorded = json.loads(base.read_text())
    recorded["signatures"]["bleu_paper"] = folder.counts("table3/base")[0].metric.signature
    base.write_text(json.dumps(recorded))
    with pytest.raises(ResultError, match=r"seed_1.json: with the references .*, not as recorded"):
        folder.compared(1)
