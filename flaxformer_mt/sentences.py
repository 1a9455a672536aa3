"""Finds the ends of a text's sentences: for `serve`, and for lines too long for a model or of more
sentences than it reads together."""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import regex

from flaxformer_mt.abbreviations import Abbreviations, abbreviations, base_of

# Ends of lines and paragraphs by Unicode (UAX 14).
LINE_ENDS = r"\r\n\v\f\x1c-\x1e\x85\u2028\u2029"
_BLANK = rf"[^\S{LINE_ENDS}]"
_CLOSING = "\"'”’“‘»›«‹)\\]}」』）】》〉］"
_OPENING = "\"'“‘„‚«‹»›(\\[{¿¡「『（"
# Signs that begin a word or a line of speech: "$5", "– No."
_BEFORE_WORDS = "$€£¥₹₽#@§*•"
# Marks with a blank after them: Latin, Greek, Cyrillic, Urdu, Syriac; U+037E is Greek's question.
_SPACED = ".!?…‥‼⁇⁈⁉۔܀܁܂\u037e"
# These end a sentence also without one: Chinese and Japanese (full and half width), dandas, Arabic
# and Armenian, Ethiopic, Khmer, Burmese, Mongolian, Ol Chiki, Meetei Mayek, Sinhala, Javanese.
_WIDE = "。！？｡।॥؟։።፧፨។៕။᠃᠉᱾᱿꯫෴꧉"
# A full stop of technical Japanese; in a text that has the usual one, part of a name or number.
_FULL_WIDTH_STOP = "．"
_TIBETAN = "།༎༏༐༑༔"
_WIDE_CLOSING = "”’」』）｣》〉】〕］)\\]»›"
_CLOSING_BRACKETS, _OPENING_BRACKETS = "）〕］)]", "（〔［(["
_HAN_OR_KANA = "\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Characters that continue a sentence after a quotation: "「はい。」と言った", "“走吧！”，他说".
_GOES_ON = "とっをの、，；：,;:"
# So do particles that also begin words: "「はい。」に驚いた", unlike "「はい。」にっこりした".
_PARTICLE = regex.compile(r"[がには](?=[\p{Han}\p{Katakana}、，])|へ(?![えぇん])")
_MOST = 40  # characters of an abbreviation
_LONGEST_QUOTATION = 1000  # characters
# Of a quotation woven into a sentence: "He said: “Stop. Go home.”". A longer one is cut inside, as
# Moses cuts all: a model of single sentences would leave out most of it.
_LONGEST_WOVEN = 100  # characters
# Greek's question mark looks like a semicolon, and Armenian's full stop like a colon.
_MORE_MARKS = {"el": ";", "hy": ":"}
_BLANKS = re.compile(rf"{_BLANK}*+")
_LINE_END = re.compile(rf"[{LINE_ENDS}]")
# Georgian's letters count as lower case, but begin its sentences.
_LOWER = regex.compile(r"[\p{Ll}--\p{Georgian}]", regex.V1)
_LETTERS = re.compile(r"[^\W\d_]++")
_ROMAN = re.compile(r"[IVXLCDM]{2,}\b")
# Letters with full stops, maybe hyphens, between them: "J", "J.-P", "z.B", "Ph.D", "U.S".
_INITIALS = re.compile(r"(?:[^\W\d_]{1,3}\.-?)*+[^\W\d_]")
_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,3})*+")
_STRAIGHT = ('"', "'")  # a quotation begins and ends with the same
_ITEM = re.compile(r"(?<!\S)\d{1,3}\Z")  # the number of a list's item: "７．"
# What ends a quotation that begins with a mark. An apostrophe looks like a single mark.
_ENDS_OF = {"“": "”", "„": "“”", "«": "»", "»": "«", "「": "」", "『": "』", '"': '"'}
_AFTER_WORDS = r"\s,.;:!?)\]"


