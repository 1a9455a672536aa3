"""The filters by language, as py3langid identifies it, and by characters."""

import dataclasses
import sys
from pathlib import Path

import pytest

from flaxformer_mt.config.schema import DataConfig, FilterConfig, VocabularyConfig
from flaxformer_mt.data.prepare.language_id import in_other_languages, knows
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from tests.data.prepare.corpora import data_config, prepare, write

GOOD = (b"A man is sitting in front of a house.", b"Ein Mann sitzt vor einem Haus.")
PAIRS = [
    GOOD,
    (b"A man is sitting in front of a house.", b"Un homme est assis devant une maison."),
    (b"Der Mann sitzt vor dem Haus und liest.", b"Der Mann sitzt vor dem Haus und liest."),
    (b"Hi!", b"Na!"),  # too short to be sure of anything
    (b"1 2 3 4", b"1 2 3 4"),
    (GOOD[1], GOOD[0]),
]


@pytest.fixture
def run(tmp_path) -> Path:
    return tmp_path / "run"


def config_of(folder: Path, filter: FilterConfig) -> DataConfig:
    vocabulary = VocabularyConfig(size=60, soft_size=True)
    return data_config(folder, src_lang="en", tgt_lang="de", filter=filter, vocabulary=vocabulary)


def places(sentences: list[str], language: str, share: float = 0.1) -> list[int]:
    encoded = [sentence.encode() for sentence in sentences]
    return [other.place for other in in_other_languages(encoded, language, share)]


def test_only_sentences_that_are_surely_in_another_language_are_found():
    sentences = [
        "Two young women are walking along the beach.",
        "Deux jeunes femmes marchent le long de la plage.",
        "Zwei junge Frauen gehen am Strand entlang.",
        "Hello",
        "2024-11-05 10:30",
        "",
    ]
    assert places(sentences, "en") == [1, 2]
    assert places(sentences, "de_AT") == [0, 1]
    assert places(sentences, "fra") == [0, 2]
    [french, _] = in_other_languages([text.encode() for text in sentences], "en", 0.1)
    assert french.language == "fr" and french.share < 0.1
    assert places(sentences, "en", 0.0) == []


def test_languages_of_one_macrolanguage_are_not_told_apart():
    croatian = "Sva ljudska bića rađaju se slobodna i jednaka u dostojanstvu i pravima."
    bokmal = "Alle mennesker er født frie og med samme menneskeverd og menneskerettigheter."
    for language in ("hr", "sr", "bs", "sr-Latn"):
        assert places([croatian], language) == [], language
    for language in ("no", "nb", "nn"):
        assert places([bokmal], language) == [], language
    assert places([croatian], "sl") == places([bokmal], "sv") == [0]
    assert knows("nb") and knows("zho_Hans") and not knows("qqq") and not knows("tlh")


def test_pairs_with_a_side_in_another_language_are_dropped_and_named(tmp_path, run, monkeypatch):
    for split in ("train", "valid"):
        write(tmp_path / "text", split, PAIRS)
    config = config_of(tmp_path / "text", FilterConfig(language=0.1))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "py3langid", None)
        message = r"data\.filter\.language: py3langid is not installed: .*\[langid\]"
        with pytest.raises(PrepareError, match=message):
            prepare(config, directory=run)

    store = prepare(config, directory=run)
    assert len(store.train) == 3 and len(store.valid) == 6
    account = read_manifest(run / "data")["corpora"][0]
    assert account["dropped"] == {"another language": 2, "swapped sides": 1}
    examples = {example["line"]: example["detail"] for example in account["examples"]}
    assert examples[2].startswith("the target looks like 'fr'; 'de' is ")
    assert examples[3].startswith("the source looks like 'de'; 'en' is ")

    swapped = dataclasses.replace(config, src_lang="de", tgt_lang="en")
    with pytest.raises(PrepareError, match=r"data\.src_lang: 'en' then, 'de' now"):
        prepare(swapped, directory=run)
    unknown = dataclasses.replace(config, tgt_lang="tlh")
    with pytest.raises(PrepareError, match=r"data\.tgt_lang = 'tlh': py3langid doesn't know"):
        prepare(unknown, directory=tmp_path / "other")


def test_a_tag_is_no_text_of_another_language(tmp_path, run):
    for split in ("train", "valid"):
        write(tmp_path / "text", split, [GOOD])
    config = config_of(tmp_path / "text", FilterConfig(language=0.5, max_characters=37))
    tagged = tuple(
        dataclasses.replace(corpus, tag="<2de> <très_longue_étiquette_française>")
        for corpus in config.train
    )
    assert len(prepare(dataclasses.replace(config, train=tagged), directory=run).train) == 1


@pytest.mark.parametrize(
    ("settings", "dropped", "detail"),
    [
        ({"max_characters": 6}, {"too many characters": 1}, "4 source and 7 target characters"),
        ({"max_character_ratio": 1.5}, {"character ratio": 1}, "4 source and 7 target characters"),
        ({"max_characters": 7, "max_character_ratio": 1.75}, {}, ""),
    ],
)
def test_pairs_that_are_long_or_uneven_in_characters_are_dropped(
    settings, dropped, detail, tmp_path, run
):
    """In characters, not bytes; blanks at the ends don't count."""
    write(tmp_path / "text", "train", [("äöüß".encode(), "ääää öö".encode()), (b"abc", b"abc ")])
    write(tmp_path / "text", "valid", [(b"abc", b"a")])
    config = config_of(tmp_path / "text", FilterConfig(**settings))
    assert len(prepare(config, directory=run).train) == 2 - len(dropped)
    account = read_manifest(run / "data")["corpora"][0]
    assert account["dropped"] == dropped
    assert [example["detail"] for example in account["examples"]] == [detail] * len(dropped)
