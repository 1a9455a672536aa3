"""The nouns of the built-in grammar: English number, German gender, case and number."""

from __future__ import annotations

import dataclasses

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
MASCULINE, FEMININE, NEUTER, PLURAL = range(4)
"""Columns of every German declension table: three genders, and the plural that has none."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun; `german[plural][case]` are its German forms, `static` is how one is "at" a place."""

    lemma: str
    english: tuple[str, str]
    gender: int
    german: tuple[tuple[str, ...], tuple[str, ...]]
    category: str
    static: tuple[str, str] | None

    @property
    def mass(self) -> bool:
        return not self.english[1]


PEOPLE = ("person", "profession_m", "profession_f")
"""Categories of people: only professions are predicates ("a good teacher"), by natural gender."""

_GROUPS = {
    "people": PEOPLE,
    "goods": ("thing", "vehicle", "text", "clothing", "furniture"),
    "groceries": ("dish", "drink"),
}


def expand(names: list[str]) -> tuple[str, ...]:
    """Category names, those of a group in place of its name."""
    return tuple(category for name in names for category in _GROUPS.get(name, (name,)))


# Columns: English singular and plural; German article, nominative, genitive and plural; for places
# the preposition of location in both languages. A "-" is a plural that is not used.
_TABLES = {
    "person": """
        man men             der Mann Mannes Männer
        woman women         die Frau Frau Frauen
        child children      das Kind Kindes Kinder
        boy boys            der Junge Jungen Jungen
        girl girls          das Mädchen Mädchens Mädchen
        mother mothers      die Mutter Mutter Mütter
        father fathers      der Vater Vaters Väter
        sister sisters      die Schwester Schwester Schwestern
        brother brothers    der Bruder Bruders Brüder
        daughter daughters  die Tochter Tochter Töchter
        son sons            der Sohn Sohnes Söhne
        uncle uncles        der Onkel Onkels Onkel
        aunt aunts          die Tante Tante Tanten
        grandmother grandmothers die Großmutter Großmutter Großmütter
        grandfather grandfathers der Großvater Großvaters Großväter
        king kings          der König Königs Könige
        """,
    "profession_m": """
        teacher teachers    der Lehrer Lehrers Lehrer
        student students    der Student Studenten Studenten
        doctor doctors      der Arzt Arztes Ärzte
        friend friends      der Freund Freundes Freunde
        neighbor neighbors  der Nachbar Nachbarn Nachbarn
        baker bakers        der Bäcker Bäckers Bäcker
        farmer farmers      der Bauer Bauern Bauern
        lawyer lawyers      der Anwalt Anwalts Anwälte
        judge judges        der Richter Richters Richter
        painter painters    der Maler Malers Maler
        guest guests        der Gast Gastes Gäste
        tourist tourists    der Tourist Touristen Touristen
        engineer engineers  der Ingenieur Ingenieurs Ingenieure
        policeman policemen der Polizist Polizisten Polizisten
        colleague colleagues der Kollege Kollegen Kollegen
        pupil pupils        der Schüler Schülers Schüler
        """,
    "profession_f": """
        nurse nurses        die Krankenschwester Krankenschwester Krankenschwestern
        waitress waitresses die Kellnerin Kellnerin Kellnerinnen
        actress actresses   die Schauspielerin Schauspielerin Schauspielerinnen
        queen queens        die Königin Königin Königinnen
        """,
    "animal": """
        dog dogs            der Hund Hundes Hunde
        cat cats            die Katze Katze Katzen
        horse horses        das Pferd Pferdes Pferde
        bird birds          der Vogel Vogels Vögel
        cow cows            die Kuh Kuh Kühe
        pig pigs            das Schwein Schweins Schweine
        mouse mice          die Maus Maus Mäuse
        rabbit rabbits      das Kaninchen Kaninchens Kaninchen
        """,
    "thing": """
        lamp lamps          die Lampe Lampe Lampen
        cup cups            die Tasse Tasse Tassen
        plate plates        der Teller Tellers Teller
        knife knives        das Messer Messers Messer
        key keys            der Schlüssel Schlüssels Schlüssel
        bag bags            die Tasche Tasche Taschen
        ring rings          der Ring Rings Ringe
        umbrella umbrellas  der Regenschirm Regenschirms Regenschirme
        picture pictures    das Bild Bildes Bilder
        flower flowers      die Blume Blume Blumen
        ball balls          der Ball Balls Bälle
        clock clocks        die Uhr Uhr Uhren
        guitar guitars      die Gitarre Gitarre Gitarren
        gift gifts          das Geschenk Geschenks Geschenke
        bottle bottles      die Flasche Flasche Flaschen
        phone phones        das Telefon Telefons Telefone
        """,
    "furniture": """
        table tables        der Tisch Tisches Tische
        chair chairs        der Stuhl Stuhls Stühle
        bed beds            das Bett Bettes Betten
        box boxes           die Kiste Kiste Kisten
        desk desks          der Schreibtisch Schreibtisches Schreibtische
        bench benches       die Bank Bank Bänke
        """,
    "clothing": """
        hat hats            der Hut Hutes Hüte
        coat coats          der Mantel Mantels Mäntel
        dress dresses       das Kleid Kleides Kleider
        shirt shirts        das Hemd Hemdes Hemden
        jacket jackets      die Jacke Jacke Jacken
        shoe shoes          der Schuh Schuhs Schuhe
        """,
    "vehicle": """
        car cars            das Auto Autos Autos
        bicycle bicycles    das Fahrrad Fahrrads Fahrräder
        boat boats          das Boot Bootes Boote
        bus buses           der Bus Busses Busse
        train trains        der Zug Zuges Züge
        ship ships          das Schiff Schiffes Schiffe
        machine machines    die Maschine Maschine Maschinen
        """,
    "text": """
        book books          das Buch Buches Bücher
        letter letters      der Brief Briefes Briefe
        newspaper newspapers die Zeitung Zeitung Zeitungen
        story stories       die Geschichte Geschichte Geschichten
        poem poems          das Gedicht Gedichtes Gedichte
        novel novels        der Roman Romans Romane
        message messages    die Nachricht Nachricht Nachrichten
        report reports      der Bericht Berichtes Berichte
        """,
    "food": """
        apple apples        der Apfel Apfels Äpfel
        cake cakes          der Kuchen Kuchens Kuchen
        potato potatoes     die Kartoffel Kartoffel Kartoffeln
        egg eggs            das Ei Eis Eier
        pear pears          die Birne Birne Birnen
        sausage sausages    die Wurst Wurst Würste
        """,
    "dish": """
        bread -             das Brot Brotes -
        cheese -            der Käse Käses -
        meat -              das Fleisch Fleisches -
        soup -              die Suppe Suppe -
        rice -              der Reis Reises -
        salad -             der Salat Salats -
        """,
    "drink": """
        water -             das Wasser Wassers -
        milk -              die Milch Milch -
        coffee -            der Kaffee Kaffees -
        tea -               der Tee Tees -
        wine -              der Wein Weins -
        beer -              das Bier Bieres -
        lemonade -          die Limonade Limonade -
        """,
    "opening": """
        door doors          die Tür Tür Türen
        window windows      das Fenster Fensters Fenster
        gate gates          das Tor Tores Tore
        cupboard cupboards  der Schrank Schranks Schränke
        drawer drawers      die Schublade Schublade Schubladen
        """,
    "place": """
        park parks          der Park Parks Parks                 in in
        garden gardens      der Garten Gartens Gärten            in in
        city cities         die Stadt Stadt Städte               in in
        village villages    das Dorf Dorfes Dörfer               in in
        kitchen kitchens    die Küche Küche Küchen               in in
        school schools      die Schule Schule Schulen            in in
        hotel hotels        das Hotel Hotels Hotels              in in
        church churches     die Kirche Kirche Kirchen            in in
        museum museums      das Museum Museums Museen            in in
        forest forests      der Wald Waldes Wälder               in in
        theater theaters    das Theater Theaters Theater         in in
        library libraries   die Bibliothek Bibliothek Bibliotheken in in
        office offices      das Büro Büros Büros                 in in
        restaurant restaurants das Restaurant Restaurants Restaurants in in
        hospital hospitals  das Krankenhaus Krankenhauses Krankenhäuser in in
        house houses        das Haus Hauses Häuser               in in
        shop shops          der Laden Ladens Läden               in in
        castle castles      das Schloss Schlosses Schlösser      in in
        room rooms          das Zimmer Zimmers Zimmer            in in
        station stations    der Bahnhof Bahnhofs Bahnhöfe        at an
        airport airports    der Flughafen Flughafens Flughäfen   at an
        beach beaches       der Strand Strandes Strände          at an
        lake lakes          der See Sees Seen                    at an
        university universities die Universität Universität Universitäten at an
        river rivers        der Fluss Flusses Flüsse             at an
        market markets      der Markt Marktes Märkte             at auf
        bridge bridges      die Brücke Brücke Brücken            on auf
        island islands      die Insel Insel Inseln               on auf
        mountain mountains  der Berg Berges Berge                on auf
        """,
    "event": """
        concert concerts    das Konzert Konzerts Konzerte
        meeting meetings    die Besprechung Besprechung Besprechungen
        meal meals          das Essen Essens Essen
        party parties       das Fest Festes Feste
        exam exams          die Prüfung Prüfung Prüfungen
        wedding weddings    die Hochzeit Hochzeit Hochzeiten
        trip trips          die Reise Reise Reisen
        game games          das Spiel Spieles Spiele
        walk walks          der Spaziergang Spaziergangs Spaziergänge
        """,
}


