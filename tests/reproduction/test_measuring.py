"""F1 of linearised output, and gold trees that do not fit."""

import pytest

from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.reproduction.run_rows import gold_trees, parse_f1

GOLD = "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))\n"


def silent(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture
def target(tmp_path):
    (tmp_path / "test.trees").write_text(GOLD * 2)
    return tmp_path / "test.tgt"


def test_f1_counts_brackets_and_malformed_outputs(target, tmp_path):
    gold, sources = gold_trees(target, 2, say=silent), ["The cat sleeps ."] * 2
    right = "(S (NP XX XX )NP (VP XX )VP XX )S"
    assert parse_f1(sources, [right, right], gold) == (100.0, 0)
    # Without its VP: 3 + 2 of 3 + 3 brackets, 3 + 2 predicted.
    f1, malformed = parse_f1(sources, [right, "(S (NP XX XX )NP XX XX )S"], gold)
    assert f1 == pytest.approx(100 * 2 * 5 / (5 + 6)) and malformed == 0
    assert parse_f1(sources, [right, "(S (NP XX XX )NP (VP XX"], gold)[1] == 1
    # Gold trees may hold traces.
    raw = "( (S (NP-SBJ-1 (PRP He)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1)))) (. .)))\n"
    (tmp_path / "test.trees").write_text(raw)
    gold = gold_trees(tmp_path / "test.tgt", 1, say=silent)
    output = "(S (NP XX )NP (VP XX (VP XX )VP )VP XX )S"
    assert parse_f1(["He was seen ."], [output], gold) == (100.0, 0)


def test_gold_trees_without_words_have_no_line(tmp_path, target):
    (tmp_path / "test.trees").write_text(GOLD + "(TOP (S (-NONE- *)))\n" + GOLD)
    said: list[str] = []
    gold = gold_trees(tmp_path / "test.tgt", 2, say=said.append)
    assert [tree.words for tree in gold] == [("The", "cat", "sleeps", ".")] * 2
    assert [line.rpartition(": ")[2] for line in said] == ["1"] and "without words" in said[0]
    # Where every tree has a line none is left out.
    assert len(gold_trees(tmp_path / "test.tgt", 3, say=silent)) == 3
    with pytest.raises(CorpusError, match=r"3 trees \(1 without words\) and .* has 1 lines"):
        gold_trees(tmp_path / "test.tgt", 1, say=silent)
    # Those that do not fit are named.
    (tmp_path / "test.trees").write_text(GOLD * 2)
    with pytest.raises(CorpusError, match="has 2 trees and .* has 3 lines"):
        gold_trees(target, 3, say=silent)
    with pytest.raises(CorpusError, match=r"other\.trees: cannot read other"):
        gold_trees(tmp_path / "other.tgt", 1, say=silent)
    with pytest.raises(CorpusError, match="sentence 1: its gold tree has different words"):
        parse_f1(["A dog barks ."], ["(S XX XX XX XX )S"], gold_trees(target, 2, say=silent)[:1])
