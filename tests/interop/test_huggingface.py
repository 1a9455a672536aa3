"""Folders for Hugging Face, without PyTorch: what is in them, what is refused, and back again."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from flaxformer_mt.api.runs import evaluate, export as export_run
from flaxformer_mt.config import CorpusConfig, DataConfig
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.scoring import Scoring
from flaxformer_mt.interop import ExportError, huggingface
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.folder import search_of
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.import_run import import_marian
from flaxformer_mt.interop.parity import Reference
from flaxformer_mt.interop.weights import from_model, reorder_channels, save_safetensors
from tests.decoding.runs import make_run
from tests.interop.translators import LINES, translator

pytest.importorskip("safetensors", reason="needs the [export] extra")

CARD = Card(data=DataConfig(src_lang="en", tgt_lang="de"))


def read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder, and the translator whose model is in it."""
    folder = tmp_path_factory.mktemp("written")
    shared = translator(activation="silu", ffn_dropout=0.2)
    huggingface.write(shared, folder, card=CARD)
    return folder, shared


def test_the_config_says_what_the_model_is(written):
    folder, _ = written
    config = read(folder / "config.json")
    expected = {"activation_function": "swish", "activation_dropout": 0.2, "encoder_layers": 1}
    expected |= {"decoder_start_token_id": 60, "max_position_embeddings": 40, "vocab_size": 61}
    assert expected.items() <= config.items() and config["share_encoder_decoder_embeddings"]


def test_the_generation_config_says_how_to_search(written):
    folder, shared = written
    generation = read(folder / "generation_config.json")
    assert generation["bad_words_ids"] == [[0], [1], [3], [60]]
    # The run's penalty is of another formula than theirs.
    assert (generation["num_beams"], generation["length_penalty"]) == (2, 0.0)
    assert search_of(shared.config, "transformers")[1] in (folder / "README.md").read_text()


def test_one_vocabulary_has_padding_last(written):
    folder, shared = written
    vocab = read(folder / "vocab.json")
    # As in other Marian models; this program's own padding is a type without a use.
    pieces = shared.vocabularies.src.pieces()
    assert [vocab[piece] for piece in pieces] == [60, *range(1, 60)] and vocab["<unused 0>"] == 0
    tokenizer = read(folder / "tokenizer_config.json")
    assert tokenizer["source_lang"] == "en" and not tokenizer["separate_vocabs"]
    assert tokenizer["clean_up_tokenization_spaces"] is False
    assert not (folder / "target_vocab.json").exists()


def test_two_vocabularies_are_one_with_the_types_of_both_and_two_tables(tmp_path):
    separate = translator(tie="target")
    huggingface.write(separate, tmp_path, card=CARD)
    pieces = separate.vocabularies.src.pieces() + separate.vocabularies.tgt.pieces()
    assert read(tmp_path / "vocab.json").keys() == {*pieces, "<unused 0>"}
    assert not read(tmp_path / "tokenizer_config.json")["separate_vocabs"]
    assert not read(tmp_path / "config.json")["share_encoder_decoder_embeddings"]


@pytest.mark.parametrize(
    "layout",
    [np.transpose, np.flip, np.asfortranarray, lambda array: np.broadcast_to(array[0], (4, 3))],
)
def test_arrays_are_written_in_any_memory_layout(layout, tmp_path):
    from safetensors.numpy import load_file

    array = layout(np.arange(6, dtype=np.float32).reshape(2, 3))
    save_safetensors(tmp_path / "a.safetensors", {"a": array})
    np.testing.assert_array_equal(load_file(tmp_path / "a.safetensors")["a"], array)


@pytest.mark.parametrize(
    ("patience", "early_stopping", "note"),
    [(1.0, True, "(`early_stopping=True`), as in"), (0.0, False, "is `False`, transformers' def")],
)
def test_when_transformers_stops_is_said(patience, early_stopping, note, tmp_path):
    original = translator()
    original.config = dataclasses.replace(original.config, patience=patience)
    huggingface.write(original, tmp_path, card=CARD)
    assert read(tmp_path / "generation_config.json")["early_stopping"] is early_stopping
    assert note in (tmp_path / "README.md").read_text()


def test_the_card_tells_where_the_model_is_from(tmp_path):
    run = make_run(tmp_path / "run", {1: None, 2: None})
    scoring = Scoring(ter=False, resamples=0, language="de")
    first_checkpoint = Translator.load(run, which=1)
    evaluate(run, {"mine": (LINES, LINES)}, translator=first_checkpoint, scoring=scoring)
    of_run: dict[str, Any] = {"format": "huggingface", "checked": False}
    export_run(run, tmp_path / "one", which=1, **of_run)
    export_run(run, tmp_path / "two", **of_run, license="mit")
    first, second = ((tmp_path / name / "README.md").read_text() for name in ("one", "two"))
    metrics = read(run.evaluation / "mine.json")["metrics"]
    assert (
        f"""
## Scores

Translated by flaxformer-mt's own search.

- `mine` (beam 4, length penalty 0.6)
  - sacrebleu_13a **{metrics["sacrebleu_13a"]:.2f}** `nrefs:1|case:mixed|eff:no|tok:13a|"""
        in first
    )
    assert 'metrics: ["sacrebleu", "bleu", "chrf"]\n# license: what' in first
    assert "These weights have not been evaluated." in second
    assert second.startswith('---\nlanguage: ["en", "de"]\nlicense: "mit"\nlibrary_name: ')
    assert "metrics:" not in second and 'name = "."' in second


