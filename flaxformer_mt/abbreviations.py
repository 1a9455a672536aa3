"""Which words a full stop may follow without ending a sentence, by language.

Moses's lists of non-breaking prefixes (as sacremoses has them) are the base. They lack languages,
and common abbreviations of those that they have; `_MORE` adds them.
"""

import dataclasses
import functools
import importlib
import importlib.util
import re
import sys
import threading
from typing import Any

# ISO 639-3 and 639-2/B codes, as in FLORES's `deu_Latn`, of languages that are named below.
_TWO_LETTERS = dict(
    pair.split(":")
    for pair in """
    afr:af amh:am ara:ar arb:ar asm:as bel:be ben:bn bod:bo bos:bs bul:bg cat:ca ces:cs cze:cs
    cmn:zh dan:da deu:de dut:nl ell:el eng:en est:et eus:eu fao:fo fas:fa fin:fi fra:fr fre:fr
    fry:fy ger:de gle:ga glg:gl gre:el guj:gu hin:hi hrv:hr hun:hu hye:hy ind:id isl:is ita:it
    jpn:ja kan:kn khm:km kor:ko lav:lv lit:lt ltz:lb lvs:lv mal:ml mar:mr mkd:mk msa:ms mya:my
    nld:nl nno:nn nob:nb nor:no npi:ne oci:oc ory:or pan:pa pes:fa pol:pl por:pt ron:ro rum:ro
    rus:ru san:sa slk:sk slo:sk slv:sl spa:es srp:sr swe:sv tam:ta tel:te tir:ti tur:tr ukr:uk
    urd:ur vie:vi zho:zh zsm:ms
    """.split()
)
# Languages without a list of their own, and whose list they use. (Moses's Chinese list is the
# Latvian one.)
_RELATED = dict(
    pair.split(":")
    for pair in """
    af:nl ast:es be:ru bg:ru bs:sl fo:is fy:nl gl:pt gsw:de hr:sl lb:de mk:ru nds:de ne:hi oc:fr
    sa:hi sh:sl sr:sl uk:ru zh:en yue:en
    """.split()
)
# Languages that write an ordinal number with a full stop: "am 3. Mai", "19. století".
_ORDINALS = frozenset(
    "az bs cs da de dsb et eu fi fo gsw hr hsb hu is lb lt lv mk nb nds nn no pl se sh sk sl sr"
    " tr".split()
)
_ALL = "Mr Mrs Ms Messrs Mt Dr Prof St Sr Jr vs Inc Ltd Corp Co Bros approx etc cf"
_MORE = {
    "en": """
        Mts Ft Sec Fig Figs Eq Eqs Ch Vol Vols Ed Eds Gen Sen Rep Gov Pres Treas Atty Amb Lieut Det
        Hon Rev Br Bp Abp Dir Wm Chas Geo Thos Esq Dept Univ Assn Ave Blvd Rd Hwy Ste Apt Bldg Ala
        Ariz Calif Colo Conn Fla Mich Minn Nebr Okla Penn Tenn Wis Jan Feb Mar Apr Jun Jul Aug Sep
        Sept Oct Nov Dec al ca viz ibid est dist max min
    """,
    "de": """
        Abb Abk Abs Abschn Abt Anh Anl Anm Apr Aufl Aug Ausg Bd Bde Bez Bgm Bhf Bio Bsp Dez Di Dipl
        Do Doz Fam Feb Febr Fr Frl Gebr Ges Gr Hbf Hg Hr Hrn Hrsg Ing Jan Jh Jhd Jhdt Jul Jun Kap Kl
        Kto Mag Mill Mi Min Mio Mo Mrd Mär Nachf Nov Nr Nrn Okt Pfd Pos Priv Präs Rdnr Red Rn Rz Sek
        Sep Sept Std Stk Str Tab Tel Tsd Univ Verf Vers Vol Vors Wwe Ziff Ztg abzgl allg amtl
        ausschl bes betr bzw ca dt ehem eigtl einschl engl ev evtl exkl Fa franz frz geb gegr gem
        gesch gest gez ggf griech inkl insb insbes jur kath lat lfd max med min mind mtl nat österr
        phil rer röm sog usw verh vgl zzgl
    """,
    "fr": """
        Mme Mmes Mlle Mlles Mgr Me Pr Ste Sts Stes janv févr juil sept oct nov déc bd rte réf ch
        Cie Éts vs
    """,
    "es": """
        Sres Sras Dres Profa Ing Arq Cnel Cap Tte Sgto Cmdte Alm Pdte Mons Hno Hna Dña Avda Avd
        Blvd Ctra Pza Plza Dpto Depto Edo Cía Ltda EE UU FF CC núms nro caps art arts fig figs vols
        tel tfno telf ej aprox máx mín ene febr abr jun jul ago sept oct nov dic
    """,
    "ca": "Srs Sres Dra Avda núm pàg pàgs cap art fig vol tel ex gen febr abr jul oct nov des",
    "it": """
        Sig.ra Sig.na Sig.ri Sig.re Dott.ssa Prof.ssa Proff Arch Mons Cav Comm Magg Ten Serg Min
        Pres Dir Gent V.le v.le P.za P.zza C.so c.so L.go pag pagg cap capp art artt fig figg vol
        voll tab cfr tav sez ed edd cit gen feb apr giu lug ago sett ott nov dic mln mld
    """,
    "nl": """
        Dhr Mevr mw Mej Drs Ir Ds Ing nr nrs blz bldz pag vgl zgn resp incl excl jl hfdst afb fig
        tel tab art jan febr feb mrt apr aug sept okt nov dec max min ca mln mld str enz
    """,
    "pt": """
        Srta Srs Eng Av Al Rod Trav Lgo núm pág págs cap caps arts fig figs séc tel ex Ltda Cia Exa
        Exas Exmo Exma Ilmo Gal Cel Ten Dep Mons Pe Sto Sta jan fev abr jun jul ago set out nov dez
        aprox máx mín
    """,
    "ro": """
        Dl Dna d-na Dra Str Bd Nr dl dna dra str bd nr pag art alin cap ex Sf jud mld tel sec ing
    """,
    "sv": """
        fl bl.a s.k f.d f.n resp ca nr st sid kap fig tab bil jfr inkl exkl Hr Fr Ing Doc prof S:t
        febr sept dec milj mdr tel
    """,
    "da": """
        f.eks bl.a m.m m.fl fl osv dvs d.v.s ca nr kl stk kap fig tab jf inkl ekskl Hr Fr Frk frk hr
        fr dr ing mag cand Skt skt kr mio mia pct jan feb mar apr jun jul aug sep sept okt nov dec
        tlf vedr ang evt alm iflg eks pga p.t
    """,
    "no": """
        f.eks bl.a m.m m.fl fl osv dvs d.v.s ca nr kl stk kap fig tab jf inkl ekskl Hr Fr Frk hr fr
        dr ing cand kr mill mrd pst jan feb mar apr jun jul aug sep sept okt nov des tlf vedr ang
        evt alm iflg eks pga p.t
    """,
    "fi": "esim ym yms jne ks vrt ns puh klo nro tri milj mrd",
    "et": "nt jne jt lk nr tel hr pr prl sh sealh tn mnt pst mln mld",
    "hu": "özv ifj id kb ún stb vö ld fej krt tel sz ker ill gr Szt",
    "pl": """
        ul os św inż hab ks gen płk ppłk mjr kpt nr str tzn tzw tj np m.in itp itd godz tys mln mld
        tel ust pkt rozdz rys tab red wyd
    """,
    "cs": """
        ul tř nám čís str např tzv tzn tj atd apod resp popř stol sv Ing Mgr MUDr JUDr PhDr RNDr
        MVDr doc prof odst písm kap obr tab mil mld tis hod kpt gen plk tel
    """,
    "sk": "ul nám čís str napr tzv tj atď apod resp stor sv Ing Mgr doc prof ods kap obr tab tis",
    "sl": "ul npr itd ipd oz mag ing tel str št sv tis mio mrd",
    "hr": """
        ul br gđa gđica dr prof ing mr mag dipl tj npr itd itsl str god sv tzv tel čl odn mil mlrd
    """,
    "ru": """
        ул просп пр пер пл наб бул пос дер обл р-н респ кв корп эт оф им акад доц канд чл инж ген
        полк подполк вып изд оз рис табл илл гл разд ср см напр др т.д т.п т.е т.к т.н н.э тыс млн
        млрд трлн руб коп долл чел экз шт мин сек тел янв фев февр апр авг сент окт нояб дек св ред
        авт прим
    """,
    "uk": """
        вул просп бул пл пров смт обл р-н рр ім тис млн млрд грн коп проф акад доц див ін т.д т.п
        н.е кв буд
    """,
    "bg": "ул бул пл гр обл общ гг проф акад доц д-р инж ген вкл др напр вж стр хил млн млрд лв",
    "sr": """
        ул бр гђа гђица др проф инж мр тј нпр итд стр год св ul br gđa gđica dr prof ing mr tj npr
        itd str god sv
    """,
    "mk": "ул бр д-р проф инж стр год итн",
    "el": """
        κα κος Δρ δρ καθ αρ αριθ σελ τηλ π.χ δηλ κ.λπ κτλ κ.ά κ.τ.λ βλ πρβλ οδ Λεωφ λεωφ Αγ εκ εκατ
        δισ χιλ μ.Χ π.Χ Ιαν Φεβ Μαρ Απρ Ιουν Ιουλ Αυγ Σεπ Σεπτ Οκτ Νοε Δεκ
    """,
    "tr": """
        Doç Yrd Av Sn Gen Alb Yzb Müh Öğr Gör Uzm Hz vb vd bkz örn yy Cad Sok Mah Apt Blv Tel Şti
        A.Ş T.C M.Ö M.S
    """,
    "hi": "डॉ डा प्रो पं सं रु कि मी श्रीम",
    "mr": "डॉ प्रा पं",
    "bn": "ডা ডঃ মো মোঃ প্রফে",
    "vi": "TP Tp ThS TS GS PGS BS NXB",
    "te": "డా ప్రొ",
    "th": "ดร ผศ รศ นพ พญ",
    "lv": "piem utt u.c t.i nr lpp tālr prof dr",
    "sw": "Bw Bi Dk Mh Prof",
    "eu": "adb etab jn zk tel",
    "af": "Mnr Mev Mej ds dr prof adv bv bl nr asb",
    "id": "Bpk Sdr Drs Ir Jl Jln hlm dll dsb dst dkk tsb Kab Kec Tn Ny",
}
_MORE |= {"nb": _MORE["no"], "nn": _MORE["no"], "bs": _MORE["hr"], "sh": _MORE["hr"]}
_MORE |= {"ms": _MORE["id"], "be": f"{_MORE['ru']} вул праф"}
# Those that are words, too: before a number they are abbreviations.
_BEFORE_NUMBERS = {
    "en": """
        No no Nos nos Sec sec Art art Ch ch Ex ex Op op Pt pt Ver ver Sat Sun p pp par vol vols chs
        secs fig figs eq eqs ed eds
    """,
    "es": "No no Nos",
    "fr": "No no Nos",
    "it": "No no",
    "pt": "No no",
    "tr": "No no",
    "id": "No no",
}
# Those that also end sentences, and words that, with a capital, seldom follow them within one.
_ENDING = "etc Jr Sr Inc Ltd Corp Co usw usf"
_BEGINNING = {
    "en": """
        The This That These Those It He She They We You I His Her Their My Our If When While After
        Before Although However In On At As And But So For What Who How Why Where There Most Many
        Some
    """,
    "de": """
        Der Die Das Dies Diese Dieser Dieses Er Sie Es Wir Ich Ihr Man Ein Eine Wenn Als Nach Vor Im
        In Am Auf Bei Mit Und Aber Doch Auch Dann Da So Was Wer Wie Warum Wo Hier Dort Leider
    """,
    "fr": """
        Le La Les Ce Cet Cette Ces Il Elle Ils Elles Nous Vous On Je Un Une Des Son Sa Ses Leur
        Quand Si Mais Et Or Donc Dans En Au Aux Pour Par Sur Comme Puis Cependant Que Qui Comment
        Pourquoi
    """,
    "es": """
        El La Los Las Este Esta Estos Estas Ese Esa Eso Esto Ella Ellos Ellas Nosotros Usted Yo Un
        Una Su Sus Cuando Si Pero Y En Al Para Por Con Como Sin Se No Ya Hay Todo Todos Qué Quién
    """,
}
# "U.S", "N.Y.U", "a.m", "p.m"
_SEVERAL_INITIALS = re.compile(r"(?:[A-Z]\.)++[A-Z]|[ap]\.m")
# Of Moses's lists, those that are common words: they are abbreviations only before numbers, too.
_WORDS = {"de": "Art Bart", "fr": "art vol", "it": "post", "ru": "лиц тел хор"}
_BEFORE_ALL_NUMBERS = "No Nos Nr Fig Figs Tab Vol Art Op"
_IMPORTING = threading.Lock()  # sacremoses


