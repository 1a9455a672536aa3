"""Models in CTranslate2: the same log-probabilities and greedy outputs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.export import ctranslate2
from flaxformer_mt.export.errors import ExportError
from flaxformer_mt.export.parity import compare
from flaxformer_mt.export.reference import Reference
from tests.export.translators import LINES, translator

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


@pytest.mark.parametrize(("quantization", "bound"), [("float16", 0.05), ("int8", 1.0)])
def test_rounded_weights_are_near(quantization: str, bound: float, tmp_path: Path) -> None:
    made = translator()
    ctranslate2.write(made, tmp_path, quantization=quantization)
    runtime = ctranslate2.Runtime(tmp_path, made.vocabularies, quantization=quantization)
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    reference = Reference(made)
    outputs = reference.greedy(sources)
    expected = np.concatenate(reference.log_probs(sources, outputs))
    found = np.concatenate(runtime.log_probs(sources, outputs))
    assert 1e-5 < np.abs(found - expected).max() < bound


def test_the_readmes_lines_translate(tmp_path: Path) -> None:
    made = translator(logits_bias=True)
    # Of a trained model these are never the likeliest.
    bias = made.params["embedding"]["softmax_bias"]
    made.params["embedding"]["softmax_bias"] = bias.at[:2].set(-50)
    ctranslate2.write(made, tmp_path, quantization="float32")
    [code] = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)
    code = code.replace("TEXT", LINES[0])
    code = code.replace("disable_unk=True", "disable_unk=True, beam_size=1, max_decoding_length=9")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    sources = [[*made.vocabularies.src.encode([LINES[0]])[0], EOS]]
    [output] = Reference(made).greedy(sources)
    assert done.stdout.rstrip("\n") == made.vocabularies.tgt.decode([output[:9]])[0]


def test_wider_heads_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="CTranslate2 divides d_model by the number of heads"):
        ctranslate2.write(translator(d_k=12), tmp_path, quantization="float32")
    assert not list(tmp_path.iterdir())


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ExportError, match=re.escape("pip install 'flaxformer-mt[export]'")):
        ctranslate2.write(translator(), tmp_path, quantization="float32")