def _quotation(opening: str, closing: str) -> str:
    """The pattern of a short quotation between these marks, of which one may be a sign itself."""
    within = rf"[^{opening}{closing}{LINE_ENDS}]{{1,{_LONGEST_WOVEN}}}"
    match opening:
        case '"':  # also the sign of inches
            return rf'(?<![^\s(\[])"(?=\S){within}(?<=\S)"(?!\w)'
        case "»":  # also the end of a longer «quotation», and of a French « one »
            return rf"(?<![^\s(\[])»(?=[^{_AFTER_WORDS}]){within}(?<=\S)«(?!\w)"
        case "«":  # also the end of a longer »quotation«
            return rf"(?:(?<![^\s(\['’])«|«(?=\w)){within}»"
    return rf"{opening}{within}[{closing}]"


_QUOTATIONS = re.compile("|".join(_quotation(*marks) for marks in _ENDS_OF.items()))
# What may be before a quotation that begins its sentence: "– “No. Go.”", "(“No. Go.”)", "1. “No.".
_HEAD = re.compile(rf"(?:[-–—•*(\[{{]|\d{{1,3}}(?:\.\d{{1,3}})*+[.):\]]|{_BLANK}){{0,10}}+")
_BRACKETS_AFTER = ")]}"  # a quotation
_TAIL = re.compile(rf"[{re.escape(_BRACKETS_AFTER)}]*+")
_TIBETAN_HEAD = re.compile(rf"[\u0f01-\u0f0a{_TIBETAN}\s]*+")


@dataclasses.dataclass(frozen=True)
class SplitText:
    """A text as sentences and the glue around them: `glue[0]` before the first, and so on.

    `glue` has one entry more than `texts`, of white space only; sentences have no outer blanks and
    no line breaks.
    """

    texts: tuple[str, ...]
    glue: tuple[str, ...]

    def joined(self, translated: Sequence[str]) -> str:
        """The text with its sentences replaced."""
        inner = (text + after for text, after in zip(translated, self.glue[1:], strict=True))
        return self.glue[0] + "".join(inner)


def split_sentences(
    text: str, language: str, *, at_marks: bool = True, any_case: bool = False
) -> SplitText:
    """Cuts at line breaks and, `at_marks`, at sentence ends; if in doubt it doesn't cut.

    `language` is the text's, a code as in `data.src_lang` ("": unknown). A sentence begins with no
    lower-case letter, unless it may have `any_case`. Nothing is lost:
    `split.joined(split.texts) == text`. Takes time linear in the text's length. Raises TypeError
    for a list: split its texts one by one.
    """
    if not isinstance(text, str) or not isinstance(language, str):
        raise TypeError(
            "split_sentences takes one text and its language, such as split_sentences(text, 'en'), "
            f"not {type(text).__name__} and {type(language).__name__}"
        )
    texts: list[str] = []
    glue = [""]
    start = 0
    for end, begin in [*_cuts(text, language, at_marks, any_case), (len(text), len(text))]:
        part = text[start:end]
        if sentence := part.strip():
            before = len(part) - len(part.lstrip())
            glue[-1] += part[:before]
            texts.append(sentence)
            glue.append(part[before + len(sentence) :])
        else:
            glue[-1] += part
        glue[-1] += text[end:begin]
        start = begin
    return SplitText(tuple(texts), tuple(glue))


@dataclasses.dataclass(frozen=True)
class Unquoted:
    """A sentence without the mark that begins or ends a quotation of several, its blank, and the
    dash, number or brackets on its other side."""

    text: str
    opening: str = ""
    closing: str = ""


def unquoted(sentences: Sequence[str]) -> list[Unquoted]:
    """The sentences of a line; the marks of a quotation of several whole ones are set aside, since
    a model of single sentences has rarely read one with half of a pair."""
    return unquoted_at(quotations(sentences), sentences)


