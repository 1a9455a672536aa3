"""The report on made-up results: missing, stale, failed, reduced and full; and the recorded one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.reproduction.orderings import verdict
from flaxformer_mt.reproduction.paper import ROWS, row_of
from flaxformer_mt.reproduction.records import (
    Records,
    known,
    read_records,
    remove_failure,
    stale,
    write_failure,
)
from flaxformer_mt.reproduction.report import report
from flaxformer_mt.reproduction.result_file import ResultError, read_result
from tests.reproduction.made_up import COMMIT, TOY, experiment, result, write

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "benchmarks" / "results" / "plan.json"
# In the order of the page, which is that of docs/reproducing.md's command.
OTHERS = ("multi30k_tiny", "multi30k_tiny_seeds", "multi30k_tiny_raw", "tatoeba", "craft")
OTHERS += ("quickstart",)


def line_of(page: str, row: str, heading: str) -> str:
    """A row's line in the section that begins with this heading."""
    section = page.partition(f"## {heading}")[2].partition("\n## ")[0]
    (line,) = [line for line in section.split("\n") if line.startswith(f"| `{row}` |")]
    return line


def status(page: str, row: str, heading: str = "Table 3") -> str:
    return line_of(page, row, heading).rstrip(" |").rpartition("| ")[2]


def test_the_recorded_report_is_what_the_recorded_results_give(monkeypatch):
    monkeypatch.chdir(ROOT)
    places = ["--results", "benchmarks/results/reproduction", "--report", "docs/reproduction.md"]
    plans = [f"--plan=benchmarks/results/{name}.json" for name in ("plan", "plan_rows")]
    others = [f"--also=benchmarks/results/{name}.json" for name in OTHERS]
    arguments = ["reproduce", "report", *places, *plans, *others]
    assert main([*arguments, "--check"]) == 0, f"run `flaxformer-mt {' '.join(arguments)}`"


def test_without_results_every_row_says_that_it_was_not_run():
    page = report(Records())
    for row in ROWS:
        assert status(page, row.name, row.table.replace("table", "Table ")) == "not run"
    assert "## Measured" not in page and "Failed" not in page and "Stale" not in page


def full(folder: Path, bleu: float, label: str = "table2/en_de_base", **settings: object) -> None:
    found = experiment(label, scale=1.0, **settings)
    write(folder, result(found, bleu_paper=bleu, pairs=4_500_000))


def test_a_measurement_at_full_scale_stands_beside_the_paper_s(tmp_path):
    for seed, bleu in ((1, 27.0), (2, 28.0)):
        full(tmp_path, bleu, seed=seed)
        # Two forms of the paper's text are no seeds of each other.
        text = ("files", "tfds")[seed - 1]
        full(tmp_path, bleu, "table2/en_de_big", text=text)
    page = report(read_records(tmp_path))
    for row, shown in (
        ("en_de_base", "| 27.3 | 27.50 ± 0.71 (2 seeds) | 24.25 ± 0.00 (2 seeds) |"),
        ("en_de_big", "| 28.4 | 27.00, 28.00 (tfds) | 24.25, 24.25 (tfds) |"),
    ):
        assert status(page, row, "Table 2") == "measured at full scale"
        assert shown in line_of(page, row, "Table 2")
    assert "### Table 2 on the paper's text, full length" in page
    assert "### Table 2 on the paper's text as TensorFlow Datasets has it, full length" in page


def test_one_at_reduced_scale_never_does(tmp_path):
    codes = json.dumps([{"commit": "f" * 40, "packages": {"jax": "0.10.2"}}])
    older = result(experiment("table3/c_N2"), details={"trained_by": codes})
    write(tmp_path, older)
    write(tmp_path, result(experiment("table3/c_N2", corpus=TOY), perplexity=77.75))
    page = report(read_records(tmp_path))
    assert f"- `{older['name']}`: trained by ffffffffff; measured by 0123456789" in page
    assert status(page, "c_N2") == "measured at reduced scale"
    assert "25.00" not in page.partition("## Measured")[0]
    for heading in ("the paper's text, scale 0.01", "the text `toy`, scale 0.01"):
        assert f"### Table 3 on {heading}\n" in page
    # In Table 3, and once for each text.
    assert page.count("| `c_N2` |") == 3
    for shown in ("25.00 (24.00 to 26.00)", "77.75", "45,000", "1.2", "8.5e+15", "NVIDIA H200"):
        assert shown in page.partition("## Measured")[2]
    assert COMMIT[:10] in page and "`tok:moses-de`" in page
    # No table is torn by a bar.
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({line.count("|") for line in block.strip().split("\n")}) == 1


