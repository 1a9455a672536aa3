"""The lines of n-best lists as Moses writes them: `0 ||| translation ||| name= value ||| score`.

Sentences count from 0. Some programs leave fields out or add others: Moses puts a segmentation and
an alignment behind the score, Marian puts word counts, an alignment and word scores behind the
translation. Since a translation may contain the separator itself, a line is read from its end.
"""

from __future__ import annotations

import dataclasses
import math
import re

_SEPARATOR = re.compile(r"(?<!\S)\|\|\|(?!\S)")
_BEGINNING = re.compile(r"\s*(\d{1,12})\s+\|\|\|(?!\S)")
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?inf|[+-]?nan"
_SCORE = re.compile(_NUMBER, re.IGNORECASE)
# In an alignment `0-0 1-2`; in a segmentation, by phrases, `0-1=0-2 2=3`.
_LINK = re.compile(r"\d+-\d+|\d+(?:-\d+)?=\d+(?:-\d+)?")
# `Model0=` and its numbers; older programs write `lm:` or `p=0.3`.
_FEATURE = re.compile(rf"[^\s=:]+[=:](?:{_NUMBER})?|{_NUMBER}", re.IGNORECASE)
_OF_MARIAN = ("WordCounts=", "WordScores=")
_OWN_FEATURE = "log_prob="


class NotACandidate(ValueError):
    """A line that isn't one of an n-best list; says why."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One translation of a sentence."""

    sentence: int  # from 0
    text: str
    score: float | None = None


def begins_list(line: str) -> bool:
    """Whether a file with this first line must be an n-best list."""
    return _BEGINNING.match(line) is not None


def candidate_of(line: str) -> Candidate:
    """The content of a line. Raises NotACandidate."""
    beginning = _BEGINNING.match(line)
    if beginning is None:
        raise NotACandidate("doesn't begin with a sentence's number and ' ||| '")
    fields = [field.strip() for field in _SEPARATOR.split(line)[1:]]
    _drop_alignment(fields)
    score = _take_score(fields)
    _drop_features(fields)
    return Candidate(int(beginning[1]), " ||| ".join(fields), score)


def _drop_alignment(fields: list[str]) -> None:
    """Takes Moses's alignment and segmentation from behind the score."""
    while len(fields) > 2 and _are_links(fields[-1]):
        fields.pop()
    if len(fields) > 2 and not fields[-1] and _SCORE.fullmatch(fields[-2]):
        fields.pop()  # an alignment without links


def _take_score(fields: list[str]) -> float | None:
    """The last field, if it is a score. Raises NotACandidate."""
    if len(fields) < 2 or not _SCORE.fullmatch(fields[-1]):
        return None
    score = float(fields.pop())
    if math.isnan(score):
        raise NotACandidate("has a score that isn't a number")
    return score


def _drop_features(fields: list[str]) -> None:
    """Takes the features, and what Marian puts before them, from behind the translation."""
    if len(fields) < 2:
        return
    is_own = fields[-1].startswith(_OWN_FEATURE)
    if all(map(_FEATURE.fullmatch, fields[-1].split())):
        fields.pop()
    while len(fields) > 1 and not is_own and _is_of_marian(fields[-1]):
        fields.pop()


def _are_links(field: str) -> bool:
    return bool(field) and all(map(_LINK.fullmatch, field.split()))


def _is_of_marian(field: str) -> bool:
    return _are_links(field) or field.startswith(_OF_MARIAN)


def line_of(
    sentence: int, text: str, *, log_prob: float, score: float, alignment: str | None = None
) -> str:
    """A line, without its end: one feature, `log_prob`, and the alignment where Moses has it."""
    fields = [str(sentence), text, f"{_OWN_FEATURE} {log_prob:.6f}", f"{score:.6f}"]
    if alignment is not None:
        fields.append(alignment)
    return " ||| ".join(fields)
