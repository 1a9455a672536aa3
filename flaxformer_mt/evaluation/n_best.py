"""N-best lists as hypotheses: which translation of each sentence is scored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

from flaxformer_mt.evaluation import NBestChoice
from flaxformer_mt.evaluation.metrics import Chrf, ScoringError
from flaxformer_mt.evaluation.references import References
from flaxformer_mt.n_best_lists import Candidate, NotACandidate, begins_list, candidate_of
from flaxformer_mt.wording import about_lines, counted

_SHOWN = 20  # line numbers in a remark


@dataclasses.dataclass(frozen=True)
class NBestLists:
    """A file's candidates by sentence; none of a sentence that the file leaves out."""

    path: str
    candidates: tuple[tuple[Candidate, ...], ...]

    @classmethod
    def of(cls, path: str, lines: Sequence[str]) -> NBestLists:
        """From the lines of a file. Raises ScoringError, with the line's number."""
        by_sentence: list[list[Candidate]] = []
        for number, line in enumerate(lines, start=1):
            try:
                candidate = candidate_of(line)
            except NotACandidate as error:
                raise ScoringError(f"{path}:{number}: {error}") from error
            sentence, last = candidate.sentence, len(by_sentence) - 1
            if number == 1 and sentence:
                raise ScoringError(
                    f"{path}:1: begins with sentence {sentence}, but n-best lists count from 0: "
                    "renumber them, or add a line for sentence 0, such as '0 ||| '"
                )
            if sentence < last:
                raise ScoringError(
                    f"{path}:{number}: sentence {sentence} comes after sentence {last}: sort the "
                    "lines by their first number"
                )
            if sentence - last > len(lines):
                raise ScoringError(
                    f"{path}:{number}: sentence {sentence} comes after sentence {last}, but the "
                    f"file has only {len(lines):,} lines"
                )
            by_sentence += [[] for _ in range(last, sentence)]
            by_sentence[sentence].append(candidate)
        return cls(path, tuple(map(tuple, by_sentence)))

    def chosen(self, choice: NBestChoice) -> list[str]:
        """Each sentence's first candidate, or the first of those with the highest score; "" where
        there is none. Raises ScoringError for a candidate without a score."""
        if choice == "first":
            return [candidates[0].text if candidates else "" for candidates in self.candidates]
        return [max(of, key=self._score).text if of else "" for of in self.candidates]

    def _score(self, candidate: Candidate) -> float:
        if candidate.score is None:
            raise ScoringError(
                f"{self.path}: sentence {candidate.sentence} has a translation without a score: "
                "use --from-n-best first"
            )
        return candidate.score

    def oracle(self, references: References, *, lowercase: bool = False) -> list[str]:
        """Each sentence's candidate with the highest chrF, the first of equals: a bound for what
        choosing among them can reach. Raises ScoringError for another number of sentences."""
        if len(references) != len(self.candidates):
            raise ScoringError(
                f"{self.path} has {len(self.candidates):,} sentences for {len(references):,} "
                "references"
            )
        chrf = Chrf(lowercase=lowercase)
        texts = []
        for candidates, of_sentence in zip(self.candidates, references, strict=True):
            # Programs list a text again for each way to make it.
            choices = [*dict.fromkeys(candidate.text for candidate in candidates)] or [""]
            columns = References.of([[reference] * len(choices) for reference in of_sentence])
            scores = chrf.sentence_scores(chrf.counts(choices, columns))
            texts.append(choices[int(scores.argmax())])
        return texts

    def left_out(self) -> list[int]:
        """The lines of the source, from 1, that have no candidate."""
        return [line for line, of in enumerate(self.candidates, start=1) if not of]

    def outscored(self) -> list[int]:
        """The lines of the source, from 1, at which another than the first candidate has the
        highest score."""
        lines = []
        for line, candidates in enumerate(self.candidates, start=1):
            scores = [candidate.score for candidate in candidates if candidate.score is not None]
            if len(scores) == len(candidates) and scores and scores[0] < max(scores):
                lines.append(line)
        return lines


def lists_in(path: str, lines: Sequence[str]) -> NBestLists | None:
    """The n-best lists of a file's lines; None for plain text. Raises ScoringError."""
    return NBestLists.of(path, lines) if lines and begins_list(lines[0]) else None


def remarks(lists: NBestLists, choice: NBestChoice | Literal["oracle"] | None) -> Iterator[str]:
    """What a reader of scores should know about n-best lists and the choice from them."""
    chosen = {
        "first": "the first translation of each",
        "score": "the translation of each with the highest score",
        "oracle": "the translation of each with the highest chrF, a bound for what reranking can "
        "reach",
    }[choice or "first"]
    yield f"n-best lists of {counted(len(lists.candidates), 'sentence')}: scoring {chosen}"
    if left_out := lists.left_out():
        remark = "without a translation: scored as an empty one"
        yield about_lines(remark, left_out[:_SHOWN], len(left_out))
    if choice is None and (outscored := lists.outscored()):
        remark = "where another translation has a higher score: --from-n-best score takes it"
        yield about_lines(remark, outscored[:_SHOWN], len(outscored))
