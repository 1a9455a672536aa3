"""`fm.translate_document` and its command: documents in, the same with translated text out."""

import concurrent.futures
import functools
import gzip
import html
import os
import zipfile

import pytest

import flaxformer_mt as fm
from flaxformer_mt.api import documents
from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.reading import InputError
from flaxformer_mt.config import ConfigError
from flaxformer_mt.data.corpus.source import CorpusError
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.markup.document import MarkupError
from flaxformer_mt.progress import Meter
from tests.cli.conftest import run as run
from tests.decoding.runs import LINES, make_run
from tests.markup.archives import word_file


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "run", {1: 10.0}).path


@pytest.fixture(scope="module")
def translator(workdir):
    return fm.Translator.load(workdir)


@pytest.fixture(scope="module")
def texts(translator):
    """The translations of LINES, as HTML writes them."""
    translated = [translation.text for translation in translator.translate(LINES, several="split")]
    return [html.escape(text, quote=False) for text in translated]


def page(lines) -> str:
    return "<!doctype html>\n" + "".join(f"<p class=x>\n{line}</p><hr>" for line in lines)


def in_html(lines) -> list[str]:
    return [html.escape(line) for line in lines]


def test_each_text_is_translated_as_a_line_is(translator, texts):
    document = fm.translate_document(translator, page(in_html(LINES)))
    assert str(document) == document.text == page(texts)
    assert document.texts == len(LINES)


def test_tags_are_kept(translator):
    source = f"<ul><li>{html.escape(LINES[0])} <b>{html.escape(LINES[1])}</b><br>more</ul>"
    text = fm.translate_document(translator, source).text
    assert text.count("<b>") == text.count("</b>") == text.count("<br>") == 1
    assert text.startswith("<ul><li>") and text.endswith("</ul>")
    assert text.index("<b>") < text.index("</b>")


def test_alignments_are_those_of_the_words(translator, monkeypatch):
    source, target = "one <b>two</b> three", "drei zwei eins"
    words = fm.Translator.align(translator, [("one two three", target)])[0]
    (chosen,) = {tgt for src, tgt in words.links if src == 1} or {None}
    text = fm.translate_document(_fixed(translator, target, monkeypatch), source).text
    assert chosen is None or f"<b>{target.split()[chosen]}</b>" in text


def _fixed(translator, target, monkeypatch):
    """The translator, which says nothing else."""
    translation = translator.translate("one two three")
    hypothesis = translation.hypotheses[0]
    tokens = tuple(translator.vocabularies.tgt.encode([target])[0])
    fixed = type(translation)(
        hypotheses=(type(hypothesis)(text=target, tokens=tokens, log_prob=0.0, score=0.0),)
    )
    monkeypatch.setattr(
        fm.Translator, "translate_with", lambda self, lines, *_: [fixed for _ in lines]
    )
    return translator


def test_a_file_becomes_a_file(workdir, tmp_path, texts):
    source, out = tmp_path / "in.html.gz", tmp_path / "out.html"
    content = "\ufeff" + page(in_html(LINES)).replace("\n", "\r\n")
    source.write_bytes(gzip.compress(content.encode()))
    document = fm.translate_document_file(workdir, source, out)
    assert out.read_bytes().decode() == "\ufeff" + page(texts).replace("\n", "\r\n")
    assert document.text == out.read_bytes().decode().removeprefix("\ufeff")


