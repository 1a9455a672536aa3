"""docs/reproduction.md: the recorded results' page, and what compiled steps and other text add."""

import dataclasses

import pytest

from benchmarks import RESULTS
from benchmarks.planned_steps import (
    PlannedStep,
    compiled_layers,
    planned_steps,
    step_digest,
)
from benchmarks.reproduction_page import COMMAND, additions, deviations_of, main, other_text
from flaxformer_mt.config import read_config
from flaxformer_mt.reproduction.paper import row_of
from flaxformer_mt.reproduction.result_file import ResultError, read_result
from tests.conftest import ROOT
from tests.reproduction.made_up import experiment, result, write


def test_the_recorded_page_is_what_the_recorded_results_give():
    """With rows that were not run, costed by the compiler, and orderings."""
    assert main(["--check"]) == 0, f"run `{COMMAND}`"


def test_a_score_of_an_earlier_protocol_is_marked_on_other_text_too(tmp_path):
    of_table_2 = experiment("table2/en_de_base", scale=1.0)
    measured = read_result(write(tmp_path, result(of_table_2, bleu_paper=27.0)))
    signatures = {"bleu_paper": "tok:moses-de|version:flaxformer_mt.1"}
    section = "".join(other_text([dataclasses.replace(measured, signatures=signatures)]))
    assert "| 27.00 (protocol 1) |" in section


def test_an_extrapolated_step_is_compared_with_the_same_program_in_full():
    full = PlannedStep(
        chip="v5e",
        chips=8,
        step_ms=20.0,
        gib=2.0,
        whole=True,
        of_row=False,
        command="a command",
        commits=("one",),
    )
    extrapolated = dataclasses.replace(full, step_ms=22.0, gib=1.5, whole=False, of_row=True)
    found = deviations_of(extrapolated, [full, extrapolated])
    assert [*found] == ["+10.0% of its time and -25.0% of its memory"]
    assert [*deviations_of(dataclasses.replace(extrapolated, commits=("two",)), [full])] == []


@pytest.mark.parametrize(
    ("plan", "other", "message"),
    [
        (None, "plan.json", "plan.json: has none of the scores f1"),
        ("quickstart.json", None, "quickstart.json: has no steps of benchmarks.plan"),
        ("none.json", None, "none.json: cannot be read"),
    ],
)
def test_foreign_files_are_named(plan, other, message):
    plans, others = ([RESULTS / name] if name else [] for name in (plan, other))
    with pytest.raises(ResultError, match=message):
        additions(plans, others)


def test_a_planned_row_is_recorded_until_its_step_changes():
    base = read_config("table3:base")
    plans = [read_result(RESULTS / "plan_rows.json")]
    assert any(planned_steps(row_of("table3/base"), base, plans))
    assert step_digest(base) == step_digest(read_config("table3:base", ["training.steps=7"]))
    for change in (
        *("model.d_ff=64", "data.batch.tokens=64", "data.vocabulary.size=999"),
        *("data.filter.max_length=99", "training.freeze=embedding"),
    ):
        changed = read_config("table3:base", [change])
        assert not any(planned_steps(row_of("table3/base"), changed, plans))
    # A line through one and two layers needs stacks that are alike.
    assert compiled_layers(base) == (1, 2)
    with pytest.raises(ValueError, match=r"6 \+ 2 layers: the stacks must be alike"):
        compiled_layers(read_config("table3:base", ["model.decoder_layers=2"]))


def test_every_script_runs_when_it_is_called():
    """One without its last lines does nothing, and says so to nobody."""
    scripts = [path.read_text("utf-8") for path in (ROOT / "benchmarks").rglob("*.py")]
    mains = [text for text in scripts if "\ndef main(arguments" in text]
    assert len(mains) > 20
    assert all('\nif __name__ == "__main__":\n' in text for text in mains)
