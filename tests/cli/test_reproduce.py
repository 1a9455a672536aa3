"""`reproduce`: a toy ladder from text to report, what it would do, and wrong arguments."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from flaxformer_mt.data.synthetic import pairs
from flaxformer_mt.reproduction.pictures import base_run
from flaxformer_mt.rundir.layout import RunDirectory
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


@pytest.mark.extended
def test_a_ladder_from_text_to_report(run, text, tmp_path):
    arguments = toy(text, tmp_path / "w")
    rows = ["--only", "base", "c_dff1024", "c_N2"]
    done = run("reproduce", "table3", *rows, *arguments)
    # Two layers of six are no whole number of this base's one layer.
    assert done.status == 1
    assert "not run: table3/c_N2: has 2/6 of --config.model.encoder_layers" in done.errors
    base, other = re.findall(r"(\w+): measured\n", done.output)
    variant = base.partition("_with_")[2].partition("_")[0]
    assert base == f"table3_base_toy_scale_0_0001_with_{variant}_seed_1"
    results, report = tmp_path / "w" / "results", tmp_path / "w" / "reproduction.md"
    found = json.loads((results / f"{other}.json").read_text())
    metrics = found["metrics"]
    assert (metrics["steps"], metrics["scale"], metrics["averaged_checkpoints"]) == (10, 1e-4, 0)
    assert 0 < metrics["pairs"] <= 200 and metrics["training_flops"] > 0
    assert found["details"]["status"] == "measured at reduced scale"
    kept = results / f"{other}.valid.hyp.xz"
    again = run("evaluate", "--hypotheses", kept, "--ref", text / "valid.de", "--json")
    (scores,) = json.loads(again.output).values()
    assert scores["metrics"]["bleu_paper"] == metrics["bleu_paper"]
    assert scores["signatures"].items() >= found["signatures"].items()
    orderings = results / f"table3_orderings_toy_scale_0_0001_with_{variant}.json"
    assert json.loads(orderings.read_text())["metrics"]["c_dff1024_seeds"] == 1
    page = report.read_text()
    assert "### Table 3 on the text `toy`, scale 0.0001" in page
    assert "## Which of Table 3's orderings hold" in page

    # What is done is not done again, and a second report is the first.
    again = run("reproduce", "table3", *rows[:2], *arguments)
    assert (again.status, again.output) == (0, f"{base}: kept\n") and report.read_text() == page
    assert run("reproduce", "report", "--workdir", tmp_path / "w", "--check").status == 0
    for changed, state in (([], " done "), (["--config.model.dropout=0.05"], " not run ")):
        listed = run("reproduce", "table3", "--only", "base", *arguments, *changed, "--dry-run")
        assert listed.status == 0 and state in listed.output

    # Another search needs no other training, and takes no other's place.
    logs = [path.read_bytes() for path in sorted((tmp_path / "w").glob("runs/*/metrics.jsonl"))]
    done = run("reproduce", "table3", *rows[:2], *arguments, "--config.decoding.beam_size=3")
    assert done.status == 0, done.errors
    (name,) = re.findall(r"(\w+): measured\n", done.output)
    assert name != base and (results / f"{base}.json").exists()
    assert logs == [p.read_bytes() for p in sorted((tmp_path / "w").glob("runs/*/metrics.jsonl"))]
    assert run("reproduce", "table3", *rows[:2], *arguments).output == f"{base}: kept\n"


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
            rest = " ".join(words[half:]) or "(VB is)"
            trees.append(f"(TOP (S (NP {' '.join(words[:half])}) (VP {rest})))\n")
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
    found = json.loads(path.read_text())
    assert found["metrics"]["steps"] == 10 and found["signatures"]["f1"].startswith("EVALB")


def test_without_text_it_says_what_would_be_done(run, tmp_path):
    done = run("reproduce", "table3", "--dry-run", "--workdir", tmp_path / "w")
    assert done.status == 0 and done.output.count("not run") == 20
    assert " 100,000 " in done.output and " 300,000 " in done.output
    assert not (tmp_path / "w").exists()
    done = run("reproduce", "table2", "--dry-run", "--scale", "0.01", "--seeds", 1, 2, 2)
    # A row for each seed; averaged checkpoints and steps are those of the share.
    assert done.output.count("not run") == 8 and " 3,000 " in done.output
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
        now = time.time()
        os.utime(run.config_file, (now - age, now - age))
    found = base_run(tmp_path)
    assert found is not None and f"_{text}_seed" in str(found)
