"""Texts and translations as token ids that fit the model, as whole lines or parts."""

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence, Set
from typing import Literal

import regex

from flaxformer_mt.config.languages import UNSPACED_LETTER
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies, Vocabulary
from flaxformer_mt.decoding.errors import DecodingError, OverlongError, TargetError
from flaxformer_mt.keeping.marks import MARK, taken_out
from flaxformer_mt.sentences import (
    Unquoted,
    quotations,
    sentence_ends,
    split_sentences,
    unquoted,
    unquoted_at,
)

Overlong = Literal["split", "refuse"]
Target = str | Sequence[int]
"""A translation: its text, or its tokens as `Hypothesis.tokens` has them."""

# Inside a sentence, from the best place for a cut to the worst; a cut is at the end of a match.
_BOUNDARIES = (
    re.compile(r"[,;:]\s+|\s[-–—]+\s+|[，；：、]\s*"),  # between clauses
    re.compile(r"\s+"),  # between words
)
_LATIN_MARKS = str.maketrans("「」『』", "“”‘’")
# Two letters of scripts without blanks between words: a cut between them tells nothing of words.
_WITHOUT_BLANKS = regex.compile(UNSPACED_LETTER + "{2}")


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a text, and what goes between its translation and the next part's.

    `opening` and `closing` go around its translation: the marks of a quotation of several
    sentences, which the model reads without them.
    """

    text: str
    glue: str
    opening: str = ""
    closing: str = ""


@dataclasses.dataclass(frozen=True)
class CutLine:
    """A line in the pieces that are translated one by one; a blank one has none."""

    pieces: Sequence[Piece]
    sentences: int = 1  # in the line; 1 if it is cut because it is too long
    overlong: bool = False  # as a whole
    at_risk: bool = False  # whole, with more sentences than the model is known to read together
    tokens: int = 0  # of the line as a whole, without an end mark

    @property
    def by_sentence(self) -> bool:
        """Whether each sentence is translated by itself, though the line would fit."""
        return len(self.pieces) > 1 and not self.overlong


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a line with its translation: what the model is given at a time."""

    src_text: str
    src: tuple[int, ...]  # token ids without marks
    tgt_text: str
    tgt: tuple[int, ...]
    glue: str = ""  # between `tgt_text` and the next part's
    src_lead: str = ""  # read before `src_text`, and not of its text
    tokens_given: bool = False  # `tgt_text` is of `tgt`, not the other way round
    opening: str = ""  # before and after `tgt_text`, as Piece has it
    closing: str = ""


def _part(piece: Piece, src: Sequence[int], text: str, tgt: Sequence[int], lead: str) -> Part:
    """A piece of a source, read after `lead`, and its translation `text`."""
    return Part(
        src_text=piece.text,
        src=tuple(src),
        tgt_text=text,
        tgt=tuple(tgt),
        glue=piece.glue,
        opening=piece.opening,
        closing=piece.closing,
        src_lead=lead,
    )


def encode(vocabulary: Vocabulary, texts: Sequence[str]) -> list[list[int]]:
    """Raises DecodingError for text that isn't Unicode."""
    try:
        return vocabulary.encode(texts)
    except TypeError:  # which says nothing of the text
        check_unicode(texts)
        raise


def check_unicode(texts: Iterable[str]) -> None:
    """Raises DecodingError for text with half a surrogate pair, which has no UTF-8."""
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise DecodingError(f"{text!a} is not Unicode text: it has half a surrogate pair")


