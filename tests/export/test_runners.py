"""The program in written folders, by itself: text in, text out, whatever the text is."""

from __future__ import annotations

import dataclasses
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from flaxformer_mt.data.vocabulary import EOS, UNK
from flaxformer_mt.decoding import Translator
from flaxformer_mt.export import ctranslate2, stablehlo
from flaxformer_mt.export.parity import Reference
from tests.export.translators import BLANKS, LINES, digits, translator

# A Python that finds no package of this project.
BLOCKED = "import sys; sys.modules['flaxformer_mt'] = None; sys.argv = ['translate.py']\n"
RUN = "import runpy; runpy.run_path('translate.py', run_name='__main__')"


@pytest.fixture(params=["ctranslate2", "stablehlo"])
def write(request: pytest.FixtureRequest, tmp_path: Path):
    """Writes a model's folder in one of the forms that have a program of their own."""
    needed = {"ctranslate2": "ctranslate2", "stablehlo": "flatbuffers"}[request.param]
    pytest.importorskip(needed, reason="needs the [export] extra")

    def written(made: Translator) -> Path:
        if request.param == "stablehlo":
            stablehlo.write(made, tmp_path)
        else:
            ctranslate2.write(made, tmp_path, quantization="float32")
        return tmp_path

    def runtime(made: Translator):
        if request.param == "stablehlo":
            return stablehlo.Runtime(tmp_path)
        return ctranslate2.Runtime(tmp_path, made.vocabularies, quantization="float32")

    written.runtime = runtime
    written.longest = {"ctranslate2": 19, "stablehlo": 20}[request.param]  # its end mark apart
    return written


def model_of(folder: Path):
    return runpy.run_path(str(folder / "translate.py"))["Model"](folder)


def alone(folder: Path, code: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-W", "error::SyntaxWarning", "-c", BLOCKED + code]
    return subprocess.run(command, cwd=folder, input=text, capture_output=True)


def by_the_readme(folder: Path, line: str) -> str:
    """What its lines print, as they stand."""
    [code] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    done = alone(folder, code.replace("TEXT", line))
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().removesuffix("\n")


def greedy_settings(made: Translator) -> Translator:
    made.config = dataclasses.replace(made.config, beam_size=1)
    return made


def greedily(made: Translator, line: str) -> str:
    [tokens] = made.vocabularies.src.encode([line])
    [text] = made.vocabularies.tgt.decode(Reference(made).greedy([[*tokens, EOS]]))
    return text.strip(" ")


def test_lines_in_are_lines_out(write) -> None:
    made = greedy_settings(translator())
    folder = write(made)
    first, last = greedily(made, LINES[0]), greedily(made, LINES[3] + "\x0b\u2028")
    text = f"\ufeff{LINES[0]}\r\n\n \n{LINES[3]}\x0b\u2028\n{LINES[0]}"
    done = alone(folder, RUN, text.encode())
    assert done.stdout.decode().split("\n") == [first, "", "", last, first, ""], done.stderr
    assert alone(folder, RUN).stdout == b""
    assert by_the_readme(folder, LINES[0]) == first


def test_text_that_spells_a_mark_is_text(write) -> None:
    made = greedy_settings(translator(pair=digits()))
    model = model_of(write(made))
    lines = ["1 </s> 23", "<s>", "<pad> <unk>", "</s>"]
    encoded = made.vocabularies.src.encode(lines)
    assert all(UNK in ids for ids in encoded)
    assert write.runtime(made).encode(lines) == [[*ids, EOS] for ids in encoded]
    assert model.translate(lines[:2]) == [greedily(made, line) for line in lines[:2]]


def test_lines_of_blanks_have_no_translation(write) -> None:
    made = translator()
    model = model_of(write(made))
    assert any(made.vocabularies.src.encode(BLANKS))
    *blank, text = model.translate([*BLANKS, LINES[0]])
    assert blank == [each.text for each in made.translate(BLANKS)] == [""] * len(BLANKS)
    assert text


def test_what_it_cannot_read_is_said_in_a_line(write) -> None:
    folder = write(translator(max_length=20))
    for text, message in (
        (b"dog\n" + b"dog " * 30, rf"line 2 has \d+ tokens of at most {write.longest}"),
        (b"a\xff", r"the input is not UTF-8 text \(byte 2\)"),
    ):
        done = alone(folder, RUN, text)
        assert (done.returncode, done.stdout) == (1, b"")
        assert re.fullmatch(message, done.stderr.decode().strip()), done.stderr
