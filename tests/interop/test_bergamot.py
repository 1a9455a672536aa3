"""Exported folders in Marian's own programs: the engine for browsers, in Node, and pymarian.

Needs `tests/interop/peers.txt` and, beside it, `npm install --prefix VENV
@browsermt/bergamot-translator@0.4.9` (CONTRIBUTING.md); skipped elsewhere.
"""

import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.demo.package import demo_run
from flaxformer_mt.grammar.text import pairs as grammar_pairs
from flaxformer_mt.interop.export import export
from flaxformer_mt.interop.huggingface import Card
from flaxformer_mt.interop.import_npz import import_npz
from flaxformer_mt.interop.parity import Reference
from tests.conftest import ROOT
from tests.interop.pages import served
from tests.interop.translators import LINES as RANDOM_LINES, translator as random_translator

ENGINE = Path(sys.prefix) / "node_modules" / "@browsermt" / "bergamot-translator"
pytestmark = pytest.mark.bergamot
node = pytest.mark.skipif(
    shutil.which("node") is None or not ENGINE.exists(),
    reason=f"needs node and @browsermt/bergamot-translator in {sys.prefix}",
)
LINES = [
    "I have lost my keys.",
    "She doesn't want to talk about it.",
    "Where did you buy this book?",
    "It's raining.",
    "My father works in a big city and comes home late every evening.",
    "We saw him yesterday.",
    "Do you speak English or German?",
    "The children are playing in the garden.",
    "Tom never told me why he left.",
    "What time does the train leave?",
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's weights with tensor2tensor's sinusoids: still a model of English and German."""
    loaded = Translator.load(demo_run(tmp_path_factory.mktemp("demo") / "run"))
    config = dataclasses.replace(loaded.model.config, positions="tensor2tensor")
    model = loaded.model.clone(config=config)
    return Translator(loaded.params, model, loaded.vocabularies, loaded.config)


@functools.cache
def greedy_texts(translator):
    rows = translator.vocabularies.src.encode(LINES)
    outputs = Reference(translator).greedy([[*ids, EOS] for ids in rows])
    return translator.vocabularies.tgt.decode(outputs)


def exported(translator, folder, form, quantization="float32"):
    card = Card(data=DataConfig())
    sample = (LINES, "lines")
    export(translator, folder, form=form, quantization=quantization, card=card, sample=sample)
    return folder


def by_node(folder, text):
    command = ["node", str(folder / "translate.mjs")]
    return subprocess.run(
        command, input=text.encode(), capture_output=True, cwd=sys.prefix, timeout=120, check=False
    )


@node
@pytest.mark.parametrize(("quantization", "equal"), [("float32", 10), ("int8", 5)])
def test_the_engine_gives_the_same_translations(quantization, equal, demo, tmp_path):
    folder = exported(demo, tmp_path / "out", "bergamot", quantization)
    done = by_node(folder, "".join(f"{line}\n" for line in LINES))
    assert done.returncode == 0, done.stderr.decode()
    theirs = done.stdout.decode().splitlines()
    assert len(theirs) == len(LINES)
    ours = greedy_texts(demo)
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) >= equal, (ours, theirs)


@node
def test_lines_stay_lines(demo, tmp_path):
    folder = exported(demo, tmp_path / "out", "bergamot")
    [*_, last] = greedy_texts(demo)
    done = by_node(folder, f"\n{LINES[-1]}\r\n\n{LINES[-1]}")
    assert done.stdout.decode() == f"\n{last}\n\n{last}\n", done.stderr.decode()
    assert by_node(folder, "").stdout == b""


def by_shell(folder, command):
    command = command.replace("TRANSLATE", f"node {shlex.quote(str(folder / 'translate.mjs'))}")
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        cwd=sys.prefix,
        timeout=120,
        check=False,
    )


@node
def test_input_that_cannot_be_read(demo, tmp_path):
    folder = exported(demo, tmp_path / "out", "bergamot")
    done = by_shell(folder, "TRANSLATE < .")
    assert (done.returncode, done.stderr) == (1, b"the input is a folder\n")
    done = by_shell(folder, r"printf '\377\n' | TRANSLATE")
    assert (done.returncode, done.stderr) == (1, b"the input is not UTF-8 text\n")
    (folder / "settings.json").unlink()
    done = by_shell(folder, "echo x | TRANSLATE")
    assert done.returncode == 1 and b"settings.json: can't be read: ENOENT" in done.stderr


@node
def test_a_reader_that_stops_is_not_an_error(demo, tmp_path):
    folder = exported(demo, tmp_path / "out", "bergamot")
    done = by_shell(folder, f"yes {shlex.quote(LINES[-1])} | head -n 200 | TRANSLATE | head -n 1")
    assert (done.stdout.decode(), done.stderr) == (f"{greedy_texts(demo)[-1]}\n", b"")


@node
def test_input_that_comes_late_through_a_pipe_that_does_not_wait(demo, tmp_path):
    """As a shell's or an event loop's pipe may be: reading it at once is an error, EAGAIN."""
    folder = exported(demo, tmp_path / "out", "bergamot")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    command = ["node", str(folder / "translate.mjs")]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, cwd=sys.prefix) as done:
        os.close(reading)
        time.sleep(0.5)
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as pipe:
            pipe.write(f"{LINES[-1]}\n")
        output, _ = done.communicate(timeout=120)
    assert output.decode() == f"{greedy_texts(demo)[-1]}\n"


@node
@pytest.mark.parametrize("wrong", ["model.bin", "vocab.spm"])
def test_a_broken_folder_is_an_error(wrong, demo, tmp_path):
    folder = exported(demo, tmp_path / "out", "bergamot")
    (folder / wrong).write_bytes(b"x" * 1000)
    done = by_node(folder, f"{LINES[0]}\n")
    assert done.returncode == 1 and done.stdout == b""
    assert b"the engine failed: " in done.stderr


def test_pymarian_gives_the_same_translations(demo, tmp_path):
    pymarian = pytest.importorskip("pymarian", reason="needs pymarian (tests/interop/peers.txt)")
    folder = exported(demo, tmp_path / "out", "marian")
    with contextlib.chdir(folder):
        # As the folder's README has it.
        marian = pymarian.Translator("-c decoder.yml --cpu-threads 1 --quiet --beam-size 1")
        theirs = marian.translate(LINES)
    assert theirs == greedy_texts(demo)


@pytest.fixture
def site(demo, tmp_path):
    """The example's page with the engine and a model beside it, served."""
    shutil.copytree(ROOT / "docs" / "examples" / "browser", tmp_path / "site")
    exported(demo, tmp_path / "site" / "model", "bergamot")
    shutil.copytree(ENGINE.parent, tmp_path / "site" / "node_modules" / "@browsermt")
    with served(tmp_path / "site") as server:
        yield server


READY = "document.getElementById('status').textContent.includes('in this browser')"
TARGET = "document.getElementById('target').value"


@node
@pytest.mark.browser
def test_the_examples_page_translates_with_and_without_its_server(site, browser, demo):
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    def translation(line):
        page.wait_for_function(READY, timeout=60_000)
        page.fill("#source", line)
        page.wait_for_function(f"{TARGET} !== ''", timeout=60_000)
        return page.evaluate(TARGET)

    address = f"http://127.0.0.1:{site.server_port}/"
    page.goto(address)
    texts = greedy_texts(demo)
    assert translation(LINES[0]) == texts[0]
    assert all(url.startswith(address) for url in asked), asked
    site.shutdown()
    site.server_close()
    page.reload()
    assert translation(LINES[2]) == texts[2]
    context.close()


TRAINING = """
import pymarian
pymarian.Trainer(
    "--type transformer -m model.npz -t text.en text.de -v vocab.spm vocab.spm "
    "--dim-vocabs 120 120 --dim-emb 32 --transformer-heads 4 --transformer-dim-ffn 64 "
    "--enc-depth 1 --dec-depth 2 --tied-embeddings-all --cpu-threads 1 --mini-batch 32 "
    "--maxi-batch 10 --after-batches 200 --learn-rate 0.003 --lr-warmup 50 --workspace 300 "
    "--seed 1 --quiet --quiet-translation"
).train()
"""


def test_a_model_that_marian_trained_is_imported(tmp_path):
    pymarian = pytest.importorskip("pymarian", reason="needs pymarian (tests/interop/peers.txt)")
    pairs = list(grammar_pairs("train", 1000, seed=1))
    for side, language in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"text.{language}").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", TRAINING]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300, capture_output=True)

    import_npz(tmp_path / "model.npz.decoder.yml", tmp_path / "run", ["x"])
    imported = Translator.load(tmp_path / "run")
    lines = [src for src, _ in pairs[:40]]
    sources = [[*ids, EOS] for ids in imported.vocabularies.src.encode(lines)]
    reference = Reference(imported)
    outputs, limits = reference.greedy(sources), reference.limits(sources)
    texts = imported.vocabularies.tgt.decode(outputs)
    settings = "-m model.npz -v vocab.spm vocab.spm --beam-size 1 --cpu-threads 1 --quiet"
    with contextlib.chdir(tmp_path):
        theirs = pymarian.Translator(settings).translate(lines)
    # At the limit, which isn't the same there, outputs are cut.
    complete = [
        number
        for number, (output, limit) in enumerate(zip(outputs, limits, strict=True))
        if len(output) < limit - 1
    ]
    assert len(complete) > 20
    assert [texts[number] for number in complete] == [theirs[number] for number in complete]


