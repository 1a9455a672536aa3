"""Attention weights of every layer and head against the paper's formula in NumPy."""

import dataclasses
import types
from typing import Any

import numpy as np
import pytest

from flaxformer_mt.data.vocabulary import BOS, EOS
from flaxformer_mt.decoding.errors import OverlongError
from flaxformer_mt.model.transformer import Transformer
from tests.decoding.examples import as_part, forcing
from tests.decoding.runs import PAIRS
from tests.model import reference
from tests.model.examples import build, stack_layers, tiny_config

PIECES = types.SimpleNamespace(pieces=lambda ids: [str(token) for token in ids])
BOTH: Any = types.SimpleNamespace(src=PIECES, tgt=PIECES)


def expected(monkeypatch, params, config, part):
    """The reference's weights, which it computes in this order."""
    recorded, original = [], reference.probabilities

    def watched(*arguments, **settings):
        recorded.append(original(*arguments, **settings))
        return recorded[-1]

    src, tgt = np.array([[*part.src, EOS]]), np.array([[BOS, *part.tgt]])
    monkeypatch.setattr(reference, "probabilities", watched)
    reference.forward(params, config, src, tgt, np.ones_like(src), np.ones_like(tgt))
    heads, layers = config.num_heads, config.encoder_layers
    encoder, in_decoder = recorded[: heads * layers], recorded[heads * layers :]
    of_layers = [in_decoder[i : i + heads] for i in range(0, len(in_decoder), heads)]
    encoder = np.stack(encoder).reshape(layers, heads, *encoder[0].shape)
    return encoder, np.stack(of_layers[0::2]), np.stack(of_layers[1::2])


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_weights_are_the_formula_s(scan, norm, monkeypatch):
    model, params = build(tiny_config(norm=norm, encoder_layers=2, decoder_layers=3))
    pair = as_part((5, 6, 7, 8, 4), (9, 4, 12))
    encoder, decoder, cross = expected(monkeypatch, params, model.config, pair)
    if scan:
        config = dataclasses.replace(model.config, scan_layers=True)
        model, params = Transformer(config, 13, 13), stack_layers(params)
    attention = forcing(model, params).attention(pair, BOTH)
    assert attention.encoder.shape == (2, 3, 6, 6)
    assert attention.decoder.shape == (3, 3, 4, 4)
    assert attention.cross.shape == (3, 3, 4, 6)
    every = ((attention.encoder, encoder), (attention.decoder, decoder), (attention.cross, cross))
    for ours, theirs in every:
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)
        np.testing.assert_allclose(ours.sum(axis=-1), 1.0, rtol=0, atol=1e-6)
    # What is yet to be said is not attended to at all.
    assert (attention.decoder[:, :, ~np.tri(4, dtype=bool)] == 0).all()
    assert attention.src_pieces == ("5", "6", "7", "8", "4", "2")
    assert (attention.tgt_pieces, attention.tgt_inputs) == (
        ("9", "4", "12", "2"),
        ("1", "9", "4", "12"),
    )


def test_of_a_translator(translator):
    source, target = PAIRS[0]
    attention = translator.attend(source, target)
    assert attention.src_pieces[-1] == attention.tgt_pieces[-1] == "</s>"
    assert attention.tgt_inputs == ("<s>", *attention.tgt_pieces[:-1])
    assert "".join(attention.tgt_pieces[:-1]).replace("\u2581", " ").strip() == target
    assert attention.cross.shape == (1, 2, len(attention.tgt_pieces), len(attention.src_pieces))
    tokens = translator.vocabularies.tgt.encode([target])[0]
    np.testing.assert_array_equal(translator.attend(source, tokens).cross, attention.cross)
    np.testing.assert_allclose(translator.attend("", "").cross, 1.0)
    with pytest.raises(OverlongError, match="the source has"):
        translator.attend(f"{source} " * 5, target)
