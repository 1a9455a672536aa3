"""Two columns of tables: by number or name, with what people's own programs write around them."""

import csv
import json
import re

import pytest

from flaxformer_mt.config import read_config
from flaxformer_mt.config.schema import CorpusConfig, FilterConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, open_source, read_pairs
from flaxformer_mt.data.corpus.text_files import LinePlace
from flaxformer_mt.data.prepare.encode import Chunk, sift
from flaxformer_mt.data.prepare.sample import sound_records

PAIRS = [("I see.", "Ich sehe."), ('He said "no", twice; sorry.', "Er sagte „nein“,\tzweimal.")]


def read(folder, kind, src="", tgt="", *, name="a.txt"):
    """The pairs' texts, and the drops' counts."""
    corpus = CorpusConfig(name="a", kind=kind, path=name, src=src, tgt=tgt)
    drops = Drops()
    pairs = list(read_pairs(corpus, str(folder), drops=drops))
    return [(pair.src, pair.tgt) for pair in pairs], drops


def written(folder, text, *, name="a.txt"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


# As Anki and ManyThings write them: English, another language, whence it came.
ANKI = "Go.\tGeh.\tCC-BY 2.0 (France) Attribution: tatoeba.org #2877272\nHi.\tHallo!\tCC-BY\n"
# As Tatoeba writes pairs: id, text, id, text.
TATOEBA = "\ufeff1276\tLet's try.\t524\tVersuchen wir es!\r\n1277\tI see.\t77\tIch sehe.\r\n"


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        (ANKI, ("1", "2"), [("Go.", "Geh."), ("Hi.", "Hallo!")]),
        (ANKI, ("2", "1"), [("Geh.", "Go."), ("Hallo!", "Hi.")]),
        (TATOEBA, ("2", "4"), [("Let's try.", "Versuchen wir es!"), ("I see.", "Ich sehe.")]),
        ("id\ten\tde\n1\ta\tb\n", ("en", "de"), [("a", "b")]),
        ('de\ten\nb\t"a\n', ("en", "de"), [('"a', "b")]),  # quotation marks are text
    ],
)
def test_columns_of_a_table_of_tabs_have_numbers_or_names(tmp_path, text, columns, expected):
    pairs, drops = read(written(tmp_path, text), "tsv", *columns)
    assert pairs == expected and drops.total == 0


