"""Marian checkpoints as run directories, without PyTorch: ids, rows, and what is refused."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flaxformer_mt.config import freeze
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, huggingface
from flaxformer_mt.interop.import_run import import_marian
from flaxformer_mt.interop.marian import sinusoids_in_halves
from flaxformer_mt.interop.parity import Reference
from flaxformer_mt.interop.weights import interleaved_from_halves
from flaxformer_mt.model.embedding import sinusoids
from flaxformer_mt.rundir import WorkdirError
from flaxformer_mt.rundir.layout import open_run, read_record
from tests.interop.marian_models import SIZES, vocabulary, write_arrays

pytest.importorskip("safetensors", reason="needs the [export] extra")


@pytest.fixture(autouse=True)
def no_peer(monkeypatch) -> None:
    """As where PyTorch is not installed: `test_interop.py` compares."""
    monkeypatch.setattr(huggingface, "missing", lambda: ["torch", "transformers"])


ORDER = interleaved_from_halves(SIZES["d_model"])


def imported(folder: Path, **more: Any) -> Translator:
    import_marian(folder / "marian", folder / "run", ["x"], **more)
    return Translator.load(folder / "run")


def code_row(translator: Translator, table: str) -> np.ndarray:
    """The row of the language code, the last type but padding."""
    number = translator.vocabularies.tgt.pieces().index(">>deu<<")
    return np.asarray(translator.params["embedding"][table][number])


@pytest.fixture
def folder(tmp_path) -> Path:
    write_arrays(tmp_path / "marian")
    return tmp_path / "marian"


def test_types_are_renumbered_with_their_rows(tmp_path):
    state = write_arrays(tmp_path / "marian")
    translator = imported(tmp_path)
    pieces = translator.vocabularies.src.pieces()
    assert pieces[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert translator.vocabularies.tgt.pieces() == pieces
    table = np.asarray(translator.params["embedding"]["shared"])
    bias = np.asarray(translator.params["embedding"]["softmax_bias"])
    their_ids = vocabulary("en", "de")
    their_table, their_bias = state["model.shared.weight"], state["final_logits_bias"][0]
    for number, piece in enumerate(pieces):
        if piece == "<pad>":
            assert not table[number].any() and bias[number] == -100
            continue
        their_id = their_ids["<pad>" if piece == "<s>" else piece]
        row = their_table[their_id][ORDER].astype(np.float32)
        np.testing.assert_array_equal(table[number], row)
        assert bias[number] == np.float32(their_bias[their_id])


def test_text_is_encoded_with_its_language_code_and_comes_back(tmp_path):
    write_arrays(tmp_path / "marian")
    notes: list[str] = []
    vocabularies = imported(tmp_path, say=notes.append).vocabularies
    [tokens] = vocabularies.src.encode([">>deu<< the cat sees it all ."])
    assert vocabularies.src.pieces()[tokens[0]] == ">>deu<<" and 3 not in tokens
    assert vocabularies.src.decode([tokens[1:]]) == ["the cat sees it all ."]
    assert not notes


def test_the_run_says_what_it_is(folder, tmp_path):
    import_marian(folder, tmp_path / "run", ["flaxformer-mt", "import"])
    record = read_record(open_run(tmp_path / "run"))
    config = freeze(record.config, "config.json")
    assert record.starts[0].command_line == ("flaxformer-mt", "import")
    assert config.name == "marian"
    assert (config.data.src_lang, config.data.tgt_lang) == ("en", "de")
    assert config.decoding.beam_size == 6
    model = config.model
    assert (model.activation, model.attention_bias, model.logits_bias) == ("silu", True, True)
    assert (model.norm, model.norm_epsilon, model.positions) == ("post", 1e-5, "sinusoidal")
    assert (model.d_k, model.d_v, model.max_length, model.tie) == (8, 8, 64, "all")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "finished" and status["reason"] == f"imported from {folder}"


def test_separate_vocabularies(tmp_path):
    state = write_arrays(tmp_path / "marian", separate=True)
    translator = imported(tmp_path)
    assert translator.model.config.tie == "target"
    sizes = translator.model.src_vocab_size, translator.model.tgt_vocab_size
    # Each has one type more: the begin mark.
    assert sizes == (len(vocabulary("en")) + 1, len(vocabulary("de")) + 1)
    expected = np.float32(state["model.decoder.embed_tokens.weight"][-2][ORDER])
    np.testing.assert_array_equal(code_row(translator, "target"), expected)

    # Their sinusoids are ours in another order.
    np.testing.assert_array_equal(
        sinusoids_in_halves(30, 12)[:, interleaved_from_halves(12)], sinusoids(30, 12)
    )


def change_json(path: Path, **values: Any) -> None:
    """Those that are None are left out."""
    content = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # Settings of config.json.
        ({"normalize_before": True}, "not supported here: normalize_before = True"),
        ({"activation_function": "gelu"}, "not supported here: activation_function = 'gelu'"),
        ({"decoder_ffn_dim": 7}, "encoder_ffn_dim = 48 and decoder_ffn_dim = 7"),
        ({"encoder_attention_heads": 0, "decoder_attention_heads": 0}, "d_model = 32 with 0 heads"),
        ({"encoder_attention_heads": -4, "decoder_attention_heads": -4}, "d_model = 32 with -4 "),
        ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, "d_model = 32 with 5 heads"),
        ({"d_model": "wide"}, "is not a Marian model's folder: ValueError.*'wide'"),
        ({"vocab_size": 10**15}, "but config.json describes 1000000000000000 x 32"),
        ({"max_position_embeddings": 10**9}, "here: max_position_embeddings = 1000000000"),
        ({"eos_token_id": "\x1b[2J"}, r"eos_token_id is '.x1b.2J'"),
        ({"decoder_start_token_id": "<pad>"}, "is not a Marian model's folder: TypeError"),
        ({"num_beams": 0}, "'decoding.beam_size' = 0 must be at least 1"),
        ({"decoder_start_token_id": 999}, "decoder_start_token_id = 999, but the model has"),
        ({"max_length": -3}, "max_length = -3 must be an integer > 1"),
        (("added_tokens.json", b"[]"), "added_tokens.json: is not a JSON object"),
        ({"eos_token_id": 5}, "eos_token_id is 5 in config.json, but 0 in the vocabulary"),
        ({"encoder_layers": 1}, "arrays unknown to a Marian .*'model.encoder.layers.1"),
        ({"decoder_layers": 4}, "has no array 'model.decoder.layers.3.self_attn.q_proj.weight'"),
        (
            {"encoder_ffn_dim": 50, "decoder_ffn_dim": 50},
            "'model.encoder.layers.0.fc1.weight' is 48 x 32, but config.json describes 50 x 32",
        ),
        # Files, and what they hold.
        (("config.json", None), "marian: has no config.json"),
        (("config.json", b"{"), "config.json:1: is not JSON"),
        (("config.json", b"[]"), "config.json: is not a JSON object"),
        (("vocab.json", None), "vocab.json: cannot be read"),
        (("vocab.json", b'{"a": "b"}'), "vocab.json: its ids must be different integers"),
        (("vocab.json", b'{"\\ud800": 1}'), r"vocab.json: is not JSON: .*surrogates"),
        (("vocab.json", b'{"</s>": 0, "<pad>": 1, "<unk>": 900}'), "ids up to 900, but the model"),
        (("vocab.json", b'{"</s>": 0, "<unk>": 1}'), "its vocabulary has no pad token '<pad>'"),
        (("source.spm", b""), "source.spm: is not a SentencePiece model"),
        (("model.safetensors", b"nonsense"), "model.safetensors: cannot be read"),
        (("model.safetensors", None), "has neither model.safetensors nor pytorch_model.bin"),
        # Arrays.
        (("model.encoder.layers.0.fc1.bias", np.full(48, np.nan)), "fc1.bias' has values that are"),
        (("final_logits_bias", np.zeros((1, 20))), "'final_logits_bias' is 1 x 20, but config.j"),
        # Names cannot steer a terminal.
        (("\x1b[2J", np.zeros(1)), "arrays unknown to a Marian"),
    ],
)
def test_what_is_no_such_model_is_refused(folder, tmp_path, change, message):
    if isinstance(change, dict):
        change_json(folder / "config.json", **change)
    elif isinstance(change[1], np.ndarray):
        put_arrays(folder, {change[0]: np.float16(change[1])})
    elif change[1] is None:
        (folder / change[0]).unlink()
    else:
        (folder / change[0]).write_bytes(change[1])
    with pytest.raises(ExportError, match=message) as refused:
        import_marian(folder, tmp_path / "run", ["x"])
    assert str(refused.value).isprintable()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["marian"]


def test_positions_that_are_no_sinusoids_are_refused(folder, tmp_path):
    table = sinusoids_in_halves(64, SIZES["d_model"])
    put_arrays(folder, {"model.encoder.embed_positions.weight": np.float16(table)})
    import_marian(folder, tmp_path / "run", ["x"])
    put_arrays(folder, {"model.decoder.embed_positions.weight": table[:, ::-1].copy()})
    with pytest.raises(ExportError, match="holds positions that are not sinusoids"):
        import_marian(folder, tmp_path / "other", ["x"])


def test_what_is_not_there_is_named(folder, tmp_path, monkeypatch):
    with pytest.raises(ExportError, match="absent: no such folder; give a downloaded model's"):
        import_marian(tmp_path / "absent", tmp_path / "run", ["x"])
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ExportError, match="needs PyTorch: pip"):
        import_marian(folder, tmp_path / "run", ["x"])


@pytest.mark.parametrize("name", ["lr[0.1]", "a\\b"])
def test_a_run_is_not_made_below_a_path_that_orbax_misreads(folder, tmp_path, name):
    with pytest.raises(WorkdirError, match="checkpoints can't be stored below a path with"):
        import_marian(folder, tmp_path / name / "run", ["x"])
    assert not (tmp_path / name).exists()


def test_what_is_not_kept_is_said(folder, tmp_path):
    change_json(folder / "config.json", bad_words_ids=[[len(vocabulary("en", "de")) - 1], [5, 6]])
    notes: list[str] = []
    imported(tmp_path, say=notes.append)
    assert len(notes) == 1 and "bad_words_ids [[5, 6]] are not imported" in notes[0]


def test_the_search_is_theirs_or_said(folder, tmp_path):
    settings = {"max_length": 7, "early_stopping": True, "forced_eos_token_id": 0, "min_length": 2}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    notes: list[str] = []
    config = imported(tmp_path, say=notes.append).config
    assert (config.max_ratio, config.max_extra_tokens, config.patience) == (0.0, 6, 1.0)
    assert len(notes) == 1 and notes[0].startswith("min_length = 2 is not imported: ")


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({}, (6, 1.0, 0)),  # the beam is config.json's
        ({"num_beams": 2, "length_penalty": 0.8, "no_repeat_ngram_size": 3}, (2, 0.8, 3)),
        ({"num_beams": None, "length_penalty": 0}, (6, 0.0, 0)),
    ],
)
def test_the_search_is_theirs(folder, tmp_path, generation, expected):
    (folder / "generation_config.json").write_text(json.dumps(generation))
    config = imported(tmp_path).config
    assert (config.beam_size, config.length_penalty, config.no_repeat_ngram) == expected
    assert (config.length_norm, config.ends_among) == ("average", "beam")


def put_arrays(folder: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file, save_file

    file = str(folder / "model.safetensors")
    state = load_file(file) | arrays
    save_file(state, file)
    return state


def test_a_softmax_of_its_own_beside_a_shared_table(folder, tmp_path):
    softmax = np.random.default_rng(3).standard_normal(
        (len(vocabulary("en", "de")), SIZES["d_model"])
    )
    state = put_arrays(folder, {"lm_head.weight": np.float32(softmax)})
    with pytest.raises(ExportError, match=r"'lm_head.weight' differs from the table"):
        import_marian(folder, tmp_path / "run", ["x"])
    change_json(folder / "config.json", tie_word_embeddings=False)
    translator = imported(tmp_path)
    assert translator.model.config.tie == "none"
    assert translator.vocabularies.src.pieces() == translator.vocabularies.tgt.pieces()
    np.testing.assert_array_equal(code_row(translator, "softmax"), np.float32(softmax[-2][ORDER]))
    for name in ("source", "target"):
        shared = np.float32(state["model.shared.weight"][-2][ORDER])
        np.testing.assert_array_equal(code_row(translator, name), shared)


def test_tables_that_nothing_ties_are_each_sides_own(folder, tmp_path):
    change_json(folder / "config.json", tie_word_embeddings=False)
    with pytest.raises(ExportError, match=r"has no array 'lm_head.weight'"):
        import_marian(folder, tmp_path / "run", ["x"])
    state = write_arrays(folder, tie_word_embeddings=False)
    translator = imported(tmp_path)
    for side, name in (
        ("source", "model.encoder.embed_tokens.weight"),
        ("target", "model.decoder.embed_tokens.weight"),
        ("softmax", "lm_head.weight"),
    ):
        np.testing.assert_array_equal(
            code_row(translator, side), np.float32(state[name][-2][ORDER])
        )


@pytest.mark.parametrize("name", ["lm_head.weight", "model.decoder.embed_tokens.weight"])
def test_a_tied_table_may_be_there_twice_if_it_is_the_same(tmp_path, name):
    table = write_arrays(tmp_path / "marian")["model.shared.weight"]
    put_arrays(tmp_path / "marian", {name: table})
    imported(tmp_path)
    put_arrays(tmp_path / "marian", {name: table + np.float16(0.5)})
    with pytest.raises(ExportError, match="differs from the table that it is tied"):
        import_marian(tmp_path / "marian", tmp_path / "other", ["x"])


def reference_log_probs(made: Translator) -> np.ndarray:
    sources = [[*ids, 2] for ids in made.vocabularies.src.encode(["the cat sees it all .", "it"])]
    return np.concatenate(Reference(made).log_probs(sources, [[10, 11], [12]]))


def test_weights_may_be_in_several_files(folder, tmp_path):
    from safetensors.numpy import load_file, save_file

    expected = reference_log_probs(imported(tmp_path))
    state = load_file(folder / "model.safetensors")
    parts = {"a.safetensors": {}, "b.safetensors": {}}
    weight_map = {}
    for number, name in enumerate(state):
        file = sorted(parts)[number % 2]
        parts[file][name] = state[name]
        weight_map[name] = file
    for file, part in parts.items():
        save_file(part, folder / file)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    import_marian(folder, tmp_path / "other", ["x"])
    np.testing.assert_array_equal(
        reference_log_probs(Translator.load(tmp_path / "other")), expected
    )

    (folder / "b.safetensors").unlink()
    with pytest.raises(ExportError, match=r"b.safetensors: is missing, but model.safetensors.in"):
        import_marian(folder, tmp_path / "third", ["x"])
    for damaged in ({}, {"weight_map": {"a": "../run/a.safetensors"}}, {"weight_map": {"a": 3}}):
        index.write_text(json.dumps(damaged))
        with pytest.raises(ExportError, match=r"index.json: its weight_map must give a file of"):
            import_marian(folder, tmp_path / "third", ["x"])


@pytest.mark.parametrize(
    "changes",
    [
        {"eos_token_id": [0]},
        {"static_position_embeddings": False},
        {"decoder_start_token_id": None},
    ],
    ids=str,
)
def test_settings_that_change_nothing_are_taken(folder, tmp_path, changes):
    expected = reference_log_probs(imported(tmp_path))
    change_json(folder / "config.json", **changes)
    import_marian(folder, tmp_path / "other", ["x"])
    log_probs = reference_log_probs(Translator.load(tmp_path / "other"))
    np.testing.assert_array_equal(log_probs, expected)


@pytest.mark.parametrize("start", ["</s>", ">>deu<<", "<unk>"])
def test_a_decoder_may_begin_with_a_type_in_use(folder, tmp_path, start):
    """As BART's begins with the end mark."""
    number = vocabulary("en", "de")[start]
    change_json(folder / "config.json", decoder_start_token_id=number)
    translator = imported(tmp_path)
    pieces = translator.vocabularies.tgt.pieces()
    table = np.asarray(translator.params["embedding"]["shared"])
    np.testing.assert_array_equal(table[1], table[pieces.index(start)])
    assert translator.vocabularies.src.encode([">>deu<< it"])[0][0] == pieces.index(">>deu<<")
    # The copy has no share.
    bias = np.asarray(translator.params["embedding"]["softmax_bias"])
    assert bias[1] == pytest.approx(bias[pieces.index(start)] - 100)


