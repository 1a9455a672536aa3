"""Which of sacreBLEU's tokenisations a target language gets, and that a run keeps it."""

import dataclasses

import pytest
from sacrebleu.metrics.bleu import BLEU

from flaxformer_mt.api.settings import continued, created, settled
from flaxformer_mt.config import DataConfig, read_config, to_dict, tokenizers
from flaxformer_mt.config.languages import (
    base_language,
    is_written_without_blanks,
    target_language_of,
)
from flaxformer_mt.config.tokenizers import tokenizer_for, validation_tokenizer
from flaxformer_mt.rundir.layout import RunDirectory, create


@pytest.fixture
def mecab(monkeypatch):
    """Whether MeCab's dictionaries are installed."""

    def is_there(installed: bool) -> None:
        find = (lambda name: object()) if installed else (lambda name: None)
        monkeypatch.setattr(tokenizers.importlib.util, "find_spec", find)

    return is_there


def test_sacrebleu_s_choice_is_kept_where_it_has_one(mecab):
    mecab(True)
    ours = {code: tokenizer_for(code).tokenizer for code in ("zh", "ja", "ko", "de", "fr", "")}
    theirs = {code: BLEU._TOKENIZER_MAP.get(code, BLEU.TOKENIZER_DEFAULT) for code in ours}
    assert ours == theirs


@pytest.mark.parametrize(
    ("codes", "tokenizer"),
    [
        ("zh zh-CN zh_TW ZH zho_Hans zho_Hant cmn", "zh"),
        ("ja ja_JP jpn_Jpan th tha_Thai th-TH km lo my bo dz yue yue_Hant wuu lzh shn", "char"),
        ("ko ko-KR kor_Hang de de_AT fr en ru hi he ar vi zh_Latn", "13a"),
    ],
)
def test_text_without_blanks_is_scored_by_characters(codes, tokenizer, mecab):
    mecab(False)
    assert {code: tokenizer_for(code).tokenizer for code in codes.split()} == dict.fromkeys(
        codes.split(), tokenizer
    )


def test_an_unusual_choice_says_why(mecab):
    mecab(False)
    assert tokenizer_for("de").reason == ""
    assert "'zh', sacreBLEU's choice for zh" in tokenizer_for("zh").reason
    assert 'needs: pip install "sacrebleu[ja]"' in tokenizer_for("ja").reason
    assert "'13a': sacreBLEU's choice for ko, 'ko-mecab'" in tokenizer_for("ko").reason
    assert "since th is written without blanks" in tokenizer_for("th").reason


def test_a_region_or_script_doesn_t_change_the_language():
    codes = "de_DE pt_BR de-AT zh-Hant-TW deu_Latn EN"
    assert [*map(base_language, codes.split())] == ["de", "pt", "de", "zh", "de", "en"]
    assert is_written_without_blanks("yue_Hant")
    assert not is_written_without_blanks("ja_Latn")


def with_target(language: str, **changes: object):
    config = read_config("quickstart", [f"data.tgt_lang={language}"])
    return dataclasses.replace(config, data=dataclasses.replace(config.data, **changes))


def test_a_run_keeps_what_it_began_with(tmp_path, mecab, monkeypatch):
    mecab(False)
    run = RunDirectory(tmp_path / "run")
    config = created(with_target("ko"))
    assert config.data.bleu_tokenizer == "13a"
    create(run.path, to_dict(config), ["train"])
    mecab(True)
    assert created(with_target("ko")).data.bleu_tokenizer == "ko-mecab"
    for steps in ([], [10]):
        monkeypatch.setattr("flaxformer_mt.api.settings.list_steps", lambda _, found=steps: found)
        again, changed = continued(run, with_target("ko"))
        assert (again.data.bleu_tokenizer, changed) == ("13a", {})


def test_a_run_for_another_language_chooses_anew(tmp_path, mecab):
    mecab(False)
    german = RunDirectory(tmp_path / "german")
    create(german.path, to_dict(created(with_target("de"))), ["train"])
    new = RunDirectory(tmp_path / "new")
    overrides = ["data.tgt_lang=th"]
    settings = settled(new, None, overrides, init_from=str(german.path))
    assert created(settings).data.bleu_tokenizer == "char"
    explicit = settled(new, None, [*overrides, "data.bleu_tokenizer=intl"], str(german.path))
    assert created(explicit).data.bleu_tokenizer == "intl"


@pytest.mark.parametrize(
    ("name", "source_name", "language"),
    [
        ("test.zh", "", "zh"),
        ("hyp.zh.tok", "", "zh"),
        ("hyp.zh.detok.out", "", "zh"),
        ("hyp.en-zh", "", "zh"),
        ("out/newstest.de-cs.hyp", "", "cs"),
        ("test.pt-br", "", "pt-br"),
        ("ref.zh-TW.txt", "", "zh-TW"),
        ("zho_Hant.devtest", "", "zh_Hant"),
        ("test.jpn.xz", "", "ja"),
        ("data/zh/test.txt", "data/en/test.txt", "zh"),
        ("test_zh.txt", "test_en.txt", "zh"),
        ("hyp.txt", "", ""),
        ("my_output.txt", "", ""),
    ],
)
def test_names_of_targets_tell_their_language(name, source_name, language):
    assert target_language_of(name, source_name) == language


def test_validation_of_a_run_that_recorded_no_choice_keeps_the_usual_one():
    data = DataConfig(tgt_lang="zh")
    assert data.bleu_tokenizer == "auto" and validation_tokenizer(data) == "13a"
    assert validation_tokenizer(dataclasses.replace(data, bleu_tokenizer="zh")) == "zh"
    assert validation_tokenizer(dataclasses.replace(data, tokenized=True)) == "none"
