"""Models in CTranslate2: rounded weights, and the search that goes along."""

import dataclasses
import functools
import platform
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.type_table import AddedToken, TypeTable
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, Vocabularies, Vocabulary
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ExportError, ctranslate2
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.parity import Parity, Reference, compare
from tests.interop.test_runners import greedily, greedy_settings, model_of, write
from tests.interop.translators import LINES, translator, vocabularies, without_a_bias

pytest.importorskip("ctranslate2", reason="needs the [export] extra")


written = functools.partial(write, "ctranslate2")


def exported(made: Translator, folder: Path, quantization: str, **more: float) -> Parity | None:
    form = {"form": "ctranslate2", "quantization": quantization, "card": Card(data=DataConfig())}
    return export(made, folder, **form, sample=(LINES, "lines"), **more)


@pytest.mark.parametrize(
    ("quantization", "products", "bound"),
    [
        ("float16", "float16", 0.05),
        # int8's own products are right on some CPUs only: a test below.
        ("int8", "float32", 0.25),
        ("int7", "int7", 0.6),
    ],
)
def test_rounded_weights_are_near(quantization, products, bound, tmp_path):
    original = translator()
    runtime = written(original, tmp_path, quantization, products)
    sources = [[*ids, EOS] for ids in original.vocabularies.src.encode(LINES)]
    reference = Reference(original)
    outputs = reference.greedy(sources)
    expected = np.concatenate(reference.log_probs(sources, outputs))
    log_probs = np.concatenate(runtime.log_probs(sources, outputs))
    assert 1e-5 < np.abs(log_probs - expected).max() < bound


def test_no_sum_of_two_products_exceeds_16_bits_with_seven(tmp_path, monkeypatch):
    """The other operand's bytes are without a sign there: up to 255."""
    specs = []
    rounds = ctranslate2._to_seven_bits
    monkeypatch.setattr(
        ctranslate2, "_to_seven_bits", lambda spec: specs.append(spec) or rounds(spec)
    )
    ctranslate2.write(translator(), tmp_path, quantization="int7")
    variables = specs[0].variables().values()
    arrays = [variable.numpy() for variable in variables if not isinstance(variable, str)]
    weights = [array for array in arrays if array.dtype == "int8" and array.ndim == 2]
    assert len(weights) > 10
    for weight in weights:
        assert 2 * 255 * int(np.abs(weight).max()) < 2**15


def test_where_products_of_bytes_lose_sums_seven_bits_are_the_way(tmp_path):
    """These drawn weights are such that x86 without VNNI is far off; every other CPU is near."""
    original, eight, seven = translator(), tmp_path / "int8", tmp_path / "int7"
    if platform.machine() != "x86_64" or "vnni" in Path("/proc/cpuinfo").read_text():
        assert exported(original, eight, "int8") is not None
        assert "without VNNI" in (eight / "README.md").read_text()
    else:
        with pytest.raises(ExportError, match="x86 without VNNI: use --quantization int7"):
            exported(original, eight, "int8")
        assert not eight.exists()
    parity = exported(original, seven, "int7")
    assert parity is not None and parity.agrees
    assert "VNNI" not in (seven / "README.md").read_text()


def test_what_rounding_would_hide_is_found_before_it(tmp_path, monkeypatch):
    """Not written: a small bias of the last layer."""
    original = translator()
    vector = original.params["decoder"]["layers_1"]["feed_forward"]["b_out"]
    small = jax.tree.map(lambda leaf: leaf * 0.01 if leaf is vector else leaf, original.params)
    original = Translator(small, original.model, original.vocabularies, original.config)
    monkeypatch.setattr(ctranslate2, "from_model", without_a_bias)
    with pytest.raises(ExportError, match="disagree even in float32, before int8: .* 0.001"):
        exported(original, tmp_path / "out", "int8")
    assert not list(tmp_path.iterdir())


def test_long_targets_and_sources_are_scored_whole(tmp_path):
    """CTranslate2's own default cuts both after 1,024 tokens."""
    original = translator(max_length=1200)
    runtime = written(original, tmp_path)
    sources, targets = [[5, EOS], [4] * 1100 + [EOS]], [[4, 5] * 550, [5, 4]]
    log_probs = runtime.log_probs(sources, targets)
    assert list(map(len, log_probs)) == [1101, 3]
    for ours, theirs in zip(
        Reference(original).log_probs(sources, targets), log_probs, strict=True
    ):
        np.testing.assert_allclose(theirs, ours, atol=1e-3)


def test_what_is_never_generated_here_is_not_there(tmp_path):
    original = greedy_settings(translator(logits_bias=True))
    bias = original.params["embedding"]["softmax_bias"]
    original.params["embedding"]["softmax_bias"] = bias.at[np.array([PAD, BOS])].set(50)
    written(original, tmp_path)
    expected = [greedily(original, line) for line in LINES[:2]]
    assert model_of(tmp_path).translate(LINES[:2]) == expected and all(expected)


def test_language_codes_are_cut_off(tmp_path):
    """They are whole pieces of a table, and a vocabulary without one has none."""
    plain = vocabularies(shared=True).src
    coded = Vocabulary(
        plain.model, TypeTable((*plain.pieces()[:-3], ">>x<<y<<", "a>>b<<", ">>fra<<"))
    )
    assert (plain.language_codes, coded.language_codes) == ([], [">>fra<<"])
    original = greedy_settings(translator(pair=Vocabularies(coded, coded)))
    runtime = written(original, tmp_path)
    lines = [f">>fra<< {LINES[0]}", f">>deu<< {LINES[0]}", LINES[0]]
    expected = [greedily(original, line) for line in lines]
    assert model_of(tmp_path).translate(lines) == expected and len(set(expected)) == 3
    assert runtime.encode(lines) == [[*ids, EOS] for ids in coded.encode(lines)]
    assert compare(Reference(original), runtime, lines, "lines", bound=1e-4).agrees


def test_added_tokens_are_one_token(tmp_path):
    plain = vocabularies(shared=True).src
    tokens = (
        AddedToken("<tag>"),
        AddedToken("wide", single_word=True),
        AddedToken("<e>", True, True),
        AddedToken("word", lstrip=True, single_word=True),
    )
    pieces = (*plain.pieces()[:-4], *(token.text for token in tokens))
    added = Vocabulary(plain.model, TypeTable(pieces, tokens))
    runtime = written(translator(pair=Vocabularies(added, added)), tmp_path)
    lines = [
        "<tag>the dog",
        "a wide cat wide",
        "awide cat <e> <tag><tag> it",
        "the word cat",
        LINES[0],
    ]
    assert runtime.encode(lines) == [[*ids, EOS] for ids in added.encode(lines)]


def test_the_folders_search_is_the_runs_where_it_has_that(tmp_path):
    original = translator()
    changes = {"length_norm": "average", "length_penalty": 0.7, "no_repeat_ngram": 3}
    original.config = dataclasses.replace(original.config, beam_size=3, **changes)
    written(original, tmp_path)
    model, program = model_of(tmp_path), mock.Mock()
    program.translate_batch.side_effect = lambda sources, **_: [mock.Mock(hypotheses=sources)]
    model.program.translator = program
    assert model.translate([LINES[0]]) == [LINES[0]]
    model.translate([LINES[0]], beam_size=1, length_penalty=0.0)
    names = ("beam_size", "length_penalty", "no_repeat_ngram_size")
    calls = [[call.kwargs[name] for name in names] for call in program.translate_batch.mock_calls]
    assert calls == [[3, 0.7, 3], [1, 0.0, 3]]
