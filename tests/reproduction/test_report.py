"""The report on made-up results: stale, failed, reduced and full."""

import json
import re

import pytest

from flaxformer_mt.cli.main import main
from flaxformer_mt.reproduction.orderings import still_compared, verdict
from flaxformer_mt.reproduction.paper import row_of
from flaxformer_mt.reproduction.records import (
    experiment_state,
    read_records,
    remove_failure,
    write_failure,
)
from flaxformer_mt.reproduction.report import report
from flaxformer_mt.reproduction.result_file import ResultError, read_result
from tests.reproduction.made_up import experiment, result, write

C_N2 = experiment("table3/c_N2")


def line_of(page: str, row: str, heading: str = "Table 3") -> str:
    """A row's line in the section that begins with this heading."""
    section = page.partition(f"## {heading}")[2].partition("\n## ")[0]
    (line,) = [line for line in section.split("\n") if line.startswith(f"| `{row}` |")]
    return line


def test_a_measurement_at_full_scale_stands_beside_the_paper_s(tmp_path):
    for seed, bleu in ((1, 27.0), (2, 28.0)):
        # Two forms of the paper's text are no seeds of each other.
        text = ("files", "tfds")[seed - 1]
        for measured in (
            experiment("table2/en_de_base", scale=1.0, seed=seed),
            experiment("table2/en_de_big", scale=1.0, text=text),
        ):
            write(tmp_path, result(measured, bleu_paper=bleu, pairs=4_500_000))
    page = report(read_records(tmp_path))
    for row, cells in (
        ("en_de_base", "| 27.3 | 27.50 ± 0.71 (2 seeds) | 24.25 ± 0.00 (2 seeds) |"),
        ("en_de_big", "| 28.4 | 27.00, 28.00 (tfds) | 24.25, 24.25 (tfds) |"),
    ):
        assert line_of(page, row, "Table 2").endswith("| measured at full scale |")
        assert cells in line_of(page, row, "Table 2")
    assert "### Table 2 on the paper's text, full length" in page
    assert "### Table 2 on the paper's text as TensorFlow Datasets has it, full length" in page


def test_other_code_that_trained_a_row_is_told(tmp_path):
    codes = json.dumps([{"commit": "f" * 40, "packages": {"jax": "0.10.2"}}])
    write(tmp_path, result(C_N2, details={"trained_by": codes}))
    page = report(read_records(tmp_path))
    assert f"- `{C_N2.name}`: trained by ffffffffff; measured by 0123456789" in page


def test_scores_of_two_protocols_or_texts_have_no_common_mean(tmp_path):
    for seed, score in ((1, 27.0), (2, 28.0)):
        content = result(experiment("table2/en_de_base", scale=1.0, seed=seed), bleu_paper=score)
        content["metrics"]["pairs"] = 4_508_785
        content["signatures"]["bleu_paper"] = f"tok:moses-de|version:flaxformer_mt.{seed}"
        write(tmp_path, content)
    page = report(read_records(tmp_path))
    line = line_of(page, "en_de_base", "Table 2")
    assert "| 27.3 | 28.00, 27.00 (protocol 1) | 24.25 ± 0.00 (2 seeds) |" in line
    assert page.count("the paper's BLEU (protocol 1) |") == 1  # a table of its own

    # What is said above a table is so of all its rows.
    texts = {"base": "4,508,785", "c_N2": "35,800,000"}
    for name, pairs in texts.items():
        data = {"data": f"{pairs} training pairs"}
        write(tmp_path, result(experiment(f"table3/{name}"), details=data))
    page = report(read_records(tmp_path)).partition("### Table 3 on the paper's text, scale")[2]
    for name, pairs in texts.items():
        above = page.partition(f"| `{name}` |")[0].rpartition("Trained on ")[2]
        assert above.startswith(f"{pairs} training pairs")


def test_what_is_stale_is_said_to_be_and_not_shown(tmp_path):
    gone = {"scale": 0.01, "seed": 1, "corpus": None, "overrides": ["model.depth=3"]}
    for details, reason in (
        ({"digest": "0" * 64}, "the row's config has changed since it was measured"),
        ({"settings": json.dumps(gone)}, "its settings .* unknown key 'model.depth'"),
        ({"row": "table3/c_N3"}, "its settings are no longer valid: .* no row 'table3/c_N3'"),
    ):
        write(tmp_path, result(C_N2, details=details))
        page = report(read_records(tmp_path))
        assert line_of(page, "c_N2").endswith("| not run |") and "25.00" not in page
        assert re.search(f"- `{C_N2.name}`: stale: {reason}", page.partition("## Stale")[2])
    (tmp_path / "failed").mkdir()
    content = {"name": "x", "command": "c", "message": "no room", "details": {"row": "table9/x"}}
    (tmp_path / "failed" / "x.json").write_text(json.dumps(content))
    page = report(read_records(tmp_path))
    assert "- `x`: failed, but the paper has no row 'table9/x': no room" in page


