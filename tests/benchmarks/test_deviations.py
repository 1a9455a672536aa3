"""The measurement of deviations, at toy size, and the table that is made of it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from benchmarks.deviations.__main__ import main, summary
from benchmarks.deviations.forms import SEARCHED, TRAINED
from benchmarks.deviations.page import render
from flaxformer_mt.config import load_config
from flaxformer_mt.reproduction.result_file import Result, read_result
from tests.system.conftest import SMALL

BLEU = "sacrebleu_13a"
PRE = "layer normalisation before each sub-layer"


def test_every_form_is_one_change_of_settings_that_exist() -> None:
    paper = load_config("quickstart", [])
    assert len({form.name for form in (*TRAINED, *SEARCHED)}) == len(TRAINED) + len(SEARCHED)
    for trained in TRAINED:
        given = [f"{key}={value}" for key, value in trained.settings.items()]
        assert load_config("quickstart", given) != paper, trained.name
    for searched in SEARCHED:
        changed = dataclasses.replace(paper.decoding, **searched.settings)
        assert (changed != paper.decoding) == searched.averaged, searched.name


def summed(seeds: int = 1, **found: list[float]) -> Result:
    machine: Any = None
    return Result(
        **{"name": "deviations", "command": "python -m benchmarks.deviations --workdir DIR"},
        **{"config": "quickstart", "commit": "0" * 40, "machine": machine, "versions": {}},
        **{"seconds": 1.0, "signatures": {}},
        metrics=summary(found, steps=1300, paper_seeds=3, seeds=seeds),
    )


def rows(text: str) -> dict[str, list[str]]:
    cells = [line[2:-1].split("|") for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}


def test_seeds_that_diverged_are_counted_beside_the_mean_of_the_others() -> None:
    found = {
        **{f"paper_{BLEU}": [95.0], "paper_diverged": [1.0, 1.0]},
        **{"paper_perplexity": [1.3], "paper_bleu_paper": [95.5], f"greedy_{BLEU}": [94.0]},
        **{f"norm_pre_{BLEU}": [96.0, 97.0], "norm_pre_diverged": [1.0]},
    }
    text = render(summed(seeds=3, **found, warmup_short_diverged=[1]))
    assert "from 3 seeds (2 of 3 diverged), has a mean BLEU of 95.00" in text
    table = rows(text)
    assert table["the paper's form"][2] == "**95.00 (2 of 3 diverged)**"
    assert table[PRE][2:4] == ["96.50 (1 of 3 diverged)", "+1.50"]
    assert table["greedy search"][2:] == ["94.00 (2 of 3 diverged)", "-1.00"]
    assert table["a tenth of the warm-up, the same rates after it"][2] == "1 of 1 diverged"
    assert table["learned positions"][2] == "not measured yet"
    # Where the paper's form always diverged nothing is compared.
    text = render(summed(paper_diverged=[1.0, 1.0, 1.0], **{f"norm_pre_{BLEU}": [96.0]}))
    assert "has no score: **there is nothing to compare with.**" in text
    table = rows(text)
    assert table["the paper's form"][2] == "**3 of 3 diverged**"
    assert table[PRE][2:4] == ["96.00", ""]
    assert table["greedy search"][2] == "3 of 3 diverged"


@pytest.mark.extended
def test_a_few_steps_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flaxformer_mt.reproduction.result_file.git_commit", lambda: "0" * 40)
    sizes = {"train.grammar": 100, "valid": 4, "test.grammar": 4}
    settings = SMALL | {"data.batch.max_shapes": 1}
    settings |= {f"data.{corpus}.size": size for corpus, size in sizes.items()}
    del settings["training.steps"], settings["training.save_every"]
    status = main(
        [
            *("--workdir", str(tmp_path / "runs"), "--output", str(tmp_path / "deviations.json")),
            *("--steps", "3", "--paper-seeds", "1", "--only", "norm_pre"),
            *(f"--config.{key}={value}" for key, value in settings.items()),
        ]
    )
    assert status == 0
    result = read_result(tmp_path / "deviations.json")
    assert result.command.endswith("--workdir DIR --steps 3 --paper-seeds 1 --only norm_pre")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["norm_pre-1", "paper-1"]
    measured = {form.name for form in SEARCHED} | {"paper", "norm_pre"}
    assert all(f"{name}_{BLEU}" in result.metrics for name in measured)
    assert result.details["training"].startswith("2 starts, ")
    systems = {"paper-1", "norm_pre-1", *(f"paper-1-{form.name}" for form in SEARCHED)}
    kept = {f"deviations.{system}.hyp.xz" for system in systems}
    assert kept == set(result.hypotheses) == {path.name for path in tmp_path.glob("*.xz")}
    assert result.metrics["steps"] == 3 and result.metrics["norm_pre_perplexity"] > 1
    assert "not measured yet" in render(result)
