"""Other codes that clients send for a model's languages: `EN`, `eng` and `en-US` for `en`."""

import re
from collections.abc import Collection, Sequence

from flaxformer_mt.config.languages import base_language

# LibreTranslate's codes, which have no region or script, by those of other programs.
_OF_LIBRETRANSLATE = {
    "zh-hans": "zh",
    "zh-cn": "zh",
    "zh-sg": "zh",
    "zh-hant": "zt",
    "zh-tw": "zt",
    "zh-hk": "zt",
    "zh-mo": "zt",
    "pt-br": "pb",
}
# Former codes; and Norwegian, which means Bokmål where nothing else is said.
_CURRENT = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro", "no": "nb"}
_REGION = re.compile("-([a-z]{2}|[0-9]{3})$")


def known_code(codes: Collection[str], code: str) -> str:
    """That of the model's `codes` which a client means by `code`; `code` itself if none is meant.

    Codes of the same language and script match. A region only decides between several codes of a
    language: `en-US` is `en`, or the only code of English. Traditional Chinese isn't simplified.
    """
    if code in codes:
        return code
    folded_code = _folded(code)
    for known in codes:
        if _folded(known) == folded_code:
            return known
    language = _without_region(folded_code)
    same_language = [known for known in codes if _without_region(_folded(known)) == language]
    plain = [known for known in same_language if _folded(known) == language]
    fitting: Sequence[str] = plain or same_language
    return fitting[0] if len(fitting) == 1 else code


def _folded(code: str) -> str:
    """One spelling for all codes of the same language, script and region."""
    language, *subtags = code.lower().replace("_", "-").split("-")
    language = base_language(language)
    folded = "-".join([_CURRENT.get(language, language), *subtags])
    by_script = _REGION.sub("", folded)  # of "zh-Hans-CN", which phones send
    return _OF_LIBRETRANSLATE.get(folded) or _OF_LIBRETRANSLATE.get(by_script, folded)


def _without_region(folded: str) -> str:
    return "pt" if folded == "pb" else _REGION.sub("", folded)
