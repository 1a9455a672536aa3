"""Text normalisation as replacement rules inside a SentencePiece model, the same everywhere.

SentencePiece applies the longest match from left to right, never to a rule's output. That gives NFC
and NFKC for usual text:

- every single character, as by `unicodedata.normalize`;
- a letter with one combining mark, or with two in either order if the first composes with it;
- any canonical spelling of a precomposed character, such as Greek letters with three marks;
- conjoining Hangul jamo;
- two marks in the wrong order: Arabic and Hebrew points, and marks of precomposed letters.

Not covered, so spelled as before in part: a composing mark behind one that doesn't compose, three
or more marks without a precomposed character, and (nfkc) several marks on a compatibility
character. The rules come from the `unicodedata` of the Python that trains the vocabulary.
"""

import functools
import itertools
import sys
import types
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

Form = Literal["blanks", "nfc", "nfkc"]
Rules = dict[str, str]
Normalize = Callable[[str], str]

# Zero-width space, word joiner, byte order mark. U+200C and U+200D matter to Persian, Indic, emoji.
_INVISIBLE = "\u200b\u2060\ufeff"
_SYLLABLES = range(0xAC00, 0xD7A4)  # of Hangul
# Marks that text has in either order: Arabic vowel signs, Hebrew points.
_POINTS = (range(0x064B, 0x0656), range(0x05B0, 0x05C8))
_SHOWS_NOTHING = _INVISIBLE + "\u200c\u200d\u2581"
# Halfwidth voicing marks, which compose only once nfkc has made them full marks.
_KANA_MARKS = ("\uff9e", "\uff9f")


def is_blank(text: str) -> bool:
    """Whether a text is nothing but white space, zero-width marks and U+2581 (a blank here)."""
    return all(character.isspace() or character in _SHOWS_NOTHING for character in text)


@functools.cache
def rules(form: Form) -> Mapping[str, str]:
    """Replacements in the order of texts; a Unicode form takes a second.

    Every form turns Unicode's white space into plain blanks and removes zero-width characters.
    """
    replacements = {character: " " for character in _characters() if character.isspace()}
    replacements.pop(" ")
    replacements.update(dict.fromkeys(_INVISIBLE, ""))
    if form != "blanks":
        blanks = str.maketrans(replacements)
        unicode_rules = _unicode_rules("NFC" if form == "nfc" else "NFKC")
        composed = {before: after.translate(blanks) for before, after in unicode_rules.items()}
        replacements = composed | replacements
    return types.MappingProxyType(dict(sorted(replacements.items())))


def _unicode_rules(form: Literal["NFC", "NFKC"]) -> Rules:
    normalize = functools.partial(unicodedata.normalize, form)
    normalized = ((character, normalize(character)) for character in _characters())
    unicode_rules = {before: after for before, after in normalized if after != before}
    unicode_rules |= _hangul_rules()

    composites = _composites()
    marks = sorted({mark for parts in composites.values() for mark in parts[1:]})
    starters = {parts[0] for parts in composites.values()} | set(composites)
    if form == "NFKC":
        marks += _KANA_MARKS
        # Characters of one letter in compatibility form, such as halfwidth kana.
        starters |= {before for before, after in unicode_rules.items() if after in starters}

    unicode_rules = _spelling_rules(composites, normalize) | unicode_rules
    unicode_rules |= _order_rules(marks, normalize)
    for starter in sorted(starters):
        _add_marks(unicode_rules, starter, marks, normalize)
    return unicode_rules


def _hangul_rules() -> Rules:
    """Syllables of their jamo, and of a composed beginning and the last jamo."""
    hangul_rules = {}
    for syllable in map(chr, _SYLLABLES):
        jamo = unicodedata.normalize("NFD", syllable)
        hangul_rules[jamo] = syllable
        if len(jamo) > 2:
            hangul_rules[unicodedata.normalize("NFC", jamo[:2]) + jamo[2]] = syllable
    return hangul_rules


def _composites() -> dict[str, str]:
    """Characters that others compose to, with their full decomposition."""
    return {
        character: unicodedata.normalize("NFD", character)
        for character in _characters()
        if unicodedata.decomposition(character)[:1] not in ("", "<")
        and unicodedata.normalize("NFC", character) == character
    }


def _spelling_rules(composites: Mapping[str, str], normalize: Normalize) -> Rules:
    """The canonical spellings of composites, with their marks in any order."""
    spelling_rules: Rules = {}
    for composite, parts in composites.items():
        normalized = normalize(composite)
        for order in itertools.permutations(parts[1:]):
            spelling = parts[0] + "".join(order)
            if normalize(spelling) == normalized:
                spelling_rules.setdefault(spelling, normalized)
    return spelling_rules


def _order_rules(marks: Iterable[str], normalize: Normalize) -> Rules:
    """Two marks of one script in the wrong order."""
    order_rules = {}
    for script in (marks, *([chr(point) for point in points] for points in _POINTS)):
        for first, second in itertools.permutations(script, 2):
            if unicodedata.combining(first) > unicodedata.combining(second) > 0:
                order_rules[first + second] = normalize(first + second)
    return order_rules


def _add_marks(
    unicode_rules: Rules, starter: str, marks: Iterable[str], normalize: Normalize
) -> None:
    """Rules for the starter with one mark and with two, if shorter rules don't suffice."""
    after_one = {mark: normalize(starter + mark) for mark in marks}
    starter_alone = unicode_rules.get(starter, starter)
    composing = [mark for mark, after in after_one.items() if after != starter_alone + mark]
    unicode_rules.update({starter + mark: after_one[mark] for mark in composing})
    if unicodedata.decomposition(starter).startswith("<"):
        return  # It would take ten thousand rules, for text that nobody writes.
    for first, second in itertools.product(composing, marks):
        if ord(first) >> 8 != ord(second) >> 8:
            continue  # Marks of two scripts.
        after = normalize(starter + first + second)
        # Shorter rules would leave `second` as it is, after what the other two become.
        if after != after_one[first] + second:
            unicode_rules.setdefault(starter + first + second, after)


def _characters() -> Iterator[str]:
    for point in range(sys.maxunicode + 1):
        if not 0xD800 <= point <= 0xDFFF:
            yield chr(point)