def cut_pairs(
    pairs: Sequence[tuple[str, Target]],
    vocabularies: Vocabularies,
    *,
    max_length: int,
    overlong: Overlong,
    language: str = "",
    tgt_language: str = "",
    tags: Set[str] = frozenset(),
    together: int | None = None,
) -> list[list[Part]]:
    """Each pair's parts: one, unless a side has more than `max_length` tokens, end mark included,
    or the source more than `together` sentences (None: any number).

    `language` is the sources' (a code), `tgt_language` the translations', and `tags` are words that
    sources may begin with.

    A translation given as tokens is cut at the end marks between its parts, and its source as
    `translate` cuts it. A translation given as text is cut at its sentences if it fits and has as
    many as its source. If it doesn't fit, it is cut near the same place as its source, a guess.

    Raises OverlongError for `overlong` "refuse", TargetError for tokens that aren't a translation
    of the line, and DecodingError for text that isn't Unicode.
    """
    cutter = _PairCutter(
        vocabularies=vocabularies,
        max_length=max_length,
        overlong=overlong,
        language=language,
        tgt_language=tgt_language,
        tags=tags,
        together=together,
    )
    texts = [target if isinstance(target, str) else "" for _, target in pairs]
    sources = encode(vocabularies.src, [source for source, _ in pairs])
    targets = encode(vocabularies.tgt, texts)
    cut = []
    for number, ((source, target), src, tgt) in enumerate(
        zip(pairs, sources, targets, strict=True)
    ):
        if isinstance(target, str):
            cut.append(cutter.with_text(number, source, target, src, tgt))
        else:
            cut.append(cutter.with_tokens(number, source, target, src))
    return cut


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PairCutter:
    """Cuts pairs into parts, as `cut_pairs` says; `number` is the pair's, `src` the source's
    tokens."""

    vocabularies: Vocabularies
    max_length: int
    overlong: Overlong
    language: str
    tgt_language: str
    tags: Set[str]
    together: int | None

    def with_text(
        self, number: int, source: str, target: str, src: Sequence[int], tgt: Sequence[int]
    ) -> list[Part]:
        """Of a translation as text, which has the tokens `tgt`."""
        if max(len(src), len(tgt)) < self.max_length:
            whole = Part(source, tuple(src), target, tuple(tgt))
            return self._sentences_in_parts(source, target) or [whole]
        if self.overlong == "refuse":
            message = describe_overlong(self.max_length, source=src, target=tgt)
            raise OverlongError(number, message, splits=True)
        return self._texts_in_parts(source, target)

    def with_tokens(
        self, number: int, source: str, target: Sequence[int], src: Sequence[int]
    ) -> list[Part]:
        """Of a translation as tokens."""
        tgt = _checked(number, target, self.vocabularies.tgt)
        fits_whole = len(src) < self.max_length
        if fits_whole and tgt.count(EOS) == 1 and tgt[-1] == EOS and self._is_one_piece(source):
            # Its end mark, and not one before a part without tokens.
            tgt = tgt[:-1]

        # Of a source that fits and was cut by sentence, each part has to fit.
        longest = max(map(len, _at_end_marks(tgt))) if fits_whole else len(tgt)
        too_long = max(len(src), longest) >= self.max_length
        if too_long and self.overlong == "refuse":
            # The tokens are in parts already, or have to be one.
            splits = max(map(len, _at_end_marks(tgt))) < self.max_length
            message = describe_overlong(self.max_length, source=src, target=tgt)
            raise OverlongError(number, message, splits=splits)
        if too_long or EOS in tgt:
            return self._tokens_in_parts(number, source, tgt)
        (text,) = self.vocabularies.tgt.decode([tgt])
        part = self._only_piece(source, text, tgt) or Part(source, tuple(src), text, tuple(tgt))
        return [dataclasses.replace(part, tokens_given=True)]

    def _only_piece(self, source: str, text: str, tgt: Sequence[int]) -> Part | None:
        """The part of a source whose sentences are all kept but for one, which `translate` reads
        alone; None for other sources."""
        if MARK not in source or self._is_one_piece(source):
            return None
        lead, pieces, encoded = source_pieces(
            source,
            self.vocabularies.src,
            self.max_length,
            self.language,
            tags=self.tags,
            by_sentence=True,
        )
        return _part(pieces[0], encoded[0], text, tgt, lead) if len(pieces) == 1 else None

    def _is_one_piece(self, source: str) -> bool:
        """Whether `translate` reads a source that fits as a whole."""
        if self.together is None:
            return True
        return self._sentence_count(source) <= self.together

    def _sentence_count(self, source: str) -> int:
        return sentence_count(source, self.vocabularies.src, self.language, self.tags)

    def _sentences_in_parts(self, source: str, target: str) -> list[Part]:
        """The sentences of both sides, if these are as many and too many to be read together."""
        if self.together is None:
            return []
        src = self.vocabularies.src
        sentences = self._sentence_count(source)
        if sentences <= self.together:
            return []
        texts = split_sentences(target, self.tgt_language).texts
        if len(texts) != sentences:
            return []
        lead, pieces, sources = source_pieces(
            source, src, self.max_length, self.language, tags=self.tags, by_sentence=True
        )
        in_both = _quotations_of(pieces).intersection(quotations(texts))
        translations = [
            sentence for sentence in unquoted_at(in_both, texts) if not _is_kept(sentence.text)
        ]
        if len(translations) != len(pieces):
            return []
        targets = encode(self.vocabularies.tgt, [sentence.text for sentence in translations])
        return [
            dataclasses.replace(
                _part(piece, src_ids, sentence.text, tgt_ids, lead),
                opening=sentence.opening,
                closing=sentence.closing,
            )
            for piece, src_ids, sentence, tgt_ids in zip(
                pieces, sources, translations, targets, strict=True
            )
        ]

    def _texts_in_parts(self, source: str, target: str) -> list[Part]:
        src, tgt = self.vocabularies.src, self.vocabularies.tgt
        src_fits, tgt_fits = fits(src, self.max_length), fits(tgt, self.max_length)
        lead = lead_of(source, src, self.tags)
        pairs = split_pair_to_fit(
            source.removeprefix(lead),
            target,
            lambda text, translation: src_fits(lead + text) and tgt_fits(translation),
            self.language,
            symbols=src.symbols,
        )
        sources = encode(src, [lead + piece.text for piece, _ in pairs])
        targets = encode(tgt, [piece.text for _, piece in pairs])
        return [
            Part(before.text, tuple(src_ids), after.text, tuple(tgt_ids), after.glue, lead)
            for (before, after), src_ids, tgt_ids in zip(pairs, sources, targets, strict=True)
        ]

    def _tokens_in_parts(self, number: int, source: str, tgt: Sequence[int]) -> list[Part]:
        src_vocabulary, tgt_vocabulary = self.vocabularies.src, self.vocabularies.tgt
        parts = _at_end_marks(tgt)
        lead, pieces, sources = source_pieces(
            source,
            src_vocabulary,
            self.max_length,
            self.language,
            tags=self.tags,
            by_sentence=len(parts) > 1,  # `translate` has not read a source that fits as a whole
        )
        # Only the count tells an end mark after the last part from one before a part without
        # tokens.
        if len(parts) == len(pieces) + 1 and not parts[-1]:
            parts.pop()
        if len(parts) != len(pieces):
            raise TargetError(
                number,
                f"its source splits into {len(pieces)} parts, but its tokens into {len(parts)}: "
                "from another line or model?",
            )
        longest = max(parts, key=len)
        if len(longest) >= self.max_length:
            raise OverlongError(number, describe_overlong(self.max_length, target=longest))
        texts = tgt_vocabulary.decode(parts)
        return [
            dataclasses.replace(_part(piece, src, text, part, lead), tokens_given=True)
            for piece, src, text, part in zip(pieces, sources, texts, parts, strict=True)
        ]


