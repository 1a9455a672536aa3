"""Word and OpenDocument files: what is translated, what stays, and what is refused."""

import io
import random
import struct
import zipfile

import pytest

from flaxformer_mt.markup import packages
from flaxformer_mt.markup.document import MarkupError
from flaxformer_mt.markup.opendocument import read_opendocument
from flaxformer_mt.markup.packages import read_package
from flaxformer_mt.markup.word import read_word
from tests.markup.archives import OPEN, WORD, archive, open_file_of, run, word_file
from tests.markup.pretended import pretended


def in_word(paragraph: str) -> str:
    """What becomes of a paragraph."""
    before, after = WORD.split("{}")
    text = pretended(read_word(WORD.format(f"<w:p>{paragraph}</w:p>")))
    return text.removeprefix(before + "<w:p>").removesuffix("</w:p>" + after)


@pytest.mark.parametrize(
    ("paragraph", "translated"),
    [
        (run("the dog") + run(" runs"), run("RUNS DOG THE")),
        (run("the old ") + run("dog", "<w:b/>"), run("DOG", "<w:b/>") + run(" OLD THE")),
        (run("a &lt; b", "<w:i/>"), run("B &lt; A", "<w:i/>")),
        (
            "<w:pPr><w:jc/></w:pPr>" + run(" a b "),
            "<w:pPr><w:jc/></w:pPr>" + "".join(map(run, (" ", "B A", " "))),
        ),
        ("<w:r><w:t><![CDATA[a <]]> b</w:t></w:r>", run("B &lt; A")),
        (run("a") + "<w:proofErr/>" + run(" b"), run("B A")),
        (
            run("see ") + '<w:hyperlink r:id="1">' + run("the page") + "</w:hyperlink>",
            '<w:hyperlink r:id="1">' + run("PAGE THE") + "</w:hyperlink>" + run(" SEE"),
        ),
        (
            '<w:bookmarkStart w:id="1"/>' + run("a b") + '<w:bookmarkEnd w:id="1"/>',
            '<w:bookmarkStart w:id="1"/>' + run("B A") + '<w:bookmarkEnd w:id="1"/>',
        ),
    ],
)
def test_formats_go_with_their_words(paragraph, translated):
    assert in_word(paragraph) == translated


FIELD = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
CODE = "<w:r><w:instrText>{}</w:instrText></w:r>"


def test_fields_stay_whole():
    parts = [FIELD.format(kind) for kind in ("begin", "separate", "end")]
    page = parts[0] + CODE.format("PAGE") + parts[1] + run("seven") + parts[2]
    assert page in in_word(run("on page ") + page)
    link = parts[0] + CODE.format("HYPERLINK x") + parts[1] + "{}" + parts[2]
    written = in_word(run("see ") + link.format(run("my page")))
    assert link.format(run("PAGE MY")) in written
    half = parts[0] + CODE.format("TOC") + parts[1] + run("one two")
    assert in_word(half) == half


@pytest.mark.parametrize(
    "paragraph",
    [
        "",
        run("..."),
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>",
        "<w:ins></w:ins>",
        '<w:hyperlink r:id="1"><w:r><w:drawing></w:drawing></w:r></w:hyperlink>',
        FIELD.format("begin") + FIELD.format("separate") + run("seven") + FIELD.format("end"),
    ],
)
def test_what_has_no_text_stays(paragraph):
    assert in_word(paragraph) == paragraph


def test_the_namespace_may_be_the_default_one():
    text = WORD.replace("xmlns:w", "xmlns").replace("w:", "").format("<p><r><t>a b</t></r></p>")
    assert "B A</t>" in pretended(read_word(text))


def test_paragraphs_of_libreoffice_are_translated():
    before, after = OPEN.split("{}")
    source = (
        "<text:h>One two</text:h><text:p><text:span>a b</text:span> c<text:s/>"
        "<text:date>kept</text:date></text:p><text:p/>"
    )
    text = pretended(read_opendocument(OPEN.format(source)))
    body = text.removeprefix(before).removesuffix(after)
    assert body.startswith("<text:h>TWO ONE</text:h><text:p>C")
    assert "<text:span>B A</text:span>" in body
    assert "<text:date>kept</text:date>" in body and body.endswith("<text:p/>")


