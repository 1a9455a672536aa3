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
from tests.interop.translators import LINES, translator, vocabularies

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
    made = translator()
    runtime = written(made, tmp_path, quantization, products)
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    reference = Reference(made)
    outputs = reference.greedy(sources)
    expected = np.concatenate(reference.log_probs(sources, outputs))
    found = np.concatenate(runtime.log_probs(sources, outputs))
    assert 1e-5 < np.abs(found - expected).max() < bound


def test_no_sum_of_two_products_exceeds_16_bits_with_seven(tmp_path, monkeypatch):
    """The other operand's bytes are without a sign there: up to 255."""
    specs = []
    rounds = ctranslate2._to_seven_bits
    monkeypatch.setattr(
        ctranslate2, "_to_seven_bits", lambda spec: specs.append(spec) or rounds(spec)
    )
    ctranslate2.write(translator(), tmp_path, quantization="int7")
    held = [each for each in specs[0].variables().values() if not isinstance(each, str)]
    weights = [each.numpy() for each in held if each.dtype == "int8" and each.numpy().ndim == 2]
    assert len(weights) > 10
    for weight in weights:
        assert 2 * 255 * int(np.abs(weight).max()) < 2**15


def test_where_products_of_bytes_lose_sums_seven_bits_are_the_way(tmp_path):
    """These drawn weights are such that x86 without VNNI is far off; every other CPU is near."""
    made, eight, seven = translator(), tmp_path / "int8", tmp_path / "int7"
    if platform.machine() != "x86_64" or "vnni" in Path("/proc/cpuinfo").read_text():
        assert exported(made, eight, "int8") is not None
        assert "without VNNI" in (eight / "README.md").read_text()
    else:
        with pytest.raises(ExportError, match="x86 without VNNI: use --quantization int7"):
            exported(made, eight, "int8")
        assert not eight.exists()
    parity = exported(made, seven, "int7")
    assert parity is not None and parity.agrees
    assert "VNNI" not in (seven / "README.md").read_text()


def test_what_rounding_would_hide_is_found_before_it(tmp_path, monkeypatch):
    """Not written: a small bias of the last layer."""
    made = translator()
    vector = made.params["decoder"]["layers_1"]["feed_forward"]["b_out"]
    small = jax.tree.map(lambda leaf: leaf * 0.01 if leaf is vector else leaf, made.params)
    made = Translator(small, made.model, made.vocabularies, made.config)
    from_model = ctranslate2.from_model

    def without(translator):
        weights = from_model(translator)
        weights["decoder/layers_1/feed_forward/b_out"][...] = 0
        return weights

    monkeypatch.setattr(ctranslate2, "from_model", without)
    with pytest.raises(ExportError, match="disagree even in float32, before int8: .* 0.001"):
        exported(made, tmp_path / "out", "int8")
    assert not list(tmp_path.iterdir())


def test_long_targets_and_sources_are_scored_whole(tmp_path):
    """CTranslate2's own default cuts both after 1,024 tokens."""
    made = translator(max_length=1200)
    runtime = written(made, tmp_path)
    sources, targets = [[5, EOS], [4] * 1100 + [EOS]], [[4, 5] * 550, [5, 4]]
    found = runtime.log_probs(sources, targets)
    assert list(map(len, found)) == [1101, 3]
    for ours, theirs in zip(Reference(made).log_probs(sources, targets), found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-3)


def test_what_is_never_generated_here_is_not_there(tmp_path):
    made = greedy_settings(translator(logits_bias=True))
    bias = made.params["embedding"]["softmax_bias"]
    made.params["embedding"]["softmax_bias"] = bias.at[np.array([PAD, BOS])].set(50)
    written(made, tmp_path)
    expected = [greedily(made, line) for line in LINES[:2]]
    assert model_of(tmp_path).translate(LINES[:2]) == expected and all(expected)


def test_language_codes_are_cut_off(tmp_path):
    """They are whole pieces of a table, and a vocabulary without one has none."""
    plain = vocabularies(shared=True).src
    coded = Vocabulary(
        plain.model, TypeTable((*plain.pieces()[:-3], ">>x<<y<<", "a>>b<<", ">>fra<<"))
    )
    assert (plain.language_codes, coded.language_codes) == ([], [">>fra<<"])
    made = greedy_settings(translator(pair=Vocabularies(coded, coded)))
    runtime = written(made, tmp_path)
    lines = [f">>fra<< {LINES[0]}", f">>deu<< {LINES[0]}", LINES[0]]
    expected = [greedily(made, line) for line in lines]
    assert model_of(tmp_path).translate(lines) == expected and len(set(expected)) == 3
    assert runtime.encode(lines) == [[*ids, EOS] for ids in coded.encode(lines)]
    assert compare(Reference(made), runtime, lines, "lines", bound=1e-4).agrees


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
    made = translator()
    changes = {"length_norm": "average", "length_penalty": 0.7, "no_repeat_ngram": 3}
    made.config = dataclasses.replace(made.config, beam_size=3, **changes)
    written(made, tmp_path)
    model, asked = model_of(tmp_path), mock.Mock()
    asked.translate_batch.side_effect = lambda sources, **_: [mock.Mock(hypotheses=sources)]
    model.program.translator = asked
    assert model.translate([LINES[0]]) == [LINES[0]]
    model.translate([LINES[0]], beam_size=1, length_penalty=0.0)
    names = ("beam_size", "length_penalty", "no_repeat_ngram_size")
    calls = [[call.kwargs[name] for name in names] for call in asked.translate_batch.mock_calls]
    assert calls == [[3, 0.7, 3], [1, 0.0, 3]]
