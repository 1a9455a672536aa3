"""Models as StableHLO programs: the same outputs at any sizes, with nothing of this package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.export import ExportError, stablehlo, stablehlo_runner
from flaxformer_mt.export.parity import compare
from flaxformer_mt.export.reference import Reference
from tests.export.translators import BLANKS, LINES, digits, translator

pytest.importorskip("flatbuffers", reason="needs the [export] extra")

FORMS = [
    {"attention_bias": True, "logits_bias": True, "activation": "silu"},
    {"norm": "pre", "positions": "learned", "tie": "none", "scan_layers": True, "d_k": 3},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_it_is_the_same(form, tmp_path: Path) -> None:
    made = translator(**form)
    stablehlo.write(made, tmp_path)
    runtime = stablehlo.Runtime(tmp_path)
    parity = compare(Reference(made), runtime, LINES, "lines", bound=1e-4)
    assert parity.agrees and parity.same_output == len(LINES), parity
    assert not (tmp_path / "__pycache__").exists()

    for name in ("encoder", "decode_step"):
        program = jax.export.deserialize(bytearray((tmp_path / f"{name}.jaxexport").read_bytes()))
        assert program.platforms == ("cpu", "cuda", "tpu")


def test_the_folder_translates_alone(tmp_path: Path) -> None:
    """The runner, in a Python that finds no package of this project."""
    made = translator()
    stablehlo.write(made, tmp_path)
    blocked = "import sys; sys.modules['flaxformer_mt'] = None; sys.argv = ['translate.py']\n"
    code = blocked + "import runpy; runpy.run_path('translate.py', run_name='__main__')"
    lines = [LINES[0], "", LINES[3] + "\x0b\u2028"]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode([lines[0], lines[2]])]
    first, last = made.vocabularies.tgt.decode(Reference(made).greedy(sources))
    assert done.stdout.split("\n") == [first, "", last, ""]


def test_text_that_spells_a_mark_is_text(tmp_path: Path) -> None:
    made = translator(pair=digits())
    stablehlo.write(made, tmp_path)
    lines = ["1 </s> 23", "<s>", "<pad> <unk>", "</s>"]
    expected = [[*ids, EOS] for ids in made.vocabularies.src.encode(lines)]
    assert stablehlo_runner.Model(tmp_path).encode(lines) == expected


def test_lines_of_blanks_have_no_translation(tmp_path: Path) -> None:
    made = translator()
    stablehlo.write(made, tmp_path)
    lines = [*BLANKS, LINES[0]]
    assert any(made.vocabularies.src.encode(BLANKS))
    *blank, text = stablehlo_runner.Model(tmp_path).translate(lines)
    assert blank == [each.text for each in made.translate(BLANKS)] == [""] * len(BLANKS)
    assert text


def test_a_source_longer_than_the_model_is_refused(tmp_path: Path) -> None:
    stablehlo.write(translator(max_length=20), tmp_path)
    model = stablehlo_runner.Model(tmp_path)
    with pytest.raises(ValueError, match=r"line 1 has \d+ tokens of at most 20"):
        model.translate(["dog " * 30])
    settings = json.loads((tmp_path / "settings.json").read_text())
    assert settings["max_length"] == 20 and settings["max_extra_tokens"] == 6


def test_without_flatbuffers_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flatbuffers", None)
    with pytest.raises(ExportError, match=r"flatbuffers, which is not installed: pip install"):
        stablehlo.write(translator(), tmp_path)
