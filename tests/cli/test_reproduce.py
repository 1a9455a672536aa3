"""`reproduce`: a toy ladder from text to report, what it would do, and wrong arguments."""

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flaxformer_mt.grammar.text import pairs
from flaxformer_mt.reproduction.pictures import base_run
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.training.try_step import TrialError
from tests.cli.conftest import Done, run_captured
from tests.data.prepare.corpora import write
from tests.system.conftest import SMALL

TOY = {key: value for key, value in SMALL.items() if not key.startswith("training.")}
TOY |= {"model.dtype": "float32", "training.save_every": 20_000, "decoding.beam_size": 2}
SETTINGS = [f"--config.{key}={value}" for key, value in TOY.items()]
FILES = ["--train", "train.en", "train.de", "--valid", "valid.en", "valid.de"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write(folder, "train", pairs("train", 200))
    write(folder, "valid", pairs("valid", 10))
    return folder


def toy(text: Path, workdir: Path) -> list[str]:
    """Ten steps of the paper's base on 200 pairs."""
    place = ["--workdir", str(workdir), "--corpus", "toy", "--folder", str(text)]
    return [*place, *FILES, "--scale", "0.0001", *SETTINGS]


class Ladder(NamedTuple):
    """The call that measured some rows of Table 3, and its results."""

    workdir: Path
    arguments: list[str]
    done: Done
    names: list[str]  # of the results that were measured: the base, then another row
    page: str

    @property
    def results(self) -> Path:
        return self.workdir / "results"

    @property
    def variant(self) -> str:
        """The part of the results' names that identifies the overrides."""
        return self.names[0].partition("_with_")[2].partition("_")[0]

    def result(self, name: str) -> dict[str, Any]:
        return json.loads((self.results / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def ladder(text, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("ladder") / "w"
    arguments = toy(text, workdir)
    done = run_captured("reproduce", "table3", "--only", "base", "c_dff1024", "c_N2", *arguments)
    names = re.findall(r"(\w+): measured\n", done.output)
    return Ladder(workdir, arguments, done, names, (workdir / "reproduction.md").read_text())


@pytest.mark.extended
def test_rows_are_measured_and_one_that_cannot_be_is_named(ladder):
    assert ladder.done.status == 1
    # Two layers of six are no whole number of this base's one layer.
    message = "not run: table3/c_N2: has 2/6 of --config.model.encoder_layers"
    assert message in ladder.done.errors
    base, _ = ladder.names
    assert base == f"table3_base_toy_scale_0_0001_with_{ladder.variant}_seed_1"


@pytest.mark.extended
def test_a_row_s_result_tells_of_its_training_and_scores_its_outputs(run, text, ladder):
    result = ladder.result(ladder.names[1])
    metrics = result["metrics"]
    assert (metrics["steps"], metrics["scale"], metrics["averaged_checkpoints"]) == (10, 1e-4, 0)
    assert 0 < metrics["pairs"] <= 200 and metrics["training_flops"] > 0
    assert result["details"]["status"] == "measured at reduced scale"

    outputs = ladder.results / f"{ladder.names[1]}.valid.hyp.xz"
    evaluated = run("evaluate", "--hypotheses", outputs, "--ref", text / "valid.de", "--json")
    (scores,) = json.loads(evaluated.output).values()
    assert scores["metrics"]["bleu_paper"] == metrics["bleu_paper"]
    assert scores["signatures"].items() >= result["signatures"].items()


@pytest.mark.extended
def test_the_report_has_the_table_and_its_orderings(ladder):
    orderings = ladder.result(f"table3_orderings_toy_scale_0_0001_with_{ladder.variant}")
    assert orderings["metrics"]["c_dff1024_seeds"] == 1
    assert "### Table 3 on the text `toy`, scale 0.0001" in ladder.page
    assert "## Which of Table 3's orderings hold" in ladder.page


@pytest.mark.extended
def test_a_measured_row_is_kept_and_a_second_report_is_the_first(run, ladder):
    again = run("reproduce", "table3", "--only", "base", *ladder.arguments)
    assert (again.status, again.output) == (0, f"{ladder.names[0]}: kept\n")
    assert (ladder.workdir / "reproduction.md").read_text() == ladder.page
    assert run("reproduce", "report", "--workdir", ladder.workdir, "--check").status == 0


@pytest.mark.extended
@pytest.mark.parametrize(
    ("changes", "state"), [([], " done "), (["--config.model.dropout=0.05"], " not run ")]
)
def test_a_dry_run_tells_which_rows_are_done(run, ladder, changes, state):
    call = ("reproduce", "table3", "--only", "base", *ladder.arguments, *changes)
    listed = run(*call, "--dry-run")
    assert listed.status == 0 and state in listed.output


@pytest.mark.extended
def test_another_search_needs_no_other_training_and_takes_no_other_s_place(
    run, text, ladder, tmp_path
):
    workdir = shutil.copytree(ladder.workdir, tmp_path / "w")
    call = ("reproduce", "table3", "--only", "base", *toy(text, workdir))

    def logs() -> list[bytes]:
        return [path.read_bytes() for path in sorted(workdir.glob("runs/*/metrics.jsonl"))]

    logs_before = logs()
    done = run(*call, "--config.decoding.beam_size=3")
    assert done.status == 0, done.errors
    (name,) = re.findall(r"(\w+): measured\n", done.output)
    base = ladder.names[0]
    assert name != base and (workdir / "results" / f"{base}.json").exists()
    assert logs() == logs_before
    assert run(*call).output == f"{base}: kept\n"


@pytest.mark.extended
def test_table_2_is_averaged_and_its_base_gives_the_figures(run, text, tmp_path):
    pytest.importorskip("matplotlib")
    arguments = [*toy(text, tmp_path), "--test", "valid.en", "valid.de"]
    run("reproduce", "table2", "--only", "en_de_base", *arguments, status=0)
    (path,) = (tmp_path / "results").glob("table2_*.json")
    # Checkpoints at each second of ten steps.
    assert json.loads(path.read_text())["metrics"]["averaged_checkpoints"] == 5
    drawn = run("reproduce", "figures", "--workdir", tmp_path, status=0)
    names = {path.stem.partition("_")[0] for path in (tmp_path / "figures").iterdir()}
    figures = {"figure3", "figure4", "figure5"}
    assert {"schedule", "positions"} < names <= {"schedule", "positions", *figures}
    assert all(figure in names or f"{figure} (" in drawn.errors for figure in figures)


@pytest.mark.extended
def test_a_parser_is_scored_by_its_brackets(run, tmp_path):
    """Made-up trees of sentences' words: a noun phrase of their first half, a verb phrase."""
    for split, count in (("train", 200), ("valid", 10)):
        trees = []
        for source, _ in pairs(split, count):
            words = [f"(NN {word})" for word in source.split()]
            half = (len(words) + 1) // 2
            verb_phrase = " ".join(words[half:]) or "(VB is)"
            trees.append(f"(TOP (S (NP {' '.join(words[:half])}) (VP {verb_phrase})))\n")
        (tmp_path / f"{split}.trees").write_text("".join(trees))
        outputs = (f"--output-{side}={tmp_path / split}.{side}" for side in ("src", "tgt"))
        assert run("trees", "linearize", tmp_path / f"{split}.trees", *outputs).status == 0
    arguments = [
        *("--workdir", tmp_path / "w", "--corpus", "toy", "--folder", tmp_path),
        *("--train", "train.src", "train.tgt", "--valid", "valid.src", "valid.tgt"),
        *("--test", "valid.src", "valid.tgt", "--scale", "0.0001", *SETTINGS),
    ]
    run("reproduce", "table4", "--only", "wsj_only", *arguments, status=0)
    (path,) = (tmp_path / "w" / "results").glob("table4_*.json")
    result = json.loads(path.read_text())
    assert result["metrics"]["steps"] == 10 and result["signatures"]["f1"].startswith("EVALB")


def test_without_text_it_says_what_would_be_done(run, tmp_path):
    done = run("reproduce", "table3", "--dry-run", "--workdir", tmp_path / "w")
    assert done.status == 0 and done.output.count("not run") == 20
    assert " 100,000 " in done.output and " 300,000 " in done.output
    assert not (tmp_path / "w").exists()


def test_a_dry_run_has_a_row_for_each_seed_and_the_share_s_steps(run):
    done = run("reproduce", "table2", "--dry-run", "--scale", "0.01", "--seeds", 1, 2, 2)
    assert done.output.count("not run") == 8 and " 3,000 " in done.output


def test_a_dry_run_estimates_the_hours_on_this_machine(run):
    small = ("--config.model.d_model=32", "--config.data.vocabulary.size=300")
    done = run("reproduce", "table3", "--only", "base", "--dry-run", *small, status=0)
    assert re.search(r"an estimate for this machine: [\d.,]+ hours still to do, at ", done.output)


def test_rows_are_listed_even_where_no_step_can_be_timed(run, monkeypatch):
    def too_large(config, row):
        raise TrialError("out of memory")

    monkeypatch.setattr("flaxformer_mt.cli.actions.reproduce.measured_rate", too_large)
    done = run("reproduce", "table3", "--only", "base", "--dry-run", status=0)
    assert "not run" in done.output and "hours here" not in done.output
    assert "base: its hours here can't be estimated: out of memory" in done.errors


def test_a_dry_run_of_figures_says_which_run_is_missing(run, tmp_path):
    done = run("reproduce", "figures", "--dry-run", "--workdir", tmp_path)
    assert done.status == 0 and "figure3: long distance: no run" in done.output


def test_figures_without_a_run_are_not_drawn_in_silence(run, tmp_path):
    pytest.importorskip("matplotlib")
    done = run("reproduce", "figures", "--workdir", tmp_path)
    assert done.status == 1 and "figures 3 to 5 not drawn" in done.last
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        *("schedule.svg", "positions.svg")
    }


@pytest.mark.parametrize("text", ["paper_full", "paper_tfds_full"])
def test_figures_are_of_a_full_run_however_old(text, tmp_path):
    for age, extent in ((200, text), (100, "paper_tfds_scale_0_1"), (0, "toy_full")):
        run = RunDirectory(tmp_path / "runs" / f"table2_en_de_base_{extent}_seed_1-0123abcd")
        (run.checkpoints / "5").mkdir(parents=True)
        (run.checkpoints / "5" / "_CHECKPOINT_METADATA").write_text("{}")
        run.config_file.write_text("{}")
        seconds = time.time()
        os.utime(run.config_file, (seconds - age, seconds - age))
    chosen = base_run(tmp_path)
    assert chosen is not None and f"_{text}_seed" in str(chosen)