def test_what_a_line_lacks_is_counted_at_its_own_line(tmp_path):
    written(tmp_path, "en\tx\tde\na\t\tb\na\n\t\tb\na\t\tb\tmore\n")
    pairs, drops = read(tmp_path, "tsv", "en", "de")
    assert pairs == [("a", "b")]
    assert [str(example) for example in drops.examples] == [
        f"{tmp_path}/a.txt:3: not two columns: 1 column where the first line has 3",
        f"{tmp_path}/a.txt:4: empty side: the source is blank",
        f"{tmp_path}/a.txt:5: not two columns: 4 columns where the first line has 3",
    ]
    # A test set may not skip pairs, but a header is none.
    written(tmp_path, "en\tde\na\tb\n")
    corpus = CorpusConfig(name="a", kind="tsv", path="a.txt", src="en", tgt="de")
    assert [pair.line for pair in read_pairs(corpus, str(tmp_path))] == [2]


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        (
            "tsv",
            ("en", "fr"),
            r"a\.txt:1: has no column 'fr'; there: 'en', 'de', 'de'; or give",
        ),
        ("tsv", ("en", "de"), r"a\.txt:1: has several columns 'de': give"),
        ("tsv", ("0", "1"), r"a\.txt: columns are numbered from 1"),
        ("tsv", ("1", "1"), "name the same key, '1'"),
        ("csv", ("fr", "en"), r"a\.txt:1: has no column 'fr'; there: 'en\\tde\\tde'; or give"),
        ("csv", ("", ""), "src is not set: a corpus of kind 'csv' needs it"),
    ],
)
def test_a_column_that_is_not_there_is_an_error(tmp_path, kind, columns, message):
    written(tmp_path, "en\tde\tde\na\tb\tc\n")
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, kind, *columns)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("columns", [("en", "de"), ("2", "3")])
def test_values_in_quotation_marks_are_read_as_they_were_written(tmp_path, delimiter, columns):
    with open(tmp_path / "a.txt", "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if columns == ("en", "de"):
            writer.writerow(["id", "en", "de"])
        writer.writerows([number, *pair] for number, pair in enumerate(PAIRS))
    pairs, drops = read(tmp_path, "csv", *columns)
    assert pairs == PAIRS and drops.describe(leaving_out={"header line"}) == ""


def test_malformed_values_are_counted_at_their_lines_and_the_rest_is_read(tmp_path):
    text = b'en,de\na,b\n"a"x,b\n"two\nor\nthree",b\n\xff,b\n"c, d",e\nalone\n\n'
    text += b'5" pipe,Rohr\n"open,b\n'
    written(tmp_path, text + b"f,g\n" * 300 + b'h,"i"\n')
    pairs, drops = read(tmp_path, "csv", "en", "de")
    assert pairs == [
        ("a", "b"),
        ("c, d", "e"),
        ('5" pipe', "Rohr"),
        *[("f", "g")] * 300,
        ("h", "i"),
    ]
    assert drops.counts == {
        "malformed CSV": 2,
        "line end in a value": 3,
        "invalid UTF-8": 1,
        "not two columns": 2,
    }
    assert [str(example).removeprefix(f"{tmp_path}/") for example in drops.examples] == [
        "a.txt:3: malformed CSV: ',' expected after '\"'",
        *(f"a.txt:{n}: line end in a value: a value spans 3 lines" for n in (4, 5, 6)),
        "a.txt:7: invalid UTF-8: byte 0xFF at byte 1 of the source column",
        "a.txt:9: not two columns: 1 column where the first line has 2",
        "a.txt:10: not two columns: 0 columns where the first line has 2",
        "a.txt:12: malformed CSV: unexpected end of data",
    ]


def test_what_separates_values_shows_in_many_lines(tmp_path):
    lines = ["1;Hello, you;Hallo, du", "2;One;Eins", "3;A, b, c;D"] * 3
    pairs, drops = read(written(tmp_path, "\n".join(lines)), "csv", "2", "3")
    assert pairs[0] == ("Hello, you", "Hallo, du") and drops.total == 0 and len(pairs) == 9
    with pytest.raises(CorpusError, match="',' or ';' may separate its values: write names of col"):
        read(written(tmp_path, "1;Hello, you;Hallo, du\n"), "csv", "2", "3")


def test_rows_of_another_length_and_odd_headers(tmp_path):
    written(
        tmp_path, 'en,de,"notes\n(internal)"\nHello, you,Hallo, du\n"Bye, all", "Tschüss, du",\n'
    )
    pairs, drops = read(tmp_path, "csv", "en", "de")
    assert pairs == [("Bye, all", "Tschüss, du")]
    (defect,) = drops.examples
    assert defect.line == 3 and defect.detail == "4 columns where the first line has 3"
    pairs, _ = read(written(tmp_path, f"a,b\n{'x' * 200_000},y\n"), "csv", "a", "b")
    assert len(pairs[0][0]) == 200_000


def test_a_header_is_no_pair(tmp_path):
    """Neither read nor dropped."""
    written(tmp_path, "en\tde\nthe cat\tdie katze\n", name="a.tsv")
    corpus = CorpusConfig(name="a", kind="tsv", path="a.tsv", src="en", tgt="de")
    source = open_source(corpus, str(tmp_path))
    records = list(source.records())
    chunk = Chunk("train", source, 1, records)
    assert sift(chunk, FilterConfig()).read == 1
    assert sift(chunk, FilterConfig()).mask.tolist() == [False, True]
    drops = Drops()
    assert len(list(sound_records(source, drops))) == 1 and drops.total == 0
    assert not source.is_bare_text
    later = source.starting_at({"path": LinePlace(first=1)})  # as another process of `prepare`
    assert list(later.records()) == records[1:] == [(b"the cat", b"die katze")]


@pytest.mark.formats
def test_a_table_of_a_program_that_people_have_is_read(tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame(PAIRS, columns=["en", "de"])
    frame.to_csv(tmp_path / "a.txt")
    assert read(tmp_path, "csv", "en", "de")[0] == PAIRS
    frame.to_csv(tmp_path / "a.txt.bz2", sep=";")
    assert read(tmp_path, "csv", "en", "de", name="a.txt.bz2")[0] == PAIRS
    frame.to_json(tmp_path / "a.txt", orient="records")
    assert read(tmp_path, "jsonl", "en", "de")[0] == PAIRS


OBJECTS = [{"en": src, "t": {"de": tgt.replace("\t", " ")}} for src, tgt in PAIRS]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_of_objects_is_read_as_lines_of_them(tmp_path, indent):
    written(tmp_path, "\ufeff\n " + json.dumps([*OBJECTS, 3], indent=indent) + "\n\n")
    pairs, drops = read(tmp_path, "jsonl", "en", "t.de")
    assert pairs == [(each["en"], each["t"]["de"]) for each in OBJECTS]
    assert [str(example) for example in drops.examples] == [
        f"{tmp_path}/a.txt (entries):3: no text under the key: no object with 'en': 3"
    ]
    corpus = CorpusConfig(name="a", kind="jsonl", path="a.txt", src="en", tgt="t.de")
    assert not open_source(corpus, str(tmp_path)).is_seekable


def test_what_is_no_array_is_an_error_with_its_line(tmp_path):
    written(tmp_path, '[{"en": "a", "de": "b"},\n{"en": "a" "de": "b"}]')
    message = f"^{re.escape(str(tmp_path))}/a.txt:2: is not JSON: Expecting ',' delimiter$"
    with pytest.raises(CorpusError, match=message):
        read(tmp_path, "jsonl", "en", "de")
    written(tmp_path, b'[{"en": "\xff"}]')
    with pytest.raises(CorpusError, match=r"a\.txt: is not JSON: 'utf-8' codec can't decode"):
        read(tmp_path, "jsonl", "en", "de")
    written(tmp_path, '["a", "b"]\n{"en": "a", "de": "b"}\n')  # lines, of which one is an array
    assert read(tmp_path, "jsonl", "en", "de")[0] == [("a", "b")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x.tsv,1,2", "tsv"), ("x.tsv.bz2", "tsv"), ("x.csv.gz,en,de", "csv"),
        ("x.json,en,de", "jsonl"), ("de-en.txt.zip,en,de", "zip"), ("x.jsonl.bz2,en,de", "jsonl"),
    ],
)  # fmt: skip
def test_a_file_s_name_shows_its_kind(text, kind):
    (corpus,) = read_config("files", [f"data.train={text}"]).data.train
    assert corpus.kind == kind and corpus.path == text.split(",")[0]
    assert (corpus.src, corpus.tgt) == tuple(text.split(",")[1:] or ("", ""))
