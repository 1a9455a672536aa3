"""Deviations from the paper: what is measured, and the table that is made of it."""

import dataclasses
from typing import Any

from benchmarks.deviations.__main__ import summary
from benchmarks.deviations.forms import SEARCHED, TRAINED
from benchmarks.deviations.page import render
from flaxformer_mt.config import load_config
from flaxformer_mt.reproduction.result_file import Result

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
