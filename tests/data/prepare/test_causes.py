"""Text that can't be prepared: the error names the cause, the place and what to do."""

import os
from dataclasses import replace

import pytest

from flaxformer_mt.config.schema import CorpusConfig, FilterConfig, VocabularyConfig
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.data.prepare.manifest import PrepareError
from flaxformer_mt.data.vocabulary import VocabularyError
from tests.data.prepare.corpora import GOOD, data_config, prepare, write


@pytest.fixture
def config(tmp_path):
    write(tmp_path / "text", "train", GOOD)
    write(tmp_path / "text", "valid", GOOD[:4])
    return data_config(tmp_path / "text", src_lang="en", tgt_lang="de")


@pytest.mark.parametrize(
    ("language", "line", "encoding"),
    [
        ("de", "Die Tür ist schön", "windows-1252"),
        ("ru", "Собака видит дом", "windows-1251"),
        ("ru", "Собака видит дом", "koi8-r"),
        ("ja", "犬は家を見ています", "shift_jis"),
        ("zh", "狗看见房子", "gb18030"),
        ("zho_Hant", "狗看見房子", "big5"),
        ("jpn", "犬は家を見ています", "shift_jis"),
        ("bul", "Кучето вижда къщата", "windows-1251"),
    ],
)
@pytest.mark.parametrize("split", ["train", "valid"])
def test_another_encoding_stops(config, tmp_path, language, line, encoding, split):
    text = [(f"line {n}", line.encode(encoding) if n % 3 else b"plain") for n in range(30)]
    write(tmp_path / "text", split, text)
    config = replace(config, tgt_lang=language)
    with pytest.raises(PrepareError) as caught:
        prepare(config, directory=tmp_path / "run")
    message = str(caught.value)
    assert f"20 of 30 lines aren't UTF-8, first {tmp_path}/text/{split}.de:2" in message
    assert f"looks like {encoding}" in message and f"iconv -f {encoding} -t UTF-8" in message


def test_a_fifth_of_damaged_lines_is_dropped_and_counted(config, tmp_path):
    write(tmp_path / "text", "train", [*GOOD, *[("bad", b"\xff")] * (len(GOOD) // 4)])
    assert len(prepare(config, directory=tmp_path / "run").train) == len(GOOD)


def test_filters_never_stop_a_run(config, tmp_path):
    write(tmp_path / "text", "train", [*GOOD, *[("same", "same")] * 500, *[GOOD[0]] * 500])
    config = replace(config, filter=FilterConfig(max_length=40, identical=True, duplicates=True))
    assert len(prepare(config, directory=tmp_path / "run").train) == len(GOOD)


@pytest.mark.parametrize("end", [b"\r", b"\r\n"])
def test_lines_that_end_in_carriage_returns_alone(config, tmp_path, end):
    lines = end.join(line.encode() for _, line in GOOD)
    (tmp_path / "text" / "train.de").write_bytes(lines + b"\n")
    if end == b"\r\n":
        assert len(prepare(config, directory=tmp_path / "run").train) == len(GOOD)
        return
    with pytest.raises(CorpusError, match=r"train\.de:1: lines end in carriage returns"):
        prepare(config, directory=tmp_path / "run")


@pytest.mark.parametrize(("language", "told"), [("zh", True), ("el", True), ("nl", False)])
def test_a_language_of_another_script_than_the_text_is_told(config, tmp_path, language, told):
    said: list[str] = []
    write(tmp_path / "text", "valid", GOOD[:20])
    prepare(replace(config, tgt_lang=language), directory=tmp_path / "run", say=said.append)
    warnings = [line for line in said if f"data.tgt_lang is '{language}', but only 0%" in line]
    assert len(warnings) == told, said


def test_one_file_on_both_sides(config, tmp_path):
    os.symlink("train.en", tmp_path / "text" / "link.en")
    corpus = CorpusConfig(name="same", src="train.en", tgt="link.en")
    with pytest.raises(CorpusError, match=r"same\.src and .*same\.tgt name the same file"):
        prepare(replace(config, train=(corpus,)), directory=tmp_path / "run")
    (tmp_path / "text" / "a.jsonl").write_text('{"en": "a"}\n')
    corpus = CorpusConfig(name="same", kind="jsonl", path="a.jsonl", src="en", tgt="en")
    with pytest.raises(CorpusError, match="name the same key, 'en'"):
        prepare(replace(config, train=(corpus,)), directory=tmp_path / "run")


def test_a_file_that_is_not_parquet(config, tmp_path):
    (tmp_path / "text" / "a.parquet").write_text("a,b\n" * 9)
    wrong = CorpusConfig(name="a", kind="hf", path="a.parquet", src="en", tgt="de")
    with pytest.raises(CorpusError, match=r"a\.parquet: .*parquet"):
        prepare(replace(config, train=(wrong,)), directory=tmp_path / "run")


@pytest.mark.parametrize("kind", ["hf", "array_record"])
def test_a_pipe_among_matching_files(config, tmp_path, kind):
    os.mkfifo(tmp_path / "text" / "a.data")
    piped = CorpusConfig(name="a", kind=kind, path="*.data", src="en", tgt="de")
    with pytest.raises(CorpusError, match=r"a\.data is a pipe or a device"):
        prepare(replace(config, train=(piped,)), directory=tmp_path / "run")


@pytest.mark.parametrize("name", ["data", "vocabulary", "data.partial"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_where_a_folder_is_made(config, tmp_path, monkeypatch, name, exists):
    """Said before anything is encoded."""
    monkeypatch.setattr("flaxformer_mt.data.prepare.make.check_inputs", None)
    (tmp_path / "run").mkdir()
    if exists:
        (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "run" / name)
    with pytest.raises(PrepareError, match=rf"run/{name}: is a link"):
        prepare(config, directory=tmp_path / "run")


def test_a_size_that_was_chosen_gives_way(config, tmp_path):
    """To text of few types, and to text of many characters."""
    many = [(chr(0x4E00 + n) + chr(0x5E00 + n), f"word {n}") for n in range(300)]
    for name, pairs, size, said in (
        ("few", [("open the door", "mach auf")] * 600, 500, "the text yields"),
        ("many", many, 500, "the characters need more"),
    ):
        write(tmp_path / "text", "train", pairs)
        hard = VocabularyConfig(size=size)
        with pytest.raises(VocabularyError):
            prepare(replace(config, vocabulary=hard), directory=tmp_path / "hard")
        lines: list[str] = []
        soft = replace(config, vocabulary=replace(hard, soft_size=True))
        prepare(soft, directory=tmp_path / name, say=lines.append)
        [line] = [line for line in lines if "were chosen for the number of pairs" in line]
        assert said in line
        # What decides nothing about the store may differ.
        prepare(replace(soft, vocabulary=hard), directory=tmp_path / name)