NOTE = (
    '<text:note text:id="ftn1"><text:note-citation>1</text:note-citation><text:note-body>'
    "<text:p>{}</text:p></text:note-body></text:note>"
)
FRAME = "<draw:frame><draw:text-box>{}</draw:text-box></draw:frame>"


def test_notes_and_text_boxes_of_libreoffice_are_translated():
    before, after = OPEN.split("{}")
    note = NOTE.format("a <text:span>b</text:span> c")
    alone = FRAME.format("<text:p>a b</text:p><text:p/>")
    source = f"<text:p>one{note} two</text:p><text:p>{alone}</text:p>"
    text = pretended(read_opendocument(OPEN.format(source)))
    translated_note = NOTE.format("C <text:span>B</text:span> A")
    assert (
        text
        == before
        + (
            f"<text:p>TWO ONE{translated_note}</text:p>"
            f"<text:p>{FRAME.format('<text:p>B A</text:p><text:p/>')}</text:p>"
        )
        + after
    )


def test_notes_within_text_boxes_are_translated_and_comments_stay():
    comment = "<office:annotation><text:p>a b</text:p></office:annotation>"
    source = "<text:p>{}{}</text:p>".format(comment, FRAME.format(f"<text:p>c{NOTE}</text:p>"))
    text = pretended(read_opendocument(OPEN.format(source.format("d e"))))
    assert comment in text and NOTE.format("E D") in text and "<text:p>C<text:note" in text


BOX = "<w:pict><v:textbox><w:txbxContent>{}</w:txbxContent></v:textbox></w:pict>"


def test_text_boxes_of_word_are_translated():
    def in_box(paragraph: str) -> str:
        return f"<w:r><w:rPr><w:b/></w:rPr>{BOX.format(f'<w:p>{paragraph}</w:p>')}</w:r>"

    inner = run("a ") + run("b", "<w:i/>") + run(" c")
    inner_translated = run("C ") + run("B", "<w:i/>") + run(" A")
    assert in_word(in_box(inner)) == in_box(inner_translated)
    text = in_word(run("one") + in_box(inner) + run(" two"))
    assert text == run("TWO ONE") + in_box(inner_translated)


@pytest.mark.parametrize("code", ["SHAPE \\* MERGEFORMAT", "HYPERLINK x"])
def test_text_boxes_within_fields_stay_there(code):
    def field(box: str) -> str:
        parts = [FIELD.format(kind) for kind in ("begin", "separate", "end")]
        return parts[0] + CODE.format(code) + parts[1] + box + run("two") + parts[2]

    box = "<w:r><w:rPr><w:b/></w:rPr>" + BOX.format("<w:p>{}</w:p>") + "</w:r>"
    text = in_word(run("see one ") + field(box.format(run("a b"))))
    assert text == run("ONE SEE") + run(" ") + field(box.format(run("B A")))


@pytest.mark.parametrize("format", ["docx", "odt"])
def test_text_boxes_deep_within_others_take_linear_time(format):
    deep = "x"
    for _ in range(3000):
        if format == "docx":
            deep = f"<w:p>{run('one')}<w:r>{BOX.format(deep)}</w:r></w:p>"
        else:
            deep = f"<text:p>one {FRAME.format(deep)}</text:p>"
    read = read_word if format == "docx" else read_opendocument
    text = pretended(read((WORD if format == "docx" else OPEN).format(deep)))
    assert text.count("ONE") == 4 and text.count("one") == 2996


@pytest.mark.parametrize("name", ["text:bookmark", "text:change"])
def test_pairs_of_libreoffice_stay_in_order(name):
    first, last = f'<{name}-start text:name="a"/>', f'<{name}-end text:name="a"/>'
    source = f"<text:p>one {first}<text:span>two</text:span> three{last} four</text:p>"
    text = pretended(read_opendocument(OPEN.format(source)))
    assert f"<text:p>{first}FOUR THREE <text:span>TWO</text:span> ONE{last}</text:p>" in text


