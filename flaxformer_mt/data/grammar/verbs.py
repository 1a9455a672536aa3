"""The verbs of the built-in grammar: forms, separable particles and what each governs."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.data.grammar.nouns import expand


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb and what it governs.

    `english` is (base, third person, -ing, past, participle). `present` is the German present of
    ich, du, er, wir without its separable `particle`; `lemma` (the infinitive) and `participle`
    include it.
    `objects` are alternative pools of noun categories. A `preterite` (sein, haben) replaces the
    perfect as the German past.
    """

    lemma: str
    frame: str
    english: tuple[str, str, str, str, str]
    present: tuple[str, str, str, str]
    participle: str
    english_particle: str = ""
    movable: bool = False
    particle: str = ""
    auxiliary: str = "haben"
    stative: bool = False
    objects: tuple[tuple[str, ...], ...] = ()
    preterite: tuple[str, str, str, str] | None = None

    @property
    def past_is_distinct(self) -> bool:
        """False for "read": "they read" would be present or past, and have two translations."""
        return self.english[0] != self.english[3]


# English on the left of ";": the base form, past and participle if the verb is irregular, and its
# particle: "+up" moves behind a pronoun object (picks him up), "~for" never moves. German on the
# right: the infinitive with a separable particle before "|", the present of du and er if it is
# irregular, the participle, "sein" for a verb that takes it, "!" for one without progressive. After
# ":" the object pools: categories joined by ",", alternatives separated by "/".
_TABLES = {
    "intransitive": """
        sleep slept slept ; schlafen schläfst schläft geschlafen
        work ; arbeiten gearbeitet
        laugh ; lachen gelacht
        sing sang sung ; singen gesungen
        dance ; tanzen getanzt
        cry ; weinen geweint
        wait ; warten gewartet
        play ; spielen gespielt
        swim swam swum ; schwimmen geschwommen sein
        cook ; kochen gekocht
        get got gotten +up ; auf|stehen aufgestanden sein
        arrive ; an|kommen angekommen sein
        come came come +back ; zurück|kommen zurückgekommen sein
        fall fell fallen +asleep ; ein|schlafen schläfst schläft eingeschlafen sein
        """,
    "transitive": """
        buy bought bought ; kaufen gekauft : goods / food / groceries
        sell sold sold ; verkaufen verkauft : goods / food / groceries
        see saw seen ; sehen siehst sieht gesehen ! : people,animal,vehicle,thing
        hear heard heard ; hören gehört ! : people,animal
        love ; lieben geliebt ! : people,animal / place
        look ~for ; suchen gesucht : thing,animal,text,clothing,people
        find found found ; finden gefunden ! : thing,animal,text,clothing
        visit ; besuchen besucht : people / place
        read read read ; lesen liest liest gelesen : text
        write wrote written ; schreiben geschrieben : text
        eat ate eaten ; essen isst isst gegessen : food / dish
        drink drank drunk ; trinken getrunken : drink
        wash ; waschen wäschst wäscht gewaschen : clothing,vehicle,animal / food
        repair ; reparieren repariert : vehicle,opening,furniture
        draw drew drawn ; zeichnen zeichnest zeichnet gezeichnet : animal,thing,people
        carry ; tragen trägst trägt getragen : thing,furniture,animal
        need ; brauchen gebraucht ! : thing,vehicle,clothing,furniture / groceries
        have had had ; haben hast hat gehabt ! : thing,vehicle,animal,text,clothing
        know knew known ; kennen gekannt ! : people / place,text
        forget forgot forgotten ; vergessen vergisst vergisst vergessen ! : thing,text,clothing
        lose lost lost ; verlieren verloren ! : thing,clothing,text
        steal stole stolen ; stehlen stiehlst stiehlt gestohlen : thing,vehicle,clothing,animal
        watch ; beobachten beobachtet : animal,people
        greet ; grüßen gegrüßt : people
        understand understood understood ; verstehen verstanden ! : text,people
        open ; auf|machen aufgemacht : opening
        close ; zu|machen zugemacht : opening
        pick +up ; ab|holen abgeholt : people
        invite ; ein|laden lädst lädt eingeladen : people
        call ; an|rufen angerufen : people
        bring brought brought +along ; mit|bringen mitgebracht : thing,text / food / groceries
        try +on ; an|probieren anprobiert : clothing
        throw threw thrown +away ; weg|werfen wirfst wirft weggeworfen : thing,clothing,text
        """,
    "dative": """
        help ; helfen hilfst hilft geholfen : people
        thank ; danken gedankt : people
        answer ; antworten geantwortet : people
        follow ; folgen gefolgt sein : people,animal
        trust ; vertrauen vertraut ! : people
        listen ~to ; zu|hören zugehört : people
        """,
    "ditransitive": """
        give gave given ; geben gibst gibt gegeben : thing,text,clothing,animal
        show showed shown ; zeigen gezeigt : thing,text,vehicle,clothing / place
        send sent sent ; schicken geschickt : text,thing,clothing
        lend lent lent ; leihen geliehen : thing,vehicle,text,clothing
        offer ; an|bieten angeboten : food / groceries
        """,
    "motion": """
        go went gone ; gehen gegangen sein
        drive drove driven ; fahren fährst fährt gefahren sein
        travel ; reisen gereist sein
        run ran run ; laufen läufst läuft gelaufen sein
        hurry ; eilen geeilt sein
        hike ; wandern gewandert sein
        """,
    "placing": """
        put put put ; legen gelegt : thing,text,clothing
        """,
    "that": """
        say said said ; sagen gesagt !
        believe ; glauben geglaubt !
        hope ; hoffen gehofft !
        think thought thought ; denken gedacht !
        """,
    "whether": """
        ask ; fragen gefragt !
        """,
    "price": """
        cost cost cost ; kosten gekostet !
        """,
}

