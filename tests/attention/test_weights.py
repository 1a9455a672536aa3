"""What is picked out of a sentence's attention and what is refused; pieces as labels and words."""

import numpy as np
import pytest

from flaxformer_mt.attention.weights import (
    LONGEST,
    AttentionError,
    core,
    pick,
    punctuation,
    shown,
    words,
)
from tests.figures.examples import SOURCE, TARGET, made_up

FOUND = made_up()


def test_layers_and_heads_are_picked():
    picked = pick(FOUND, kind="cross", heads=(3, 1))
    np.testing.assert_array_equal(picked.weights, FOUND.cross[1, [0, 2]])
    assert (picked.layer, picked.heads) == (2, (1, 3))
    assert (picked.rows, picked.columns) == (TARGET, SOURCE)
    assert picked.title() == "Decoder-to-source attention, layer 2 of 2, heads 1 and 3"
    np.testing.assert_array_equal(pick(FOUND, kind="encoder", layer=1).weights, FOUND.encoder[0])
    in_decoder = pick(FOUND, kind="decoder")
    assert in_decoder.columns == ("<s>", *TARGET[:-1])
    assert in_decoder.title().endswith("heads 1–3")


@pytest.mark.parametrize(
    ("query", "rows"), [("CATS", (1, 2)), ("3", (2,)), ("<b>", (5,)), ("the", (0,)), ("8", (7,))]
)
def test_a_query_is_a_word_or_a_number(query, rows):
    assert pick(FOUND, kind="encoder", query=query).queries == rows


def test_a_query_is_a_word_at_all_its_places():
    pieces = ("▁its", "▁law", ",", "▁its", "</s>")
    assert pick(made_up(pieces), kind="encoder", query="its").queries == (0, 3)
    assert pick(made_up(pieces), kind="encoder", query="law").queries == (1,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "encoder", "layer": 3}, "no layer 3: the encoder has 1 to 2"),
        (
            {"kind": "cross", "heads": (1, 4)},
            "no head 4: a layer of the cross kind has 1 to 3",
        ),
        ({"kind": "encoder", "query": "dog"}, "no row 'dog'; rows: 1 the, 2 cat, 3 -s"),
        ({"kind": "encoder", "query": "9"}, "no row '9'"),
    ],
)
def test_what_is_not_there_is_refused(settings, message):
    with pytest.raises(AttentionError, match=message):
        pick(FOUND, **settings)


def test_labels_say_where_words_begin():
    labels = {
        **{"▁cat": "cat", "s": "-s", ".": ".", "▁": "▁", "▁.": ".", "猫": "-猫"},
        **{"</s>": "‹end›", "<s>": "‹begin›", "<unk>": "‹unknown›", "▁New▁York": "New York"},
        **{"\t": "␉", "▁a\u202eb": "a\ufffdb", "▁" + "x" * 99: "x" * (LONGEST - 1) + "…"},
    }
    assert {piece: shown(piece) for piece in labels} == labels


def test_words_have_their_pieces():
    pieces = ("<s>", "▁Flas", "chen", ".", "▁it", "'", "s", "</s>")
    spans = [(word, list(span)) for word, span in words(pieces)]
    assert spans == [("<s>", [0]), ("Flaschen.", [1, 2, 3]), ("it's", [4, 5, 6]), ("</s>", [7])]
    assert core("“Flaschen.”") == "flaschen" and core("...") == "..."
    assert punctuation(pieces) == (3, 5)
    assert words(()) == []