@dataclasses.dataclass(frozen=True)
class Abbreviations:
    always: frozenset[str]
    before_numbers: frozenset[str]
    ordinals: bool  # whether a number with a full stop is an ordinal one
    suffixes: tuple[str, ...] = ()  # words that end in these are abbreviations ("Goethestr.")
    beginning: frozenset[str] = frozenset()  # words that begin sentences

    def has(self, word: str, *, number: bool) -> bool:
        """Whether the full stop after `word` belongs to it, and doesn't end the sentence.

        `number`: a number follows.
        """
        forms = {word, word[:1].lower() + word[1:]}  # "Vgl." begins a sentence
        if word.isupper() and len(word) > 1:
            forms |= {word.lower(), word.capitalize()}  # a headline: "DR. SMITH"
        known = self.always | self.before_numbers if number else self.always
        return not known.isdisjoint(forms) or (bool(self.suffixes) and word.endswith(self.suffixes))

    def ends_before(self, word: str, following: str) -> bool:
        """Whether the full stop after the abbreviation `word` also ends the sentence, since the
        word `following` begins one: "at 11 a.m. The meeting"."""
        may_end = word in _ENDING.split() or _SEVERAL_INITIALS.fullmatch(word) is not None
        return may_end and following in self.beginning


def base_of(language: str) -> str:
    """The two-letter code, if there is one, of `de`, `de_DE`, `deu_Latn`, `pt-BR` ..."""
    base = re.split("[-_]", language)[0].lower()
    return _TWO_LETTERS.get(base, base)


