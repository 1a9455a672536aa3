"""Against transformers itself: log-probabilities to 1e-4 and greedy outputs exactly, both ways.

Needs an environment with PyTorch and transformers (`tests/interop/peers.txt`; CONTRIBUTING.md says
how to make one); skipped elsewhere.
"""

import json

import numpy as np
import pytest

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.import_run import import_marian
from flaxformer_mt.interop.parity import Reference
from tests.interop import marian_models
from tests.interop.translators import LINES, translator

pytestmark = [
    pytest.mark.interop,
    # What these packages and PyTorch say of themselves is theirs to mend.
    pytest.mark.filterwarnings("ignore"),
]
torch = pytest.importorskip("torch", reason="needs PyTorch (tests/interop/peers.txt)")
transformers = pytest.importorskip(
    "transformers", reason="needs transformers (tests/interop/peers.txt)"
)

TOLERANCE = 1e-4


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"activation_function": "relu"},
        {"tie_word_embeddings": False},
        {"scale_embedding": False, "static_position_embeddings": False, "eos_token_id": [0]},
        {"decoder_start_token_id": 0},
    ],
    ids=str,
)
def test_an_imported_model_is_the_same(changes, separate, tmp_path):
    folder, few = tmp_path / "marian", tmp_path / "few.txt"
    state = marian_models.write_arrays(folder, separate=separate, **changes)
    model = transformers.MarianMTModel.from_pretrained(str(folder), dtype=torch.float32).eval()
    if separate:
        (folder / "model.safetensors").unlink()
        tensors = {name: torch.from_numpy(array) for name, array in state.items()}
        torch.save(tensors, folder / "pytorch_model.bin")
    few.write_text("the cat .\nit\n")  # random models write on to the limit
    parity = import_marian(folder, tmp_path / "run", ["x"], sample=str(few), bound=TOLERANCE)
    assert parity is not None and parity.agrees and parity.same_output == parity.sentences

    # By nothing of this program's: ids, outputs and texts.
    ours = Translator.load(tmp_path / "run")
    tokenizer = transformers.MarianTokenizer.from_pretrained(str(folder))
    our_pieces = ours.vocabularies.tgt.pieces()
    their_ids = tokenizer.target_encoder if separate else tokenizer.encoder
    ours.config = ours.config.__class__(max_extra_tokens=8)
    lines = [
        *sorted(marian_models.ENGLISH, key=len)[:30:5],
        ">>deu<< she likes it all .",
        "unknown: ß ∞",
    ]
    sources = [[*tokens, EOS] for tokens in ours.vocabularies.src.encode(lines)]
    for line, output in zip(lines, Reference(ours).greedy(sources), strict=True):
        ids = tokenizer(line, return_tensors="pt").input_ids
        generated = model.generate(
            ids,
            num_beams=1,
            do_sample=False,
            max_new_tokens=ids.shape[1] + 8,
            bad_words_ids=[[their_ids["<pad>"]], [their_ids["<unk>"]]],
        )[0].tolist()
        assert generated[1:] == [their_ids[our_pieces[token]] for token in [*output, EOS]]
        [text] = ours.vocabularies.tgt.decode([output])
        assert text == tokenizer.decode(generated, skip_special_tokens=True)


