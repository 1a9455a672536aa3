"""`trees`: treebanks to text and back, scores, and bad input explained in one line."""

import json
import os
from pathlib import Path

import pytest

# As a treebank has them: over several lines, with function tags and a trace.
RAW = """
( (S
    (NP-SBJ-1 (DT The) (NN cat))
    (VP (VBZ wants)
      (S (NP (-NONE- *-1))
        (VP (TO to) (VP (VB sleep)))))
    (. .)) )

(TOP (FRAG (NP (NN one\u00a0day)) (. .)))
"""
PLAIN = """\
(TOP (S (NP (DT The) (NN cat)) (VP (VBZ wants) (S (VP (TO to) (VP (VB sleep))))) (. .)))
(TOP (FRAG (NP (NN one\u00a0day)) (. .)))
"""


@pytest.fixture
def treebank(tmp_path):
    (tmp_path / "plain.trees").write_text(PLAIN, "utf-8")
    return tmp_path


def test_there_and_back_again(run, treebank):
    src, tgt, trees = (treebank / name for name in ("out.src", "out.tgt", "back.trees"))
    done = run(
        *("trees", "linearize", "-", "--leaves", "tags"),
        *("--output-src", src, "--output-tgt", tgt),
        stdin=RAW.encode(),
    )
    assert done.status == 0 and not done.output
    first, *changes = done.errors.split("\n")[:-1]
    assert first == "2 trees linearised; each rebuilds exactly from its words and tokens"
    assert sorted(changes) == [
        "  constituents of traces alone removed: 1",
        "  labels shortened: 1",
        "  traces removed: 1",
    ]
    assert src.read_text("utf-8") == "The cat wants to sleep .\none\u00a0day .\n"
    assert tgt.read_text("utf-8").split("\n")[1] == "(FRAG (NP NN )NP . )FRAG"
    done = run("trees", "rebuild", src, tgt, "--output", trees, status=0)
    assert done.last == "2 sentences, of which 0 (0.0%) were malformed"
    assert trees.read_text("utf-8") == PLAIN


def test_repairs_are_counted_or_replaced(run, treebank):
    (treebank / "some.src").write_text("a b\nc d\n")
    (treebank / "some.tgt").write_text("(S XX (NP XX\n(S XX XX )S\n")
    files = (treebank / "some.src", treebank / "some.tgt")
    done = run("trees", "rebuild", *files, "--json", treebank / "counts.json")
    assert done.output == "(TOP (S (XX a) (NP (XX b))))\n(TOP (S (XX c) (XX d)))\n"
    assert "2 sentences, of which 1 (50.0%) were malformed" in done.errors
    counts = json.loads((treebank / "counts.json").read_text())
    assert counts["malformed_sentences"] == 1 and counts["malformed"] == "repair"
    done = run("trees", "rebuild", *files, "--malformed", "flat")
    assert done.output == "(TOP (XX a) (XX b))\n(TOP (S (XX c) (XX d)))\n"


def test_scores_as_a_table_and_as_json(run, treebank):
    gold, parsed = treebank / "plain.trees", treebank / "other.trees"
    # The VP within S is lost: of S NP VP S VP VP and FRAG NP two VPs are missing.
    parsed.write_text(PLAIN.replace("(S (VP (TO to) (VP (VB sleep))))", "(S (TO to) (VB sleep))"))
    done = run("trees", "score", gold, parsed, "--output", treebank / "scores.json")
    table = {line.split("  ")[0]: line.split()[-2:] for line in done.output.split("\n")[1:-1]}
    assert table["recall"] == ["75.00", "75.00"] and table["precision"] == ["100.00", "100.00"]
    printed = json.loads(run("trees", "score", gold, parsed, "--json").output)
    assert printed == json.loads((treebank / "scores.json").read_text())
    parsed.write_text(PLAIN.split("\n")[0] + "\n(())\n")
    scored = json.loads(run("trees", "score", gold, parsed, "--json").output)["all"]
    assert (scored["skipped_sentences"], scored["f1"]) == (1, 100.0)


def test_trees_of_traces_alone_have_no_parse(run, treebank):
    gold, src, tgt, parsed = (treebank / name for name in ("raw.mrg", "src", "tgt", "parsed"))
    gold.write_text(f"(TOP (S (NP (-NONE- *))))\n{RAW}", "utf-8")
    done = run("trees", "linearize", gold, "--output-src", src, "--output-tgt", tgt)
    assert "trees without words left out: 1" in done.errors
    run("trees", "rebuild", src, tgt, "--output", parsed)
    done = run("trees", "score", gold, parsed, "--json")
    assert done.status == 0 and "without words left out, as linearize does: 1" in done.errors
    scored = json.loads(done.output)["all"]
    assert (scored["sentences"], scored["error_sentences"], scored["f1"]) == (2, 0, 100.0)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("latin.trees", b"(TOP (NN x))\n(TOP (NN caf\xe9))", ":2: is not UTF-8 text (byte 13)"),
        ("none.trees", b"(())\n(TOP (-NONE- *))\n", "no tree contains words"),
        ("odd.trees", "(TOP (NN x))\n(TOP (NP (⁇ x)))".encode(), ":2: can't linearise a label"),
    ],
)
def test_bad_treebanks_are_named_and_leave_nothing(run, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    outputs = (f"--output-src={tmp_path / 'a'}", f"--output-tgt={tmp_path / 'b'}")
    done = run("trees", "linearize", tmp_path / name, "--leaves", "tags", *outputs)
    assert done.status == 2 and message in done.last and name in done.last
    assert os.listdir(tmp_path) == [name]


TO_A_AND_B = "--output-src a --output-tgt b"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (f"linearize gone {TO_A_AND_B}", 2, "gone: "),
        ("linearize plain.trees --output-src a --output-tgt a", 2, "a: named twice"),
        ("linearize plain.trees --output-src no/a --output-tgt b", 1, "no/a: cannot be written"),
        (f"linearize - - {TO_A_AND_B}", 2, "standard input (-) can be only one file"),
        ("linearize plain.trees --output-src gs://b/a --output-tgt b", 1, "is in a bucket"),
        ("rebuild two.src three.tgt", 2, "two.src has 2 lines and three.tgt has 3: each"),
        ("score plain.trees one.trees --output ./plain.trees", 2, "./plain.trees: named twice"),
        ("score plain.trees one.trees", 2, "plain.trees has 2 trees and one.trees has 1: each"),
        ("score none.trees empty", 2, "none.trees has 1 trees (1 without words) and empty has 0"),
        ("score empty empty", 2, "empty: contains no tree"),
    ],
)
def test_bad_calls_are_explained(run, treebank, monkeypatch, arguments, status, message):
    monkeypatch.chdir(treebank)
    Path("two.src").write_text("a\nb\n")
    Path("three.tgt").write_text("XX\nXX\nXX\n")
    Path("one.trees").write_text("(TOP (NN x))\n")
    Path("none.trees").write_text("(TOP (-NONE- *))\n")
    Path("empty").write_text("")
    before = sorted(os.listdir())
    done = run("trees", *arguments.split())
    assert done.status == status and message in done.last
    assert sorted(os.listdir()) == before and (treebank / "plain.trees").read_text() == PLAIN
