"""What is picked out of a sentence's attention and what is refused; pieces as labels and words."""

from typing import Any

import numpy as np
import pytest

from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.maps import LONGEST, core, pick, punctuation, shown, words
from flaxformer_mt.figures.statistics import pronoun_places, pronouns_of
from tests.figures.examples import SOURCE, TARGET, made_up

FOUND = made_up()


def test_layers_heads_and_queries_are_picked_and_what_is_not_there_is_refused():
    picked = pick(FOUND, kind="cross", heads=(3, 1))
    np.testing.assert_array_equal(picked.weights, FOUND.cross[1, [0, 2]])
    assert (picked.layer, picked.heads) == (2, (1, 3))
    assert (picked.rows, picked.columns) == (TARGET, SOURCE)
    assert picked.title() == "Decoder-to-source attention, layer 2 of 2, heads 1 and 3"
    np.testing.assert_array_equal(pick(FOUND, kind="encoder", layer=1).weights, FOUND.encoder[0])
    own = pick(FOUND, kind="decoder")
    assert own.columns == ("<s>", *TARGET[:-1])
    assert own.title().endswith("heads 1–3")
    # A query is a word, at all its places, or a number.
    queries = {"CATS": (1, 2), "3": (2,), "<b>": (5,), "the": (0,), "8": (7,)}
    for query, rows in queries.items():
        assert pick(FOUND, kind="encoder", query=query).queries == rows
    pieces = ("▁its", "▁law", ",", "▁its", "</s>")
    assert pick(made_up(pieces), kind="encoder", query="its").queries == (0, 3)
    assert pick(made_up(pieces), kind="encoder", query="law").queries == (1,)
    refused: dict[str, dict[str, Any]] = {
        "no layer 3: the encoder has 1 to 2": {"kind": "encoder", "layer": 3},
        "no head 4: a layer of the cross kind has 1 to 3": {"kind": "cross", "heads": (1, 4)},
        "no row 'dog'; rows: 1 the, 2 cat, 3 -s": {"kind": "encoder", "query": "dog"},
        "no row '9'": {"kind": "encoder", "query": "9"},
    }
    for message, settings in refused.items():
        with pytest.raises(FigureError, match=message):
            pick(FOUND, **settings)


def test_labels_say_where_words_begin_and_words_have_their_pieces():
    labels = {
        **{"▁cat": "cat", "s": "-s", ".": ".", "▁": "▁", "▁.": ".", "猫": "-猫"},
        **{"</s>": "‹end›", "<s>": "‹begin›", "<unk>": "‹unknown›", "▁New▁York": "New York"},
        **{"\t": "␉", "▁a\u202eb": "a\ufffdb", "▁" + "x" * 99: "x" * (LONGEST - 1) + "…"},
    }
    assert {piece: shown(piece) for piece in labels} == labels
    pieces = ("<s>", "▁Flas", "chen", ".", "▁it", "'", "s", "</s>")
    found = [(word, list(span)) for word, span in words(pieces)]
    assert found == [("<s>", [0]), ("Flaschen.", [1, 2, 3]), ("it's", [4, 5, 6]), ("</s>", [7])]
    assert core("“Flaschen.”") == "flaschen" and core("...") == "..."
    assert punctuation(pieces) == (3, 5)
    assert words(()) == []
    # Pronouns begin where their word does.
    pieces = ("▁It", "'", "s", "▁her", "s", "▁her", "▁item", ",", "▁it", ",", "</s>")
    assert pronoun_places(pieces, pronouns_of("en")) == (0, 3, 5, 8)
    assert pronoun_places(pieces, pronouns_of("xx")) == ()
    assert pronouns_of("de-AT") == pronouns_of("de")
