"""JSON objects, in lines and in ArrayRecord shards: keys, nesting, and what is no pair."""

import json

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, open_source, pairs, read_pairs
from tests.data.corpus.conftest import write_shard


def json_lines(folder, data, src="en", tgt="de"):
    (folder / "a.jsonl").write_bytes(data)
    corpus = CorpusConfig(name="a", kind="jsonl", path="a.jsonl", src=src, tgt=tgt)
    drops = Drops()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "EXAMPLES", 100)
        return list(read_pairs(corpus, str(folder), drops=drops)), drops


def of_shards(pattern: str) -> CorpusConfig:
    return CorpusConfig(name="a", kind="array_record", path=pattern, src="en", tgt="de")


def test_keys_may_lead_into_objects_and_what_is_no_pair_is_counted_with_its_reason(tmp_path):
    data = b'{"id": 1, "translation": {"en": "one", "de": "eins"}}\r\n'
    pairs, _ = json_lines(tmp_path, data, "translation.de", "translation.en")
    assert pairs == [Pair(1, "eins", "one")]
    said = {
        b'{"en": "open': "malformed JSON: Unterminated string starting at at character 8",
        b"": "malformed JSON: Expecting value at character 1",
        b"[" * 100_000: "malformed JSON: ",
        b'{"en": "1", "n": ' + b"1" * 5_000 + b', "de": "viel"}': "malformed JSON: ",
        b'["en", "de"]': 'no text under the key: no object with \'en\': ["en", "de"]',
        b'{"en": "no German"}': "no text under the key: no key 'de'; keys there: 'en'",
        b'{"en": 3, "de": "drei"}': "no text under the key: 'en' is 3, not a string",
        b'{"en": null, "de": "nichts"}': "no text under the key: 'en' is null, not a string",
        b'{"en": [], "de": "x"}': "no text under the key: 'en' is [], not a string",
        b'{"en": "half \\ud83d", "de": "halb"}': "invalid UTF-8: half a character, U+D83D, in 'en'",
        b'{"en": "\xff", "de": "Byte"}': "invalid UTF-8: byte 0xFF at byte 9",
        b'{"en": "torn\\napart", "de": "x"}': "control character: U+000A at byte 5 of the source",
        b'{"en": "nul\\u0000", "de": "null"}': "control character: U+0000 at byte 4 of the source",
        b'{"en": " ", "de": "leer"}': "empty side: the source is blank",
    }
    good = '{"en": "a\u0085b\u2028c", "de": "\\ud83d\\ude00"}'.encode()
    read, drops = json_lines(tmp_path, b"\n".join([good, *said, good]))
    assert [pair.line for pair in read] == [1, 16]
    assert read[0][1:] == read[1][1:] == ("a\u0085b\u2028c", "\U0001f600")
    for line, (example, message) in enumerate(zip(drops.examples, said.values(), strict=True), 2):
        assert str(example).startswith(f"{tmp_path / 'a.jsonl'}:{line}: {message}")


def test_a_dot_may_be_part_of_a_key(tmp_path):
    lines = [
        {"translation.en": "one", "translation.de": "eins"},
        {"translation": {"en": "two", "de": "zwei"}},
        {"data": {"translation.en": "x"}, "translation.de": "y", "translation": {"en": "three"}},
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    pairs, _ = json_lines(tmp_path, data, "translation.en", "translation.de")
    assert pairs == [Pair(1, "one", "eins"), Pair(2, "two", "zwei"), Pair(3, "three", "y")]
    (inner,), _ = json_lines(tmp_path, b'{"a.b": {"c.d": "x", "e": "y"}}', "a.b.c.d", "a.b.e")
    assert inner == Pair(1, "x", "y")


def test_white_space_at_the_ends_of_a_text_is_not_content(tmp_path):
    texts = {"en": "\n A dog runs.\r\n", "de": "Ein Hund läuft.\u2028\u00a0\n"}
    pairs, drops = json_lines(tmp_path, json.dumps(texts).encode())
    assert pairs == [Pair(1, "A dog runs.", "Ein Hund läuft.")] and drops.total == 0
    write_shard(tmp_path / "a-0", [json.dumps(texts).encode()])
    assert list(read_pairs(of_shards("a-*"), str(tmp_path))) == pairs
    blank, drops = json_lines(tmp_path, b'{"en": "\\n", "de": "leer\\n"}')
    assert blank == [] and drops.describe() == "1 empty side"


def test_shards_are_read_in_the_order_of_their_names(tmp_path):
    folder = tmp_path / "a[1]*"  # It is no pattern.
    folder.mkdir()
    for number in (2, 0, 1):
        records = [json.dumps({"en": f"{number}.{i}", "de": "x"}).encode() for i in range(3)]
        write_shard(folder / f"a-{number}.array_record", records)
    write_shard(folder / "a-3.array_record", [])
    (folder / "a-4.array_record").mkdir()
    corpus = of_shards("a-*.array_record")
    pairs = list(read_pairs(corpus, str(folder)))
    assert [pair.src for pair in pairs] == [f"{n}.{i}" for n in range(3) for i in range(3)]
    assert [pair.line for pair in pairs] == list(range(1, 10))
    names = [f"a-{number}.array_record" for number in range(4)]
    assert [
        path.name for path in open_source(corpus, str(folder), download=False).files.values()
    ] == names


def test_shards_that_are_missing_or_damaged_are_named(tmp_path):
    with pytest.raises(CorpusError) as caught:
        list(read_pairs(of_shards("b-*"), str(tmp_path), key="data.train.a"))
    assert str(caught.value) == (
        f"data.train.a.path: no file matches {tmp_path / 'b-*'}; set data.train.a.path, or "
        f"data.folder, where relative paths start (now '{tmp_path}')"
    )
    path = tmp_path / "a-1"
    write_shard(tmp_path / "a-0", [b'{"en": "one", "de": "eins"}'])
    write_shard(path, [b'{"en": "%d", "de": "x"}' % number for number in range(3000)])
    data = path.read_bytes()
    place = len(data) // 3
    flipped = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
    for damaged in (data[:-1], b"", b"text\n" * 9000, flipped):
        path.write_bytes(damaged)
        message = rf"^{path}: cannot be read beyond record .*; download it again$"
        with pytest.raises(CorpusError, match=message):
            list(read_pairs(of_shards("a-*"), str(tmp_path)))
