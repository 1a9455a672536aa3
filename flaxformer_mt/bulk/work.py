"""Processes a window of lines: translates them or scores pairs, and renders the results."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flaxformer_mt.bulk.forms import Form, PairForm, PairRecord, Record, counted
from flaxformer_mt.bulk.stream import Made, Window, made_of
from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.segments import Overlong

if TYPE_CHECKING:
    from flaxformer_mt.decoding.sampling import Sampling
    from flaxformer_mt.decoding.terminology import Terminology
    from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSettings:
    """What decides of translations besides the model and its own settings."""

    form: Form
    n_best: int = 1
    overlong: Overlong = "split"
    prefix: str = ""  # of every translation, where the record has none
    suppress: tuple[str, ...] = ()
    forbid: tuple[str, ...] | None = None  # beside those of the record
    terminology: Terminology | None = None
    sampling: Sampling | None = None
    mbr: bool | None = None

    def make(self, window: Window, translator: Translator) -> Made:
        """A window's translations, rendered; counts lines in pieces and at the limit."""
        make = functools.partial(self._translated, window, translator)
        return made_of(window, self.form.parse, make)

    def _translated(self, window: Window, translator: Translator, records: list[Record]) -> Made:
        sources = [record.source for record in records]
        prefixes = [record.prefix or self.prefix for record in records]
        translations = translator.translate(
            sources,
            n_best=self.n_best,
            overlong=self.overlong,
            prefixes=prefixes if any(prefixes) else None,
            suppress=self.suppress,
            forbid=self.forbid or (),
            forbid_each=[record.forbid for record in records],
            constraints=[record.constraints for record in records],
            terminology=self.terminology,
            sampling=self.sampling,
            first=window.first,
            mbr=bool(self.mbr),
        )
        pairs = [
            (source, hypothesis.tokens)
            for source, translation in zip(sources, translations, strict=True)
            for hypothesis in translation.hypotheses
        ]
        aligned = iter(translator.align(pairs) if self.form.shown.alignments else ())
        output, notes = [], []
        each = zip(records, translations, strict=True)
        for number, (record, translation) in enumerate(each, start=window.first):
            if translation.split:
                notes.append(
                    f"{window.name}:{number}: too long for the model; translated in pieces and "
                    "rejoined"
                )
            links = list(itertools.islice(aligned, len(translation.hypotheses)))
            output.append(self.form.render(record, translation, links, number=number))
        at_limit = sum(translation.at_limit for translation in translations)
        return Made(
            output=b"".join(output),
            tokens=sum(len(translation.tokens) + 1 for translation in translations),
            sums={"split": len(notes), "at_limit": at_limit},
            notes=notes,
        )

    def identity(self) -> dict[str, Any]:
        """What another call must share to go on with an output, as JSON has it."""
        terms = self.terminology
        plain = dataclasses.asdict(dataclasses.replace(self, terminology=None))
        return plain | {"terminology": None if terms is None else terms.digest}

    def describe(self, sums: Mapping[str, float]) -> list[str]:
        """Lines for people, at the end."""
        lines = []
        if split := int(sums.get("split", 0)):
            what = counted(split, "line")
            lines.append(f"{what} too long for the model: translated in pieces")
        if at_limit := int(sums.get("at_limit", 0)):
            lines.append(
                f"{counted(at_limit, 'translation')} reached the length limit and may be cut "
                "short: see --max-ratio and --max-extra-tokens"
            )
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """What decides of scores besides the model and its own settings."""

    form: PairForm
    overlong: Overlong = "refuse"

    def identity(self) -> dict[str, Any]:
        """As of `TranslateSettings`."""
        return dataclasses.asdict(self)

    def make(self, window: Window, translator: Translator) -> Made:
        """The scores of a window's pairs, rendered; sums pairs, tokens and log-probabilities.

        It also counts the texts whose own tokens are not those that were scored.
        """
        return made_of(window, self.form.parse, functools.partial(self._scored, translator))

    def _scored(self, translator: Translator, records: list[PairRecord]) -> Made:
        vocabulary = translator.vocabularies.tgt
        pairs = [(record.source, record.target) for record in records]
        found = translator.score(pairs, overlong=self.overlong)
        known = [record for record in records if record.text is not None]
        texts = vocabulary.encode([record.text or "" for record in known])
        tokens = sum(len(scored.tokens) for scored in found)
        return Made(
            output=b"".join(
                self.form.render(record, scored, vocabulary)
                for record, scored in zip(records, found, strict=True)
            ),
            tokens=tokens,
            sums={
                "pairs": len(records),
                "tokens": tokens,
                "log_prob": math.fsum(scored.log_prob for scored in found),
                "encoded_otherwise": sum(
                    [token for token in record.target if token != EOS] != encoded
                    for record, encoded in zip(known, texts, strict=True)
                ),
            },
        )

    def describe(self, sums: Mapping[str, float]) -> list[str]:
        """Lines for people: the perplexity, and how many texts do not stand for their tokens."""
        pairs, tokens = int(sums.get("pairs", 0)), int(sums.get("tokens", 0))
        lines = [f"{pairs:,} pairs, {tokens:,} target tokens (end marks included)"]
        if tokens:
            mean = sums["log_prob"] / tokens
            perplexity = math.exp(min(-mean, 700.0))
            lines[0] += f": {mean:.4f} nats per token, perplexity {perplexity:.4f}"
        if otherwise := int(sums.get("encoded_otherwise", 0)):
            lines.append(
                f"{otherwise:,} texts encode into different tokens than the scored ones: scored "
                "as text they would differ"
            )
        return lines