def unquoted_at(places: Iterable[tuple[int, int]], sentences: Sequence[str]) -> list[Unquoted]:
    """The sentences of a line without the marks of the `quotations` at these places."""
    plain = [Unquoted(sentence) for sentence in sentences]
    for first, last in places:
        begin, end = sentences[first], sentences[last]
        opened = begin[_end_of(_HEAD, begin, 0) + 1 :].lstrip()
        closed = end.rstrip(_BRACKETS_AFTER)[:-1].rstrip()
        plain[first] = Unquoted(opened, opening=begin[: len(begin) - len(opened)])
        plain[last] = Unquoted(closed, closing=end[len(closed) :])
    return plain


def quotations(sentences: Sequence[str]) -> list[tuple[int, int]]:
    """The places of the first and the last sentence of every quotation of several whole ones."""
    places: list[tuple[int, int]] = []
    first = 0
    while first < len(sentences):
        last = _end_of_quotation(sentences, first)
        if last is not None:
            places.append((first, last))
            first = last
        first += 1
    return places


def _end_of_quotation(sentences: Sequence[str], first: int) -> int | None:
    """Where a quotation ends that begins with the sentence `first` and ends with a later one, all
    others being without its marks; None if there is none."""
    opening = _open_mark(sentences[first])
    if not opening:
        return None
    closing = _ENDS_OF[opening]
    marks = {opening, *closing}
    for last in range(first + 1, len(sentences)):
        inner = sentences[last].rstrip(_BRACKETS_AFTER)
        if not marks.isdisjoint(inner):
            is_end = inner[-1] in closing and marks.isdisjoint(inner[:-1])
            return last if is_end and len(inner) > 1 else None
    return None


def _open_mark(sentence: str) -> str:
    """The mark of a quotation that begins with a sentence and doesn't end in it, or nothing."""
    head = _end_of(_HEAD, sentence, 0)
    opening, said = sentence[head : head + 1], sentence[head + 1 :]
    marks = {opening, *_ENDS_OF.get(opening, "")}
    if opening not in _ENDS_OF or not said or not marks.isdisjoint(said):
        return ""
    is_sign = opening == "»" and said[0].isspace()  # between links: "Home » News"
    return "" if is_sign else opening


def sentence_ends(text: str, language: str, *, any_case: bool = False) -> list[int]:
    """Where a text can be cut between two sentences: before the later one's first character."""
    first = len(text) - len(text.lstrip())
    cuts = _cuts(text, language, True, any_case)
    return [begin for end, begin in cuts if end > first and begin < len(text)]


@functools.cache
def _breaks(more: str, more_wide: str) -> re.Pattern[str]:
    """Candidates, with more marks of both kinds. No part can be retried over the same characters: a
    text is read once."""
    spaced, wide = _SPACED + more, _WIDE + more_wide
    leading = rf"(?:[\"«‹]{_BLANK}?|[{_OPENING}{_BEFORE_WORDS}])*+"
    return re.compile(
        rf"(?P<line>[{LINE_ENDS}]\s*)"
        rf"|(?P<mark>(?<![{spaced}])(?P<run>[{spaced}]++)[{_CLOSING}]*+"
        # French has a blank before a closing guillemet.
        rf"(?:{_BLANK}[»›](?={_BLANK}))?+){_BLANK}++"
        rf"(?={leading}(?:[-–—]{_BLANK}*+{leading})?+(?P<next>[^\W_]))"
        # Only where a run begins: a search at each of its marks would take quadratic time.
        rf"|(?P<wide>(?!(?<=[{wide}])[{wide}])(?P<wide_run>[{_TIBETAN}](?: ?[{_TIBETAN}])*+"
        rf"|(?:[{wide}]|፡፡|(?<=[{_HAN_OR_KANA}])[!?](?=[!?]*+[{_HAN_OR_KANA}{_WIDE_CLOSING}]))++[.!?]*+)"
        # A verse's number is between dandas.
        rf"(?:{_BLANK}?[\d]++{_BLANK}?[।॥]++)*+[{_WIDE_CLOSING}]*+){_BLANK}*+(?=\S)"
    )


