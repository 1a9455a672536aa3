"""Pronouns that stand for something said before, by language: what `anaphora` looks at.

Lists of words and no grammar: some are other words elsewhere ("sie" is "you" as well; "sein", which
is mostly the verb, is left out), and what a pronoun stands for, nobody has marked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from flaxformer_mt.figures.labels import core, words

PRONOUNS = {
    "en": "he him his himself she her hers herself it its itself they them their theirs themselves",
    "de": "er ihn ihm seine seinen seinem seiner seines sie ihr ihre ihren ihrem ihrer ihres "
    "es ihnen sich",
    "fr": "il elle ils elles lui leur leurs eux son sa ses sien sienne celui celle ceux celles",
}


def pronouns_of(language: str) -> frozenset[str]:
    """The words of a language, given as a code such as "en" or "en-GB"; none if it has no list."""
    return frozenset(PRONOUNS.get(re.split("[-_]", language.lower())[0], "").split())


def pronoun_places(pieces: Sequence[str], listed: Collection[str]) -> tuple[int, ...]:
    """Where words of the list begin among the pieces; of "it's" it is "it" that counts."""
    return tuple(
        span.start
        for word, span in words(pieces)
        if re.split("['’]", core(word), maxsplit=1)[0] in listed
    )
