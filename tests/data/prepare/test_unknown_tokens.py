"""Unknown tokens are counted on both sides of every split, shown, and warned of."""

import shutil
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from flaxformer_mt.config.schema import FilterConfig
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.data.prepare.report import describe
from flaxformer_mt.data.vocabulary import UNK
from tests.data.pairs import listed
from tests.data.prepare.corpora import GOOD, data_config, prepare, write


@pytest.fixture
def config(tmp_path):
    write(tmp_path / "text", "train", GOOD)
    write(tmp_path / "text", "valid", GOOD[:4])
    config = data_config(tmp_path / "text")
    prepare(config, directory=tmp_path / "first")
    shutil.copytree(tmp_path / "first" / "vocabulary", tmp_path / "run" / "vocabulary")
    return config


class Prepared(NamedTuple):
    """Texts with unknown tokens in the first targets and in a validation source."""

    target_rows: list[list[int]]
    manifest: dict[str, Any]
    warnings: list[str]


@pytest.fixture
def prepared(config, tmp_path):
    russian = [
        (src, "Собака видит дом ." if number < 12 else tgt)
        for number, (src, tgt) in enumerate(GOOD)
    ]
    write(tmp_path / "text", "train", russian)
    write(tmp_path / "text", "valid", [("a 中文 cat", "die Katze"), GOOD[0]])
    lines: list[str] = []
    store = prepare(config, directory=tmp_path / "run", say=lines.append)
    return Prepared(
        listed(store.train, "tgt"),
        read_manifest(tmp_path / "run" / "data"),
        [line for line in lines if "are unknown to" in line],
    )


def test_the_unknown_are_counted_with_examples(prepared):
    train, valid = (account["unknown"] for account in prepared.manifest["corpora"])
    rows = prepared.target_rows
    unknown = sum(row.count(UNK) for row in rows)
    assert unknown > 12
    assert (train["tgt"]["unknown"], train["tgt"]["tokens"]) == (unknown, sum(map(len, rows)))
    assert train["src"]["unknown"] == 0
    example = train["tgt"]["examples"][0]
    assert example["line"] == 1 and example["file"].endswith("train.de")
    assert "Собака".startswith(example["text"])
    assert valid["src"]["unknown"] == 1 and valid["src"]["examples"][0]["text"] == "中文"


def test_the_unknown_are_warned_of_and_shown(prepared):
    unknown = sum(row.count(UNK) for row in prepared.target_rows)
    keys = [line.split(":")[2].strip() for line in prepared.warnings]
    assert keys == ["data.train.train", "data.valid"]
    assert f"{unknown:,} of" in prepared.warnings[0] and "train.de:1" in prepared.warnings[0]
    assert "中文" in describe(prepared.manifest)


def test_up_to_one_in_a_hundred_is_no_warning(config, tmp_path):
    write(tmp_path / "text", "train", [*GOOD * 20, ("a € cat", "die Katze")])
    lines: list[str] = []
    prepare(config, directory=tmp_path / "run", say=lines.append)
    manifest = read_manifest(tmp_path / "run" / "data")
    assert manifest["corpora"][0]["unknown"]["src"]["unknown"] == 1
    assert not [line for line in lines if "are unknown to" in line]


def test_a_dropped_duplicate_is_not_counted(config, tmp_path):
    write(tmp_path / "text", "train", [*GOOD, *[("a € cat", "die Katze")] * 5])
    config = replace(config, filter=FilterConfig(max_length=40, duplicates=True))
    prepare(config, directory=tmp_path / "run")
    unknown = read_manifest(tmp_path / "run" / "data")["corpora"][0]["unknown"]["src"]
    assert unknown["unknown"] == 1
    assert [example["line"] for example in unknown["examples"]] == [len(GOOD) + 1]


def test_early_manifests_count_none(config, tmp_path):
    prepare(config, directory=tmp_path / "run")
    manifest = read_manifest(tmp_path / "run" / "data")
    for account in manifest["corpora"]:
        del account["unknown"]
    assert "unknown" not in describe(manifest)