def _cuts(text: str, language: str, at_marks: bool, any_case: bool) -> Iterator[tuple[int, int]]:
    """Where each sentence but the last ends, and where the next begins."""
    start = len(text) - len(text.lstrip())
    woven = _WovenQuotations(text, any_case)
    more = _MORE_MARKS.get(base_of(language), "")
    for match in _breaks(more, "" if "。" in text else _FULL_WIDTH_STOP).finditer(text):
        cut: tuple[int, int] | None = None
        if match["line"] is not None:
            cut = match.span()
        elif at_marks and match["mark"] is not None:
            cut = _spaced_cut(text, start, match, language, any_case)
        elif at_marks:
            cut = _wide_cut(text, start, match, language)
        if cut is not None and not woven.hold(start, cut[0]):
            yield cut
            _, start = cut


class _WovenQuotations:
    """The short quotations of a text, asked in the order of its cuts."""

    def __init__(self, text: str, any_case: bool) -> None:
        self._text, self._any_case = text, any_case
        self._spans = (match.span() for match in _QUOTATIONS.finditer(text))
        self._span = next(self._spans, (len(text), len(text)))

    def hold(self, start: int, end: int) -> bool:
        """Whether a cut at `end` is inside one that is woven into the sentence from `start`."""
        while self._span[1] <= end:
            following = next(self._spans, None)
            if following is None:
                return False
            self._span = following
        opening, after = self._span
        if opening >= end:
            return False
        begin = _end_of(_HEAD, self._text, start)
        return opening > begin or not self._ends_sentence(after)

    def _ends_sentence(self, after: int) -> bool:
        """Whether the quotation that ends before `after` ends a sentence, too."""
        mark = self._text[max(0, after - 3) : after - 1].rstrip()[-1:]
        after = _end_of(_TAIL, self._text, after)
        following = _end_of(_BLANKS, self._text, after)
        if following == len(self._text) or _LINE_END.match(self._text, following):
            return True
        if following == after:
            return mark in _WIDE and self._text[after] not in _GOES_ON
        return self._any_case or not _LOWER.match(self._text, following)


def _spaced_cut(
    text: str, start: int, match: re.Match[str], language: str, any_case: bool
) -> tuple[int, int] | None:
    """The cut at a mark with a blank after it, if it ends the sentence that begins at `start`."""
    if _LOWER.match(match["next"]) and not any_case:
        return None
    if match["run"] in (".", "۔"):
        following = match.start("next")
        is_number = match["next"].isdigit() or _ROMAN.match(text, following) is not None
        known = abbreviations(language)
        if _abbreviated(text, start, match.start(), known, is_number) and not known.ends_before(
            _word_before(text, start, match.start()),
            text[following : _end_of(_LETTERS, text, following)],
        ):
            return None
    end, begin = match.end("mark"), match.end()
    if text.startswith('"', begin) and text[begin + 1].isspace() and _is_quoted(text, begin):
        end = begin + 1  # the mark of " a quotation. " with blanks inside
        begin = _end_of(_BLANKS, text, end)
    return end, begin


def _is_quoted(text: str, place: int) -> bool:
    """Whether the straight mark at a place ends a quotation that begins on its line."""
    first = max(0, place - _LONGEST_QUOTATION)
    line = 1 + max(text.rfind(end, first, place) for end in "\r\n")
    return text.count(text[place], max(first, line), place) % 2 == 1


def _wide_cut(text: str, start: int, match: re.Match[str], language: str) -> tuple[int, int] | None:
    """The cut at a mark that needs no blank, if it ends the sentence that begins at `start`."""
    end, begin = match.end("wide"), match.end()
    if text[end : end + 1] in _STRAIGHT and (
        text[end + 1 : end + 2].isspace() or end + 1 == len(text) or _is_quoted(text, end)
    ):
        end += 1
        begin = _end_of(_BLANKS, text, end)
    if end == len(text) or _within_words(text, start, match, end, language):
        return None
    is_closed = end > match.end("wide_run")
    if is_closed and _continues(text, start, end):
        return None
    return end, begin


