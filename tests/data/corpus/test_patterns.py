"""Corpora of several files that a pattern names: read one after the other, lines by their file."""

import gzip
import json
from dataclasses import replace

import pytest

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import CorpusError, open_sources, read_pairs, weight_of
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from tests.data.pairs import listed
from tests.data.prepare.corpora import GOOD, contents, data_config, prepare, write


def pairs_of(corpus, folder):
    return [(src, tgt) for _, src, tgt in read_pairs(corpus, str(folder))]


def test_two_sides_go_together_by_what_the_wildcards_stand_for(tmp_path):
    for number, pairs in enumerate((GOOD[:2], GOOD[2:5], GOOD[5:6])):
        write(tmp_path, f"part-{number}", pairs)
    corpus = CorpusConfig(name="a", src="part-*.en", tgt="part-*.de")
    assert pairs_of(corpus, tmp_path) == GOOD[:6]
    assert pairs_of(replace(corpus, src="part-[!0].en", tgt="part-[!0].de"), tmp_path) == GOOD[2:6]


def test_tables_and_json_too(tmp_path):
    for number in range(2):
        pairs = GOOD[2 * number : 2 * number + 2]
        with gzip.open(tmp_path / f"{number}.tsv.gz", "wt") as file:
            file.write("".join(f"{src}\t{tgt}\n" for src, tgt in pairs))
        lines = [json.dumps({"en": src, "de": tgt}) for src, tgt in pairs]
        (tmp_path / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    for corpus in (
        CorpusConfig(name="a", kind="tsv", path="*.tsv.gz"),
        CorpusConfig(name="a", kind="jsonl", path="?.jsonl", src="en", tgt="de"),
    ):
        assert pairs_of(corpus, tmp_path) == GOOD[:4]


def test_a_name_with_brackets_is_a_name(tmp_path):
    write(tmp_path, "text[1]", GOOD[:2])
    write(tmp_path, "text1", GOOD[2:3])
    corpus = CorpusConfig(name="a", src="text[1].en", tgt="text[1].de")
    assert pairs_of(corpus, tmp_path) == GOOD[:2]


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        ("part-*.en", "part-1.de", r"a\.src = 'part-\*\.en' names several files, but a\.tgt = "),
        ("part-*.en", "part-[1].de", r"part-2\.en: has no counterpart among the files of a\.tgt"),
        ("part-*.en", "other-*.de", r"a\.tgt: no file matches .*other-\*\.de"),
    ],
)
def test_sides_that_do_not_go_together_are_named(tmp_path, src, tgt, message):
    for number in (1, 2):
        write(tmp_path, f"part-{number}", GOOD[:2])
    with pytest.raises(CorpusError, match=message):
        open_sources(CorpusConfig(name="a", src=src, tgt=tgt), str(tmp_path))


def of_two_files(text):
    """A corpus of two files, one pair of each with an empty side, and one of one file."""
    write(text, "valid", GOOD[:3])
    write(text, "part-1", [*GOOD[:12], ("", "x")])
    write(text, "part-2", [*GOOD[12:], ("y", "")])
    parts = CorpusConfig(name="parts", src="part-*.en", tgt="part-*.de", weight=1.0)
    other = CorpusConfig(name="other", src="valid.en", tgt="valid.de", weight=3.0)
    return replace(data_config(text, train=()), train=(parts, other))


def test_they_are_one_corpus_whose_lines_are_in_their_files(tmp_path):
    store = prepare(of_two_files(tmp_path / "text"), directory=tmp_path / "run")
    sizes = [(corpus.name, corpus.size, corpus.weight) for corpus in store.train.corpora]
    assert sizes == [("parts", 24, 1.0), ("other", 3, 3.0)]
    assert len(listed(store.train, "src")) == 27
    assert len(valid_text(tmp_path / "run" / "data")[0]) == 3

    account = read_manifest(tmp_path / "run" / "data")["corpora"][0]
    assert (account["key"], account["read"], account["kept"]) == ("data.train.parts", 26, 24)
    places = [
        (example["file"].rpartition("/")[2], example["line"]) for example in account["examples"]
    ]
    assert sorted(places) == [("part-1.en", 13), ("part-2.de", 13)]


def test_a_file_that_comes_later_is_told(tmp_path):
    config = of_two_files(tmp_path / "text")
    prepare(config, directory=tmp_path / "run")
    inputs = read_manifest(tmp_path / "run" / "data")["inputs"]
    keys = [f"data.train.parts.{side}[{number}]" for number in (0, 1) for side in ("src", "tgt")]
    assert [file["key"] for file in inputs][:4] == keys

    prepare(config, directory=tmp_path / "run")  # verifies it
    before = contents(tmp_path / "run")
    write(tmp_path / "text", "part-3", GOOD[:1])
    with pytest.raises(PrepareError, match=r"parts\.src\[2\]: the contents of .*part-3\.en have"):
        prepare(config, directory=tmp_path / "run")
    assert contents(tmp_path / "run") == before


def test_weights_go_together_with_their_sides(tmp_path):
    for number in (1, 2):
        write(tmp_path, f"part-{number}", GOOD[:2])
        (tmp_path / f"part-{number}.w").write_text(f"{number}\n{number}.5\n")
    corpus = CorpusConfig(name="a", src="part-*.en", tgt="part-*.de", pair_weights="part-*.w")
    sources = open_sources(corpus, str(tmp_path))
    weights = [weight_of(record) for source in sources for record in source.records()]
    assert weights == [1, 1.5, 2, 2.5]
    with pytest.raises(CorpusError, match=r"a\.pair_weights = 'part-1\.w' one: use wildcards"):
        open_sources(replace(corpus, pair_weights="part-1.w"), str(tmp_path))
    (tmp_path / "part-2.w").unlink()
    with pytest.raises(CorpusError, match=r"part-2\.en: has no counterpart .* a\.pair_weights"):
        open_sources(corpus, str(tmp_path))
