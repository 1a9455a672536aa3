"""Small files of Word and LibreOffice."""

import io
import zipfile

WORD = (
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    "<w:body>{}</w:body></w:document>"
)
OPEN = (
    '<office:document-content xmlns:office="o" xmlns:text="t"><office:body><office:text>{}'
    "</office:text></office:body></office:document-content>"
)


def archive(members: dict[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def word_file(body: str) -> bytes:
    return archive({"[Content_Types].xml": "<Types/>", "word/document.xml": WORD.format(body)})


def open_file_of(body: str) -> bytes:
    mimetype = "application/vnd.oasis.opendocument.text"
    return archive({"mimetype": mimetype, "content.xml": OPEN.format(body)})


def run(text: str, format: str = "") -> str:
    """A run of Word."""
    format = f"<w:rPr>{format}</w:rPr>" * bool(format)
    return f'<w:r>{format}<w:t xml:space="preserve">{text}</w:t></w:r>'
