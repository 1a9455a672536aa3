"""Scripts of languages, and how many letters of a sentence are in one.

Script names are those of ISO 15924. Ranges follow the blocks of the Unicode Standard; a character
that several scripts share, such as the Arabic tatweel, counts for the block it stands in.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from jaxtyping import Integer, UInt8

_RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "Latn": (
        *((0x0041, 0x02FF), (0x1D00, 0x1DBF), (0x1E00, 0x1EFF), (0x2071, 0x209C), (0x2C60, 0x2C7F)),
        *((0xA720, 0xA7FF), (0xAB30, 0xAB6F), (0xFB00, 0xFB06), (0xFF21, 0xFF5A)),
    ),
    "Grek": ((0x0370, 0x03FF), (0x1F00, 0x1FFF)),
    "Cyrl": ((0x0400, 0x052F), (0x1C80, 0x1C8F), (0x2DE0, 0x2DFF), (0xA640, 0xA69F)),
    "Armn": ((0x0530, 0x058F), (0xFB13, 0xFB17)),
    "Hebr": ((0x0590, 0x05FF), (0xFB1D, 0xFB4F)),
    "Arab": (
        *((0x0600, 0x06FF), (0x0750, 0x077F), (0x0870, 0x08FF)),
        *((0xFB50, 0xFDFF), (0xFE70, 0xFEFE)),
    ),
    "Thaa": ((0x0780, 0x07BF),),
    "Deva": ((0x0900, 0x097F), (0xA8E0, 0xA8FF)),
    "Beng": ((0x0980, 0x09FF),),
    "Guru": ((0x0A00, 0x0A7F),),
    "Gujr": ((0x0A80, 0x0AFF),),
    "Orya": ((0x0B00, 0x0B7F),),
    "Taml": ((0x0B80, 0x0BFF),),
    "Telu": ((0x0C00, 0x0C7F),),
    "Knda": ((0x0C80, 0x0CFF),),
    "Mlym": ((0x0D00, 0x0D7F),),
    "Sinh": ((0x0D80, 0x0DFF),),
    "Thai": ((0x0E00, 0x0E7F),),
    "Laoo": ((0x0E80, 0x0EFF),),
    "Tibt": ((0x0F00, 0x0FFF),),
    "Mymr": ((0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),
    "Geor": ((0x10A0, 0x10FF), (0x1C90, 0x1CBF), (0x2D00, 0x2D2F)),
    "Ethi": ((0x1200, 0x139F), (0x2D80, 0x2DDF), (0xAB00, 0xAB2F)),
    "Khmr": ((0x1780, 0x17FF),),
    "Mong": ((0x1800, 0x18AF),),
    "Hang": ((0x1100, 0x11FF), (0x3130, 0x318F), (0xA960, 0xA97F), (0xAC00, 0xD7FF)),
    "Kana": ((0x3040, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)),
    "Hani": (
        (0x3005, 0x3007),
        (0x3400, 0x4DBF),
        (0x4E00, 0x9FFF),
        (0xF900, 0xFAFF),
        (0x20000, 0x3FFFF),
    ),
}
# Scripts that are written together.
_MIXED = {
    "Jpan": ("Hani", "Kana"),
    "Kore": ("Hang", "Hani"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
}
# ISO 639 codes of languages by the script they are usually written in.
_LANGUAGES = {
    "Latn": """
        af ast az bs br bm ca ceb co crh cs cy da de ee en eo es et eu fi fil fo fr fy ga gd gl gn
        gsw ha haw hmn hr ht hu id ig ilo is it jv kl kmr ku la lb lg li ln lt lv mg mi ms mt nb nds
        nl nn no nso ny oc om pl pt qu rm rn ro rw sc se sk sl sm sn so sq ss st su sv sw szl tk
        tl tn to tpi tr ts uz vi vo wa war wo xh yo zu
    """,
    "Cyrl": "ab av ba be bg ce cv kk ky mk mn os ru sah sr tg tt tyv udm uk",
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
}
_SCRIPT_OF = {code: script for script, codes in _LANGUAGES.items() for code in codes.split()}


def script_of(language: str) -> str | None:
    """The script of a language code, None if it is not known.

    A code may name its script: "sr-Latn" and "zh_Hant" are in Latin and Han characters.
    """
    code, *subtags = re.split("[-_]", language)
    for subtag in subtags:
        if (script := subtag.capitalize()) in _RANGES or script in _MIXED:
            return script
    return _SCRIPT_OF.get(code.lower())


def count_letters(
    sentences: Sequence[bytes], script: str
) -> tuple[Integer[np.ndarray, " sentences"], Integer[np.ndarray, " sentences"]]:
    """How many letters each UTF-8 sentence has, and how many of them in `script`."""
    # One flat array of code points: a look at every character in Python takes longer than to
    # encode the sentence.
    texts = [sentence.decode("utf-8") for sentence in sentences]
    points = np.frombuffer("\n".join([*texts, ""]).encode("utf-32-le"), np.uint32)
    kinds = _kinds(script)[points]
    ends = np.cumsum([len(text) + 1 for text in texts])
    starts = np.concatenate(([0], ends[:-1]))
    letters = np.add.reduceat(kinds != 0, starts, dtype=np.int64)
    return letters, np.add.reduceat(kinds == 2, starts, dtype=np.int64)


@functools.cache
def _kinds(script: str) -> UInt8[np.ndarray, " points"]:
    """For every code point: 0 for no letter, 1 for a letter of another script, 2 of this one."""
    kinds = np.fromiter(
        (unicodedata.category(chr(point))[0] == "L" for point in range(0x110000)),
        np.uint8,
        0x110000,
    )
    for part in _MIXED.get(script, (script,)):
        for first, last in _RANGES[part]:
            kinds[first : last + 1] *= 2
    return np.minimum(kinds, 2)