def test_a_device_is_written_to_and_stays_one(translator, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = tmp_path / "in"
    source.write_text("<br>")
    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        content = reader.submit(pipe.read_bytes)
        fm.translate_document_file(translator, source, pipe)
        assert content.result() == b"<br>"
    assert pipe.is_fifo()
    with pytest.raises(OutputError, match="is a folder"):
        fm.translate_document_file(translator, source, tmp_path)


def test_a_damaged_file_is_named(translator, tmp_path):
    source = tmp_path / "in.gz"
    source.write_bytes(gzip.compress(b"<p>text" * 1000)[:-20])
    with pytest.raises(CorpusError, match=f"{source}"):
        fm.translate_document_file(translator, source, tmp_path / "out")


@pytest.mark.parametrize(
    ("declared", "ascii"),
    [
        ("<?xml version='1.0' encoding='ISO-8859-1'?>", True),
        ('<meta http-equiv=Content-Type content="text/html; charset=latin1">', True),
        ("<meta charset=windows-1252>", True),
        ("<?xml version='1.0' encoding='UTF-8'?>", False),
        ("<meta charset=utf-8>", False),
        ("", False),
    ],
)
def test_a_document_of_ascii_is_read_as_it_declares(translator, tmp_path, declared, ascii):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text(f"{declared}<p>{LINES[0]} &#128512;</p>", encoding="ascii")
    form = "xml" if declared.startswith("<?") else "html"
    fm.translate_document_file(translator.with_config(keep=True), source, target, format=form)
    smiling = "&#128512;" if ascii else "\U0001f600"
    assert target.read_text(encoding="utf-8").endswith(f"{smiling}</p>")


def test_a_document_that_is_not_ascii_stays_utf_8_whatever_it_declares(translator, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("<meta charset=latin1><p>é &#128512;</p>", encoding="utf-8")
    fm.translate_document_file(translator.with_config(keep=True), source, target)
    assert target.read_text(encoding="utf-8").endswith("\U0001f600</p>")


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "us-ascii", "UTF-16", "windows-1252"])
def test_xml_that_is_utf_8_and_declares_another_encoding_is_refused(translator, tmp_path, encoding):
    source, target = tmp_path / "book.xml", tmp_path / "target"
    source.write_text(f"<?xml version='1.0' encoding='{encoding}'?>\n<p>é</p>", encoding="utf-8")
    message = f'book.xml:1: declares encoding="{encoding}", but is UTF-8 text: declare UTF-8'
    with pytest.raises(MarkupError, match=message):
        fm.translate_document_file(translator, source, target, format="xml")
    assert not target.exists()


@pytest.mark.parametrize(
    "declared", ["<?xml version='1.0' encoding='utf8'?>", "<?xml version='1.0'?>", ""]
)
def test_xml_that_declares_utf_8_or_nothing_is_translated(translator, tmp_path, declared):
    source, target = tmp_path / "book.xml", tmp_path / "target"
    text = f"{declared}<p encoding='latin-1' translate='no'>é</p>"
    source.write_text(text, encoding="utf-8")
    fm.translate_document_file(translator, source, target, format="xml")
    assert target.read_text(encoding="utf-8") == text


def test_xml_is_translated(translator, texts):
    line = html.escape(LINES[0])
    source = f"<a><b>{line}</b><c>{line}</c><d>{line} <c>{line}</c></d></a>"
    text = fm.translate_document(translator, source, format="xml", keep_elements=["c"]).text
    assert text == source.replace(f"<b>{line}", f"<b>{texts[0]}").replace(
        f"<d>{line}", f"<d>{texts[0]}"
    )


def test_markdown_is_translated(run, workdir, translator, tmp_path):
    pytest.importorskip("mdit_py_plugins", reason="the extra [markdown] is not installed")
    source = f"# {LINES[0]}\n\n- **{LINES[1]}** `code`\n"
    text = fm.translate_document(translator, source, format="markdown").text
    lead, bold, code = text.partition("**")[0], text.split("**"), text.split("`")
    assert lead.startswith("# ") and lead.endswith("\n\n- ")
    assert len(bold) == 3 and code[1] == "code"

    out = tmp_path / "out.md"
    given = ("--workdir", workdir, "--format", "markdown", "--output", out)
    done = run("translate", *given, stdin=source.encode())
    assert done.status == 0, done.errors
    assert out.read_text() == text


def test_a_word_file_and_subtitles_are_translated(run, workdir, translator, texts, tmp_path):
    source, out = tmp_path / "in.docx", tmp_path / "out.docx"
    source.write_bytes(word_file(f"<w:p><w:r><w:t>{html.escape(LINES[0])}</w:t></w:r></w:p>"))
    given = ("--workdir", workdir, "--format", "docx", "--input", source, "--output", out)
    done = run("translate", *given)
    assert done.status == 0, done.errors
    with zipfile.ZipFile(out) as archive:
        assert f">{texts[0]}</w:t>" in archive.read("word/document.xml").decode()
    cue = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    text = fm.translate_document(translator, cue.format(LINES[0]), format="srt").text
    assert text == cue.format(html.unescape(texts[0]))
    with pytest.raises(ConfigError, match="isn't text: use translate_document_file"):
        fm.translate_document(translator, "a", format="docx")