def describe_overlong(max_length: int, **tokens: Sequence[int]) -> str:
    """What to say about a line whose `source`, `target` or both are too long."""
    counts = [(side, len(ids) + 1) for side, ids in tokens.items() if len(ids) >= max_length]
    said = " and ".join(f"the {side} has {count} tokens" for side, count in counts)
    return f"{said}, end mark included; the model takes {max_length} (model.max_length)"


def fits(vocabulary: Vocabulary, max_length: int) -> Callable[[str], bool]:
    """Whether a text has at most `max_length` tokens, the end mark included."""
    return lambda text: len(encode(vocabulary, [text])[0]) < max_length


def source_pieces(
    source: str,
    vocabulary: Vocabulary,
    max_length: int,
    language: str = "",
    *,
    tags: Set[str] = frozenset(),
    by_sentence: bool = False,
) -> tuple[str, list[Piece], list[list[int]]]:
    """What the model reads before each piece of a source (its tag or language code), pieces that
    fit, and the tokens of both. `language` is the source's own; `by_sentence` cuts a source
    that fits at its sentence ends, too."""
    lead = lead_of(source, vocabulary, tags)
    text = source.removeprefix(lead)
    fit = fits(vocabulary, max_length)
    if by_sentence and fit(source):
        pieces = _glued(unquoted(split_sentences(text, language).texts))
    else:
        pieces = split_to_fit(
            text, lambda part: fit(lead + part), language, symbols=vocabulary.symbols
        )
    pieces = _with_text(pieces)
    return lead, pieces, encode(vocabulary, [lead + piece.text for piece in pieces])


def _quotations_of(pieces: Sequence[Piece]) -> set[tuple[int, int]]:
    """The places of the first and the last piece of every quotation whose marks are set aside.
    Marks that only a translation has are its words, and scored."""
    openings = [place for place, piece in enumerate(pieces) if piece.opening]
    closings = [place for place, piece in enumerate(pieces) if piece.closing]
    return {*zip(openings, closings, strict=True)}


def _is_kept(text: str) -> bool:
    """Whether there is nothing in a text but marks of what is kept."""
    return MARK in text and not taken_out(text).strip()


