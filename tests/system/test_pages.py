"""Every block of docs/*.md and the README, in order and word for word, on small data and models.

A block that is not run says why in the page (`tests/docs/markdown.py`). A page that tells a story
begins in an empty folder; the others find runs and text under the names that they use.
"""

import html
import importlib.util
import itertools
import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from tests.docs.markdown import ROOT, Block, blocks, guides
from tests.docs.test_references import PAPER
from tests.interop.marian_models import write_arrays
from tests.markup.archives import run as word_run, word_file
from tests.system.conftest import SMALL, tiny
from tests.system.stage import Stage

pytestmark = pytest.mark.timeout(1800)
RUN = ("bash", "python")
PAGES = [
    page
    for page in (ROOT / "README.md", *guides())
    # What test_references.py runs and compares.
    if page != PAPER and any(b.language in RUN and not b.not_run for b in blocks(page))
]
STORIES = ("guide",)
# Where the smallest settings do not fit.
SETTINGS: dict[str, dict[str, object]] = {
    # The imported model has sizes of its own.
    "interoperability": {key: v for key, v in SMALL.items() if not key.startswith("model.")},
    "README": SMALL | {"data.batch.tokens": 2048},  # eight packed rows of the longest lines
    "guide": SMALL | {"data.vocabulary.size": 600},  # the types of bytes among them
    "parsing": SMALL | {"data.vocabulary.size": 360},  # bytes and brackets among them
}


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> Path:
    """A run that was averaged and evaluated.

    A page draws its second decoder layer.
    """
    folder = tmp_path_factory.mktemp("finished")
    further = {"model.decoder_layers": 2, "model.max_length": 128}
    stage = Stage(folder, settings=SMALL | further)
    for command in (
        f"train {shlex.join(tiny(corpus))}",
        "average",
        "evaluate --no-ter --resamples 0",
    ):
        done = stage.shell(f"launch/local.sh {command} --workdir run")
        assert done.returncode == 0, done.stderr
    stage.close()
    return folder / "run"


def furnish(folder: Path, corpus: Path) -> None:
    """The text that pages of reference take for granted."""
    wmt14, known = folder / "data" / "wmt14_en_de", folder / "sacrebleu" / "wmt14" / "full"
    wmt14.mkdir(parents=True)
    known.mkdir(parents=True)
    for side, language in (("src", "en"), ("ref", "de")):
        shutil.copy(corpus / f"test.{language}", known / f"wmt14_full.en-de.{side}")
    for language in ("en", "de"):
        for split, published in (
            ("train", "train"),
            ("valid", "newstest2013"),
            ("test", "newstest2014"),
        ):
            shutil.copy(corpus / f"{split}.{language}", folder)
            shutil.copy(corpus / f"{split}.{language}", wmt14 / f"{published}.{language}")
    source, target = ((corpus / f"test.{language}").read_text() for language in ("en", "de"))
    (folder / "input.en").write_text(source)
    (folder / "letter.txt").write_text(source.replace(" ", "\n", 1))
    first_line = html.escape(source.splitlines()[0])
    (folder / "letter.docx").write_bytes(word_file(f"<w:p>{word_run(first_line)}</w:p>"))
    (folder / "film.srt").write_text(f"1\n00:00:01,000 --> 00:00:02,000\n{first_line}\n\n")
    (folder / "corpus.en.zst").write_bytes(zstd.compress(source.encode()))
    for name in ("theirs", "one", "two", "first", "second"):
        (folder / f"{name}.de").write_text(target)
    lines = list(zip(source.splitlines(), target.splitlines(), strict=True))
    (folder / "pairs.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in lines))
    (folder / "ids_and_text.tsv").write_text(
        "".join(f"{n}\t{s}\n" for n, (s, _) in enumerate(lines))
    )
    objects = [json.dumps({"source": src, "translation": tgt}) for src, tgt in lines]
    (folder / "pairs.jsonl").write_text("".join(f"{line}\n" for line in objects))
    for name, size in (("train", 40), ("valid", 4), ("test", 4)):
        (folder / f"{name}.trees").write_text("".join(f"{line}\n" for line in trees(size)))
    paragraphs = source.replace("\n", "</para>\n<para>").replace(" the ", " <b>the</b> ")
    content = f"<para>{paragraphs}</para><programlisting>x</programlisting>"
    (folder / "book.xml").write_text(f"<book>{content}</book>")
    write_arrays(folder / "opus-mt-en-de")


def trees(size: int) -> list[str]:
    """A little treebank."""
    subjects = ("She", "He", "Nobody", "Somebody", "Everybody")
    verbs = ("sleeps", "sings", "waits", "cooks", "runs", "thinks", "works", "reads")
    every = [
        f"(TOP (S (NP (PRP {subject})) (VP (VBZ {verb})) (. .)))"
        for subject, verb in itertools.product(subjects, verbs)
    ]
    return every[:size]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=[] if p.stem == "data" else pytest.mark.extended, id=p.stem)
        for p in PAGES
    ],
)
def test_the_blocks_of_a_page_run_as_they_stand(page, corpus, tmp_path, request):
    if page.stem not in STORIES:
        furnish(tmp_path, corpus)
    if page.stem not in (*STORIES, "README"):
        # The default suite trains no other run.
        fixture = "trained" if page.stem == "data" else "finished"
        finished = request.getfixturevalue(fixture)
        for name in ("mine", "quickstart", "base", "big", "other"):
            shutil.copytree(finished, tmp_path / "runs" / name)
    stage = Stage(tmp_path, settings=SETTINGS.get(page.stem, SMALL))
    try:
        for block in blocks(page):
            if block.language in RUN and not block.not_run and not left_out(block):
                run(block, stage)
    finally:
        stage.close()


def left_out(block: Block) -> bool:
    """Whether a block runs these tests, or needs the TPU compiler where there is none."""
    plans = " plan " in block.text and importlib.util.find_spec("libtpu") is None
    return plans or block.text == "launch/local.sh test\n"


def run(block: Block, stage: Stage) -> None:
    if block.title:  # a file that the reader is told to save
        (stage.folder / block.title).write_text(block.text, encoding="utf-8")
        return
    text = block.text.replace("=FOLDER", "=data/wmt14_en_de")
    done = (stage.shell if block.language == "bash" else stage.python)(text)
    if block.fails:
        assert done.returncode not in (0, None) and "Traceback" not in done.stderr, block.place
        assert block.fails in done.stderr, f"{block.place}\n{done.stderr}"
        return
    assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"
    if text == "launch/local.sh quickstart\n":
        # The command that it offers for translating works too.
        again = stage.shell(done.stdout.rstrip().split("\n")[-1])
        assert again.returncode == 0 and again.stdout.count("\n") == 1, again.stderr


def test_the_pages_are_found():
    assert {page.stem for page in PAGES} >= {*STORIES, "README", "translating", "serving"}
