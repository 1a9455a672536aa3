"""OPUS's archives: two of their files are a corpus."""

import re
import zipfile

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, read_pairs

MEMBERS = {
    "README": "a corpus",
    "LICENSE": "its licence",
    "Books.de-en.en": "one\r\ntwo\nthree",
    "Books.de-en.de": "eins\nzwei\u2028\ndrei\n",
    "Books.de-en.xml": "<xml/>",
}


def read(folder, members=MEMBERS, src="en", tgt="de", method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(folder / "de-en.txt.zip", "w", method) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    corpus = CorpusConfig(name="a", kind="zip", path="de-en.txt.zip", src=src, tgt=tgt)
    return [(pair.src, pair.tgt) for pair in read_pairs(corpus, str(folder))]


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_two_files_of_an_archive_are_a_corpus(tmp_path, method):
    expected = [("one", "eins"), ("two", "zwei\u2028"), ("three", "drei")]
    assert read(tmp_path, method=method) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["de-en.txt.zip"]  # nothing is unpacked


def test_members_may_be_named(tmp_path):
    more = {"__MACOSX/x/._Books.de-en.en": "x", "x/dev.en": "four", "de": "vier"}
    assert read(tmp_path, MEMBERS | more, "x/dev.en", "de") == [("four", "vier")]
    expected = [("one", "eins"), ("two", "zwei\u2028"), ("three", "drei")]
    assert read(tmp_path, MEMBERS | more, "Books.de-en.en", "de-en.de") == expected
    assert read(tmp_path, MEMBERS | {"__MACOSX/x/._Books.de-en.en": "x"}) == expected


@pytest.mark.parametrize(
    ("changes", "sides", "message"),
    [
        ({}, ("en", "fr"), r"has no file whose name ends in \.fr; there: README, LICENSE, Books"),
        (
            {"x/Books.en": ""},
            ("en", "de"),
            r"two names end in \.en: Books\.de-en\.en and x/Books\.en",
        ),
        (
            {"Books.de-en.en": "one\n"},
            ("en", "de"),
            r"en has 1 lines and .*de-en\.de has 3:",
        ),
        ({}, ("en", "en"), "name the same key, 'en'"),
    ],
)
def test_an_archive_without_two_such_files_is_an_error(tmp_path, changes, sides, message):
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, MEMBERS | changes, *sides)


def test_a_damaged_archive_is_an_error_and_not_a_shorter_corpus(tmp_path):
    many = {"a.en": "line\n" * 90_000, "a.de": "zeile\n" * 90_000}
    assert len(read(tmp_path, many, method=zipfile.ZIP_STORED)) == 90_000
    path = tmp_path / "de-en.txt.zip"
    content = path.read_bytes()
    corpus = CorpusConfig(name="a", kind="zip", path=path.name, src="en", tgt="de")
    for damaged, message in (
        (content.replace(b"line\nline\n", b"lime\nline\n", 1), "Bad CRC-32"),
        (content[:1000], "File is not a zip file"),
        (b"", "File is not a zip file"),
    ):
        path.write_bytes(damaged)
        message = f"^{re.escape(str(path))}: cannot be read beyond line .*: {message}"
        with pytest.raises(CorpusError, match=message):
            list(read_pairs(corpus, str(tmp_path)))
