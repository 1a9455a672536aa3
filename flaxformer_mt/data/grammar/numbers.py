"""Numbers in words: cardinals of 0 to 9999, ordinals of 1 to 31, in English and German."""

from __future__ import annotations

_ENGLISH_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_ENGLISH_TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
_GERMAN_SMALL = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn "
    "sechzehn siebzehn achtzehn neunzehn"
).split()
_GERMAN_TENS = "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_ENGLISH_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
} | {
    "nine": "ninth",
    "twelve": "twelfth",
}
_GERMAN_ORDINALS = {1: "ersten", 3: "dritten", 7: "siebten", 8: "achten"}


def _check(number: int, low: int, high: int) -> None:
    if not low <= number <= high:
        raise ValueError(f"the grammar spells numbers from {low} to {high}, not {number}")


def english_cardinal(number: int) -> str:
    """The English cardinal of 0..9999: 1142 is "one thousand one hundred and forty-two"."""
    _check(number, 0, 9999)
    thousands, rest = divmod(number, 1000)
    hundreds, rest = divmod(rest, 100)
    words = []
    if thousands:
        words.append(f"{_ENGLISH_SMALL[thousands]} thousand")
    if hundreds:
        words.append(f"{_ENGLISH_SMALL[hundreds]} hundred")
    if rest or not words:
        small = _english_below_hundred(rest)
        words.append(f"and {small}" if words else small)
    return " ".join(words)


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return _ENGLISH_SMALL[number]
    tens, ones = divmod(number, 10)
    return f"{_ENGLISH_TENS[tens]}-{_ENGLISH_SMALL[ones]}" if ones else _ENGLISH_TENS[tens]


def german_cardinal(number: int) -> str:
    """The German cardinal of 0..9999, one word: 42 is "zweiundvierzig", a final 1 is "eins"."""
    _check(number, 0, 9999)
    thousands, rest = divmod(number, 1000)
    hundreds, rest = divmod(rest, 100)
    word = ""
    if thousands:
        word = ("" if thousands == 1 else _GERMAN_SMALL[thousands]) + "tausend"
    if hundreds:
        word += ("" if hundreds == 1 and not word else _GERMAN_SMALL[hundreds]) + "hundert"
    if rest or not word:
        word += _german_below_hundred(rest)
    return word


def _german_below_hundred(number: int) -> str:
    if number == 1:
        return "eins"
    if number < 20:
        return _GERMAN_SMALL[number]
    tens, ones = divmod(number, 10)
    return (f"{_GERMAN_SMALL[ones]}und" if ones else "") + _GERMAN_TENS[tens]


def english_ordinal(number: int) -> str:
    """The English ordinal of 1..31: "third", "twenty-first"."""
    _check(number, 1, 31)
    head, hyphen, last = _english_below_hundred(number).rpartition("-")
    if last in _ENGLISH_ORDINALS:
        last = _ENGLISH_ORDINALS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return head + hyphen + last


def german_ordinal(number: int) -> str:
    """The German ordinal of 1..31 as a date has it after "am": "dritten", "einundzwanzigsten"."""
    _check(number, 1, 31)
    if number in _GERMAN_ORDINALS:
        return _GERMAN_ORDINALS[number]
    return _german_below_hundred(number) + ("ten" if number < 20 else "sten")


CARDINALS: tuple[tuple[str, str], ...] = tuple(
    (english_cardinal(n), german_cardinal(n)) for n in range(10000)
)
"""Both words of each number, spelled once: sampling looks them up."""
