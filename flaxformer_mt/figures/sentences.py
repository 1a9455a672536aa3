"""The sentences to study heads on: lines that fit the model, with translations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.decoding.segments import fits
from flaxformer_mt.figures import FigureError

if TYPE_CHECKING:
    from flaxformer_mt.decoding.teacher_forcing import Attention
    from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentence:
    """A source with the translation that is attended with; `number` is the source's line."""

    number: int
    src: str
    tgt: str
    tokens: tuple[int, ...] | None = None  # of the translation, where the model made it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentences:
    """Those that are used, and the numbers of the lines that are not, by what they are."""

    used: tuple[Sentence, ...]
    left_out: dict[str, list[int]]
    beyond: int  # lines after the last that is used

    def notes(self, name: str) -> list[str]:
        """What was left out of the file `name`."""
        found = []
        for what, numbers in self.left_out.items():
            if not numbers:
                continue
            listed = ", ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "")
            found.append(f"{name}: skipped {len(numbers)} lines that are {what}: {listed}")
        if self.beyond:
            found.append(
                f"{name}: using the first {len(self.used):,} sentences, without {self.beyond:,} "
                "more lines (--sentences)"
            )
        return found


def sentences_of(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    most: int,
    translated: bool = True,
) -> Sentences:
    """The first `most` lines that are usable, with their `targets` or the model's translations.

    Without `translated` a sentence has the empty translation, which is enough for the encoder's
    attention. Raises FigureError for files of unequal length, and where no line is usable.
    """
    if targets is not None and len(targets) != len(sources):
        raise FigureError(
            f"{len(sources):,} source lines but {len(targets):,} translations: both need one line "
            "per pair"
        )
    src_fits = fits(translator.vocabularies.src, translator.max_length)
    tgt_fits = fits(translator.vocabularies.tgt, translator.max_length)
    given = [""] * len(sources) if targets is None else targets
    used: list[Sentence] = []
    overlong = "too long for the model"
    left_out: dict[str, list[int]] = {"blank": [], overlong: []}
    beyond = 0
    for number, (src, tgt) in enumerate(zip(sources, given, strict=True), start=1):
        if len(used) == most:
            beyond += 1
        elif is_blank(src) or (targets is not None and is_blank(tgt)):
            left_out["blank"].append(number)
        elif not (src_fits(src) and tgt_fits(tgt)):
            left_out[overlong].append(number)
        else:
            used.append(Sentence(number=number, src=src, tgt=tgt))
    if not used:
        raise FigureError(
            "no usable sentence: every line is blank or too long for the model "
            f"({translator.max_length} tokens)"
        )
    if translated and targets is None:
        used = _translated(translator, used)
    return Sentences(used=tuple(used), left_out=left_out, beyond=beyond)


def sentence_of(
    translator: Translator, src: str, tgt: str | None, *, translated: bool = True
) -> Sentence:
    """One sentence, as `sentences_of`. Raises FigureError, and OverlongError for a long one."""
    if is_blank(src):
        raise FigureError("the source is empty: give a sentence")
    sentence = Sentence(number=1, src=src, tgt=tgt or "")
    asked = translated and tgt is None
    return _translated(translator, [sentence])[0] if asked else sentence


def attend(translator: Translator, sentence: Sentence) -> Attention:
    """All attention weights of a sentence with its translation. Raises as `Translator.attend`."""
    return translator.attend(sentence.src, sentence.tokens or sentence.tgt)


def _translated(translator: Translator, sentences: Sequence[Sentence]) -> list[Sentence]:
    made = translator.translate([sentence.src for sentence in sentences], overlong="refuse")
    return [
        dataclasses.replace(sentence, tgt=translation.text, tokens=translation.tokens)
        for sentence, translation in zip(sentences, made, strict=True)
    ]
