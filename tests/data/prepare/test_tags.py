"""A corpus's tag is no text: every filter drops with it what it drops without it."""

from dataclasses import replace

import pytest

from flaxformer_mt.config.schema import FilterConfig, VocabularyConfig
from flaxformer_mt.data.prepare.manifest import read_manifest
from tests.data.prepare.corpora import GOOD, data_config, prepare, write

LONG = "the old dog of the baker sees the small house at the end of the street"
FILTERS = {
    "identical": (FilterConfig(identical=True), [("same here", "same here"), ("one", "eins")]),
    "script": (FilterConfig(script=0.5), [("Да.", "Yes."), ("no", "No.")]),
    "max_ratio": (FilterConfig(max_ratio=2.0), [("the cat", " die" * n) for n in range(1, 20)]),
    "duplicates": (FilterConfig(duplicates=True), [GOOD[0], ("new", "neu")]),
    "near_duplicates": (
        FilterConfig(near_duplicates=0.5),
        [(f"{LONG} .", LONG), (f"{LONG} !", LONG), *((f"a {x * 3}", x * 3) for x in "bcdgkl")],
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_drop_the_same_with_a_tag(tmp_path, name):
    setting, pairs = FILTERS[name]
    write(tmp_path / "text", "plain", GOOD)
    write(tmp_path / "text", "tagged", pairs)
    write(tmp_path / "text", "valid", GOOD[:4])
    config = data_config(tmp_path / "text", ("plain", "tagged"), filter=setting)
    config = replace(
        config,
        src_lang="ru" if name == "script" else "en",
        tgt_lang="en",
        vocabulary=VocabularyConfig(size=300, soft_size=True),
        filter=replace(setting, max_length=60),
    )
    if name == "script":
        write(tmp_path / "text", "plain", [("Дом", "House"), *[("Собака", "Dog")] * 9])
    dropped = []
    for tag in ("", "<synthetic-text>"):
        plain, tagged = config.train
        prepare(replace(config, train=(plain, replace(tagged, tag=tag))), directory=tmp_path / tag)
        account = read_manifest(tmp_path / tag / "data")["corpora"][1]
        dropped.append([example["line"] for example in account["examples"]])
    assert dropped[0] == dropped[1]
    assert dropped[0]


def test_a_copy_under_a_tag_is_dropped_whole(tmp_path):
    write(tmp_path / "text", "one", GOOD)
    write(tmp_path / "text", "valid", GOOD[:4])
    config = data_config(tmp_path / "text", ("one",), filter=FilterConfig(duplicates=True))
    copy = replace(config.train[0], name="copy", tag="<bt>")
    prepare(replace(config, train=(*config.train, copy)), directory=tmp_path / "run")
    accounts = read_manifest(tmp_path / "run" / "data")["corpora"]
    assert [account["dropped"] for account in accounts[:2]] == [{}, {"duplicate": len(GOOD)}]


def test_the_model_must_have_room_for_a_tag(tmp_path):
    """The one limit that counts it."""
    write(tmp_path / "text", "train", GOOD)
    write(tmp_path / "text", "valid", GOOD[:4])
    config = data_config(tmp_path / "text")
    store = prepare(config, directory=tmp_path / "plain")
    longest = int(max(store.train.lengths[0].max(), store.train.lengths[1].max()))
    config = replace(config, filter=FilterConfig(max_length=longest))
    tagged = replace(config, train=(replace(config.train[0], tag="<bt>"),))
    store = prepare(tagged, directory=tmp_path / "tagged")
    assert 0 < len(store.train) < len(GOOD)
    assert store.train.lengths[0].max() <= longest


def test_leaves_are_compared_without_a_tag(tmp_path):
    pairs = [(f"the dog {n}", f"(S (NP the dog {n} )NP )S") for n in "abcdefgh"]
    write(tmp_path / "text", "train", pairs)
    write(tmp_path / "text", "valid", pairs[:2])
    config = data_config(tmp_path / "text")
    vocabulary = VocabularyConfig(size=100, soft_size=True, tgt_types="brackets")
    config = replace(config, vocabulary=vocabulary)
    config = replace(config, train=(replace(config.train[0], tag="<wsj>"),))
    assert len(prepare(config, directory=tmp_path / "run").train) == len(pairs)