def test_scores_of_two_protocols_or_texts_have_no_common_mean(tmp_path):
    for seed, score in ((1, 27.0), (2, 28.0)):
        found = result(experiment("table2/en_de_base", scale=1.0, seed=seed), bleu_paper=score)
        found["metrics"]["pairs"] = 4_508_785
        found["signatures"]["bleu_paper"] = f"tok:moses-de|version:flaxformer_mt.{seed}"
        write(tmp_path, found)
    records = read_records(tmp_path)
    page = report(records, others=records.rows)
    shown = line_of(page, "en_de_base", "Table 2")
    assert "| 27.3 | 28.00, 27.00 (protocol 1) | 24.25 ± 0.00 (2 seeds) |" in shown
    assert page.count("the paper's BLEU (protocol 1) |") == 1  # a table of its own
    assert "| 27.00 (protocol 1) |" in page.partition("## On other text")[2]
    # What is said above a table is so of all its rows.
    for label, pairs in (("table3/base", "4,508,785"), ("table3/c_N2", "35,800,000")):
        write(tmp_path, result(experiment(label), details={"data": f"{pairs} training pairs"}))
    page = report(read_records(tmp_path)).partition("### Table 3 on the paper's text, scale 0.01")[
        2
    ]
    for label, pairs in (("base", "4,508,785"), ("c_N2", "35,800,000")):
        above = page.partition(f"| `{label}` |")[0].rpartition("Trained on ")[2]
        assert above.startswith(f"{pairs} training pairs")


def test_a_stale_result_is_said_to_be_and_not_shown(tmp_path):
    found = experiment("table3/c_N2")
    path = write(tmp_path, result(found, details={"digest": "0" * 64}))
    (reason,) = [stale(read_result(path))]
    assert reason == "the row's config has changed since it was measured"
    page = report(read_records(tmp_path))
    assert status(page, "c_N2") == "not run" and "25.00" not in page
    assert f"- `{found.name}`: stale: {reason}" in page
    assert known(found, tmp_path).state == "stale"
    # So is one whose settings are gone.
    settings = {"scale": 0.01, "seed": 1, "corpus": None, "overrides": ["model.depth=3"]}
    write(tmp_path, result(found, details={"settings": json.dumps(settings)}))
    page = report(read_records(tmp_path))
    assert status(page, "c_N2") == "not run"
    assert "its settings are no longer valid" in page and "unknown key 'model.depth'" in page


def test_a_failed_row_says_why_until_it_is_measured(tmp_path):
    found = experiment("table3/c_N2")
    write_failure(found, "the device has not enough memory", tmp_path)
    assert known(found, tmp_path).state == "failed"
    page = report(read_records(tmp_path))
    assert status(page, "c_N2") == "failed"
    assert f"- `table3/c_N2`: the device has not enough memory (`{found.command}`)" in page
    # A status of another version leaves no result out.
    write(tmp_path, result(found, details={"status": "as of another version"}))
    remove_failure(found, tmp_path)
    write_failure(experiment("table3/c_N2", scale=0.5), "the disk is full", tmp_path)
    assert known(found, tmp_path).state == "done"
    page = report(read_records(tmp_path))
    assert status(page, "c_N2") == "measured at reduced scale" and "the disk is full" in page


def test_what_is_of_a_row_that_there_is_no_longer_is_told(tmp_path):
    found = experiment("table3/c_N2")
    write(tmp_path, result(found, details={"row": "table3/c_N3"}))
    (tmp_path / "failed").mkdir()
    content = {"name": "x", "command": "c", "message": "no room", "details": {"row": "table9/x"}}
    (tmp_path / "failed" / "x.json").write_text(json.dumps(content))
    stale_lines = report(read_records(tmp_path)).partition("## Stale")[2]
    assert f"- `{found.name}`: stale: its settings are no longer valid" in stale_lines
    assert "the paper has no row 'table3/c_N3'" in stale_lines
    assert "- `x`: failed, and the paper has no row 'table9/x': no room" in stale_lines


