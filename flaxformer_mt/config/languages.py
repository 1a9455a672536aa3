"""The two languages: from the config, or from file names such as `train.en.gz`."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from flaxformer_mt.config.schema import DataConfig

# Three-letter codes are only in configs: `tok`, `src` and `tgt` are such.
_ISO_639_1 = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da
    de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz
    ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln
    lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi
    pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti
    tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()
)
_CODE = re.compile(r"(?:.*?[./])?(([a-z]{2})(?:[-_][A-Za-z]{2,4})?)(?:\.txt)?(?:\.(?:gz|xz|zst))?")
_DEFAULTS = {"src": "en", "tgt": "de"}  # the built-in grammar's


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
