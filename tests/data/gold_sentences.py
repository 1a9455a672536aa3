"""Trees of the built-in grammar, built by hand, with the English and German they must give."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.data.grammar import trees as s, words as d
from flaxformer_mt.data.grammar.phrases import date
from flaxformer_mt.data.grammar.splits import ROLE_CASES
from flaxformer_mt.data.grammar.trees import Clause, NounPhrase, PrepositionalPhrase, Sentence
from flaxformer_mt.data.grammar.words import Adjective, Modal, Noun, Verb


def noun(word: str) -> Noun:
    return next(n for n in d.NOUNS if n.english[0] == word)


def verb(word: str) -> Verb:
    return next(v for v in d.VERBS if v.lemma == word)


def adjective(word: str) -> Adjective:
    return next(a for a in d.ADJECTIVES if a.english == word)


def modal(lemma: str, *, past: bool = False) -> Modal:
    return next(m for m in d.MODALS if m.lemma == lemma and m.past == past)


def np(
    determiner: d.Determiner,
    word: str,
    adjective_: str = "",
    *,
    plural: bool = False,
    number: int | None = None,
    possessor: NounPhrase | None = None,
    relative: Clause | None = None,
) -> NounPhrase:
    described = adjective(adjective_) if adjective_ else None
    return NounPhrase(
        determiner, noun(word), plural, "object", described, number, possessor, relative
    )


def pp(preposition: d.Preposition, argument: s.Argument) -> PrepositionalPhrase:
    return PrepositionalPhrase(preposition, argument)


ME, YOU, HE, SHE, WE, THEY = d.PRONOUNS
MY, YOUR, HIS, HER, OUR, THEIR = d.POSSESSIVES
THE_TEACHER = np(d.THE, "teacher")
MONDAY = s.Time("on Monday", "am Montag", ())
THIRD_OF_MAY = s.Time(*date(d.ORDINALS[2], d.MONTHS[4]), ())
IN = d.Preposition("in", "in", ROLE_CASES["place"])


def clause(kind: str, subject: s.Argument, lemma: str, tense: str = s.PRESENT, **rest: object):
    return dataclasses.replace(Clause(kind, verb(lemma), tense, subject), **rest)


def main(subject: s.Argument, lemma: str, tense: str = s.PRESENT, **rest: object) -> Sentence:
    return Sentence(clause(s.FRONTED if "front" in rest else s.MAIN, subject, lemma, tense, **rest))


def ask(subject: s.Argument, lemma: str, tense: str = s.PRESENT, **rest: object) -> Sentence:
    return Sentence(clause(s.QUESTION, subject, lemma, tense, **rest))


def relative(word: str, *, plural: bool = False) -> s.Relativizer:
    person = noun(word).category in ("person", "profession_m", "profession_f")
    return s.Relativizer(person, np(d.THE, word, plural=plural).column)


GOLD = {
    # Separable verbs: particle at the end of a main clause, joined everywhere else.
    "The old teacher opens the red door. | Der alte Lehrer macht die rote Tür auf.": main(
        np(d.THE, "teacher", "old"), "aufmachen", object=np(d.THE, "door", "red")
    ),
    "I am laughing because the teacher opens the door. | "
    "Ich lache, weil der Lehrer die Tür aufmacht.": Sentence(
        clause(s.MAIN, ME, "lachen", s.PROGRESSIVE),
        after=clause(s.BECAUSE, THE_TEACHER, "aufmachen", object=np(d.THE, "door")),
    ),
    "You want to open my window. | Du willst mein Fenster aufmachen.": main(
        YOU, "aufmachen", s.MODAL, modal=modal("wollen"), object=np(MY, "window")
    ),
    "We pick him up on Monday. | Wir holen ihn am Montag ab.": main(
        WE, "abholen", object=HE, time=MONDAY
    ),
    "Did you not call her? | Hast du sie nicht angerufen?": ask(
        YOU, "anrufen", s.PAST, object=SHE, negated=True
    ),
    # Verb second: exactly one constituent before the finite verb.
    "On Monday, the teacher bought a car. | Am Montag hat der Lehrer ein Auto gekauft.": main(
        THE_TEACHER, "kaufen", s.PAST, object=np(d.A, "car"), time=MONDAY, front="time"
    ),
    "This letter, I have not read. | Diesen Brief habe ich nicht gelesen.": main(
        ME, "lesen", s.PERFECT, object=np(d.THIS, "letter"), negated=True, front="object"
    ),
    "Perhaps, her children will play behind the house. | "
    "Vielleicht werden ihre Kinder hinter dem Haus spielen.": main(
        np(HER, "child", plural=True),
        "spielen",
        s.FUTURE,
        comment=d.COMMENTS[0],
        place=pp(d.BEHIND, np(d.THE, "house")),
        front="comment",
    ),
    "Because the old teacher has not bought the red car, we are going to the station. | "
    "Weil der alte Lehrer das rote Auto nicht gekauft hat, gehen wir zum Bahnhof.": Sentence(
        clause(
            s.FRONTED,
            WE,
            "gehen",
            s.PROGRESSIVE,
            place=pp(d.TO, np(d.THE, "station")),
            front="clause",
        ),
        before=clause(
            s.BECAUSE,
            np(d.THE, "teacher", "old"),
            "kaufen",
            s.PERFECT,
            object=np(d.THE, "car", "red"),
            negated=True,
        ),
    ),
    # Negation: kein for an indefinite, nicht behind objects and before places and predicates.
    "He does not buy a red car. | Er kauft kein rotes Auto.": main(
        HE, "kaufen", object=np(d.NOT_A, "car", "red"), negated=True
    ),
    "They do not read old books. | Sie lesen keine alten Bücher.": main(
        THEY, "lesen", object=np(d.NOT_BARE, "book", "old", plural=True), negated=True
    ),
    "I do not drink cold milk. | Ich trinke keine kalte Milch.": main(
        ME, "trinken", object=np(d.NOT_BARE, "milk", "cold"), negated=True
    ),
    "She did not work in the city on Monday. | "
    "Sie hat am Montag nicht in der Stadt gearbeitet.": main(
        SHE, "arbeiten", s.PAST, negated=True, time=MONDAY, place=pp(IN, np(d.THE, "city"))
    ),
    "He is not a good teacher. | Er ist kein guter Lehrer.": main(
        HE, "sein", predicate=np(d.NOT_A, "teacher", "good"), negated=True
    ),
    "No pupil had to sleep. | Kein Schüler musste schlafen.": main(
        np(d.NO, "pupil"), "schlafen", s.MODAL, modal=modal("müssen", past=True)
    ),
    "I do not have to wait. | Ich muss nicht warten.": main(
        ME, "warten", s.MODAL, modal=modal("müssen"), negated=True
    ),
    # Relative clauses: gender and number of the head, case of the gap.
    "The man who got up dances. | Der Mann, der aufgestanden ist, tanzt.": main(
        np(d.THE, "man", relative=clause(s.RELATIVE, relative("man"), "aufstehen", s.PAST)),
        "tanzen",
    ),
    "She is looking for the key that I have lost. | "
    "Sie sucht den Schlüssel, den ich verloren habe.": main(
        SHE,
        "suchen",
        s.PROGRESSIVE,
        object=np(
            d.THE,
            "key",
            relative=clause(s.RELATIVE, ME, "verlieren", s.PERFECT, object=relative("key")),
        ),
    ),
    "The children whom we listen to are clever. | Die Kinder, denen wir zuhören, sind klug.": main(
        np(
            d.THE,
            "child",
            plural=True,
            relative=clause(s.RELATIVE, WE, "zuhören", recipient=relative("child", plural=True)),
        ),
        "sein",
        predicate=s.Quality((adjective("clever"),)),
    ),
    "A woman with whom he works came back. | "
    "Eine Frau, mit der er arbeitet, ist zurückgekommen.": main(
        np(
            d.A,
            "woman",
            relative=clause(s.RELATIVE, HE, "arbeiten", companion=pp(d.WITH, relative("woman"))),
        ),
        "zurückkommen",
        s.PAST,
    ),
    # Questions, and the case of what is asked for.
    "Which book does the child read? | Welches Buch liest das Kind?": ask(
        np(d.THE, "child"), "lesen", object=np(d.WHICH, "book"), front="object"
    ),
    "Whom does she help? | Wem hilft sie?": ask(SHE, "helfen", recipient=d.WHO, front="recipient"),
    "Who is trying on my new coat? | Wer probiert meinen neuen Mantel an?": ask(
        d.WHO, "anprobieren", s.PROGRESSIVE, object=np(MY, "coat", "new")
    ),
    "Where did you see her brother? | Wo hast du ihren Bruder gesehen?": ask(
        YOU, "sehen", s.PAST, object=np(HER, "brother"), asked="where"
    ),
    # Order of objects, weak nouns, genitive, prepositions with either case.
    "He gave the student a ring on Monday. | "
    "Er hat am Montag dem Studenten einen Ring gegeben.": main(
        HE, "geben", s.PAST, recipient=np(d.THE, "student"), object=np(d.A, "ring"), time=MONDAY
    ),
    "She hopes that my aunt sends me the report. | "
    "Sie hofft, dass meine Tante mir den Bericht schickt.": main(
        SHE,
        "hoffen",
        complement=clause(
            s.THAT, np(MY, "aunt"), "schicken", recipient=ME, object=np(d.THE, "report")
        ),
    ),
    "The car of my old father costs three thousand euros. | "
    "Das Auto meines alten Vaters kostet dreitausend Euro.": main(
        np(d.THE, "car", possessor=np(MY, "father", "old")), "kosten", predicate=s.Price(3000)
    ),
    "The girl puts his hat on the table. | Das Mädchen legt seinen Hut auf den Tisch.": main(
        np(d.THE, "girl"), "legen", object=np(HIS, "hat"), place=pp(d.ON, np(d.THE, "table"))
    ),
    "They ran into the house on the third of May. | "
    "Sie sind am dritten Mai ins Haus gelaufen.": main(
        THEY, "laufen", s.PAST, place=pp(d.INTO, np(d.THE, "house")), time=THIRD_OF_MAY
    ),
    "Twenty-one students cook with their friends during the concert. | "
    "Einundzwanzig Studenten kochen während des Konzerts mit ihren Freunden.": main(
        np(d.COUNTED, "student", plural=True, number=21),
        "kochen",
        companion=pp(d.WITH, np(THEIR, "friend", plural=True)),
        time=pp(d.DURING, np(d.THE, "concert")),
    ),
    # "when" is "als" over a simple past, "wenn" otherwise; a copula past is a preterite.
    "When he was sick, I cried. | Als er krank war, habe ich geweint.": Sentence(
        clause(s.FRONTED, ME, "weinen", s.PAST, front="clause"),
        before=clause(s.WHEN, HE, "sein", s.PAST, predicate=s.Quality((adjective("sick"),))),
    ),
    "I cry when he is sick. | Ich weine, wenn er krank ist.": Sentence(
        clause(s.MAIN, ME, "weinen"),
        after=clause(s.WHEN, HE, "sein", predicate=s.Quality((adjective("sick"),))),
    ),
    "Our queen is forty-two years old, but the king and his dog are as old as the judge. | "
    "Unsere Königin ist zweiundvierzig Jahre alt, aber der König und sein Hund sind "
    "so alt wie der Richter.": Sentence(
        clause(s.MAIN, np(OUR, "queen"), "sein", predicate=s.Age(42)),
        second=clause(
            s.MAIN,
            s.Coordination(np(d.THE, "king"), np(HIS, "dog")),
            "sein",
            predicate=s.Comparison(adjective("old"), np(d.THE, "judge")),
        ),
        conjunction="but",
    ),
    "The teacher asked whether the uncles follow them. | "
    "Der Lehrer hat gefragt, ob die Onkel ihnen folgen.": main(
        THE_TEACHER,
        "fragen",
        s.PAST,
        complement=clause(s.WHETHER, np(d.THE, "uncle", plural=True), "folgen", recipient=THEY),
    ),
}
