"""Models in CTranslate2: the same log-probabilities and greedy outputs."""

from __future__ import annotations

import dataclasses
import platform
import runpy
import types
from pathlib import Path

import jax
import numpy as np
import pytest

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.type_table import TypeTable
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, Vocabularies, Vocabulary
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export import ExportError, ctranslate2
from flaxformer_mt.export.export import Sample, export
from flaxformer_mt.export.parity import Parity, Reference, compare
from tests.export.test_runners import by_the_readme, greedily, greedy_settings
from tests.export.translators import LINES, translator, vocabularies

package = pytest.importorskip("ctranslate2", reason="needs the [export] extra")

FORMS = [
    {},
    {"norm": "pre", "positions": "learned", "tie": "none"},
    {"activation": "silu", "attention_bias": True, "logits_bias": True, "norm_epsilon": 1e-3},
    {"d_k": 4, "d_v": 6, "tie": "target", "scan_layers": True, "vocab_multiple": 8},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_float32_is_the_same(form, tmp_path: Path) -> None:
    made = translator(**form)
    ctranslate2.write(made, tmp_path, quantization="float32")
    runtime = ctranslate2.Runtime(tmp_path, made.vocabularies, quantization="float32")
    parity = compare(Reference(made), runtime, LINES, "lines", bound=1e-4)
    assert parity.agrees, parity
    assert parity.same_output == parity.sentences == len(LINES)
    assert parity.runtime == f"CTranslate2 {package.__version__}"


@pytest.mark.parametrize(
    ("quantization", "products", "bound"),
    [
        ("float16", "float16", 0.05),
        # int8's own products are right on some CPUs only: the test after this one.
        ("int8", "float32", 0.25),
        ("int7", "int7", 0.6),
    ],
)
def test_rounded_weights_are_near(
    quantization: str, products: str, bound: float, tmp_path: Path
) -> None:
    made = translator()
    ctranslate2.write(made, tmp_path, quantization=quantization)
    runtime = ctranslate2.Runtime(tmp_path, made.vocabularies, quantization=products)
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    reference = Reference(made)
    outputs = reference.greedy(sources)
    expected = np.concatenate(reference.log_probs(sources, outputs))
    found = np.concatenate(runtime.log_probs(sources, outputs))
    assert 1e-5 < np.abs(found - expected).max() < bound


def test_no_sum_of_two_products_exceeds_16_bits_with_seven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other operand's bytes are without a sign there: up to 255."""
    written = []
    rounds = ctranslate2._to_seven_bits
    monkeypatch.setattr(
        ctranslate2, "_to_seven_bits", lambda spec: written.append(spec) or rounds(spec)
    )
    ctranslate2.write(translator(), tmp_path, quantization="int7")
    (spec,) = written
    held = [each for each in spec.variables().values() if not isinstance(each, str)]
    weights = [each.numpy() for each in held if each.dtype == "int8" and each.numpy().ndim == 2]
    assert len(weights) > 10
    for weight in weights:
        assert 2 * 255 * int(np.abs(weight).max()) < 2**15


def test_where_products_of_bytes_lose_sums_seven_bits_are_the_way(tmp_path: Path) -> None:
    """These drawn weights are such that x86 without VNNI is far off; every other CPU is near."""
    made, sample = translator(), Sample(LINES, "lines")

    def exported(quantization: str) -> Parity | None:
        folder = tmp_path / quantization
        form = {"form": "ctranslate2", "quantization": quantization}
        return export(made, folder, **form, languages=DataConfig(), sample=sample)

    if platform.machine() != "x86_64" or "vnni" in Path("/proc/cpuinfo").read_text():
        assert exported("int8") is not None
        assert "without VNNI" in (tmp_path / "int8" / "README.md").read_text()
    else:
        with pytest.raises(ExportError, match="x86 without VNNI does: --quantization int7"):
            exported("int8")
        assert not (tmp_path / "int8").exists()
    seven = exported("int7")
    assert seven is not None and seven.agrees
    assert "VNNI" not in (tmp_path / "int7" / "README.md").read_text()


@pytest.mark.parametrize("quantization", ["float16", "int8"])
def test_what_rounding_would_hide_is_found_before_it(
    quantization: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    form = {"form": "ctranslate2", "quantization": quantization, "languages": DataConfig()}
    with pytest.raises(ExportError, match=f"disagree in float32, before {quantization}: .* 0.001"):
        export(made, tmp_path / "out", **form, sample=Sample(LINES, "lines"))
    assert not list(tmp_path.iterdir())


def test_an_int8_model_that_is_wrong_in_float32_too_is_not_the_cpus_fault(tmp_path: Path) -> None:
    form = {"form": "ctranslate2", "quantization": "int8", "languages": DataConfig()}
    with pytest.raises(ExportError, match="--bound raises"):
        export(translator(), tmp_path / "out", **form, sample=Sample(LINES, "lines"), bound=1e-6)


@pytest.mark.parametrize("mark", [None, PAD, BOS])
def test_the_readmes_lines_are_the_search_that_was_proven(mark: int | None, tmp_path: Path) -> None:
    made = greedy_settings(translator(logits_bias=True))
    if mark is not None:  # what is never generated here, though it were the likeliest
        bias = made.params["embedding"]["softmax_bias"]
        made.params["embedding"]["softmax_bias"] = bias.at[mark].set(50)
    ctranslate2.write(made, tmp_path, quantization="float32")
    for line in LINES[:2]:
        assert by_the_readme(tmp_path, line) == greedily(made, line) != ""


def test_the_readmes_lines_cut_off_a_language_code(tmp_path: Path) -> None:
    pieces = vocabularies(shared=True).src.pieces()
    assert not pieces[-1].startswith(">>")
    table = TypeTable((*pieces[:-1], ">>fra<<"))
    coded = Vocabulary(vocabularies(shared=True).src.model, table)
    made = greedy_settings(translator(pair=Vocabularies(coded, coded)))
    ctranslate2.write(made, tmp_path, quantization="float32")
    lines = [f">>fra<< {LINES[0]}", f">>deu<< {LINES[0]}", LINES[0]]
    assert len({greedily(made, line) for line in lines}) == 3
    for line in lines:
        assert by_the_readme(tmp_path, line) == greedily(made, line)
    runtime = ctranslate2.Runtime(tmp_path, made.vocabularies, quantization="float32")
    assert runtime.encode(lines) == [[*ids, EOS] for ids in coded.encode(lines)]
    assert compare(Reference(made), runtime, lines, "lines", bound=1e-4).agrees


def test_the_folders_search_is_the_runs_where_it_has_that(tmp_path: Path) -> None:
    made = translator()
    changes = {"length_norm": "average", "length_penalty": 0.7, "no_repeat_ngram": 3}
    made.config = dataclasses.replace(made.config, beam_size=3, **changes)
    ctranslate2.write(made, tmp_path, quantization="float32")
    model = runpy.run_path(str(tmp_path / "translate.py"))["Model"](tmp_path)
    asked: list[tuple[object, ...]] = []

    class Noting:
        def translate_batch(self, sources, **how):
            names = ("beam_size", "length_penalty", "no_repeat_ngram_size")
            asked.append(tuple(how[name] for name in names))
            return [types.SimpleNamespace(hypotheses=[source]) for source in sources]

    model.translator = Noting()
    assert model.translate([LINES[0]]) == [LINES[0]]
    model.translate([LINES[0]], beam_size=1, length_penalty=0.0)
    assert asked == [(3, 0.7, 3), (1, 0.0, 3)]


def test_the_comparison_runs_the_folders_own_file(tmp_path: Path) -> None:
    made = translator()
    ctranslate2.write(made, tmp_path, quantization="float32")
    runner = tmp_path / "translate.py"
    text = runner.read_text()
    runner.write_text(text.replace("rest if coded else line", "'x ' + line"))
    runtime = ctranslate2.Runtime(tmp_path, made.vocabularies, quantization="float32")
    with pytest.raises(ExportError, match="cuts .* into tokens"):
        compare(Reference(made), runtime, LINES, "lines", bound=1e-4)
    assert not (tmp_path / "__pycache__").exists()
