"""Languages and their scripts; a config's two, or those of names such as `train.en.gz`."""

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from flaxformer_mt.config.schema import CorpusConfig, DataConfig, Direction

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
_WITHOUT_ANY_BLANKS = {*"Jpan Hani Hans Hant".split()}
_WITHOUT_BLANKS = {*"Thai Laoo Tibt Mymr Khmr Jpan Hani Hans Hant".split()}
# A letter of these scripts, for the package `regex`: `re` knows no scripts.
UNSPACED_LETTER = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
# One of other scripts, a digit or "_", for `regex.V1`: it makes a longer word of its neighbour.
SPACED_LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--{UNSPACED_LETTER}]"
# Punctuation and wide forms of Chinese and Japanese, between brackets.
UNSPACED_SIGNS = r"\u3000-\u303f\uff00-\uff60"
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
    """A name's hint at a side's language."""

    code: str
    where: str  # setting and name, for messages
    sure: bool = True  # no other part of the name could be meant


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


@functools.cache  # asked with each call of a translator
def has_blanks_between_sentences(code: str) -> bool:
    """Whether text of the language has blanks between its sentences, as Thai has, and not
    Chinese."""
    return written_script(code) not in _WITHOUT_ANY_BLANKS


def tag_of_each_pair(directions: Iterable[Direction]) -> dict[tuple[str, str], str]:
    """The tag that asks for each pair of languages, the first pair first. Of a pair's corpora it is
    the one without a tag that counts, or else the first."""
    tags: dict[tuple[str, str], str] = {}
    for src_lang, tgt_lang, tag in directions:
        if (src_lang, tgt_lang) not in tags or not tag:
            tags[src_lang, tgt_lang] = tag
    return tags


def languages_of_tag(directions: Iterable[Direction], tag: str) -> tuple[str, str]:
    """The source and the target language of the training text with this tag, or, if there is none,
    with all of its words among others; empty where there are several, or none."""
    words = tag.split()
    if not words:
        return "", ""
    by_words = [(direction, direction.tag.split()) for direction in directions]
    found = [direction for direction, of_direction in by_words if of_direction == words]
    if not found:
        found = [direction for direction, others in by_words if {*words} <= {*others}]
    return _only([one.src_lang for one in found]), _only([one.tgt_lang for one in found])


def _only(codes: Sequence[str]) -> str:
    """The code that all of these are; empty if they differ."""
    first = codes[0] if codes else ""
    return first if codes.count(first) == len(codes) else ""


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
    """The target language in the name of a file of targets, as training reads names.

    With `source_name`, the file of sources, more parts of the name can be read. The language may
    also come from a pair such as `en-zh`. Empty if the name has none.
    """
    hint = _code_in(name, source_name)
    if hint is not None:
        code, _ = hint
        return code
    pair = _pair_in(name)
    return pair[1] if pair else ""


def with_languages(data: DataConfig) -> DataConfig:
    """`data` with its empty languages filled in, where its corpora or their names show them."""
    hints = {side: _hints(data, side) for side in _DEFAULTS}
    named: dict[str, Any] = {}
    for side, default in _DEFAULTS.items():
        codes = [hint.code for hint in hints[side].values()]
        stated = filter(None, (getattr(corpus, f"{side}_lang") for corpus in data.train))
        if not codes:
            codes = [next(stated, "" if any(hints.values()) else default)]
        if not getattr(data, f"{side}_lang") and len(codes) == 1 and codes[0]:
            named[f"{side}_lang"] = codes[0]
    return dataclasses.replace(data, **named)


def undecided(data: DataConfig) -> Iterator[str]:
    """A language that `with_languages` couldn't tell."""
    for side in _open_sides(data):
        files = " and ".join(hint.where for hint in _hints(data, side).values())
        why = f"{files} name different languages" if files else "no file name shows it"
        yield f"'data.{side}_lang' must be set: {why}"


def contradicted(data: DataConfig) -> Iterator[str]:
    """A language that all files' endings contradict. Another code of the same one does not."""
    known = {same_language(code) for code in SCRIPT_OF}
    for side in _DEFAULTS:
        code = getattr(data, f"{side}_lang")
        hints = _hints(data, side)
        language = same_language(code)
        if not hints or language not in known or language in hints:
            continue
        hint = next(iter(hints.values()))
        if hint.sure:
            yield (
                f"'data.{side}_lang' = '{code}', but {hint.where} names '{hint.code}': "
                f"set data.{side}_lang={hint.code}, or rename the file"
            )


def assumed(data: DataConfig) -> str:
    """A sentence on the languages that `with_languages` assumes; empty if names show them."""
    sides = _open_sides(data)
    hints = [hint for side in sides for hint in _hints(data, side).values()]
    is_sure = any(hint.sure for hint in hints)
    if not sides or is_sure or not _has_text(data) or _states_languages(data):
        return ""

    decided = with_languages(data)
    languages = " and ".join(
        f"data.{side}_lang={getattr(decided, f'{side}_lang')}" for side in sides
    )
    names = " and ".join(hint.where for hint in hints)
    why = f"from {names}" if names else "since no file name or key says otherwise"
    return f"languages: assuming {languages}, {why}; set them if this is wrong"


