"""What is served, and what clients and the page may know about it."""

import dataclasses
from typing import Any

from flaxformer_mt.data.prepare.filters import count_letters, script_of
from flaxformer_mt.serving.settings import ServerSettings

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """What clients may know of the model. Languages are codes such as "en"."""

    src_lang: str
    tgt_lang: str
    name: str  # the experiment's title
    weights: str  # which weights, such as "step 5200"
    beam_size: int
    encoder_layers: int
    decoder_layers: int
    diverse: bool = False  # whether the beam is searched in groups
    codes: frozenset[str] = frozenset()  # language codes that its sources may begin with


def page_settings(model: Model, settings: ServerSettings) -> dict[str, Any]:
    """LibreTranslate's keys; "model" and "limits" are for our page."""
    source, target = (
        {"code": code, "name": language_name(code)} for code in (model.src_lang, model.tgt_lang)
    )
    return {
        "apiKeys": bool(settings.keys),
        "keyRequired": bool(settings.keys),
        "charLimit": settings.max_characters,
        "frontendTimeout": 250,
        "language": {"source": source, "target": target},
        "suggestions": False,
        "supportedFilesFormat": [],
        "model": {
            "name": model.name,
            "weights": model.weights,
            "source_direction": direction(model.src_lang),
            "target_direction": direction(model.tgt_lang),
            "encoder_layers": model.encoder_layers,
            "decoder_layers": model.decoder_layers,
        },
        "limits": {
            "n_best": settings.most_hypotheses(model.beam_size),
            "characters": settings.max_characters,
        },
        "examples": list(settings.examples),
    }


def language_name(code: str) -> str:
    """The English name with the code's other parts, or the code if unknown."""
    base, separator, rest = code.replace("_", "-").partition("-")
    name = _NAME_OF.get(base.lower())
    if name is None:
        return code
    return f"{name} ({rest})" if separator else name


def direction(code: str) -> str:
    """`ltr` or `rtl`, as HTML's `dir` has it."""
    return "rtl" if script_of(code) in _RIGHT_TO_LEFT else "ltr"


def confidence(text: str, language: str) -> float:
    """The percentage of letters in the language's script: 0 for a text without letters or an
    unknown script. It can rule a language out, but not tell English from French."""
    script = script_of(language)
    if script is None or not text:
        return 0.0
    (letters,), (of_script,) = count_letters([text.encode()], script)
    return round(100.0 * int(of_script) / int(letters), 1) if letters else 0.0
