"""Languages and their scripts; a config's two, or those of names such as `train.en.gz`."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from flaxformer_mt.config.schema import CorpusConfig, DataConfig

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
# ISO 639-2 and 639-3 codes of languages that are in the table by a shorter code; FLORES has those
# of single languages, such as arb for the Arabic of newspapers. Not `ori` and `run`, which names
# of files have for other reasons.
_LONGER = """
    aar:aa abk:ab afr:af aka:ak alb:sq als:sq amh:am ara:ar arb:ar arg:an arm:hy asm:as ava:av
    aym:ay ayr:ay aze:az azj:az bak:ba bam:bm baq:eu bel:be ben:bn bih:bh bis:bi bod:bo bos:bs
    bre:br bul:bg bur:my cat:ca ces:cs cha:ch che:ce chi:zh chv:cv cmn:zh cor:kw cos:co cym:cy
    cze:cs dan:da deu:de div:dv dut:nl dzo:dz ekk:et ell:el eng:en epo:eo est:et eus:eu ewe:ee
    fao:fo fas:fa fij:fj fin:fi fra:fr fre:fr fry:fy ful:ff fuv:ff gaz:om geo:ka ger:de gla:gd
    gle:ga glg:gl glv:gv gre:el grn:gn guj:gu hat:ht hau:ha heb:he her:hz hin:hi hmo:ho hrv:hr
    hun:hu hye:hy ibo:ig ice:is ido:io ile:ie ina:ia ind:id isl:is ita:it jav:jv jpn:ja kal:kl
    kan:kn kas:ks kat:ka kau:kr kaz:kk khk:mn khm:km kik:ki kin:rw kir:ky kom:kv kon:kg kor:ko
    kua:kj kur:ku lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg lvs:lv mac:mk
    mah:mh mal:ml mao:mi mar:mr may:ms mkd:mk mlg:mg mlt:mt mon:mn mri:mi msa:ms mya:my nav:nv
    nbl:nr nde:nd nep:ne nld:nl nno:nn nob:nb nor:no npi:ne nya:ny oci:oc oji:oj orm:om ory:or
    oss:os pan:pa pbt:ps per:fa pes:fa pli:pi plt:mg pol:pl por:pt pus:ps que:qu quy:qu roh:rm
    ron:ro rum:ro rus:ru sag:sg san:sa sin:si slk:sk slo:sk slv:sl sme:se smo:sm sna:sn snd:sd
    som:so sot:st spa:es sqi:sq srd:sc srp:sr ssw:ss sun:su swa:sw swe:sv swh:sw tah:ty tam:ta
    tat:tt tel:te tgk:tg tgl:tl tha:th tib:bo tir:ti ton:to tsn:tn tso:ts tuk:tk tur:tr twi:tw
    uig:ug ukr:uk urd:ur uzb:uz uzn:uz ven:ve vie:vi vol:vo wel:cy wln:wa wol:wo xho:xh ydd:yi
    yid:yi yor:yo zha:za zho:zh zsm:ms zul:zu
"""
_SHORT_CODES = dict(pair.split(":") for pair in _LONGER.split())
# Former codes, and languages that another code includes: either may name the same text.
_SAME = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro"}
_SAME |= {"nb": "no", "nn": "no", "tl": "fil", "ckb": "ku", "kmr": "ku", "prs": "fa", "arz": "ar"}
_SAME |= {"azb": "az", "sh": "sr", "yue": "zh", "wuu": "zh"}
# Hans and Hant are the simplified and the traditional form of Hani.
_SCRIPTS = {*SCRIPT_OF.values(), "Hans", "Hant"} - {""}
_WITHOUT_BLANKS = {*"Thai Laoo Tibt Mymr Khmr Jpan Hani Hans Hant".split()}
# Endings that say nothing of the language: how the text was processed, and the file's form.
_FORMS = "txt text tok tc lc bpe spm sp raw clean norm dedup bak orig gz xz zst bz2 zip".split()
_CODE = re.compile(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{4}))?(?:[-_]([A-Za-z]{2,3}|[0-9]{3}))?")
_WITH_SUBTAGS = "[a-z]{2,3}(?:[-_](?:[A-Z][a-z]{3}|[A-Z]{2}|[0-9]{3}))*"
_PAIR = re.compile(f"({_WITH_SUBTAGS})[-_]({_WITH_SUBTAGS})")
# Regions in small letters that are also codes of languages: no pairs.
_REGIONAL = set(
    """
    af-za am-et ar-ae ar-sa bn-in bs-ba de-be de-ch en-ca en-ie en-in en-za es-ar es-co es-cr es-cu
    et-ee fr-be fr-ca fr-ch ga-ie hi-in hy-am it-ch ko-kr lo-la ms-my nl-be pt-br sl-si sv-se ta-in
    zh-sg zh-tw
    """.split()
)
_DEFAULTS = {"src": "en", "tgt": "de"}  # the built-in grammar's


class _Hint(NamedTuple):
    """What a name tells of a side's language: a code, and whether no other part could be meant."""

    code: str
    where: str
    sure: bool = True


