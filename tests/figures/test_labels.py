"""Pieces as labels, and the words that they spell."""

from __future__ import annotations

import pytest

from flaxformer_mt.figures.maps import LONGEST, core, punctuation, shown, words
from flaxformer_mt.figures.statistics import pronoun_places, pronouns_of


@pytest.mark.parametrize(
    ("piece", "label"),
    [
        ("▁cat", "cat"),
        ("s", "-s"),
        (".", "."),
        ("▁", "▁"),
        ("▁.", "."),
        ("</s>", "‹end›"),
        ("<s>", "‹begin›"),
        ("<unk>", "‹unknown›"),
        ("▁New▁York", "New York"),
        ("猫", "-猫"),
        ("\t", "␉"),
        ("▁a\u202eb", "a\ufffdb"),
    ],
)
def test_labels_say_where_words_begin(piece: str, label: str) -> None:
    assert shown(piece) == label


def test_an_endless_piece_is_cut_visibly() -> None:
    assert shown("▁" + "x" * 99) == "x" * (LONGEST - 1) + "…"


def test_words_and_their_pieces() -> None:
    pieces = ("<s>", "▁Flas", "chen", ".", "▁it", "'", "s", "</s>")
    found = [(word, list(span)) for word, span in words(pieces)]
    assert found == [("<s>", [0]), ("Flaschen.", [1, 2, 3]), ("it's", [4, 5, 6]), ("</s>", [7])]
    assert core("“Flaschen.”") == "flaschen" and core("...") == "..."
    assert punctuation(pieces) == (3, 5)
    assert words(()) == []


def test_pronouns_begin_where_their_word_does() -> None:
    pieces = ("▁It", "'", "s", "▁her", "s", "▁her", "▁item", ",", "▁it", ",", "</s>")
    assert pronoun_places(pieces, pronouns_of("en")) == (0, 3, 5, 8)
    assert pronoun_places(pieces, pronouns_of("xx")) == ()
    assert pronouns_of("de-AT") == pronouns_of("de")
