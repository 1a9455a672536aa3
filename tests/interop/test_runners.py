"""Written folders by the program in them: the same numbers, and text in, text out."""

import dataclasses
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.vocabulary import EOS, UNK
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import ctranslate2, huggingface, onnx, stablehlo
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.parity import Reference, compare
from tests.interop.translators import LINES, digits, translator

# A Python that finds no package of this project.
BLOCKED = "import sys; sys.modules['flaxformer_mt'] = None; sys.argv = ['translate.py']\n"
RUN = "import runpy; runpy.run_path('translate.py', run_name='__main__')"


NEEDED = {
    "ctranslate2": ("ctranslate2",),
    "stablehlo": ("flatbuffers",),
    "onnx": ("onnx", "onnxruntime"),
}
NAMES = {"ctranslate2": "CTranslate2 ", "stablehlo": "StableHLO ", "onnx": "ONNX Runtime "}


@pytest.fixture(params=list(NEEDED))
def form(request) -> str:
    for package in NEEDED[request.param]:
        pytest.importorskip(package, reason="needs the [export] extra")
    return request.param


def write(form: str, made: Translator, folder: Path, weights="float32", products=""):
    """A model's folder in one of the forms that have a program of their own, and its runtime."""
    if form == "stablehlo":
        stablehlo.write(made, folder)
        return stablehlo.StableHLORuntime(folder)
    if form == "onnx":
        onnx.write(made, folder, card=Card(data=DataConfig(src_lang="en", tgt_lang="de")))
        return onnx.ONNXRuntime(folder, huggingface.numbering_of(made))
    ctranslate2.write(made, folder, quantization=weights)
    return ctranslate2.CTranslate2Runtime(
        folder, made.vocabularies, quantization=products or weights
    )


def model_of(folder: Path):
    return runpy.run_path(str(folder / "translate.py"))["Model"](folder)


def alone(folder: Path, code: str, text: bytes = b"") -> str:
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", BLOCKED + code]
    done = subprocess.run(command, cwd=folder, input=text, capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def greedy_settings(made: Translator) -> Translator:
    made.config = dataclasses.replace(made.config, beam_size=1)
    return made


def greedily(made: Translator, line: str) -> str:
    [tokens] = made.vocabularies.src.encode([line])
    [text] = made.vocabularies.tgt.decode(Reference(made).greedy([[*tokens, EOS]]))
    return text.strip(" ")


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre", "positions": "learned", "tie": "none", "scan_layers": True},
        {"positions": "learned", "position_scale": "sqrt_d_model", "tie": "target"},
        {"positions": "tensor2tensor"},
        {
            **{"activation": "silu", "attention_bias": True, "logits_bias": True},
            **{"norm_epsilon": 1e-3, "d_k": 4, "d_v": 6, "tie": "target", "vocab_multiple": 8},
        },
    ],
    ids=str,
)
def test_float32_is_the_same(form, changes, tmp_path):
    original = translator(**changes)
    runtime = write(form, original, tmp_path)
    parity = compare(Reference(original), runtime, LINES, "lines", bound=1e-4)
    assert parity.agrees and parity.same_output == parity.sentences == len(LINES), parity
    assert runtime.name.startswith(NAMES[form])
    assert not (tmp_path / "__pycache__").exists()
    for path in tmp_path.glob("*.jaxexport"):
        program = jax.export.deserialize(bytearray(path.read_bytes()))
        assert program.platforms == ("cpu", "cuda", "tpu")


def test_a_jax_that_is_older_than_the_folder_is_named(tmp_path, monkeypatch):
    pytest.importorskip("flatbuffers", reason="needs the [export] extra")
    stablehlo.write(translator(), tmp_path)
    release = ".".join(jax.__version__.split(".")[:2])
    assert f'"jax>={release}" ' in (tmp_path / "README.md").read_text()
    monkeypatch.setattr(jax, "__version__", "0.8.3")
    with pytest.raises(ValueError, match=rf"this is JAX 0.8.3, .*: pip install 'jax>={release}'"):
        model_of(tmp_path)
    monkeypatch.setattr(jax, "__version__", "0.99.0")
    assert model_of(tmp_path).translate([]) == []


def test_lines_in_are_lines_out(form, tmp_path):
    original = greedy_settings(translator())
    write(form, original, tmp_path)
    first, last = greedily(original, LINES[0]), greedily(original, LINES[3] + "\x0b\u2028")
    text = f"\ufeff{LINES[0]}\r\n\n \n{LINES[3]}\x0b\u2028\n{LINES[0]}"
    assert alone(tmp_path, RUN, text.encode()).split("\n") == [first, "", "", last, first, ""]
    # The README's lines, as they stand.
    [code] = re.findall(r"```python\n(.*?)```", (tmp_path / "README.md").read_text(), re.DOTALL)
    assert alone(tmp_path, code.replace("TEXT", LINES[0])) == f"{first}\n"


def test_text_that_spells_a_mark_is_text(form, tmp_path):
    original = greedy_settings(translator(pair=digits()))
    runtime, lines = write(form, original, tmp_path), ["1 </s> 23", "<s>", "<pad> <unk>", "</s>"]
    encoded = original.vocabularies.src.encode(lines)
    assert all(UNK in ids for ids in encoded)
    assert runtime.encode(lines) == [[*ids, EOS] for ids in encoded]
    assert model_of(tmp_path).translate(lines[:1]) == [greedily(original, lines[0])]


def test_lines_of_blanks_have_no_translation(form, tmp_path):
    original = translator()
    write(form, original, tmp_path)
    model = model_of(tmp_path)
    # Some have tokens, and the last has more than the models take.
    blanks = ["", " ", "\u200b\ufeff", "\u2581", "\u00a0", "\u3000 ", "\u2003", "\u00a0 " * 50]
    assert any(original.vocabularies.src.encode(blanks))
    *blank, text = model.translate([*blanks, LINES[0]])
    assert blank == [""] * len(blanks)
    assert [translation.text for translation in original.translate(blanks)] == blank
    assert text and model.translate([]) == []


def test_what_it_cannot_read_is_said_in_a_line(form, tmp_path, monkeypatch):
    write(form, translator(max_length=20), tmp_path)
    for text, message in (
        (b"dog\n" + b"dog " * 30, r"line 2 has \d+ tokens of at most 19"),
        (b"a\xff", r"the input is not UTF-8 text \(byte 2\)"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(tmp_path / "translate.py"), run_name="__main__")
        assert re.fullmatch(message, str(ended.value.code))
