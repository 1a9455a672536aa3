"""Parquet files, as the hub's data sets have them: columns, structs, and what is no pair."""

import pickle
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, open_source, paths, read_pairs

BOTH = pa.struct([("de", pa.string()), ("en", pa.large_string())])


def write(path, rows, kind=BOTH, **more):
    table = pa.table({"id": range(len(rows)), "translation": pa.array(rows, kind), **more})
    pq.write_table(table, path)


def corpus(path="*.parquet", src="translation.en", tgt="translation.de"):
    return CorpusConfig(name="a", kind="hf", path=str(path), src=src, tgt=tgt)


def test_structs_and_columns_are_read_in_the_order_of_the_files(tmp_path):
    for name in ("train-1", "train-0", "valid-0"):
        rows = [{"en": f"{name} {number}", "de": "ä"} for number in range(5000)]
        columns = {"en.x": [str(number) for number in range(5000)], "de": ["z"] * 5000}
        write(tmp_path / f"{name}.parquet", rows, **columns)
    source = open_source(corpus("train-*.parquet"), str(tmp_path))
    assert [path.name for path in source.files.values()] == ["train-0.parquet", "train-1.parquet"]
    records = list(pickle.loads(pickle.dumps(source)).records())
    expected = [f"train-{file} {number}" for file in (0, 1) for number in range(5000)]
    assert records == [(text.encode(), "ä".encode()) for text in expected]
    *_, last = read_pairs(corpus("valid-0.parquet", "en.x", "de"), str(tmp_path))
    assert last == Pair(5000, "4999", "z")


EN, DE = ["one dog runs over the hill", "two"], ["ein Hund läuft über den Berg", "zwei"]


def maps(key: pa.DataType, value: pa.DataType) -> pa.Array:
    rows = [[("en", en), ("de", de)] for en, de in zip(EN, DE, strict=True)]
    return pa.array(rows, pa.map_(key, value))


def objects(kind: pa.DataType) -> pa.Array:
    rows = [f'{{"de": "{de}", "en": "{en}"}}' for en, de in zip(EN, DE, strict=True)]
    return pa.array(rows, pa.json_(kind))


def structs(kind: pa.DataType) -> pa.Array:
    return pa.StructArray.from_arrays([pa.array(EN).cast(kind), pa.array(DE)], ["en", "de"])


REPEATED = pa.dictionary(pa.int8(), pa.large_string())  # pandas' categories


@pytest.mark.parametrize(
    "columns",
    [
        {"translation.en": pa.array(EN, pa.string_view()), "translation.de": pa.array(DE)},
        {"translation.en": pa.array(EN).cast(REPEATED), "translation.de": pa.array(DE)},
        {"translation.en": pa.array(EN).cast(pa.binary()), "translation.de": pa.array(DE)},
        {"translation.en": pa.array(EN).cast(pa.binary_view()), "translation.de": pa.array(DE)},
        {"translation.en": pa.array(EN), "translation": pa.array([{"de": text} for text in DE])},
        {"translation": structs(pa.string_view())},
        {"translation": structs(REPEATED)},
        {"translation": maps(pa.string(), pa.string())},
        {"translation": maps(pa.string_view(), pa.string_view())},
        {"translation": maps(pa.binary(), pa.binary())},  # writers that mark no text
        {"translation": objects(pa.string())},
        {"translation": objects(pa.string_view())},  # read wrongly if it is cast as it is
    ],
    ids=lambda columns: str(pa.table(columns).schema.remove_metadata()).replace("\n", " ")[:60],
)
def test_text_is_read_in_every_form_that_writers_give_it(tmp_path, columns):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    pairs = [pair[1:] for pair in read_pairs(corpus(), str(tmp_path))]
    assert pairs == [*zip(EN, DE, strict=True)]


def test_a_row_of_maps_or_objects_that_lacks_a_text_is_counted(tmp_path):
    rows = ['{"en": "one", "de": "eins"}', None, '{"en": "no German"}', '{"en": 3, "de": "x"}', "["]
    pq.write_table(pa.table({"translation": pa.array(rows, pa.json_())}), tmp_path / "a.parquet")
    pairs = pa.array([[("en", "no German")]], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"translation": pairs}), tmp_path / "b.parquet")
    drops = Drops()
    assert list(read_pairs(corpus(), str(tmp_path), drops=drops)) == [Pair(1, "one", "eins")]
    assert list(map(str, drops.examples)) == [
        "*.parquet:2: no text under the key: 'translation' is null",
        "*.parquet:3: no text under the key: no key 'de'; keys there: 'en'",
        "*.parquet:4: no text under the key: 'en' is 3, not a string",
        "*.parquet:5: malformed JSON: Expecting value at character 2",
        "*.parquet:6: no text under the key: no key 'de'; keys there: 'en'",
    ]


