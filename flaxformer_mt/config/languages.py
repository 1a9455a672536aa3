"""Languages and their scripts; a config's two, or those of file names such as `train.en.gz`."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from flaxformer_mt.config.schema import DataConfig

# ISO 639 codes of languages by the script they are usually written in.
_LANGUAGES = {
    "Latn": """
        aa af ak an ast ay az bi bm br bs ca ceb ch co crh cs cy da de ee en eo es et eu ff fi fil
        fj fo fr fy ga gd gl gn gsw gv ha haw hmn ho hr ht hu hz ia id ie ig ik ilo io is it jv kg
        ki kj kl kmr kr ku kw la lb lg li ln lt lu lv mg mh mi ms mt na nb nd nds ng nl nn no nr nso
        nv ny oc om pl pt qu rm rn ro rw sc se sg sk sl sm sn so sq ss st su sv sw szl tk tl tn to
        tpi tr ts tw ty uz ve vi vo wa war wo xh yo za zu
    """,
    "Cyrl": "ab av ba be bg ce cv kk kv ky mk mn os ru sah sr tg tt tyv udm uk",
    "Arab": "ar arz azb bal ckb fa pnb prs ps sd ug ur",
    "Deva": "awa bho hi mai mr ne sa",
    "Beng": "as bn",
    "Hebr": "he iw yi",
    "Grek": "el grc",
    "Armn": "hy",
    "Geor": "ka",
    "Guru": "pa",
    "Gujr": "gu",
    "Orya": "or",
    "Taml": "ta",
    "Telu": "te",
    "Knda": "kn",
    "Mlym": "ml",
    "Sinh": "si",
    "Thaa": "dv",
    "Thai": "th",
    "Laoo": "lo",
    "Tibt": "bo dz",
    "Mymr": "my shn",
    "Ethi": "am ti",
    "Khmr": "km",
    "Jpan": "ja",
    "Kore": "ko",
    "Hani": "lzh wuu yue zh",
    "": "ae bh cr cu ii iu ks oj pi",  # in none that the filter knows
}
SCRIPT_OF = {code: script for script, codes in _LANGUAGES.items() for code in codes.split()}
# Three-letter codes are only in configs: `tok`, `src` and `tgt` are such.
_ISO_639_1 = {code for code in SCRIPT_OF if len(code) == 2}
_CODE = re.compile(r"(?:.*?[./])?(([a-z]{2})(?:[-_][A-Za-z]{2,4})?)(?:\.txt)?(?:\.(?:gz|xz|zst))?")
_DEFAULTS = {"src": "en", "tgt": "de"}  # the built-in grammar's


def many_characters(*languages: str) -> bool:
    """Whether one of these languages is written with thousands of characters."""
    codes = (re.split("[-_]", language)[0].lower() for language in languages)
    return any(SCRIPT_OF.get(code) in ("Hani", "Jpan") for code in codes)


def with_languages(data: DataConfig) -> DataConfig:
    """`data` with its empty languages, as far as its files tell."""
    found = {side: _endings(data, side) for side in _DEFAULTS}
    named: dict[str, Any] = {}
    for side, default in _DEFAULTS.items():
        codes = [code for code, _ in found[side].values()]
        if not any(found.values()):
            codes = [default]
        if not getattr(data, f"{side}_lang") and len(codes) == 1:
            named[f"{side}_lang"] = codes[0]
    return dataclasses.replace(data, **named)


def undecided(data: DataConfig) -> Iterator[str]:
    """A language that `with_languages` couldn't tell."""
    for side in _DEFAULTS:
        if not getattr(data, f"{side}_lang"):
            files = " and ".join(where for _, where in _endings(data, side).values())
            why = f"{files} name different languages" if files else "no file name shows it"
            yield f"'data.{side}_lang' must be set: {why}"


def contradicted(data: DataConfig) -> Iterator[str]:
    """A language that all files' endings contradict."""
    for side in _DEFAULTS:
        said, found = getattr(data, f"{side}_lang"), _endings(data, side)
        language = re.split("[-_]", said)[0]
        if found and language in _ISO_639_1 and language not in found:
            code, where = next(iter(found.values()))
            where += f" ends in '{code}': set data.{side}_lang={code}, or rename the file"
            yield f"'data.{side}_lang' = '{said}', but {where}"


def _endings(data: DataConfig, side: str) -> dict[str, tuple[str, str]]:
    """Language -> its code in the first file, maybe with a region, and that file."""
    found: dict[str, tuple[str, str]] = {}
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    for key, corpus in {**corpora, "data.valid": data.valid}.items():
        name, both = getattr(corpus, side), corpus.src and corpus.tgt
        if both and (match := _CODE.fullmatch(name)) and match[2] in _ISO_639_1:
            found.setdefault(match[2], (match[1], f"'{key}.{side}' = '{name}'"))
    return found


# Three-letter codes of languages that have rules of their own, here or in sacreBLEU.
_SHORT_CODES = {
    **{"deu": "de", "ger": "de", "eng": "en", "fra": "fr", "fre": "fr"},
    **{"zho": "zh", "chi": "zh", "cmn": "zh", "jpn": "ja", "kor": "ko", "tha": "th"},
    **{"lao": "lo", "khm": "km", "mya": "my", "bur": "my", "bod": "bo", "tib": "bo", "dzo": "dz"},
}
# ISO 15924 codes: Hans and Hant are Hani's simplified and traditional forms.
_SCRIPTS_WITHOUT_BLANKS = {*"Thai Laoo Tibt Mymr Khmr Jpan Hani Hans Hant".split()}


def base_language(code: str) -> str:
    """The language of a code, without its region or script: `de` of `de_DE`, `zh` of `zho_Hans`."""
    language = re.split("[-_]", code)[0].lower()
    return _SHORT_CODES.get(language, language)


def is_written_without_blanks(code: str) -> bool:
    """Whether text of the language has no blanks between words; a code may name its script."""
    _, *subtags = re.split("[-_]", code)
    scripts = [subtag.capitalize() for subtag in subtags if re.fullmatch("[A-Za-z]{4}", subtag)]
    usual = SCRIPT_OF.get(base_language(code), "")
    return (scripts[0] if scripts else usual) in _SCRIPTS_WITHOUT_BLANKS