def test_deleted_text_of_libreoffice_stays():
    deleted = "<text:deletion><text:p>one two</text:p></text:deletion>"
    source = f"<text:tracked-changes>{deleted}</text:tracked-changes><text:p>a b</text:p>"
    text = pretended(read_opendocument(OPEN.format(source)))
    assert deleted in text and "<text:p>B A</text:p>" in text


@pytest.mark.parametrize("format", ["docx", "odt"])
def test_all_other_members_stay(format):
    content = word_file("<w:p/>") if format == "docx" else open_file_of("<text:p>a b</text:p>")
    package = read_package(content, format)
    packed = package.packed([pretended(document) for document in package.documents.values()])
    with zipfile.ZipFile(io.BytesIO(packed)) as new, zipfile.ZipFile(io.BytesIO(content)) as old:
        assert new.namelist() == old.namelist()
        changed = [name for name in new.namelist() if new.read(name) != old.read(name)]
    assert changed == ([] if format == "docx" else ["content.xml"])


def test_what_other_libraries_write_is_read_and_they_read_the_result():
    docx = pytest.importorskip("docx", reason="python-docx is not installed")
    made = docx.Document()
    made.add_heading("The big title")
    made.add_paragraph("A ").add_run("bold dog").bold = True
    file = io.BytesIO()
    made.save(file)
    package = read_package(file.getvalue(), "docx")
    packed = package.packed([pretended(document) for document in package.documents.values()])
    heading, text = docx.Document(io.BytesIO(packed)).paragraphs
    assert heading.text == "TITLE BIG THE"
    assert [(piece.text, piece.bold) for piece in text.runs] == [("DOG BOLD ", True), ("A", None)]


def test_bombs_and_hostile_files_are_refused(monkeypatch):
    with pytest.raises(MarkupError, match="not a docx file: File is not a zip file"):
        read_package(b"text", "docx")
    with pytest.raises(MarkupError, match="it has no content.xml"):
        read_package(word_file(""), "odt")
    with pytest.raises(MarkupError, match="word/document.xml:1: not well-formed XML"):
        read_package(word_file("<w:p>"), "docx")
    entity = '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'
    with pytest.raises(MarkupError, match="declares a document type"):
        read_package(archive({"word/document.xml": entity}), "docx")
    monkeypatch.setattr(packages, "_MOST_PIECES", 10)
    with pytest.raises(MarkupError, match="26 tags, .* a docx file has at most 10"):
        read_package(word_file("<w:p/>" * 22), "docx")
    many = {f"word/header{number}.xml": "<a/>" for number in range(10)}
    with pytest.raises(MarkupError, match="11 tags, "):
        read_package(archive({"word/document.xml": "<a/>", **many}), "docx")
    monkeypatch.setattr(packages, "LARGEST_UNPACKED", 1000)
    bomb = archive({"word/document.xml": "<a/>", "word/media": "0" * 100_000})
    with pytest.raises(MarkupError, match="an archive has at most 4,096 of 1,000 bytes"):
        read_package(bomb, "docx")


def test_damaged_archives_are_refused():
    content = word_file("<w:p>" + run("one two") + "</w:p>")
    rng = random.Random(5)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(3):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 255, rng.randrange(256)])
        try:
            read_package(bytes(damaged), "docx")
        except MarkupError:
            refused += 1
    assert refused > 1500


def test_line_ends_count_as_tags_do(monkeypatch):
    monkeypatch.setattr(packages, "_MOST_PIECES", 10)
    with pytest.raises(MarkupError, match="14 tags, references and line ends"):
        read_package(archive({"word/document.xml": "<a>" + "&lt;\n" * 6 + "</a>"}), "docx")


def test_an_archive_is_as_large_as_what_is_in_it(monkeypatch):
    monkeypatch.setattr(packages, "LARGEST_UNPACKED", 100)
    with pytest.raises(MarkupError, match="a docx file has at most 100 bytes"):
        read_package(word_file("<w:p/>"), "docx")


def test_a_size_that_is_a_lie_unpacks_no_more():
    content = bytearray(archive({"word/document.xml": "<a>" + " " * 100_000 + "</a>"}))
    directory = content.index(b"PK\x01\x02")
    struct.pack_into("<I", content, directory + 24, 10)
    with pytest.raises(MarkupError, match="not a docx file: Bad CRC-32"):
        read_package(bytes(content), "docx")