def test_the_card_names_another_program_that_searched():
    own = {"beam_size": 4, "length_penalty": 0.6, "metrics": {}, "signatures": {}}
    theirs = own | {"name": "theirs", "runtime": "CTranslate2 1.0"}
    card = Card(data=DataConfig(), evaluations=[own | {"name": "own"}, theirs])
    assert "own search, unless another program is named.\n" in card.body()
    assert "- `own` (beam 4, length penalty 0.6)\n" in card.body()
    assert "- `theirs` (beam 4, length penalty 0.6, CTranslate2 1.0)\n" in card.body()


def test_the_card_names_data_and_commands_without_the_folders_of_a_machine():
    corpora = (
        CorpusConfig(name="mine", src="/corpora/a.en", tgt="b.de"),
        CorpusConfig(name="set", kind="tfds", path="wmt14_translate/de-en", split="train[:1%]"),
        CorpusConfig(name="shards", kind="array_record", path="/data/part-*", src="en", tgt="de"),
        CorpusConfig(name="remote", kind="jsonl", path="gs://b/a.jsonl", src="en", tgt="de"),
    )
    data = DataConfig(src_lang="pt_BR", tgt_lang="x-klingon", train=corpora)
    words = ["flaxformer-mt", "train", "--config.data.train=/corpora/a.en,~/b c.de", "/tmp/x/run"]
    card = Card(data=data, commands=[words, words])
    assert 'language: ["pt"]\n' in card.header()
    assert (
        card.body()
        == """## Data

- `mine`: a.en, b.de
- `set`: wmt14_translate/de-en, split train[:1%], of TensorFlow Datasets
- `shards`: part-*
- `remote`: gs://b/a.jsonl

## Scores

These weights have not been evaluated.

## How it was made

    flaxformer-mt train '--config.data.train=a.en,b c.de' run"""
    )


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"norm": "pre"}, "its layers are post-LN, but model.norm = 'pre'"),
        ({"positions": "learned"}, "its positions are the paper's sinusoids, but model.pos"),
        ({"positions": "tensor2tensor"}, "sinusoids, but model.positions = 'tensor2tensor'"),
        ({"d_k": 9}, "needs model.d_k = 9 and model.d_v = 8"),
        ({"d_v": 12}, "model.d_k = 8 and model.d_v = 12"),
        ({"num_heads": 3, "d_k": 4, "d_v": 4}, "to be 16 / 3"),
    ],
)
def test_what_it_cannot_hold_is_refused(form, reason, tmp_path):
    with pytest.raises(ExportError, match=reason):
        huggingface.write(translator(**form), tmp_path, card=CARD)


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    for package, form in (
        ("safetensors.numpy", "huggingface"),
        ("ctranslate2", "ctranslate2"),
        ("flatbuffers", "stablehlo"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        message = r", which is not installed: pip install 'flaxformer-mt\[export\]'"
        with pytest.raises(ExportError, match=package.removesuffix(".numpy") + message):
            export(translator(), tmp_path / "x", form=form, card=CARD, sample=None)
    assert not list(tmp_path.iterdir())


def log_probs(made: Translator) -> np.ndarray:
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    return np.concatenate(Reference(made).log_probs(sources, sources))


@pytest.mark.parametrize("form", [{"attention_bias": True}, {"norm": "pre"}], ids=str)
def test_reordered_channels_compute_the_same(form):
    """With learned positions, which are reordered along, nothing tells the orders apart."""
    original = translator(positions="learned", position_scale="sqrt_d_model", tie="target", **form)
    expected = log_probs(original)
    order = np.random.default_rng(0).permutation(original.model.config.d_model)
    original.params = unflatten_dict(reorder_channels(from_model(original), order), sep="/")
    np.testing.assert_allclose(log_probs(original), expected, atol=2e-5)


@pytest.mark.parametrize(
    "form",
    [
        {"attention_bias": True, "logits_bias": True, "norm_epsilon": 1e-5},
        {"tie": "none", "scan_layers": True, "norm_epsilon": 1e-5},
    ],
    ids=str,
)
def test_there_and_back_is_the_same_model(form, tmp_path, monkeypatch):
    """Vocabulary, weights to the bit and search; projections have got biases, which are 0."""
    monkeypatch.setattr(huggingface, "missing", lambda: ["torch"])
    original = translator(**form)
    search = {"no_repeat_ngram": 3, "beam_size": 5, "length_norm": "average"}
    original.config = dataclasses.replace(original.config, **search, length_penalty=0.75)
    (tmp_path / "folder").mkdir()
    huggingface.write(original, tmp_path / "folder", card=CARD)
    assert import_marian(tmp_path / "folder", tmp_path / "run", ["test"]) is None
    back = Translator.load(tmp_path / "run")
    for name in ("no_repeat_ngram", "beam_size", "length_norm", "length_penalty"):
        assert getattr(back.config, name) == getattr(original.config, name)
    assert back.vocabularies == original.vocabularies, "it needs no table"
    assert back.model.config.tie == original.model.config.tie
    if original.model.config.attention_bias:
        jax.tree.map(np.testing.assert_array_equal, back.params, original.params)
        return
    np.testing.assert_allclose(log_probs(original), log_probs(back), atol=1e-4)