def test_a_failed_row_says_why_until_it_is_measured(tmp_path):
    write_failure(C_N2, "the device ran out of memory", tmp_path)
    assert experiment_state(C_N2, tmp_path).state == "failed"
    page = report(read_records(tmp_path))
    assert line_of(page, "c_N2").endswith("| failed |")
    assert f"- `table3/c_N2`: the device ran out of memory (`{C_N2.command}`)" in page

    # A status of another version leaves no result out.
    write(tmp_path, result(C_N2, details={"status": "as of another version"}))
    remove_failure(C_N2, tmp_path)
    write_failure(experiment("table3/c_N2", scale=0.5), "the disk is full", tmp_path)
    assert experiment_state(C_N2, tmp_path).state == "done"
    page = report(read_records(tmp_path))
    assert line_of(page, "c_N2").endswith("| measured at reduced scale |")
    assert "the disk is full" in page


def test_foreign_files_are_named(tmp_path, capsys):
    notes = tmp_path / "results" / "notes.json"
    notes.parent.mkdir()
    notes.write_text("{}")
    assert main(["reproduce", "report", "--workdir", str(tmp_path)]) in (1, 2)
    assert "results/notes.json: the result lacks" in capsys.readouterr().err
    (tmp_path / "failed").mkdir()
    for content in ("{", "[]", '{"name": "x"}', '{"row": 3}'):
        (tmp_path / "failed" / "bad.json").write_text(content)
        with pytest.raises(ResultError, match="bad.json: is not a failure record"):
            read_records(tmp_path)
    write(tmp_path, {**result(C_N2), "details": {}})
    with pytest.raises(ResultError, match="is not a result of `reproduce`"):
        read_records(tmp_path)


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
    figures = {"difference": -1.5, "p_randomization": 0.001, "agreeing": 2, "seeds": 2} | metrics
    prefixed = {f"{row.lower()}_{name}": number for name, number in figures.items()}
    assert verdict(row_of(f"table3/{row}"), prefixed) == judged
    assert verdict(row_of("table3/c_d256"), prefixed) is None  # not tested


def test_an_ordering_of_runs_that_are_no_longer_those_is_left_out(tmp_path):
    base = experiment()
    for ordered in (base, C_N2):
        write(tmp_path, result(ordered))
    compared = {"seeds": 2, "difference": -1.5, "low": -2.0, "high": -1.0, "agreeing": 2}
    compared |= {"perplexity_difference": 0.5, "p_randomization": 0.001}
    content = result(base) | {
        "name": base.stem("orderings"),
        "metrics": {f"c_n2_{key}": value for key, value in compared.items()},
        "signatures": {"c_n2_difference": "tok:moses-de"},
        "details": {
            "experiments": json.dumps({ordered.name: ordered.digest for ordered in (base, C_N2)}),
            "group": json.dumps({"corpus": None, "overrides": [], "scale": 0.01}),
            "test": "valid, 3,000 sentences",
        },
    }
    write(tmp_path, content)
    page = report(read_records(tmp_path))
    line = line_of(page, "c_N2", "Which of Table 3's orderings hold")
    assert "| holds |" in line and "| -2.1 |" in line and "| +1.19 | +0.50 |" in line
    assert "Holds: `c_N2`" in page
    write(tmp_path, result(C_N2, details={"digest": "0" * 64}))
    page = report(read_records(tmp_path))
    assert "Which of Table 3's orderings hold" not in page
    stale = (
        "- `table3_orderings_paper_scale_0_01`: stale: compares runs of `c_N2` that have changed"
    )
    assert stale in page


def test_orderings_of_other_rows_are_shown_when_one_row_has_changed(tmp_path):
    digests = {"table3_base_s": "0", "table3_c_n2_s": "1", "table3_c_n4_s": "2"}
    content = result(C_N2) | {
        "metrics": {"c_n2_difference": -1.5, "c_n4_difference": -0.5},
        "signatures": {"c_n2_difference": "tok:moses-de"},
        "details": {"experiments": json.dumps(digests)},
    }
    orderings = read_result(write(tmp_path, content))
    assert still_compared(orderings, digests) == (orderings, [])
    current, changed = still_compared(orderings, digests | {"table3_c_n4_s": "3"})
    assert current is not None and current.metrics == {"c_n2_difference": -1.5}
    assert changed == ["`c_N4`"]
    assert still_compared(orderings, digests | {"table3_base_s": "3"})[0] is None
