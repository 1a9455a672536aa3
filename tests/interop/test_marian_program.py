"""Folders for Marian and Bergamot, read back here; `test_bergamot.py` has their own programs."""

import dataclasses
import json
import struct

import numpy as np
import pytest
import sentencepiece
import yaml

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.sentencepiece_training import ModelProto
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.import_npz import import_npz
from flaxformer_mt.interop.marian_files import Content, read_binary, read_npz, write_npz
from flaxformer_mt.interop.parity import Reference
from flaxformer_mt.interop.weights import from_model
from tests.cli.conftest import run as run
from tests.interop.translators import LINES, translator

MARIAN = {"positions": "tensor2tensor"}
FORMS = [
    MARIAN,
    MARIAN | {"tie": "target", "activation": "silu", "attention_bias": True},
    MARIAN | {"tie": "none", "d_k": 5, "logits_bias": True, "scan_layers": True},
]


def exported(folder, form, changes, **more):
    original = translator(**changes)
    card = Card(data=DataConfig())
    return original, export(original, folder, form=form, card=card, sample=(LINES, "lines"), **more)


@pytest.mark.parametrize("form", ["marian", "bergamot"])
@pytest.mark.parametrize("changes", FORMS, ids=str)
def test_the_folder_holds_the_same_model(form, changes, tmp_path):
    _, parity = exported(tmp_path / "out", form, changes, bound=1e-4)
    assert parity is not None and parity.agrees
    assert parity.same_output == parity.sentences == len(LINES)