def base_language(code: str) -> str:
    """The language of a code, without region or script: `de` of `de_DE`, `zh` of `zho_Hans`."""
    language = re.split("[-_]", code)[0].lower()
    return _SHORT_CODES.get(language, language)


def written_script(code: str) -> str:
    """The script that a code names (`Latn` of `sr_Latn`), else its language's usual one, by ISO
    15924; empty if unknown."""
    _, *subtags = re.split("[-_]", code)
    scripts = [subtag.capitalize() for subtag in subtags if re.fullmatch("[A-Za-z]{4}", subtag)]
    return scripts[0] if scripts else SCRIPT_OF.get(base_language(code), "")


def is_written_without_blanks(code: str) -> bool:
    """Whether text of the language has no blanks between words; a code may name its script."""
    return written_script(code) in _WITHOUT_BLANKS


def language_pair(text: str) -> tuple[str, str] | None:
    """The two known languages that a text such as `en-de`, `fra-eng` or `en-pt_BR` joins."""
    match = _PAIR.fullmatch(text)
    if match is None or not all(base_language(code) in SCRIPT_OF for code in match.groups()):
        return None
    return match[1], match[2]


def target_language_of(name: str, source_name: str = "") -> str:
    """The target language that the name of a file of targets tells, as training reads names.

    `source_name`, of the file of sources, makes more parts of the name tell. A pair such as `en-zh`
    tells it too. Empty if nothing does.
    """
    if told := _told(name, source_name):
        code, _ = told
        return code
    pair = _pair_in(name)
    return pair[1] if pair else ""


def with_languages(data: DataConfig) -> DataConfig:
    """`data` with its empty languages, as far as the names of its text tell."""
    found = {side: _hints(data, side) for side in _DEFAULTS}
    named: dict[str, Any] = {}
    for side, default in _DEFAULTS.items():
        codes = [hint.code for hint in found[side].values()]
        if not any(found.values()):
            codes = [default]
        if not getattr(data, f"{side}_lang") and len(codes) == 1:
            named[f"{side}_lang"] = codes[0]
    return dataclasses.replace(data, **named)


def undecided(data: DataConfig) -> Iterator[str]:
    """A language that `with_languages` couldn't tell."""
    for side in _DEFAULTS:
        if not getattr(data, f"{side}_lang"):
            files = " and ".join(hint.where for hint in _hints(data, side).values())
            why = f"{files} name different languages" if files else "no file name shows it"
            yield f"'data.{side}_lang' must be set: {why}"


def contradicted(data: DataConfig) -> Iterator[str]:
    """A language that all files' endings contradict. Another code of the same one does not."""
    for side in _DEFAULTS:
        said, found = getattr(data, f"{side}_lang"), _hints(data, side)
        language = _same(said)
        known = {_same(code) for code in SCRIPT_OF}
        if found and language in known and language not in found:
            hint = next(iter(found.values()))
            if hint.sure:
                advice = f"set data.{side}_lang={hint.code}, or rename the file"
                yield (
                    f"'data.{side}_lang' = '{said}', but {hint.where} names '{hint.code}': {advice}"
                )


