"""The benchmark of parsing: what it trains on, and what it makes of a parser's output."""

import lzma

import pytest

from benchmarks import craft, trained_run
from flaxformer_mt.rundir.layout import RunDirectory

TREES = [
    "(TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))",
    "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ sees) (NP (PRP her)))))",
    "(TOP (NP (NN Abstract)))",
]


@pytest.fixture
def text(tmp_path, capsys):
    for name, trees in {"train": TREES, "dev": TREES[:2]}.items():
        with lzma.open(tmp_path / f"{name}.trees.xz", "wt", encoding="utf-8") as file:
            file.write("\n".join(trees) + "\n")
    craft.linearized(tmp_path, tmp_path / "text", valid=1)
    return tmp_path / "text"


def test_choices_are_made_on_the_last_training_trees(text):
    assert (text / "train.src").read_text().splitlines() == ["She sleeps .", "The dog sees her"]
    assert (text / "valid.tgt").read_text() == "(NP Abstract )NP\n"
    assert (text / "test.src").read_text() == (text / "train.src").read_text()
    assert (text / "test.trees").read_text().splitlines() == TREES[:2]


def test_outputs_are_scored_repaired_and_not(text, monkeypatch):
    """The second output leaves its brackets open, and has the object outside the verb phrase."""
    outputs = ["(S (NP XX )NP (VP XX )VP XX )S", "(S (NP XX XX )NP (VP XX )VP (NP XX"]

    def translated(arguments, *_):
        place = arguments[arguments.index("--output") + 1]
        with open(place, "x", encoding="utf-8") as file:
            file.write("\n".join(outputs) + "\n")
        return 0

    monkeypatch.setattr(craft.translate, "main", translated)
    (text / "test.out").write_text("of an earlier call\n")
    found = craft.parsed(RunDirectory(text.parent / "run"), text)
    # Gold: 3 + 4 constituents. Repaired: 3 + 3 of the second one's 4 are right.
    assert found["recall"] == pytest.approx(100 * 6 / 7)
    assert found["precision"] == pytest.approx(100 * 6 / 7)
    # Not repaired: nothing of the second one.
    assert found["unrepaired_recall"] == pytest.approx(100 * 3 / 7)
    assert found["unrepaired_precision"] == 100
    assert (found["sentences"], found["malformed"], found["error_sentences"]) == (2, 1, 0)


def test_a_stopped_training_is_not_scored(tmp_path, monkeypatch):
    monkeypatch.setattr(trained_run.train, "train_run", lambda *_: 130)
    with pytest.raises(SystemExit) as stopped:
        trained_run.trained(tmp_path, "quickstart", [], benchmark="benchmarks.some")
    assert stopped.value.code == 130