@pytest.mark.parametrize(
    "form",
    [
        {"norm_epsilon": 1e-5},
        {"tie": "target", "activation": "silu", "attention_bias": True, "logits_bias": True},
        {"tie": "none", "d_k": 5, "scan_layers": True},
    ],
    ids=str,
)
def test_an_exported_model_is_the_same(form, tmp_path):
    """Random weights exaggerate nothing: epsilon 1e-6 in place of 1e-5 is not seen either."""
    original = translator(**form)
    form = {"form": "huggingface", "card": Card(data=DataConfig(src_lang="en", tgt_lang="de"))}
    sample = (LINES, "lines")
    parity = export(original, tmp_path / "out", **form, sample=sample, bound=TOLERANCE)
    assert parity is not None and parity.same_output == parity.sentences == len(LINES)

    # By what the folder says alone, as its README has it.
    model = transformers.MarianMTModel.from_pretrained(str(tmp_path / "out")).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(str(tmp_path / "out"))
    sources = [[*tokens, EOS] for tokens in original.vocabularies.src.encode(LINES)]
    assert [tokenizer(line).input_ids for line in LINES] == sources
    outputs = Reference(original).greedy(sources)
    outputs_there = []
    for source, output in zip(sources, outputs, strict=True):
        generated = model.generate(
            torch.tensor([source]), num_beams=1, max_new_tokens=len(source) + 6
        )[0].tolist()
        assert generated[0] == tokenizer.pad_token_id
        pieces = tokenizer.convert_ids_to_tokens(generated[1:])
        assert pieces == original.vocabularies.tgt.pieces([*output, EOS])
        outputs_there.append(generated)
    texts = tokenizer.batch_decode(outputs_there, skip_special_tokens=True)
    assert texts == original.vocabularies.tgt.decode(outputs)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_length": 6, "num_beams": 1, "forced_eos_token_id": 0},
        {"decoder_start_token_id": 4, "max_length": 8, "num_beams": 1},
    ],
    ids=str,
)
def test_an_imported_search_is_generate_by_the_folders_own_settings(settings, tmp_path):
    """Greedy: transformers' beams count a forced end mark as certain."""
    folder, few = tmp_path / "marian", tmp_path / "few.txt"
    marian_models.write_arrays(folder)
    marks = {"bad_words_ids": [[marian_models.vocabulary("en", "de")["<pad>"]], [1]]}
    marks |= {"eos_token_id": 0, "decoder_start_token_id": marks["bad_words_ids"][0][0]}
    (folder / "generation_config.json").write_text(json.dumps(marks | settings))
    lines = sorted(marian_models.ENGLISH, key=len)[:16:5]
    few.write_text("".join(f"{line}\n" for line in lines))
    said: list[str] = []
    import_marian(folder, tmp_path / "run", ["x"], sample=str(few), say=said.append)
    assert len(said) == 1 and f", {len(lines)} of {len(lines)} lines are translated as" in said[0]

    # Without this program's limits.
    model = transformers.MarianMTModel.from_pretrained(str(folder), dtype=torch.float32).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(str(folder))
    ours = [translation.text for translation in Translator.load(tmp_path / "run").translate(lines)]
    theirs = [model.generate(**tokenizer(line, return_tensors="pt"))[0] for line in lines]
    # What the decoder began with is no part of the text.
    assert ours == [tokenizer.decode(ids[1:], skip_special_tokens=True) for ids in theirs]


@pytest.mark.parametrize(
    "setting",
    [{"forced_bos_token_id": 5}, {"repetition_penalty": 3.0}],
    ids=str,
)
def test_a_search_setting_without_a_form_here_keeps_no_model_out(setting, tmp_path):
    folder, few = tmp_path / "marian", tmp_path / "few.txt"
    marian_models.write_arrays(folder)
    marks = {"eos_token_id": 0, "decoder_start_token_id": 1, "max_length": 20}
    (folder / "generation_config.json").write_text(json.dumps(marks | setting))
    few.write_text("the cat .\nit\n")
    said: list[str] = []
    parity = import_marian(folder, tmp_path / "run", ["x"], sample=str(few), say=said.append)
    assert parity is not None and parity.agrees
    assert any(line.startswith(f"{next(iter(setting))} = ") for line in said)


def test_tokens_that_transformers_added_are_one_token(tmp_path):
    first, second, sample = tmp_path / "first", tmp_path / "second", tmp_path / "sample.txt"
    marian_models.write_arrays(first)
    tokenizer = transformers.MarianTokenizer.from_pretrained(str(first))
    model = transformers.MarianMTModel.from_pretrained(str(first), dtype=torch.float32)
    tokenizer.add_tokens(["<tag>", transformers.AddedToken("wide", single_word=True)])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<2de>"]})
    model.resize_token_embeddings(len(tokenizer))
    tokenizer.save_pretrained(second)
    model.save_pretrained(second)
    lines = ["<2de> the <tag>cat", "a wide cat", "thewidecat <tag> <tag2>", "the cat <tag>"]
    sample.write_text("".join(f"{line}\n" for line in lines))
    # The comparison checks every token.
    parity = import_marian(second, tmp_path / "run", ["x"], sample=str(sample), bound=TOLERANCE)
    assert parity is not None and parity.same_output == parity.sentences == len(lines)
    vocabulary = Translator.load(tmp_path / "run").vocabularies.src
    assert [vocabulary.pieces(ids)[0] for ids in vocabulary.encode(["<tag>", "<2de>", "wide"])] == [
        *("<tag>", "<2de>", "wide")
    ]


