"""Names of languages, and what one model can say about the language of a text."""

from __future__ import annotations

from flaxformer_mt.data.prepare.scripts import count_letters, script_of

# English names of the languages that public parallel corpora have (ISO 639).
_NAMES = """
    af Afrikaans, am Amharic, ar Arabic, as Assamese, ast Asturian, az Azerbaijani, be Belarusian,
    bg Bulgarian, bn Bengali, br Breton, bs Bosnian, ca Catalan, ceb Cebuano, cs Czech, cy Welsh,
    da Danish, de German, el Greek, en English, eo Esperanto, es Spanish, et Estonian, eu Basque,
    fa Persian, fi Finnish, fo Faroese, fr French, fy Western Frisian, ga Irish,
    gd Scottish Gaelic, gl Galician, gu Gujarati, ha Hausa, he Hebrew, hi Hindi, hr Croatian,
    ht Haitian Creole, hu Hungarian, hy Armenian, id Indonesian, ig Igbo, is Icelandic, it Italian,
    ja Japanese, jv Javanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, ku Kurdish,
    ky Kyrgyz, la Latin, lb Luxembourgish, lo Lao, lt Lithuanian, lv Latvian, mg Malagasy,
    mi Maori, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese,
    my Burmese, nb Norwegian Bokmål, nds Low German, ne Nepali, nl Dutch, nn Norwegian Nynorsk,
    no Norwegian, oc Occitan, or Odia, pa Punjabi, pl Polish, ps Pashto, pt Portuguese,
    qu Quechua, ro Romanian, ru Russian, rw Kinyarwanda, sc Sardinian, sd Sindhi, se Northern Sami,
    si Sinhala, sk Slovak, sl Slovenian, sm Samoan, sn Shona, so Somali, sq Albanian, sr Serbian,
    st Southern Sotho, su Sundanese, sv Swedish, sw Swahili, ta Tamil, te Telugu, tg Tajik,
    th Thai, ti Tigrinya, tk Turkmen, tl Tagalog, tn Tswana, tr Turkish, ts Tsonga, tt Tatar,
    ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, vi Vietnamese, wo Wolof, xh Xhosa, yi Yiddish,
    yo Yoruba, zh Chinese, zu Zulu
"""
_NAME_OF = dict(entry.strip().split(" ", 1) for entry in _NAMES.replace("\n", " ").split(","))
# Written from right to left, by script.
_RIGHT_TO_LEFT = {"Arab", "Hebr", "Thaa"}


def language_name(code: str) -> str:
    """The English name, with what the code says beyond the language; the code where unknown."""
    base, separator, rest = code.replace("_", "-").partition("-")
    name = _NAME_OF.get(base.lower())
    if name is None:
        return code
    return f"{name} ({rest})" if separator else name


def direction(code: str) -> str:
    """`ltr` or `rtl`, as HTML's `dir` has it."""
    return "rtl" if script_of(code) in _RIGHT_TO_LEFT else "ltr"


def confidence(text: str, language: str) -> float:
    """How far a text can be in a language at all: the percentage of letters in its script.

    A server with one model knows one source language, so it can rule a text out (Cyrillic letters
    are no English) and not tell English from French. 0 for a text without letters or a language
    whose script is not known.
    """
    script = script_of(language)
    if script is None or not text:
        return 0.0
    (letters,), (of_script,) = count_letters([text.encode("utf-8")], script)
    return round(100.0 * int(of_script) / int(letters), 1) if letters else 0.0