def _singular(nominative: str, genitive: str, gender: int) -> tuple[str, ...]:
    """Nominative to genitive; a masculine without genitive -s is weak (der Junge, den Jungen)."""
    weak = gender == MASCULINE and not genitive.endswith("s")
    oblique = genitive if weak else nominative
    return nominative, oblique, oblique, genitive


def _plural(form: str) -> tuple[str, ...]:
    """The dative plural takes -n unless the plural ends in -n or -s (den Kindern, den Autos)."""
    dative = form if form.endswith(("n", "s")) else form + "n"
    return form, form, dative, form


def _read(category: str, table: str) -> list[Noun]:
    nouns = []
    for line in table.strip().splitlines():
        singular, plural, article, nominative, genitive, german_plural, *static = line.split()
        gender = ("der", "die", "das").index(article)
        nouns.append(
            Noun(
                lemma=nominative,
                english=(singular, "" if plural == "-" else plural),
                gender=gender,
                german=(
                    _singular(nominative, genitive, gender),
                    () if german_plural == "-" else _plural(german_plural),
                ),
                category=category,
                static=(static[0], static[1]) if static else None,
            )
        )
    return nouns


NOUNS: dict[str, tuple[Noun, ...]] = {
    name: tuple(_read(name, table)) for name, table in _TABLES.items()
}
"""All nouns by category; categories are what verbs and adjectives select."""