def assumed(data: DataConfig) -> str:
    """What `with_languages` assumes of languages that `data` leaves open; empty if names say it."""
    read = [corpus for corpus in (*data.train, data.valid) if corpus.src or corpus.path]
    sides = [side for side in _DEFAULTS if not getattr(data, f"{side}_lang")]
    found = [hint for side in sides for hint in _hints(data, side).values()]
    if not read or not sides or any(hint.sure for hint in found):
        return ""
    decided = with_languages(data)
    languages = " and ".join(
        f"data.{side}_lang={getattr(decided, f'{side}_lang')}" for side in sides
    )
    names = " and ".join(hint.where for hint in found)
    why = f"from {names}" if names else "since no file name or key says otherwise"
    return f"languages: assuming {languages}, {why}; set them if this is wrong"


def _same(code: str) -> str:
    language = base_language(code)
    return _SAME.get(language, language)


def _hints(data: DataConfig, side: str) -> dict[str, _Hint]:
    """Language -> the first name that tells it; those that are sure, if any."""
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    corpora["data.valid"] = data.valid
    every = [hint for key, corpus in corpora.items() if (hint := _hint(key, corpus, side))]
    hints: dict[str, _Hint] = {}
    for hint in [hint for hint in every if hint.sure] or every:
        hints.setdefault(_same(hint.code), hint)
    return hints


def _hint(key: str, corpus: CorpusConfig, side: str) -> _Hint | None:
    """What the names of a corpus tell of a side's language."""
    name, other = corpus.src, corpus.tgt
    if side == "tgt":
        name, other = other, name
    if name and other and (told := _told(name, other)):
        code, sure = told
        return _Hint(code, f"'{key}.{side}' = '{name}'", sure)
    if pair := _pair_in(corpus.path or name):
        # Some name a pair by the alphabet, whatever comes first in the file.
        named = _code_of(pair[0] if side == "src" else pair[1])
        setting, value = ("path", corpus.path) if corpus.path else (side, name)
        return _Hint(named, f"'{key}.{setting}' = '{value}'", sure=False) if named else None
    return None


def _told(name: str, other: str) -> tuple[str, bool] | None:
    """The code in a file's name or a key, and whether it is sure, given that of the other side."""
    parts, others = _parts(name), _parts(other)
    if code := _code_of(parts[-1]):
        return code, True
    for part in reversed(parts):
        if part not in others and (code := _code_of(part)):
            return code, True
    mine, theirs = _loose(name, other), _loose(other, name)
    if mine and theirs and _same(mine) != _same(theirs):
        return mine, False
    return None


def _pair_in(name: str) -> tuple[str, str] | None:
    """The pair of languages that a part of a path is: of `train.fr-es.tsv`, `en-de/*.parquet`."""
    *folders, last = name.split("/")
    parts = [*reversed(last.split(".")), *reversed(folders)]
    return next(filter(None, map(language_pair, parts)), None)


def _parts(name: str) -> list[str]:
    """A name's parts between dots, without those at its end that tell nothing of its language."""
    parts = name.rpartition("/")[2].split(".")
    while len(parts) > 1 and parts[-1].lower() in _FORMS:
        parts.pop()
    return parts


def _loose(name: str, other: str) -> str | None:
    """A code among the folders and words that only this one of two names has."""
    found = []
    for path in (name, other):
        *folders, last = path.split("/")
        stem = re.sub("_(?=[A-Z][a-z]{3}(?![A-Za-z]))", "~", last)  # not within a code
        words = [word.replace("~", "_") for word in re.split(r"[._-]", stem)]
        found.append([*words, *reversed(folders)])
    mine, theirs = found
    codes = (_code_of(word) for word in mine if word not in theirs)
    return next(filter(None, codes), None)


def _code_of(text: str) -> str | None:
    """The code that a text is, in its short form: `fr` of `fra_Latn`, `zh_Hans` of `zho_Hans`."""
    if not (match := _CODE.fullmatch(text)):
        return None
    pair = language_pair(text)
    if pair and _same(pair[0]) != _same(pair[1]) and text.replace("_", "-") not in _REGIONAL:
        return None
    language, script, _ = match.groups()
    short = base_language(language)
    if len(language) == 2 and short in SCRIPT_OF:
        return short + text[2:]
    script = script.capitalize() if script else ""
    if script and script not in _SCRIPTS:
        return None
    if short in SCRIPT_OF:
        return short if script in ("", SCRIPT_OF[short]) else f"{short}_{script}"
    return f"{language.lower()}_{script}" if script else None