def forward_by_hand(arrays, settings, source, target):
    """The logits [target, types] of a post-LN transformer, as Marian's transformer.h has it."""
    width, heads = settings["dim-emb"], settings["transformer-heads"]

    def embedded(table, ids):
        timescales = 10000 ** -(np.arange(width // 2) / (width // 2 - 1))
        angles = np.arange(len(ids))[:, None] * timescales
        return np.sqrt(width) * table[ids] + np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def affine(x, name, which):
        return x @ arrays[f"{name}_W{which}"] + arrays[f"{name}_b{which}"]

    def add_norm(x, out, name):
        summed = x + out
        centred = summed - summed.mean(1, keepdims=True)
        normed = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-9)
        return normed * arrays[f"{name}_ln_scale"] + arrays[f"{name}_ln_bias"]

    def attend(x, memory, name, *, causal=False):
        q, k, v = (affine(y, name, w) for y, w in ((x, "q"), (memory, "k"), (memory, "v")))
        parts = []
        for head in range(heads):
            part = slice(head * width // heads, (head + 1) * width // heads)
            scores = q[:, part] @ k[:, part].T / np.sqrt(width // heads)
            if causal:
                scores += np.triu(np.full(scores.shape, -1e9), 1)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            parts.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
        return add_norm(x, affine(np.concatenate(parts, 1), name, "o"), f"{name}_Wo")

    def feed_forward(x, name):
        return add_norm(x, affine(np.maximum(affine(x, name, 1), 0), name, 2), f"{name}_ffn")

    memory = embedded(arrays["Wemb"], source)
    for layer in range(1, settings["enc-depth"] + 1):
        memory = attend(memory, memory, f"encoder_l{layer}_self")
        memory = feed_forward(memory, f"encoder_l{layer}_ffn")
    x = embedded(arrays["Wemb"], target)
    x[0] -= np.sqrt(width) * arrays["Wemb"][target[0]]  # zeros, in place of a first token
    for layer in range(1, settings["dec-depth"] + 1):
        x = attend(x, x, f"decoder_l{layer}_self", causal=True)
        x = attend(x, memory, f"decoder_l{layer}_context")
        x = feed_forward(x, f"decoder_l{layer}_ffn")
    return x @ arrays["Wemb"].T + arrays["decoder_ff_logit_out_b"]


def test_marians_own_formula_gives_the_outputs(tmp_path):
    original, _ = exported(tmp_path / "out", "marian", MARIAN)
    with np.load(tmp_path / "out" / "model.npz") as stored:
        arrays = {name: np.float64(stored[name]) for name in stored.files if ":" not in name}
        settings = yaml.safe_load(stored["special:model.yml"].tobytes().rstrip(b"\0"))
    assert arrays["encoder_l1_self_Wq"].shape == (16, 16) and arrays["Wemb"].shape[1] == 16
    assert settings["tied-embeddings-all"] and settings["transformer-postprocess"] == "dan"

    decoder = yaml.safe_load((tmp_path / "out" / "decoder.yml").read_text())
    assert decoder["models"] == ["model.npz"] and decoder["vocabs"] == ["vocab.spm"] * 2
    spm = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "out" / "vocab.spm"))
    assert (spm.eos_id(), spm.get_piece_size()) == (EOS, settings["dim-vocabs"][0])

    source = [*spm.encode(LINES[0]), EOS]
    [output] = Reference(original).greedy([source])
    logits = forward_by_hand(arrays, settings, source, [BOS, *output])
    # Marian generates any type but the unknown one.
    logits[:, UNK] -= 1e9
    assert logits.argmax(1)[: len(output)].tolist() == output

    # In the run's softmax the marks have a share.
    arrays["decoder_ff_logit_out_b"][0, [PAD, BOS]] += 100
    logits = forward_by_hand(arrays, settings, source, [BOS, *output])
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    [ours] = Reference(original).log_probs([source], [output])
    theirs = log_probs[np.arange(len(output) + 1), [*output, EOS]]
    np.testing.assert_allclose(theirs, ours, atol=1e-4)


def test_the_bytes_of_a_binary_model(tmp_path):
    exported(tmp_path / "out", "bergamot", MARIAN | {"d_model": 64, "d_ff": 64, "d_k": 32})
    data = (tmp_path / "out" / "model.bin").read_bytes()
    version, count = struct.unpack("<QQ", data[:16])
    headers = np.frombuffer(data, "<u8", 4 * count, 16).reshape(count, 4)
    names = data[16 + 32 * count :].split(b"\0", count)[:count]
    assert version == 1 and headers[:, 0].tolist() == [len(name) + 1 for name in names]
    at = 16 + 32 * count + int(headers[:, 0].sum())
    shapes = np.split(
        np.frombuffer(data, "<i4", int(headers[:, 2].sum()), at), headers[:, 2].cumsum()[:-1]
    )
    at += 4 * int(headers[:, 2].sum())
    (offset,) = struct.unpack("<Q", data[at : at + 8])
    at += 8 + offset
    assert at % 256 == 0 and not (headers[:, 3] % 256).any()
    assert at + int(headers[:, 3].sum()) == len(data)
    number = names.index(b"encoder_l1_ffn_W1")
    begin = at + int(headers[:number, 3].sum())
    assert headers[number, 1] == 0x404 and shapes[number].tolist() == [64, 64]
    kernel = np.frombuffer(data, "<f4", 64 * 64, begin).reshape(64, 64)
    np.testing.assert_array_equal(
        kernel, read_binary(tmp_path / "out" / "model.bin").arrays["encoder_l1_ffn_W1"]
    )


def test_eight_bits(tmp_path):
    sizes = {"d_model": 64, "d_ff": 128, "d_k": 32, "d_v": 32}
    exported(tmp_path / "plain", "bergamot", MARIAN | sizes)
    original = translator(**MARIAN, **sizes)
    card = Card(data=DataConfig())
    export(
        original, tmp_path / "int8", form="bergamot", quantization="int8", card=card, sample=None
    )
    plain, rounded = (read_binary(tmp_path / name / "model.bin") for name in ("plain", "int8"))
    assert (tmp_path / "int8" / "model.bin").stat().st_size < 0.4 * (
        tmp_path / "plain" / "model.bin"
    ).stat().st_size
    for name, array in plain.arrays.items():
        theirs = rounded.arrays[name][: len(array), : array.shape[1]]
        step = np.abs(array).max() / 127
        within = step / 2 if ("_W" in name and "_ln_" not in name) or name == "Wemb" else 0
        np.testing.assert_allclose(theirs, array, atol=within * 1.001, rtol=0, err_msg=name)
    types = original.vocabularies.src.size
    assert rounded.settings["dim-vocabs"][0] == types + -types % 8
    assert (rounded.arrays["decoder_ff_logit_out_b"][0, types:] == -100).all()
    settings = json.loads((tmp_path / "int8" / "settings.json").read_text())
    assert settings["config"] == {"gemm-precision": "int8shiftAll"}


@pytest.mark.parametrize(
    ("changes", "more", "expected"),
    [
        ({}, {}, "its sinusoids are tensor2tensor's, .* --config.model.positions=tensor2tensor"),
        (
            {"positions": "learned"},
            {},
            "its transformers have sinusoids, whatever its settings say",
        ),
        (MARIAN | {"norm": "pre"}, {}, "its pre-LN decoder normalises only the queries"),
        (MARIAN | {"d_k": 9}, {}, "Marian needs model.d_k = 9"),
        (
            MARIAN,
            {"quantization": "int8"},
            "needs multiples of 64 for int8, but model.d_model = 16",
        ),
        (MARIAN, {"quantization": "int7"}, "float32 or int8 only: int7 is for ctranslate2"),
    ],
    ids=str,
)
def test_what_marian_cannot_hold_is_refused(changes, more, expected, tmp_path):
    with pytest.raises(ExportError, match=expected):
        exported(tmp_path / "out", "bergamot", changes, **more)
    assert not (tmp_path / "out").exists()


def test_a_broken_file_is_named(tmp_path):
    exported(tmp_path / "out", "bergamot", MARIAN)
    path = tmp_path / "out" / "model.bin"
    path.write_bytes(path.read_bytes()[:-256])
    with pytest.raises(ExportError, match=r"model.bin: is not a binary Marian model, or is cut"):
        read_binary(path)
    np.savez(tmp_path / "model.npz", x=np.zeros(1))
    with pytest.raises(ExportError, match="has no special:model.yml"):
        read_npz(tmp_path / "model.npz")
    (tmp_path / "model.npz").write_bytes(b"PK")
    with pytest.raises(ExportError, match="cannot be read as a Marian model"):
        read_npz(tmp_path / "model.npz")


def test_the_table_has_lost_the_begin_mark(tmp_path):
    original, _ = exported(tmp_path / "out", "marian", MARIAN)
    table = from_model(original)["embedding/shared"]
    arrays = read_npz(tmp_path / "out" / "model.npz").arrays
    assert not arrays["Wemb"][BOS].any()
    halves = np.concatenate([table[:, 0::2], table[:, 1::2]], 1)
    np.testing.assert_array_equal(arrays["Wemb"], halves - halves[BOS])


def import_equals(original, folder, workdir):
    import_npz(folder / "decoder.yml", workdir, ["x"])
    imported = Translator.load(workdir)
    imported.config = original.config
    assert imported.vocabularies.tgt.pieces() == original.vocabularies.tgt.pieces()
    sources = [[*ids, EOS] for ids in original.vocabularies.src.encode(LINES)]
    return Reference(imported).greedy(sources) == Reference(original).greedy(sources)


@pytest.mark.parametrize("changes", FORMS, ids=str)
def test_import_reads_the_folder_back(changes, tmp_path):
    original, _ = exported(tmp_path / "out", "marian", changes)
    assert import_equals(original, tmp_path / "out", tmp_path / "run")
    imported = Translator.load(tmp_path / "run")

    # The same weights, bit by bit, when they are exported again.
    card = Card(data=DataConfig())
    export(imported, tmp_path / "again", form="marian", card=card, sample=(LINES, "lines"))
    first, second = (read_npz(tmp_path / name / "model.npz") for name in ("out", "again"))
    assert first.settings == second.settings and first.arrays.keys() == second.arrays.keys()
    marks = {"decoder_ff_logit_out_b"}  # whose share falls once more
    for name in first.arrays.keys() - marks:
        np.testing.assert_array_equal(second.arrays[name], first.arrays[name], err_msg=name)


def test_marians_setting_for_learned_positions_has_no_effect(tmp_path):
    original, _ = exported(tmp_path / "out", "marian", MARIAN)
    content = read_npz(tmp_path / "out" / "model.npz")
    settings = content.settings | {"transformer-train-position-embeddings": True}
    write_npz(tmp_path / "out" / "model.npz", Content(content.arrays, settings))
    assert import_equals(original, tmp_path / "out", tmp_path / "run")
    assert Translator.load(tmp_path / "run").model.config.positions == "tensor2tensor"


def test_a_vocabulary_with_marians_own_ids(tmp_path):
    """Marian's has `</s>`, `<unk>` and no begin mark and padding: 0 and 1."""
    exported(tmp_path / "out", "marian", MARIAN)
    proto = ModelProto()
    proto.ParseFromString((tmp_path / "out" / "vocab.spm").read_bytes())
    kept = [piece for piece in proto.pieces if piece.piece not in ("<pad>", "<s>")]
    del proto.pieces[:]
    proto.pieces.extend(kept)
    spec = proto.trainer_spec
    spec.pad_id, spec.bos_id, spec.eos_id, spec.unk_id = -1, -1, 0, 1
    (tmp_path / "out" / "vocab.spm").write_bytes(proto.SerializeToString())
    content = read_npz(tmp_path / "out" / "model.npz")
    arrays = dict(content.arrays)
    arrays["Wemb"] = arrays["Wemb"][2:]
    arrays["decoder_ff_logit_out_b"] = arrays["decoder_ff_logit_out_b"][:, 2:]
    types = len(arrays["Wemb"])
    write_npz(
        tmp_path / "out" / "model.npz",
        Content(arrays, content.settings | {"dim-vocabs": [types, types]}),
    )
    assert import_equals(translator(**MARIAN), tmp_path / "out", tmp_path / "run")


@pytest.mark.parametrize("form", ["marian", "bergamot", "stablehlo"])
def test_a_readme_names_settings_of_the_run_without_a_form(form, tmp_path):
    small = translator(**MARIAN)
    search = dataclasses.replace(small.config, no_repeat_ngram=3, keep=True)
    run = Translator(small.params, small.model, small.vocabularies, search)
    export(run, tmp_path / "out", form=form, card=Card(data=DataConfig()), sample=None)
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "- The run's `decoding.no_repeat_ngram` of 3 is not supported here.\n" in readme
    assert "- The run's `decoding.keep` of True is not supported here.\n" in readme


def test_the_longest_output_survives_import_and_export(tmp_path):
    exported(tmp_path / "out", "marian", MARIAN)
    decoder = tmp_path / "out" / "decoder.yml"
    assert yaml.safe_load(decoder.read_text())["max-length-factor"] == 3
    edited(decoder, **{"max-length-factor": 1.5})
    import_npz(decoder, tmp_path / "run", ["x"])
    run = Translator.load(tmp_path / "run")
    export(run, tmp_path / "again", form="marian", card=Card(data=DataConfig()), sample=None)
    again = yaml.safe_load((tmp_path / "again" / "decoder.yml").read_text())
    assert again == yaml.safe_load(decoder.read_text())


def test_paths_of_a_training_in_another_folder(tmp_path):
    """`marian -m runs/model.npz -v runs/vocab.spm ...` leaves these paths in runs/."""
    original, _ = exported(tmp_path / "runs", "marian", MARIAN)
    paths = {"models": ["runs/model.npz"], "vocabs": ["runs/vocab.spm"] * 2}
    edited(tmp_path / "runs" / "decoder.yml", **{"relative-paths": False}, **paths)
    assert import_equals(original, tmp_path / "runs", tmp_path / "run")


def test_a_table_with_too_few_rows(tmp_path):
    exported(tmp_path / "out", "marian", MARIAN | {"tie": "target"})
    content = read_npz(tmp_path / "out" / "model.npz")
    short = {"encoder_Wemb": content.arrays["encoder_Wemb"][:30]}
    write_npz(tmp_path / "out" / "model.npz", content._replace(arrays=content.arrays | short))
    with pytest.raises(ExportError, match="has 30 rows, but its vocabulary "):
        import_npz(tmp_path / "out" / "decoder.yml", tmp_path / "run", ["x"])
    assert not (tmp_path / "run").exists()


def test_both_kinds_of_tying_are_tied_all(tmp_path):
    original, _ = exported(tmp_path / "out", "marian", MARIAN)
    content = read_npz(tmp_path / "out" / "model.npz")
    tying = {
        "tied-embeddings-all": False,
        "tied-embeddings": True,
        "tied-embeddings-src": True,
    }
    write_npz(tmp_path / "out" / "model.npz", Content(content.arrays, content.settings | tying))
    assert import_equals(original, tmp_path / "out", tmp_path / "run")
    assert Translator.load(tmp_path / "run").model.config.tie == "all"


def edited(path, **values):
    content = yaml.safe_load(path.read_text()) | values
    path.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize(
    ("decoder", "settings", "arrays", "expected"),
    [
        ({"vocabs": ["a.yml", "a.yml"]}, {}, {}, r"a.yml: is not a SentencePiece model \(.spm\)"),
        ({"models": []}, {}, {}, "'models' names 0 files"),
        ({"models": ["model.npz", "b.npz"]}, {}, {}, "2 files: an ensemble .* import each by"),
        ({"models": "model.npz"}, {}, {}, "'models' must be a list of files"),
        ({"models": ["other.npz"]}, {}, {}, "other.npz: no such file: copy it to .*out"),
        ({"models": [".."]}, {}, {}, "cannot be read as a Marian model"),
        ({"vocabs": []}, {}, {}, "'vocabs' names 0 files, but a model has two sides"),
        ({"vocabs": ["vocab.spm"] * 3}, {}, {}, "'vocabs' names 3 files"),
        ({"vocabs": ["x.spm", "vocab.spm"]}, {}, {}, "x.spm: no such file: copy it to .*out"),
        (
            {"vocabs": ["a/vocab.spm", "b/vocab.spm"]},
            {},
            {},
            "names two files 'vocab.spm', but the folder has",
        ),
        (
            {},
            {"transformer-preprocess": "n"},
            {},
            "here: transformer-preprocess = 'n'",
        ),
        ({}, {"transformer-alibi-shift": True}, {}, "here: transformer-alibi-shift = True"),
        ({}, {}, {"Wpos": np.zeros((40, 16))}, "that such a model doesn't have: 'Wpos'"),
        ({}, {"right-left": True}, {}, "not supported here: right-left = True"),
        ({}, {"type": "s2s"}, {}, "not supported here: type = 's2s'"),
        ({}, {"dim-vocabs": [7, 7]}, {}, "vocab.spm: has 60 types, but the model 7"),
        ({}, {"transformer-heads": 3}, {}, "dim-emb = 16 with 3 heads"),
        ({}, {}, {"Wemb": np.zeros((60, 15))}, "'Wemb' is 60 x 15, but .* describes any x 16"),
        ({}, {}, {"encoder_l9_self_Wq": np.zeros((16, 16))}, "doesn't have: 'encoder_l9_self_Wq'"),
        ({}, {}, {"Wemb": np.full((60, 16), np.nan)}, "'Wemb' has values that are not finite"),
    ],
    ids=str,
)
def test_folders_that_are_not_imported(decoder, settings, arrays, expected, tmp_path):
    original = translator(**MARIAN)
    card = Card(data=DataConfig())
    export(original, tmp_path / "out", form="marian", card=card, sample=None)
    content = read_npz(tmp_path / "out" / "model.npz")
    changed = Content(content.arrays | arrays, content.settings | settings)
    write_npz(tmp_path / "out" / "model.npz", changed)
    edited(tmp_path / "out" / "decoder.yml", **decoder)
    with pytest.raises(ExportError, match=expected):
        import_npz(tmp_path / "out" / "decoder.yml", tmp_path / "run", ["x"])
    assert not (tmp_path / "run").exists()


def test_the_command_imports_it(run, tmp_path):
    folder = tmp_path / "out"
    export(translator(**MARIAN), folder, form="marian", card=Card(data=DataConfig()), sample=None)
    changes = {"word-penalty": 0.5, "normalize": 0.6, "shortlist": ["lex.s2t", 50]}
    edited(folder / "decoder.yml", **changes)
    arguments = ["import", "--from", folder, "--workdir", tmp_path / "run"]
    (folder / "decoder.yml").rename(folder / "model.npz.decoder.yml")  # as a training leaves it
    refused = run(*arguments, "--sample", folder / "README.md")
    assert refused.status == 2 and "only with models in Hugging Face's form" in refused.last
    (folder / "other.npz.decoder.yml").write_text("{}\n")
    several = run(*arguments)
    assert several.status == 2 and "has model.npz.decoder.yml, other.npz.decoder" in several.last
    (folder / "other.npz.decoder.yml").unlink()
    done = run(*arguments, status=0)
    assert "word-penalty = 0.5 is not imported" in done.errors
    assert "shortlist = ['lex.s2t', 50] is not imported" in done.errors
    assert "outputs not compared: Marian's own files" in done.errors
    search = Translator.load(tmp_path / "run").config
    assert (search.beam_size, search.length_penalty, search.length_norm) == (2, 0.6, "average")
    assert (search.max_ratio, search.max_extra_tokens, search.ends_among) == (3.0, 1, "beam")