def test_a_missing_package_is_named(translator, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MarkupError, match=r"needs markdown_it, which is missing: .*\[markdown\]"):
        fm.translate_document(translator, "a", format="markdown")


@pytest.mark.parametrize("several", ["split", "keep"])
def test_sentences_are_split_as_asked(translator, several, monkeypatch):
    lines = []
    translate_with = fm.Translator.translate_with

    def noted(self, given, *options):
        lines.extend(given)
        return translate_with(self, given, *options)

    monkeypatch.setattr(fm.Translator, "translate_with", noted)
    document = fm.translate_document(translator, "<p>One dog. Two cats.", several=several)
    assert lines == {"split": ["One dog.", "Two cats."], "keep": ["One dog. Two cats."]}[several]
    assert document.sentences == len(lines)


def test_wrong_arguments_and_documents_are_refused(translator, tmp_path):
    with pytest.raises(ConfigError, match="'pdf' must be 'html', 'xml', 'markdown', 'srt' or"):
        fm.translate_document(translator, "a", format="pdf")
    with pytest.raises(ConfigError, match="n_best = 2: a document has one translation"):
        fm.translate_document(translator, "a", n_best=2)
    with pytest.raises(MarkupError, match="^line 2: not well-formed XML: mismatched tag$"):
        fm.translate_document(translator, "<a>\n<b></a>", format="xml")
    with pytest.raises(DecodingError, match=r"^'(one ){15}': the source has 1001"):
        fm.translate_document(translator, "one " * 500, overlong="refuse")


def test_wrong_text_and_files_are_refused(translator, tmp_path):
    with pytest.raises(MarkupError, match="^line 2: is not Unicode text"):
        fm.translate_document(translator, "a\n\ud800")
    with pytest.raises(TypeError, match="document"):
        fm.translate_document(translator, b"a")
    with pytest.raises(TypeError, match="keep_elements"):
        fm.translate_document(translator, "a", keep_elements=[1])

    source = tmp_path / "in"
    source.write_bytes(b"<a>\n\xff</a>")
    with pytest.raises(InputError, match=f"{source}:2: is not UTF-8 text"):
        fm.translate_document_file(translator, source, tmp_path / "out")
    source.write_text("<a>\n<b></a>")
    with pytest.raises(MarkupError, match=f"^{source}:2: not well-formed"):
        fm.translate_document_file(translator, source, tmp_path / "out", format="xml")
    with pytest.raises(OutputError, match="is also the input"):
        fm.translate_document_file(translator, source, source)
    assert not (tmp_path / "out").exists()


def test_an_ensemble_is_refused_before_the_work_if_tags_need_alignments(workdir, monkeypatch):
    ensemble = fm.Translator.load_ensemble([workdir, workdir])
    assert str(fm.translate_document(ensemble, "<p>one</p>")).startswith("<p>")
    monkeypatch.delattr(fm.Translator, "translate_with")
    with pytest.raises(DecodingError, match="single model's alignments"):
        fm.translate_document(ensemble, "<p>one <b>two</b> three</p>")


def test_the_command_translates_a_document(run, workdir, texts, tmp_path):
    content = page(in_html(LINES)).encode()
    done = run("translate", "--workdir", workdir, "--format", "html", stdin=content)
    assert done.status == 0, done.errors
    assert done.output == page(texts)
    assert "4 texts" in done.errors
    out = tmp_path / "out"
    kept = ("--format", "xml", "--keep-elements", "b", "--output", out)
    done = run("translate", "--workdir", workdir, *kept, stdin=b"<a><b>x</b></a>")
    assert done.status == 0, done.errors
    assert out.read_text() == "<a><b>x</b></a>"


def test_progress_is_told(workdir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(documents, "_WINDOW", 2)
    monkeypatch.setattr(documents, "Meter", functools.partial(Meter, every=0.0))
    source, target = tmp_path / "page.html", tmp_path / "page.de.html"
    source.write_text(page(LINES), encoding="utf-8")
    fm.translate_document_file(workdir, source, target)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("translate:")]
    assert len(told) >= len(LINES) and "sentences" in told[0]
    assert "100.0% of the input" in told[-1]
