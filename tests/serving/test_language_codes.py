"""Which of a model's languages a client means."""

import pytest

from flaxformer_mt.serving.language_codes import known_code


@pytest.mark.parametrize(
    ("code", "codes", "known"),
    [
        ("EN", ["de", "en"], "en"),
        ("en-US", ["de", "en"], "en"),
        ("en_us", ["en_GB", "en"], "en"),
        ("eng", ["en"], "en"),
        ("en", ["eng_Latn"], "en"),
        ("en", ["en_GB"], "en_GB"),
        ("en-US", ["en_GB"], "en_GB"),
        ("en-AU", ["en_GB", "en_US"], "en-AU"),  # neither
        ("es-419", ["es"], "es"),
        ("ger", ["de_DE"], "de_DE"),
        ("zh-Hans", ["zh"], "zh"),
        ("zho", ["zh_Hans"], "zh_Hans"),
        ("zh-Hans-CN", ["zh"], "zh"),
        ("zh-Hant-HK", ["zh", "zt"], "zt"),
        ("zh-Hant-HK", ["zh"], "zh-Hant-HK"),
        ("zh-TW", ["zh"], "zh-TW"),
        ("zh-TW", ["zh", "zh_Hant"], "zh_Hant"),
        ("zt", ["zh_Hant"], "zh_Hant"),
        ("zh", ["zt"], "zh"),
        ("pt-BR", ["pt"], "pt"),
        ("pt-BR", ["pt", "pb"], "pb"),
        ("pt", ["pt", "pb"], "pt"),
        ("iw", ["he"], "he"),
        ("no", ["nb"], "nb"),
        ("nn", ["nb"], "nn"),
        ("sr-Latn", ["sr"], "sr-Latn"),
        ("auto", ["au", "en"], "auto"),
        ("", ["en"], ""),
    ],
)
def test_a_code_means_the_language_that_the_model_has(code, codes, known):
    assert known_code(codes, code) == known
