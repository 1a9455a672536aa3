"""JSON objects, in lines and in ArrayRecord shards: keys, nesting, and what is no pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, Drops, Pair, files, read_pairs
from tests.data.corpus.conftest import write_shard


def json_lines(
    folder: Path, data: bytes, src: str = "en", tgt: str = "de"
) -> tuple[list[Pair], Drops]:
    (folder / "a.jsonl").write_bytes(data)
    corpus = CorpusConfig(name="a", kind="jsonl", path="a.jsonl", src=src, tgt=tgt)
    drops = Drops(examples_per_reason=100)
    return list(read_pairs(corpus, str(folder), drops=drops)), drops


def of_shards(pattern: str) -> CorpusConfig:
    return CorpusConfig(name="a", kind="array_record", path=pattern, src="en", tgt="de")


def test_keys_may_lead_into_objects_and_name_the_direction(tmp_path: Path) -> None:
    data = b'{"id": 1, "translation": {"en": "one", "de": "eins"}}\r\n'
    pairs, _ = json_lines(tmp_path, data, "translation.de", "translation.en")
    assert pairs == [Pair(1, "eins", "one")]


def test_what_is_no_pair_is_counted_with_its_reason(tmp_path: Path) -> None:
    lines = [
        b'{"en": "good", "de": "gut"}',
        b'{"en": "open',
        b"",
        b'["en", "de"]',
        b'{"en": "no German"}',
        b'{"en": 3, "de": "drei"}',
        b'{"en": null, "de": "nichts"}',
        b'{"en": {"text": "x"}, "de": "tief"}',
        b'{"en": "half \\ud83d", "de": "halb"}',
        b'{"en": "\xff", "de": "Byte"}',
        b'{"en": "torn\\napart", "de": "zerrissen"}',
        b'{"en": "nul\\u0000", "de": "null"}',
        b'{"en": " ", "de": "leer"}',
        b"[" * 100_000,
        b'{"en": "' + b"1" * 10 + b'", "n": ' + b"1" * 5_000 + b', "de": "viel"}',
        '{"en": "a\u0085b\u2028c", "de": "\\ud83d\\ude00"}'.encode(),
    ]
    pairs, drops = json_lines(tmp_path, b"\n".join(lines))
    assert pairs == [Pair(1, "good", "gut"), Pair(16, "a\u0085b\u2028c", "\U0001f600")]
    file = tmp_path / "a.jsonl"
    found = [str(example).removeprefix(f"{file}:") for example in drops.examples]
    assert found[:12] == [
        "2: malformed JSON: Unterminated string starting at at character 8",
        "3: malformed JSON: Expecting value at character 1",
        "4: no text under the key: no object to look for 'en' in: a list",
        "5: no text under the key: no key 'de'; keys there: 'en'",
        "6: no text under the key: 'en' is a number and not a text",
        "7: no text under the key: 'en' is null and not a text",
        "8: no text under the key: 'en' is an object and not a text",
        "9: invalid UTF-8: half a character, U+D83D, in 'en'",
        "10: invalid UTF-8: byte 0xFF at byte 9",
        "11: control character: U+000A at byte 5 of the source text",
        "12: control character: U+0000 at byte 4 of the source text",
        "13: empty side: the source is blank",
    ]
    assert [line.partition(": ")[2].partition(":")[0] for line in found[12:]] == [
        *("malformed JSON", "malformed JSON")
    ]


def test_shards_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
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
    assert [path.name for path in files(corpus, str(folder)).values()] == names


def test_shards_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        list(read_pairs(of_shards("b-*"), str(tmp_path), key="data.train.a"))
    assert str(caught.value) == (
        f"data.train.a.path: no file matches {tmp_path / 'b-*'}; set data.train.a.path, or "
        f"data.folder, in which relative paths stand (now '{tmp_path}')"
    )
    path = tmp_path / "a-1"
    write_shard(tmp_path / "a-0", [b'{"en": "one", "de": "eins"}'])
    write_shard(path, [b'{"en": "%d", "de": "x"}' % number for number in range(3000)])
    data = path.read_bytes()
    place = len(data) // 3
    flipped = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
    for damaged in (data[:-1], b"", b"text\n" * 9000, flipped):
        path.write_bytes(damaged)
        message = rf"^{path}: cannot be read beyond record .* incomplete: fetch or write it again$"
        with pytest.raises(CorpusError, match=message):
            list(read_pairs(of_shards("a-*"), str(tmp_path)))