def _with_text(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without those that are nothing but marks of what is kept, if any are left. The
    marks of a quotation go to their neighbours."""
    remaining: list[Piece] = []
    opening = ""
    for piece in pieces:
        if _is_kept(piece.text):
            opening += piece.opening
            if remaining and piece.closing:
                closing = remaining[-1].closing + piece.closing
                remaining[-1] = dataclasses.replace(remaining[-1], closing=closing)
        else:
            remaining.append(dataclasses.replace(piece, opening=opening + piece.opening))
            opening = ""
    return remaining or [*pieces]


def lead_of(source: str, vocabulary: Vocabulary, tags: Set[str]) -> str:
    """What a source begins with that is for all of it: a language code, or some of a run's `tags`
    (`data.train.NAME.tag`) with their blanks."""
    lead, rest = "", source
    while True:
        word, blank, after = rest.partition(" ")
        if not blank or word not in tags:
            return lead or vocabulary.language_code(source)
        lead, rest = lead + word + blank, after


def sentence_count(
    source: str, vocabulary: Vocabulary, language: str, tags: Set[str] = frozenset()
) -> int:
    """How many sentences a source has, at least 1."""
    text = source.removeprefix(lead_of(source, vocabulary, tags))
    return max(1, len(split_sentences(text, language).texts))


def _glued(sentences: Sequence[Unquoted]) -> list[Piece]:
    """Sentences as pieces, with a blank between their translations."""
    last = len(sentences) - 1
    return [
        Piece(sentence.text, "" if place == last else " ", sentence.opening, sentence.closing)
        for place, sentence in enumerate(sentences)
    ]


def join_translations(texts: Sequence[str], pieces: Sequence[Piece | Part], *, blanks: bool) -> str:
    """The translations of a text's pieces, in order, with their glue and quotation marks.

    `blanks`: whether the target language has blanks between its sentences; without them a glue of
    blanks is left out, and so it is beside an empty translation. A glue with line breaks or tabs is
    the text's layout and stays. The glue of the last piece is left out.
    """
    joined, waiting = "", ""
    for text, piece in zip(texts, pieces, strict=True):
        is_layout = piece.glue.strip(" ") != ""
        glue = piece.glue if blanks or is_layout else ""
        opening, closing = piece.opening, piece.closing
        if blanks:  # as in English and not in Chinese
            opening, closing = opening.translate(_LATIN_MARKS), closing.translate(_LATIN_MARKS)
        if said := opening + text + closing:
            joined += waiting + said
            waiting = glue
        elif is_layout:
            waiting = waiting.strip(" ") + glue
    return joined


def types_of(pieces: Sequence[str], tgt: Vocabulary) -> tuple[int, ...]:
    """The ids of target pieces. Raises DecodingError for unknown ones."""
    ids = {piece: number for number, piece in enumerate(tgt.pieces())}
    for piece in pieces:
        if piece not in ids or ids[piece] in (PAD, BOS, EOS):
            raise DecodingError(
                f"{piece!r} is not in the target vocabulary; a word's first piece begins with "
                "'\u2581'"
            )
    return tuple(ids[piece] for piece in pieces)


def check_prefix(
    prefix: str, tokens: Sequence[int], tgt: Vocabulary, *, suppressed: Sequence[int]
) -> None:
    """Raises DecodingError for a prefix with unknown or suppressed `tokens`."""
    if not (bad := sorted({*tokens} & {*suppressed})):
        return
    why = f"its piece {tgt.pieces(bad[:1])[0]!r} is suppressed"
    if UNK in bad:
        text = prefix.encode()
        spans = zip(*tgt.encode_with_spans(prefix), strict=True)
        unknown = {text[a:b].decode(): None for token, (a, b) in spans if token == UNK}
        why = f"the target vocabulary cannot spell {', '.join(map(repr, unknown))}"
    raise DecodingError(f"has the prefix {prefix!r}, but {why}")


def _checked(number: int, tokens: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    if any(isinstance(token, str) for token in tokens):
        raise TargetError(number, "a translation must be a str or a sequence of token ids")
    ids = [int(token) for token in tokens]
    for token in ids:
        if not 0 <= token < vocabulary.size or token in (PAD, BOS):
            raise TargetError(number, f"token {token} cannot be in a translation")
    return ids


def _at_end_marks(tokens: Sequence[int]) -> list[list[int]]:
    ends = [place for place, token in enumerate(tokens) if token == EOS]
    starts = [0, *(end + 1 for end in ends)]
    return [list(tokens[a:b]) for a, b in zip(starts, [*ends, len(tokens)], strict=True)]


def split_to_fit(
    text: str,
    fits: Callable[[str], bool],
    language: str = "",
    *,
    symbols: Collection[str] = (),
) -> list[Piece]:
    """The text in pieces that fit, without the blanks between them.

    A text that doesn't fit is cut at every sentence end of its `language`: a model trained on
    single sentences leaves out most of several. A sentence that doesn't fit is cut in two between
    clauses, else words, else inside a word, at the place nearest to its middle, and so on, but not
    within one of the `symbols`. Raises ValueError if a single character doesn't fit.
    """
    text = text.strip()
    if fits(text):
        return [Piece(text, "")]
    pieces: list[Piece] = []
    for sentence in unquoted(split_sentences(text, language, any_case=text.islower()).texts):
        if pieces:
            pieces[-1] = dataclasses.replace(pieces[-1], glue=" ")
        pairs = split_pair_to_fit(
            sentence.text, "", lambda src, _: fits(src), language, symbols=symbols
        )
        pieces += quoted([src for src, _ in pairs], sentence)
    return pieces


def quoted(pieces: Sequence[Piece], sentence: Unquoted) -> list[Piece]:
    """The pieces of a sentence, with the quotation marks that were set aside from it."""
    first, *others = pieces
    marked = [dataclasses.replace(first, opening=sentence.opening + first.opening), *others]
    closing = marked[-1].closing + sentence.closing
    return [*marked[:-1], dataclasses.replace(marked[-1], closing=closing)]


def split_pair_to_fit(
    src: str,
    tgt: str,
    fits: Callable[[str, str], bool],
    language: str = "",
    *,
    symbols: Collection[str] = (),
) -> list[tuple[Piece, Piece]]:
    """A text and its translation in as many pieces, such that `fits(src, tgt)` for each pair.

    The text is cut in two at the place nearest to its middle, if possible between sentences (of
    its `language`), and so on, but not within one of the `symbols`. The translation is cut at its
    best kind of boundary nearest to the same share of its length. Raises ValueError if a single
    character doesn't fit.
    """
    pairs = []
    waiting = [(Piece(src.strip(), ""), Piece(tgt.strip(), ""))]
    while waiting:
        pair = waiting.pop()
        if fits(pair[0].text, pair[1].text):
            pairs.append(pair)
            continue
        if max(len(piece.text) for piece in pair) < 2:
            raise ValueError(f"the characters {pair[0].text!r} and {pair[1].text!r} do not fit")
        (src_first, src_second), share = _halves(pair[0], 0.5, language, symbols)
        # Nobody says what language a translation is in.
        (tgt_first, tgt_second), _ = _halves(pair[1], share, "", symbols)
        waiting += [(src_second, tgt_second), (src_first, tgt_first)]
    return pairs


def _halves(
    piece: Piece, share: float, language: str, symbols: Collection[str]
) -> tuple[tuple[Piece, Piece], float]:
    """A text cut in two at the best place near a share of its length, and that place's share."""
    text = piece.text
    if len(text) < 2:
        return (Piece(text, ""), Piece("", piece.glue)), share
    middle, glue = share * len(text), " "
    within = _places_within(text, symbols)
    if ends := _ends(text, language, within):
        cut = min(ends, key=lambda end: abs(end - middle))
    else:
        cut = min(_places_in_words(text, within), key=lambda end: abs(end - middle))
        # Inside a word, whose halves are of one word in the translation, too.
        glue = " " if _WITHOUT_BLANKS.match(text, cut - 1, cut + 1) else ""
    first = Piece(text[:cut].rstrip(), glue)
    second = Piece(text[cut:].lstrip(), piece.glue)
    return (first, second), cut / len(text)


def _ends(text: str, language: str, within: Container[int]) -> list[int]:
    """Where a text's best kind of parts end, if it has any, but for places `within` a symbol."""
    kinds: Iterator[Iterable[int]] = itertools.chain(
        (sentence_ends(text, language, any_case=any_case) for any_case in (False, True)),
        ([match.end() for match in boundary.finditer(text)] for boundary in _BOUNDARIES),
    )
    for ends in kinds:
        if usable := [end for end in ends if end < len(text) and end not in within]:
            return usable
    return []


def _places_in_words(text: str, within: Container[int]) -> Sequence[int]:
    """All places in a text but, as far as there are others, those `within` a symbol or before an
    accent, which would lose its letter."""
    inner: Sequence[int] = range(1, len(text))
    inner = [end for end in inner if end not in within] or inner
    return [end for end in inner if not unicodedata.combining(text[end])] or inner


def _places_within(text: str, symbols: Collection[str]) -> set[int]:
    """The places, in characters, inside an occurrence of a symbol."""
    places: set[int] = set()
    for symbol in symbols:
        start = text.find(symbol)
        while start >= 0:
            places.update(range(start + 1, start + len(symbol)))
            start = text.find(symbol, start + 1)
    return places
