"""Guesses how text is encoded that isn't UTF-8, for an error's advice."""

from collections.abc import Sequence

# By the script of the language; where several fit, the first with the most letters of words.
_BY_SCRIPT = {
    "Cyrl": ("windows-1251", "koi8-r"),
    "Grek": ("iso-8859-7",),
    "Hebr": ("windows-1255",),
    "Arab": ("windows-1256",),
    "Thai": ("tis-620",),
    "Jpan": ("shift_jis", "euc-jp"),
    "Hani": ("gb18030", "big5"),
    "Hans": ("gb18030",),
    "Hant": ("big5", "gb18030"),
    "Kore": ("euc-kr",),
}
_OTHERS = ("windows-1252",)  # Latin-1 and the characters that Windows adds


def likely_encoding(texts: Sequence[bytes], script: str) -> str:
    """The likeliest encoding, by iconv's names, of texts in a script; "" if none fits them.

    `script` is named as in ISO 15924, such as "Cyrl"; "" if unknown.
    """
    if not texts:
        return ""
    if sum(text.count(0) for text in texts) > sum(map(len, texts)) // 5:
        return "UTF-16"
    best, score = "", -1.0
    for encoding in (*_BY_SCRIPT.get(script, ()), *_OTHERS):
        plausible = _plausible(texts, encoding)
        if plausible > score:
            best, score = encoding, plausible
    return best


def _plausible(texts: Sequence[bytes], encoding: str) -> float:
    """The share of characters beyond ASCII that are letters of usual case; -1 if it can't be."""
    try:
        decoded = "\n".join(text.decode(encoding) for text in texts)
    except UnicodeDecodeError:
        return -1.0
    plausible = 0
    beyond_ascii = 0
    before = " "
    for character in decoded:
        if not character.isascii():
            beyond_ascii += 1
            # In words of the right encoding, capitals don't follow small letters.
            plausible += character.isalpha() and not (character.isupper() and before.islower())
        before = character
    return plausible / max(1, beyond_ascii)