def test_generation_config_says_what_the_decoder_begins_with(folder, tmp_path):
    (folder / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": 0}))
    table = np.asarray(imported(tmp_path).params["embedding"]["shared"])
    np.testing.assert_array_equal(table[1], table[2])


@pytest.mark.parametrize("separate", [False, True])
def test_unscaled_embeddings_are_tables_of_their_own(tmp_path, separate):
    state = write_arrays(tmp_path / "marian", separate=separate, scale_embedding=False)
    translator = imported(tmp_path)
    assert translator.model.config.tie == "none"
    name = "model.decoder.embed_tokens.weight" if separate else "model.shared.weight"
    expected = np.float32(state[name][-2][ORDER])
    np.testing.assert_array_equal(code_row(translator, "softmax"), expected)
    np.testing.assert_allclose(code_row(translator, "target") * 32**0.5, expected, rtol=1e-6)


def add_tokens(folder: Path, *, listed: bool) -> None:
    """As transformers adds them: the tables grow by a row each."""
    size = len(vocabulary("en", "de"))
    state = put_arrays(folder, {})
    rows = np.float16(np.random.default_rng(5).standard_normal((2, SIZES["d_model"])))
    put_arrays(
        folder,
        {
            "model.shared.weight": np.concatenate([state["model.shared.weight"], rows]),
            "final_logits_bias": np.pad(state["final_logits_bias"], ((0, 0), (0, 2))),
        },
    )
    change_json(folder / "config.json", vocab_size=size + 2, decoder_vocab_size=size + 2)
    if listed:
        tokens = {"0": {"content": "</s>"}, str(size - 1): {"content": "<pad>"}}
        tokens |= {str(size): {"content": "<tag>"}, str(size + 1): {"content": "<2de>"}}
        change_json(folder / "tokenizer_config.json", added_tokens_decoder=tokens)
    else:
        content = json.dumps({"<tag>": size, "<2de>": size + 1})
        (folder / "added_tokens.json").write_text(content)


@pytest.mark.parametrize("listed", [True, False])
def test_added_tokens_are_one_token(folder, tmp_path, listed):
    plain = imported(tmp_path).vocabularies.src
    add_tokens(folder, listed=listed)
    import_marian(folder, tmp_path / "other", ["x"])
    translator = Translator.load(tmp_path / "other")
    pieces = translator.vocabularies.src.pieces()
    tag, language = pieces.index("<tag>"), pieces.index("<2de>")
    [the], [cat] = (plain.encode([text])[0][:1] for text in ("the", "cat"))
    [tokens] = translator.vocabularies.src.encode(["<2de>the <tag>cat"])
    assert tokens[:4] == [language, the, tag, cat]
    state = put_arrays(folder, {})
    table = np.asarray(translator.params["embedding"]["shared"])
    expected = np.float32(state["model.shared.weight"][-2][ORDER])
    np.testing.assert_array_equal(table[tag], expected)


def test_an_added_token_without_a_row_is_named(folder, tmp_path):
    (folder / "added_tokens.json").write_text(json.dumps({"<tag>": 5000}))
    notes: list[str] = []
    imported(tmp_path, say=notes.append)
    assert len(notes) == 1 and "token '<tag>' is not imported: its id is 5000, and" in notes[0]
