"""Abbreviations after which a period belongs to the word: short lists for the tokeniser.

Written for this project from general knowledge of the languages; the idea of two classes, those
that never end a sentence and those that only do not before a number, is the Moses tokeniser's.
"""

from __future__ import annotations

import string

_ROMAN = "II III IV VI VII VIII IX XI XII XIII XIV XV XVI XVII XVIII XIX XX"
_SMALL = " ".join(string.ascii_lowercase)

_ALWAYS = {
    "en": """
        Mr Mrs Ms Messrs Dr Prof Rev Hon Sen Sens Rep Reps Gov Gen Col Maj Capt Cmdr Lt Sgt Sr St
        Bros Corp Ph Jan Feb Aug Sept Oct Nov Dec v vs
    """,
    # Numbers are ordinals: "am 5. Mai".
    "de": f"""
        Hr Hrn Fr Dr Prof Dipl Mag Mr Mrs Ms Gen Gov Sen St Str Std Nr Art Abs Bd Mio Mrd Tsd
        bzw ca evtl ggf gest inkl jun max min resp sen sog usw vgl vs
        {_ROMAN} {_SMALL} {" ".join(map(str, range(1, 100)))}
    """,
    # "il a." ends a sentence.
    "fr": f"""
        M MM Mgr Mlle Mme Mmes Pr Me St Ste
        art av bd boul cf chap env etc fig hab ibid inf janv févr juil max min oct nov déc suiv sup
        tél vol vs {_SMALL[2:]}
    """,
}
_BEFORE_NUMBERS = {"en": "No Nos Art pp", "de": "", "fr": "nos nr pp"}

LANGUAGES = tuple(sorted(_ALWAYS))
ALWAYS = {
    language: frozenset(words.split()) | frozenset(string.ascii_uppercase)
    for language, words in _ALWAYS.items()
}
BEFORE_NUMBERS = {language: frozenset(words.split()) for language, words in _BEFORE_NUMBERS.items()}
