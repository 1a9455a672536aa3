"""Folders for Hugging Face, without PyTorch: what is in them, what is refused, and back again."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export import ExportError, ctranslate2, huggingface, stablehlo
from flaxformer_mt.export.folder import search_of
from flaxformer_mt.export.import_run import import_marian
from flaxformer_mt.export.parity import Reference
from tests.export.translators import LINES, translator

pytest.importorskip("safetensors", reason="needs the [export] extra")

LANGUAGES = DataConfig(src_lang="en", tgt_lang="de")


def read(path: Path) -> dict:
    return json.loads(path.read_text())


def test_the_files_say_what_the_model_is(tmp_path: Path) -> None:
    made = translator(activation="silu", ffn_dropout=0.2)
    huggingface.write(made, tmp_path, languages=LANGUAGES)
    config = read(tmp_path / "config.json")
    expected = {"activation_function": "swish", "activation_dropout": 0.2, "encoder_layers": 1}
    expected |= {"decoder_start_token_id": 1, "max_position_embeddings": 40, "vocab_size": 60}
    assert expected.items() <= config.items() and config["share_encoder_decoder_embeddings"]
    vocab = read(tmp_path / "vocab.json")
    assert [vocab[piece] for piece in made.vocabularies.src.pieces()] == list(range(60))
    generation = read(tmp_path / "generation_config.json")
    assert generation["bad_words_ids"] == [[0], [1], [3]]
    # The run's penalty is of another formula than theirs.
    assert (generation["num_beams"], generation["length_penalty"]) == (2, 0.0)
    assert search_of(made.config, "transformers")[1] in (tmp_path / "README.md").read_text()
    tokenizer = read(tmp_path / "tokenizer_config.json")
    assert tokenizer["source_lang"] == "en" and not tokenizer["separate_vocabs"]
    assert tokenizer["clean_up_tokenization_spaces"] is False
    assert not (tmp_path / "target_vocab.json").exists()


def test_two_vocabularies_are_two(tmp_path: Path) -> None:
    huggingface.write(translator(tie="target"), tmp_path, languages=LANGUAGES)
    assert read(tmp_path / "tokenizer_config.json")["separate_vocabs"]
    assert read(tmp_path / "target_vocab.json") != read(tmp_path / "vocab.json")
    assert not read(tmp_path / "config.json")["share_encoder_decoder_embeddings"]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"norm": "pre"}, "its layers are post-LN, and model.norm = 'pre'"),
        ({"positions": "learned"}, "its positions are sinusoids, and model.positions = 'learned'"),
        ({"d_v": 12}, "divides d_model by the number of heads: model.d_k = 8 and model.d_v = 12"),
    ],
)
def test_what_it_cannot_hold_is_refused(form, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=reason):
        huggingface.write(translator(**form), tmp_path, languages=LANGUAGES)
    assert not list(tmp_path.iterdir())


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = translator()
    for package, write in {
        "safetensors.numpy": functools.partial(huggingface.write, languages=LANGUAGES),
        "ctranslate2": functools.partial(ctranslate2.write, quantization="float32"),
        "flatbuffers": stablehlo.write,
    }.items():
        monkeypatch.setitem(sys.modules, package, None)
        name = package.removesuffix(".numpy")
        message = f"{name}, which is not installed: pip install 'flaxformer-mt[export]'"
        with pytest.raises(ExportError, match=re.escape(message)):
            write(made, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "form",
    [
        {"attention_bias": True, "logits_bias": True, "norm_epsilon": 1e-5},
        {"tie": "none", "scan_layers": True, "norm_epsilon": 1e-5},
    ],
    ids=str,
)
def test_there_and_back_is_the_same_model(
    form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vocabulary, weights to the bit and search; projections have got biases, which are 0."""
    monkeypatch.setattr(huggingface, "missing", lambda: ["torch"])
    made = translator(**form)
    search = {"no_repeat_ngram": 3, "beam_size": 5, "length_norm": "average"}
    made.config = dataclasses.replace(made.config, **search, length_penalty=0.75)
    (tmp_path / "folder").mkdir()
    huggingface.write(made, tmp_path / "folder", languages=LANGUAGES)
    assert import_marian(tmp_path / "folder", tmp_path / "run", ["test"]) is None
    back = Translator.load(tmp_path / "run")
    for name in ("no_repeat_ngram", "beam_size", "length_norm", "length_penalty"):
        assert getattr(back.config, name) == getattr(made.config, name)
    assert back.vocabularies == made.vocabularies, "it needs no table"
    assert back.model.config.tie == made.model.config.tie
    if made.model.config.attention_bias:
        jax.tree.map(np.testing.assert_array_equal, back.params, made.params)
        return
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    ours, theirs = (Reference(each).log_probs(sources, sources) for each in (made, back))
    np.testing.assert_allclose(np.concatenate(ours), np.concatenate(theirs), atol=1e-4)
