"""A hand-made bad corpus, at the filters' borders, with the report that it must give."""

import dataclasses
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flaxformer_mt.config.schema import CorpusConfig, DataConfig, VocabularyConfig
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from flaxformer_mt.data.prepare.report import describe
from tests.data.prepare.corpora import ALL_FILTERS, data_config, prepare, write

GOOD = [(f"word {a} of {b}".encode(), f"Wort {a} von {b}".encode()) for a in "uvw" for b in "xyz"]
BAD = [
    (b"word u of x", b"Wort u von x"),  # 1: corpus "good" has it
    (b"\xc3(", b"x"),  # 2
    (b"a bell \x07", b"x"),  # 3
    (" \u200b\u200c\u200d\u2060\ufeff".encode(), b"x"),  # 4: shows nothing
    ("\u2581".encode(), b"word"),  # 5: a blank in disguise
    (b"of", b"of "),  # 6
    ("слово of слово".encode(), b"Wort"),  # 7
    (b"word of", "слово".encode()),  # 8
    (b"of " * 31, b"von"),  # 9: too long before it is too uneven
    (b"of", b"von " * 7),  # 10: 2 to 8 tokens
    (b"of", b"von " * 6),  # 11: 2 to 7 tokens
    (b"of", b"von " * 6),  # 12
    (b"word w of z", b"Wort w von y"),  # 13
    (b"of", b"of"),  # 14
    (b"1 2", b"3"),  # 15: digits are in any script
]
EXPECTED = {
    "duplicate": {1: "the same pair came before", 12: "the same pair came before"},
    "invalid UTF-8": {2: "byte 0xC3 at byte 1"},
    "control character": {3: "U+0007 at byte 8"},
    "empty side": {4: "the source is blank", 5: "the source is blank"},
    "identical sides": dict.fromkeys((6, 14), "source and target are identical"),
    "another script": {
        7: "under 60% of the source's letters are Latn",
        8: "under 60% of the target's letters are Latn",
    },
    "too long": {9: "32 source and 2 target tokens"},
    "length ratio": {10: "2 source and 8 target tokens"},
}


@pytest.fixture
def config(tmp_path):
    return bad_config(tmp_path / "text")


def bad_config(text: Path) -> DataConfig:
    """Trains on GOOD four times and on BAD; BAD is the validation set, too."""
    write(text, "good", GOOD * 4)
    write(text, "bad", BAD)
    return data_config(
        text,
        ("good", "bad"),
        src_lang="en",
        tgt_lang="de",
        valid=CorpusConfig(src="bad.en", tgt="bad.de"),
        # Large enough that every word is one token.
        vocabulary=VocabularyConfig(size=51),
        filter=dataclasses.replace(ALL_FILTERS, max_length=31, max_ratio=3.5, script=0.6),
    )


class Prepared(NamedTuple):
    """The bad corpus, prepared."""

    text: Path
    data: Path
    lines: list[str]
    train_pairs: int
    manifest: dict[str, Any]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    lines: list[str] = []
    config = bad_config(folder / "text")
    store = prepare(config, directory=folder / "run", say=lines.append)
    data = folder / "run" / "data"
    return Prepared(folder / "text", data, lines, len(store.train), read_manifest(data))


def test_good_pairs_are_kept_once(prepared):
    good, _, _ = prepared.manifest["corpora"]
    assert (good["read"], good["kept"], good["dropped"]) == (36, 9, {"duplicate": 27})
    assert [example["line"] for example in good["examples"]] == [10, 11, 12, 13, 14]


def test_each_bad_pair_is_dropped_for_its_reason(prepared):
    assert any("15 pairs read, 3 kept, dropped: " in line for line in prepared.lines)
    _, bad, _ = prepared.manifest["corpora"]
    # Lines 11, 13 and 15 are left.
    assert (bad["read"], bad["kept"]) == (15, 3) and prepared.train_pairs == 9 + 3
    assert bad["dropped"] == {reason: len(details) for reason, details in EXPECTED.items()}
    examples = [
        (example["line"], example["reason"], example["detail"]) for example in bad["examples"]
    ]
    expected = [
        (line, reason, detail)
        for reason, details in EXPECTED.items()
        for line, detail in details.items()
    ]
    assert examples == sorted(expected)


def test_of_validation_only_what_the_model_cannot_take_is_left_out(prepared):
    _, _, valid = prepared.manifest["corpora"]
    counts = {"invalid UTF-8": 1, "control character": 1, "empty side": 2, "too long": 1}
    assert valid["dropped"] == counts
    # What is decoded and scored is all that is text.
    assert len(valid_text(prepared.data)[0]) == 11


def test_the_report_lists_each_reason_with_its_lines(prepared):
    table = describe(prepared.manifest)
    for reason, details in EXPECTED.items():
        rows = [rf"  {reason} +{len(details)}"]
        for line, detail in details.items():
            rows.append(re.escape(f"    {prepared.text}/bad.en:{line}: {detail}"))
        assert re.search("\n".join(rows), table)


def test_examples_are_the_first_lines_of_their_reason(config, tmp_path):
    """Also where a reason has two causes, whose pairs alternate."""
    cyrillic = "слово".encode()
    pairs = [(b"word", cyrillic)] * 2 + [(cyrillic, b"Wort")] * 6 + [(b"word", cyrillic)] * 6
    write(tmp_path / "text", "bad", [*pairs, *GOOD])
    config = dataclasses.replace(config, vocabulary=VocabularyConfig(size=45))
    unknown = dataclasses.replace(config, tgt_lang="xx")
    with pytest.raises(PrepareError) as caught:
        prepare(unknown, directory=tmp_path / "run")
    assert str(caught.value) == (
        "data.tgt_lang = 'xx': its script is unknown: write the code as 'xx-Latn', or set "
        "data.filter.script to 0"
    )
    assert not (tmp_path / "run").exists()
    prepare(dataclasses.replace(config, tgt_lang="xx-Latn"), directory=tmp_path / "run")
    account = read_manifest(tmp_path / "run" / "data")["corpora"][1]
    of_script = [e["line"] for e in account["examples"] if e["reason"] == "another script"]
    assert of_script == [1, 2, 3, 4, 5]
    assert account["dropped"]["another script"] == 14