def _end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Where a match ends that begins at a place of the text; the place if there is none."""
    match = pattern.match(text, place)
    return place if match is None else match.end()


def _within_words(text: str, start: int, match: re.Match[str], end: int, language: str) -> bool:
    """Whether a mark belongs to a number, an abbreviation or an opening sign."""
    run, place = match["wide_run"], match.start()
    if run[0] in "．։।" and _between_digits(text, place):
        return True
    if run == _FULL_WIDTH_STOP and _is_point(text, start, place, language):
        return True
    if run[0] == "។" and (text.startswith("ល។", place + 1) or text.endswith("។ល", start, place)):
        return True  # Khmer's "etc."
    # The sign at the head of a text.
    is_short = end - start < _MOST
    return run[0] in _TIBETAN and is_short and bool(_TIBETAN_HEAD.fullmatch(text, start, end))


def _is_point(text: str, start: int, place: int, language: str) -> bool:
    """Whether the full-width full stop at a place belongs to the word before it."""
    if base_of(language) == "zh" and not text[place + 1].isspace():
        return True  # between parts of a name: "埃德加．斯諾"
    number = _ITEM.search(text, max(start, place - _MOST), place)
    return number is not None or _abbreviated(text, start, place, abbreviations(language), False)


def _between_digits(text: str, place: int) -> bool:
    """Whether the mark is part of a decimal number or a time."""
    return text[place - 1 : place].isdigit() and text[place + 1 : place + 2].isdigit()


def _continues(text: str, start: int, end: int) -> bool:
    """Whether the sentence goes on behind the bracket or quotation that ends at `end`."""
    if text[end] in _GOES_ON or _PARTICLE.match(text, end) or text[end - 1] in "》〉":
        return True  # the last two are of titles: "《怎么办？》的作者"
    # A remark within a sentence: "彼は（本当に？）来た。"
    return text[end - 1] in _CLOSING_BRACKETS and text[start] not in _OPENING_BRACKETS


def _word_before(text: str, start: int, end: int) -> str:
    """The word that ends at a place of a sentence, without signs before it; empty after a blank."""
    before = text[max(start, end - _MOST) : end]
    word = before.split()[-1] if before and not before[-1].isspace() else ""
    return word.lstrip("\"'“‘„‚«‹»›([{¿¡「『（§$€£*•/–—-")


def _abbreviated(text: str, start: int, end: int, known: Abbreviations, number: bool) -> bool:
    """Whether the full stop at `end` belongs to the word before it, such as an abbreviation.

    `number`: a number follows.
    """
    word = _word_before(text, start, end)
    # It begins its sentence, or is longer than any abbreviation.
    is_alone = not re.search(r"\s", text[max(start, end - _MOST) : end])
    if not word:
        return False
    if _NUMBER.fullmatch(word):
        return known.ordinals or is_alone
    if known.ordinals and _ROMAN.fullmatch(word):
        return True
    if "://" in word:
        return False
    last = re.split("[-‐‑–—/'’·]", word)[-1]
    if known.has(word, number=number) or (last and known.has(last, number=number)):
        return True
    return _are_initials(word, last)


def _are_initials(word: str, last: str) -> bool:
    """Whether a word, or its `last` part, is initials, as before a surname."""
    is_small = len(last) == 1 and last.islower()
    if is_small and (_is_marked(last) or word[-2:-1] in ("'", "’", "/")):
        return False  # nor are the last letters of "I don't.", "the 70's." and "5 km/h."
    if not (_INITIALS.fullmatch(word) or _INITIALS.fullmatch(last)):
        return False
    # One character may be a word in Chinese, Japanese and Korean.
    return unicodedata.east_asian_width(word[-1]) not in "WF"


def _is_marked(letter: str) -> bool:
    """Whether a single small letter is a word, and no initial: "dov'è", "quem é", "en ö", "я"."""
    return letter in "яø" or len(unicodedata.normalize("NFD", letter)) > 1