WIDE = {"positions": "tensor2tensor", "d_model": 64, "d_ff": 64, "d_k": 32, "d_v": 32}


@node
@pytest.mark.parametrize("quantization", ["float32", "int8"])
@pytest.mark.parametrize("tie", ["target", "none"])
def test_a_vocabulary_for_each_side(tie, quantization, tmp_path):
    """Their sizes aren't multiples of eight, which the engine's int8 products need."""
    original = random_translator(tie=tie, activation="silu", logits_bias=True, **WIDE)
    sizes = original.vocabularies.src.size, original.vocabularies.tgt.size
    assert sizes[0] % 8 and sizes[1] % 8
    card, folder = Card(data=DataConfig()), tmp_path / "out"
    export(original, folder, form="bergamot", quantization=quantization, card=card, sample=None)
    done = by_node(folder, "".join(f"{line}\n" for line in RANDOM_LINES))
    assert done.returncode == 0, done.stderr.decode()
    theirs = done.stdout.decode().splitlines()
    assert len(theirs) == len(RANDOM_LINES)

    # Random models write on to the limit, which is another one there.
    rows = [[*ids, EOS] for ids in original.vocabularies.src.encode(RANDOM_LINES)]
    outputs = Reference(original).greedy(rows)
    compared = [len(ids) if quantization == "float32" else 1 for ids in rows]
    begins = original.vocabularies.tgt.decode(
        [output[:length] for output, length in zip(outputs, compared, strict=True)]
    )
    alike = sum(text.startswith(begin) for text, begin in zip(theirs, begins, strict=True))
    assert alike >= (len(rows) if quantization == "float32" else len(rows) * 0.8), (theirs, begins)