_DOUBLED = ("get", "swim", "run", "put", "forget")
_PRETERITE_OF_HABEN = ("hatte", "hattest", "hatte", "hatten")


def _english_forms(base: str, irregular: list[str]) -> tuple[str, str, str, str, str]:
    consonant_y = base.endswith("y") and base[-2] not in "aeiou"
    if base == "have":
        third = "has"
    elif consonant_y:
        third = base[:-1] + "ies"
    else:
        third = base + ("es" if base.endswith(("s", "sh", "ch", "o")) else "s")
    if base in _DOUBLED:
        ing = base + base[-1] + "ing"
    else:
        ing = (base if base.endswith("ee") else base.removesuffix("e")) + "ing"
    if irregular:
        past, participle = irregular
    else:
        past = base[:-1] + "ied" if consonant_y else base.removesuffix("e") + "ed"
        participle = past
    return base, third, ing, past, participle


def _german_present(infinitive: str, irregular: list[str]) -> tuple[str, str, str, str]:
    """ich, du, er, wir: -e- before the endings after t and d, no second s after s, ß and z."""
    stem = infinitive.removesuffix("n")
    if not stem.endswith("er"):
        stem = stem.removesuffix("e")
    if irregular:
        second, third = irregular
    else:
        linked = stem + "e" if stem.endswith(("t", "d")) else stem
        second = linked + ("t" if stem.endswith(("s", "ß", "z")) else "st")
        third = linked + "t"
    return stem + "e", second, third, infinitive


def _read(frame: str, line: str) -> Verb:
    left, _, rest = line.partition(";")
    middle, _, right = rest.partition(":")
    base, *irregular = left.split()
    english_particle = irregular.pop() if irregular and irregular[-1][0] in "+~" else ""
    infinitive, *forms = middle.split()
    marks = {mark for mark in ("sein", "!") if mark in forms}
    *present, participle = (form for form in forms if form not in marks)
    particle, _, stem = infinitive.rpartition("|")
    return Verb(
        lemma=particle + stem,
        frame=frame,
        english=_english_forms(base, irregular),
        present=_german_present(stem, present),
        participle=participle,
        english_particle=english_particle[1:],
        movable=english_particle.startswith("+"),
        particle=particle,
        auxiliary="sein" if "sein" in marks else "haben",
        stative="!" in marks,
        objects=tuple(expand(pool.strip().split(",")) for pool in right.split("/") if pool.strip()),
        preterite=_PRETERITE_OF_HABEN if stem == "haben" else None,
    )


COPULA = Verb(
    lemma="sein",
    frame="copula",
    english=("be", "is", "being", "was", "been"),
    present=("bin", "bist", "ist", "sind"),
    participle="gewesen",
    auxiliary="sein",
    stative=True,
    preterite=("war", "warst", "war", "waren"),
)

VERBS: dict[str, tuple[Verb, ...]] = {
    frame: tuple(_read(frame, line) for line in table.strip().splitlines())
    for frame, table in _TABLES.items()
} | {"copula": (COPULA,)}
"""All verbs by frame, the arguments they take."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Modal:
    """A modal verb in one tense.

    `english` is the auxiliary that "not" follows; where it is empty, `base` and `third` (or `past`)
    are full verbs with do-support: wants to, does not want to.
    """

    lemma: str
    past: bool
    english: str
    finite: tuple[str, str]
    base: str
    german: tuple[str, str, str, str]


MODALS: tuple[Modal, ...] = (
    Modal("können", False, "can", ("", ""), "", ("kann", "kannst", "kann", "können")),
    Modal("können", True, "could", ("", ""), "", ("konnte", "konntest", "konnte", "konnten")),
    Modal(
        "müssen", False, "", ("have to", "has to"), "have to", ("muss", "musst", "muss", "müssen")
    ),
    Modal(
        "müssen",
        True,
        "",
        ("had to", "had to"),
        "have to",
        ("musste", "musstest", "musste", "mussten"),
    ),
    Modal(
        "wollen",
        False,
        "",
        ("want to", "wants to"),
        "want to",
        ("will", "willst", "will", "wollen"),
    ),
    Modal(
        "wollen",
        True,
        "",
        ("wanted to", "wanted to"),
        "want to",
        ("wollte", "wolltest", "wollte", "wollten"),
    ),
    Modal("sollen", False, "should", ("", ""), "", ("soll", "sollst", "soll", "sollen")),
    Modal("dürfen", False, "may", ("", ""), "", ("darf", "darfst", "darf", "dürfen")),
)