@pytest.mark.parametrize("form", [{}, {"tie": "target"}, {"tie": "none", "logits_bias": True}])
def test_ctranslate2s_own_converter_takes_an_exported_folder(form, tmp_path):
    """Also of two vocabularies, though it knows one; transformers loads the folder as before."""
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the [export] extra")
    original = translator(**form, norm_epsilon=1e-5)
    card = Card(data=DataConfig(src_lang="en", tgt_lang="de"))
    sample = (LINES, "lines")
    folder, converted = tmp_path / "out", tmp_path / "converted"
    parity = export(original, folder, form="huggingface", card=card, sample=sample, bound=TOLERANCE)
    assert parity is not None and parity.agrees

    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
    model = ctranslate2.Translator(str(converted))
    tokenizer = transformers.MarianTokenizer.from_pretrained(str(folder))
    reference = Reference(original)
    sources = [[*tokens, EOS] for tokens in original.vocabularies.src.encode(LINES)]
    outputs = reference.greedy(sources)
    limits = reference.limits(sources)
    expected = reference.log_probs(sources, outputs)
    for line, output, limit, ours in zip(LINES, outputs, limits, expected, strict=True):
        pieces = tokenizer.convert_ids_to_tokens(tokenizer(line).input_ids)
        target = original.vocabularies.tgt.pieces(output)
        [scored] = model.score_batch([pieces], [target])
        np.testing.assert_allclose(scored.log_probs, ours, atol=TOLERANCE)
        [result] = model.translate_batch(
            [pieces],
            beam_size=1,
            max_decoding_length=limit - 1,
            disable_unk=True,
            suppress_sequences=[["<s>"], ["<unused 0>"]],
        )
        assert result.hypotheses[0] == target[: limit - 1]


def test_what_transformers_saves_again_is_imported(tmp_path):
    """With the begin mark only if it is told to save the table that holds it."""
    original = translator(norm_epsilon=1e-5)
    card = Card(data=DataConfig(src_lang="en", tgt_lang="de"))
    folder, with_table, without_table = (tmp_path / name for name in ("out", "kept", "lost"))
    export(original, folder, form="huggingface", card=card, sample=None)
    model = transformers.MarianMTModel.from_pretrained(str(folder))
    tokenizer = transformers.MarianTokenizer.from_pretrained(str(folder))
    sample = tmp_path / "sample.txt"
    sample.write_text("".join(f"{line}\n" for line in LINES[:3]))
    for place in (without_table, with_table):
        tokenizer.save_pretrained(place)
        model.save_pretrained(place)
        model._keys_to_ignore_on_save = None
    notes: dict[str, list[str]] = {"lost": [], "kept": []}
    sources = [[*tokens, EOS] for tokens in original.vocabularies.src.encode(LINES)]
    outputs = Reference(original).greedy(sources)
    texts = {}
    for place in (with_table, without_table):
        run = tmp_path / f"run_{place.name}"
        import_marian(place, run, ["x"], sample=str(sample), say=notes[place.name].append)
        back = Translator.load(run)
        encoded = [[*tokens, EOS] for tokens in back.vocabularies.src.encode(LINES)]
        back.config = original.config
        texts[place.name] = back.vocabularies.tgt.decode(Reference(back).greedy(encoded))
    assert texts["kept"] == original.vocabularies.tgt.decode(outputs) != texts["lost"]
    assert len(notes["kept"]) == 1, "how many lines are translated alike"
    assert any("has lost the begin mark" in note for note in notes["lost"])