def test_a_bucket_is_read_as_a_folder_is(bucket, tmp_path):
    write(tmp_path / "a.parquet", [{"en": "one", "de": "eins"}])
    bucket.pipe("gs://b/sets/a.parquet", (tmp_path / "a.parquet").read_bytes())
    assert list(read_pairs(corpus("gs://b/sets/*.parquet"))) == [Pair(1, "one", "eins")]


def test_what_is_no_pair_is_counted_with_its_reason(tmp_path):
    rows = [{"en": "one", "de": "eins"}, None, {"en": "no German", "de": None}]
    rows += [{"en": " ", "de": "leer"}, {"en": "a\nb", "de": "x"}, {"en": "two", "de": "zwei"}]
    write(tmp_path / "a.parquet", rows)
    drops = Drops()
    pairs = list(read_pairs(corpus(), str(tmp_path), drops=drops))
    assert pairs == [Pair(1, "one", "eins"), Pair(6, "two", "zwei")]
    assert list(map(str, drops.examples)) == [
        "*.parquet:2: no text under the key: 'translation.en' is null",
        "*.parquet:3: no text under the key: 'translation.de' is null",
        "*.parquet:4: empty side: the source is blank",
        "*.parquet:5: control character: U+000A at byte 2 of the source text",
    ]

    # Parquet promises UTF-8, and nothing holds a writer to it.
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    pq.write_table(pa.table({"en": bad, "de": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"parquet:1: invalid UTF-8: byte 0xFF at byte 1"):
        list(read_pairs(corpus(src="en", tgt="de"), str(tmp_path)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": "en"}, "a.parquet: has no column 'en'; there: 'id', 'translation'"),
        ({"src": "translation.fr"}, "has no column 'translation.fr'; there: 'de', 'en'"),
        (
            {"src": "translation.en.x"},
            "has no column 'translation.en.x': column 'translation.en' holds large_string",
        ),
        ({"src": "id"}, "column 'id' holds int64, not text"),
        ({"src": "translation"}, "not text; use translation.de or similar"),
        ({"path": "*.pq"}, "data.train.a.path: no file matches"),
        ({"path": "hf://datasets/wmt14/*"}, "write hf://datasets/ORG/NAME/PATTERN"),
        ({"path": "hf://datasets/a/b@x y/*"}, "write hf://datasets/ORG/NAME/PATTERN"),
    ],
)
def test_wrong_settings_are_named(tmp_path, change, message):
    write(tmp_path / "a.parquet", [{"en": "one", "de": "eins"}])
    with pytest.raises(CorpusError, match=message):
        list(read_pairs(corpus(**change), str(tmp_path), key="data.train.a"))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (maps(pa.string(), pa.string()), "not text; use translation.KEY, such as translation.en"),
        (objects(pa.string()), "not text; use translation.KEY, such as translation.en"),
        (pa.array([1, 2]).dictionary_encode(), "column 'translation' holds int64, not text"),
    ],
)
def test_a_column_that_holds_no_text_is_named(tmp_path, column, message):
    table = pa.table({"translation": column, "de": pa.array(["x"] * len(column))})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=message):
        list(read_pairs(corpus(src="translation", tgt="de"), str(tmp_path)))


@pytest.mark.parametrize("place", [0.0, 0.5, 1.0], ids=str)
def test_a_damaged_file_is_named(tmp_path, place):
    path = tmp_path / "a.parquet"
    write(path, [{"en": f"{number}", "de": "x"} for number in range(20000)])
    content = path.read_bytes()
    path.write_bytes(content[: int(place * (len(content) - 4))])
    with pytest.raises(CorpusError, match=f"^{path}: cannot be read as parquet: .*write it again$"):
        list(read_pairs(corpus(), str(tmp_path)))


def test_a_file_is_streamed_even_if_it_is_one_group_of_rows(tmp_path, monkeypatch):
    draw = random.Random(0).randbytes
    rows = [{"en": draw(200).hex(), "de": "x"} for _ in range(20_000)]
    write(tmp_path / "a.parquet", rows)
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 1
    opened = []
    plain = paths.open_binary
    monkeypatch.setattr(paths, "open_binary", lambda path: opened.append(plain(path)) or opened[-1])
    records = open_source(corpus(), str(tmp_path)).records()
    assert next(records)[0] == rows[0]["en"].encode()
    assert opened[0].tell() < 0.5 * (tmp_path / "a.parquet").stat().st_size
    assert sum(1 for _ in records) == len(rows) - 1