def _has_text(data: DataConfig) -> bool:
    return any(corpus.src or corpus.path for corpus in (*data.train, *data.validation.values()))


def _states_languages(data: DataConfig) -> bool:
    """Whether corpora say which languages they are in."""
    return any(corpus.src_lang or corpus.tgt_lang for corpus in data.train)


def _open_sides(data: DataConfig) -> list[str]:
    """The sides, "src" and "tgt", whose language isn't set."""
    return [side for side in _DEFAULTS if not getattr(data, f"{side}_lang")]


def same_language(code: str) -> str:
    """One name for all codes that may name the same text."""
    language = base_language(code)
    return _SAME.get(language, language)


def _hints(data: DataConfig, side: str) -> dict[str, _Hint]:
    """Language -> the first name that hints at it; only sure hints, if there are any."""
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    corpora |= data.validation
    hints = [
        hint
        for key, corpus in corpora.items()
        if not getattr(corpus, f"{side}_lang") and (hint := _hint(key, corpus, side))
    ]
    sure_hints = [hint for hint in hints if hint.sure]

    by_language: dict[str, _Hint] = {}
    for hint in sure_hints or hints:
        by_language.setdefault(same_language(hint.code), hint)
    return by_language


def _hint(key: str, corpus: CorpusConfig, side: str) -> _Hint | None:
    """The hint at a side's language in the names of a corpus."""
    name, opposite = corpus.src, corpus.tgt
    if side == "tgt":
        name, opposite = opposite, name
    if name and opposite:
        hint = _code_in(name, opposite)
        if hint is not None:
            code, sure = hint
            return _Hint(code, f"'{key}.{side}' = '{name}'", sure)

    if pair := _pair_in(corpus.path or name):
        pair_code = _code_of(pair[0] if side == "src" else pair[1])
        if pair_code:
            where = (
                f"'{key}.path' = '{corpus.path}'" if corpus.path else f"'{key}.{side}' = '{name}'"
            )
            # Some name a pair by the alphabet, whatever comes first in the file.
            return _Hint(pair_code, where, sure=False)
    return None


def _code_in(name: str, opposite: str) -> tuple[str, bool] | None:
    """The code in a file's name or a key, and whether it is sure.

    `opposite` is the name of the other side.
    """
    parts, opposite_parts = _parts(name), _parts(opposite)
    if code := _code_of(parts[-1]):
        return code, True
    for part in reversed(parts):
        if part not in opposite_parts and (code := _code_of(part)):
            return code, True

    loose, opposite_loose = _loose(name, opposite), _loose(opposite, name)
    if loose and opposite_loose and same_language(loose) != same_language(opposite_loose):
        return loose, False
    return None


def _pair_in(name: str) -> tuple[str, str] | None:
    """The pair of languages that a part of a path is: of `train.fr-es.tsv`, `en-de/*.parquet`."""
    *folders, last = name.split("/")
    parts = [*reversed(last.split(".")), *reversed(folders)]
    return next(filter(None, map(language_pair, parts)), None)


def _parts(name: str) -> list[str]:
    """A name's parts between dots, without those at its end that aren't about its language."""
    parts = name.rpartition("/")[2].split(".")
    while len(parts) > 1 and parts[-1].lower() in _FORMS:
        parts.pop()
    return parts


def _loose(name: str, opposite: str) -> str | None:
    """A code among the folders and words that `name` has and `opposite` doesn't."""
    opposite_words = _words(opposite)
    codes = (_code_of(word) for word in _words(name) if word not in opposite_words)
    return next(filter(None, codes), None)


def _words(path: str) -> list[str]:
    """The words of a file's name, then the folders around it, innermost first."""
    *folders, last = path.split("/")
    stem = re.sub("_(?=[A-Z][a-z]{3}(?![A-Za-z]))", "~", last)  # not within a code
    words = [word.replace("~", "_") for word in re.split(r"[._-]", stem)]
    return [*words, *reversed(folders)]


def _code_of(text: str) -> str | None:
    """The code that a text is, in its short form: `fr` of `fra_Latn`, `zh_Hans` of `zho_Hans`."""
    match = _CODE.fullmatch(text)
    if match is None or _is_pair(text):
        return None
    language = match[1]
    script = (match[2] or "").capitalize()
    short = base_language(language)
    is_known = short in SCRIPT_OF
    if is_known and len(language) == 2:
        return short + text[2:]
    if script and script not in _SCRIPTS:
        return None
    if not is_known:
        return f"{language.lower()}_{script}" if script else None
    return short if script in ("", SCRIPT_OF[short]) else f"{short}_{script}"


def _is_pair(text: str) -> bool:
    """Whether a text such as `en-fr` names two languages, unlike `en-ca`, a language's region."""
    pair = language_pair(text)
    if pair is None or text.replace("_", "-") in _REGIONAL:
        return False
    return same_language(pair[0]) != same_language(pair[1])
