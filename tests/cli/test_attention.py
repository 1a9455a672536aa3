"""`attention` and `figures` as commands: what they write, and bad input explained."""

import json
import sys

import pytest

import flaxformer_mt as fm
from tests.decoding.runs import PAIRS
from tests.figures.examples import Reader, data_of, png_size, svg_texts

SOURCE, TARGET = PAIRS[0]


def test_a_picture_of_each_form(run, workdir, tmp_path):
    call = ("attention", "--workdir", workdir, "--src", SOURCE, "--tgt", TARGET)
    done = run(*call, "--output", tmp_path / "a.png", "--size", "700x900")
    assert (done.status, done.output, done.last) == (0, "", str(tmp_path / "a.png")), done.errors
    assert png_size((tmp_path / "a.png").read_bytes()) == (700, 900)
    options = ("--kind", "encoder", "--layer", 1, "--head", 2, "--query", "cat")
    run(*call, *options, "--style", "heat", "--output", tmp_path / "a.svg", status=0)
    texts = svg_texts((tmp_path / "a.svg").read_bytes())
    assert "Encoder self-attention, layer 1 of 1, head 2" in texts and "‹end›" in texts
    done = run(*call, "--output", tmp_path / "a.html")
    assert done.status == 0 and Reader((tmp_path / "a.html").read_text()).open == []
    assert data_of((tmp_path / "a.html").read_text())["opens"]["kind"] == "cross"


def test_heads_are_found_and_drawn(run, workdir, tmp_path):
    lines, targets = tmp_path / "in.en", tmp_path / "in.de"
    lines.write_text("".join(f"{src}\n" for src, _ in PAIRS) + "\n")
    targets.write_text("".join(f"{tgt}\n" for _, tgt in PAIRS) + "\n")
    done = run(
        *("attention", "--workdir", workdir, "--find", "--input", lines, "--target", targets),
        *("--top", 1, "--far", 3, "--draw", tmp_path / "drawn", "--output", tmp_path / "f.json"),
    )
    assert done.status == 0, done.errors
    assert f"{lines}: skipped 1 lines that are blank: 5" in done.errors
    assert done.output.startswith("kind     layer  head  distance")
    assert "long distance (by 'reach')" in done.output and "3 pieces away" in done.output
    assert f"attention --workdir {workdir} --weights 2 --src" in done.output

    content = json.loads((tmp_path / "f.json").read_text())
    assert content["sentences"] == 4 and content["pronouns"]["encoder"] == 1  # "they"
    assert len(content["heads"]) == 6
    drawn = sum(len(head["examples"]) for head in content["found"])
    assert drawn and len(list((tmp_path / "drawn").glob("*-layer1-head*-line*.svg"))) == drawn


def test_heads_of_one_kind_are_searched_in_some_sentences(run, workdir, tmp_path):
    lines = tmp_path / "in.en"
    lines.write_text("".join(f"{src}\n" for src, _ in PAIRS) + "\n")
    done = run(
        *("attention", "--workdir", workdir, "--find", "--input", lines, "--json"),
        *("--kind", "encoder", "--sentences", 2, "--pronouns", "the"),
    )
    content = json.loads(done.output)
    assert content["sentences"] == 2 and set(content["queries"]) == {"encoder"}
    assert content["pronouns"]["encoder"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--src", " ", "--output", "a.svg"), "--src is empty"),
        (("--src", SOURCE, "--tgt", "", "--output", "no/a.svg"), "no/a.svg: cannot be written"),
        (("--find", "--input", "none.en", "--output", "a.svg"), "the name must end in .json"),
    ],
)
def test_bad_input_is_explained(run, workdir, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    done = run("attention", "--workdir", workdir, *options)
    # Of a place that cannot be written to, the disk may be to blame.
    assert done.status == (1 if "cannot be written" in message else 2)
    assert message in done.last and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("--src x --output folder.svg", "folder.svg: cannot be written: Is a directory"),
        ("--src x --output none/a.html", "a.html: cannot be written: No such file"),
        ("--find --input lines --output file/a.json", "cannot be written: Not a directory"),
        ("--find --input lines --output folder.json", "folder.json: cannot be written: Is a dir"),
        ("--find --input lines --draw file", "file: cannot be created"),
    ],
)
def test_outputs_are_checked_before_the_model_is_read(
    run, workdir, tmp_path, monkeypatch, command, message
):
    monkeypatch.chdir(tmp_path)
    for folder in ("folder.svg", "folder.json"):
        (tmp_path / folder).mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "lines").write_text(f"{SOURCE}\n")
    monkeypatch.setattr(fm.Translator, "load", lambda *_, **__: pytest.fail("the model is read"))
    done = run("attention", "--workdir", workdir, *command.split())
    assert done.status == 1 and message in done.last


def test_a_picture_without_matplotlib_says_what_to_install(run, workdir, tmp_path, monkeypatch):
    """In the way in which the program was started."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    call = ("attention", "--workdir", workdir, "--src", SOURCE, "--tgt", TARGET, "--output")
    done = run(*call, tmp_path / "a.png")
    assert done.status == 2 and "pip install 'flaxformer-mt[figures]'" in done.last
    monkeypatch.setenv("FLAXFORMER_PROGRAM", "launch/local.sh")
    done = run(*call, tmp_path / "a.png")
    assert done.last.startswith("launch/local.sh attention: error: matplotlib is not installed")
    assert "write FLAXFORMER_EXTRAS=figures before launch/local.sh" in done.last
    assert run(*call, tmp_path / "a.html").status == 0


@pytest.mark.parametrize("what", ["schedule", "positions"])
def test_formulas_of_the_paper(run, tmp_path, what):
    run("figures", what, "--output", tmp_path / "x.png", "--size", "900x500", status=0)
    assert png_size((tmp_path / "x.png").read_bytes()) == (900, 500)
    done = run("figures", what, "runs/x", "--output", tmp_path / "y.png")
    assert done.status == 2 and "leave out the run" in done.errors
    assert run("figures", what, "--output", tmp_path / "y.html").status == 2
