"""English names of the languages that public parallel corpora have, by ISO 639."""

from collections.abc import Mapping

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
LANGUAGE_NAMES: Mapping[str, str] = dict(
    entry.strip().split(" ", 1) for entry in _NAMES.replace("\n", " ").split(",")
)