def test_foreign_files_are_named(tmp_path, capsys):
    write(tmp_path, {**result(experiment()), "details": {}})
    with pytest.raises(ResultError, match="is no result of `reproduce`"):
        read_records(tmp_path)
    assert main(["reproduce", "report", "--workdir", str(tmp_path), "--also", str(PLAN)]) != 0
    assert "plan.json: has none of the scores bleu_paper" in capsys.readouterr().err
    quickstart = str(PLAN.with_name("quickstart.json"))
    assert main(["reproduce", "report", "--workdir", str(tmp_path), "--plan", quickstart]) != 0
    assert "quickstart.json: has no steps of benchmarks.plan" in capsys.readouterr().err
    (tmp_path / "failed").mkdir()
    for content in ("{", "[]", '{"name": "x"}', '{"row": 3}'):
        (tmp_path / "failed" / "bad.json").write_text(content)
        next(tmp_path.glob("*.json"), tmp_path / "none").unlink(missing_ok=True)
        with pytest.raises(ResultError, match="bad.json: is no record of a failure"):
            read_records(tmp_path)


def ordering(folder: Path, **metrics: float) -> None:
    """Of c_N2 (the paper: worse by 2.1) against base, both at hand."""
    base, row = (experiment(f"table3/{name}") for name in ("base", "c_N2"))
    for one in (base, row):
        write(folder, result(one))
    found = {"seeds": 2, "difference": -1.5, "low": -2.0, "high": -1.0, "agreeing": 2}
    compared = {**found, "perplexity_difference": 0.5, "p_randomization": 0.001} | metrics
    group = json.dumps({"corpus": None, "overrides": [], "scale": 0.01})
    content = result(base) | {
        "name": base.stem("orderings"),
        "metrics": {f"c_n2_{key}": value for key, value in compared.items()},
        "signatures": {"c_n2_difference": "tok:moses-de"},
        "details": {
            "experiments": json.dumps({one.name: one.digest for one in (base, row)}),
            "group": group,
            "test": "valid, 3,000 sentences",
        },
    }
    write(folder, content)


@pytest.mark.parametrize(
    ("row", "metrics", "judged"),
    [
        ("c_N2", {}, "holds"),
        ("c_N2", {"difference": 1.5}, "does not hold"),
        ("c_N2", {"p_randomization": 0.05}, "cannot be told apart"),
        ("c_N2", {"agreeing": 1}, "cannot be told apart"),
        ("c_N2", {"difference": 0.0}, "cannot be told apart"),
        ("a_h16", {}, None),  # the paper has no order
    ],
)
def test_an_order_is_judged_by_chance_and_by_every_seed(row, metrics, judged):
    found = {"difference": -1.5, "p_randomization": 0.001, "agreeing": 2, "seeds": 2} | metrics
    prefixed = {f"{row.lower()}_{name}": number for name, number in found.items()}
    assert verdict(row_of(f"table3/{row}"), prefixed) == judged
    assert verdict(row_of("table3/c_d256"), prefixed) is None  # not tested


def test_a_p_of_the_bootstrap_alone_decides_nothing_and_says_what_it_is(tmp_path):
    ordering(tmp_path, p=0.001)
    path = next(tmp_path.glob("*orderings*.json"))
    content = json.loads(path.read_text())
    del content["metrics"]["c_n2_p_randomization"]
    write(tmp_path, content)
    page = report(read_records(tmp_path))
    line = line_of(page, "c_N2", "Which of Table 3's orderings hold")
    assert "| 0.001 (bootstrap) |" in line and "| not decided |" in line
    assert "Not decided: `c_N2`" in page and "the bootstrap's p, which is one-sided" in page


def test_an_ordering_of_runs_that_are_no_longer_those_is_left_out(tmp_path):
    ordering(tmp_path)
    page = report(read_records(tmp_path))
    line = line_of(page, "c_N2", "Which of Table 3's orderings hold")
    assert "| holds |" in line and "| -2.1 |" in line and "| +1.19 | +0.50 |" in line
    assert "Holds: `c_N2`" in page
    write(tmp_path, result(experiment("table3/c_N2"), details={"digest": "0" * 64}))
    page = report(read_records(tmp_path))
    assert "Which of Table 3's orderings hold" not in page
    assert "- `table3_orderings_paper_scale_0_01`: stale: compares runs that are no longer" in page