def moses_lists() -> Any:
    """sacremoses's `NonbreakingPrefixes`: Moses's lists of abbreviations. Threads may call it at
    the same time."""
    with _IMPORTING:
        return _imported_lists()


@functools.cache
def _imported_lists() -> Any:
    """By one thread at a time, since it edits `sys.modules`.

    The package's `__init__` also imports its tokenizers, whose patterns take 0.3 s to compile. So
    the package stands in `sys.modules` without having been run while its module of lists is
    imported; both are then taken out again, for whoever needs the whole.
    """
    name = "sacremoses"
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None:
        return importlib.import_module(f"{name}.corpus").NonbreakingPrefixes()
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module(f"{name}.corpus").NonbreakingPrefixes()
    finally:
        for module in [*sys.modules]:
            if module.partition(".")[0] == name:
                del sys.modules[module]


@functools.cache
def abbreviations(language: str) -> Abbreviations:
    """The abbreviations of a language (a code as in `data.src_lang`).

    An unknown one has English's, and may write ordinal numbers with a full stop.
    """
    base = base_of(language)
    lists = moses_lists()
    has_list = base in lists.available_langs.values() and base not in ("zh", "yue")
    named = base if has_list else _RELATED.get(base, "en")
    always = {*_ALL.split(), *_MORE.get(base, "").split()}
    before_numbers = {*_BEFORE_ALL_NUMBERS.split(), *_BEFORE_NUMBERS.get(base, "").split()}
    if named == "en":
        always |= {*_MORE["en"].split()}
        before_numbers |= {*_BEFORE_NUMBERS["en"].split()}
    for entry in lists.words(named):
        prefix, *mark = entry.split(" #")
        # The full stop follows the last part of an abbreviation with blanks ("m. fl").
        (before_numbers if mark else always).add(prefix.split()[-1])
    words = {*_WORDS.get(named, "").split()}
    always -= words
    before_numbers |= words
    return Abbreviations(
        always=frozenset(always),
        before_numbers=frozenset(before_numbers),
        ordinals=base in _ORDINALS or not base,
        suffixes=("str",) if base in ("de", "gsw", "lb", "nds") else (),
        beginning=frozenset(_BEGINNING.get(base, "").split()),
    )
