"""Translates the lines of a window: what a bulk job does, its records and its counts."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from flaxformer_mt.bulk.forms import Form, Record
from flaxformer_mt.bulk.stream import Made, Window, made_of
from flaxformer_mt.decoding.constraints.terminology import Terminology
from flaxformer_mt.decoding.options import LineOptions, SearchOptions, Several
from flaxformer_mt.wording import counted

if TYPE_CHECKING:
    from flaxformer_mt.decoding.alignment import Alignment
    from flaxformer_mt.decoding.text.translation import Translation
    from flaxformer_mt.decoding.translator import Translator

SEVERAL = (
    "with several sentences, but the model may translate only one of them: put each on its own line"
)


SHORT = "whose translation is less than a third as long as usual"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationCounts:
    """Of a whole output, also the part that earlier calls wrote."""

    split: int = 0  # lines too long for the model, translated in pieces
    by_sentence: int = 0  # lines of several sentences, each of which was translated by itself
    at_limit: int = 0  # translations that reached the length limit

    def describe(self) -> list[str]:
        """Lines for people."""
        lines = []
        if self.split:
            lines.append(
                f"{counted(self.split, 'line')} too long for the model: translated in pieces"
            )
        if self.by_sentence:
            lines.append(
                f"{counted(self.by_sentence, 'line')} of several sentences, as the training text "
                "rarely has them: translated sentence by sentence (--no-split: as they are)"
            )
        if self.at_limit:
            lines.append(
                f"{counted(self.at_limit, 'translation')} reached the length limit: "
                "see --max-ratio and --max-extra-tokens"
            )
        return lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSettings:
    """Settings of translations besides the model and its own settings.

    The job sets `search.first` itself. `form` reads what is wanted of each line; a translation
    begins with `prefix` unless its line has a prefix.
    """

    what: ClassVar[str] = "translate"

    form: Form = Form()
    search: SearchOptions = SearchOptions()
    prefix: str = ""

    def check(self, translator: Translator) -> None:
        """Raises DecodingError for settings that would fail with any line.

        These are terms and phrases that can't be spelled, and constraints in a search that can't
        have any.
        """
        options = self.search
        if options.terminology is None and self.form.constraints_key is not None:
            options = dataclasses.replace(options, terminology=Terminology.of({}))
        translator.translate_with([], options, [])

    def line_options(self, record: Record) -> LineOptions:
        """What is wanted of one line."""
        return LineOptions(
            prefix=record.prefix or self.prefix,
            forbid=record.forbid,
            constraints=record.constraints,
        )

    def make(self, window: Window, translator: Translator) -> Made:
        """A window's translations, with counts of lines in parts and of those at the limit."""
        make = functools.partial(self._translated, window, translator)
        return made_of(window, self.form.parse, make)

    def _translated(self, window: Window, translator: Translator, records: list[Record]) -> Made:
        translations = translator.translate_with(
            [record.source for record in records],
            dataclasses.replace(self.search, first=window.first, several=self._several(translator)),
            [self.line_options(record) for record in records],
        )
        numbered = list(zip(window.places, translations, strict=False))
        notes = [
            f"{window.name}:{number}: too long: translated in pieces"
            for number, translation in numbered
            if translation.split
        ]
        return Made(
            output=self._rendered(window, translator, records, translations),
            tokens=sum(len(translation.tokens) + 1 for translation in translations),
            sums={
                "split": len(notes),
                "by_sentence": sum(translation.by_sentence for translation in translations),
                "at_limit": sum(translation.at_limit for translation in translations),
            },
            notes=notes,
            remarks=self._remarks(numbered),
        )

    def _several(self, translator: Translator) -> Several:
        """Joined lines are split into sentences also for a model whose training text isn't known:
        a whole paragraph is rarely what it reads."""
        if self.form.join_lines and self.search.several == "auto":
            if translator.training_text is None and not translator.takes_whole_lines:
                return "split"
        return self.search.several

    def _remarks(self, numbered: Sequence[tuple[int, Translation]]) -> dict[str, list[int]]:
        """The numbers of lines that may have lost something, by what is said of them."""
        at_risk = [number for number, translation in numbered if translation.at_risk]
        short = [number for number, translation in numbered if translation.short]
        remarks = {SEVERAL: [] if self.search.several == "keep" else at_risk, SHORT: short}
        return {remark: numbers for remark, numbers in remarks.items() if numbers}

    def _rendered(
        self,
        window: Window,
        translator: Translator,
        records: Sequence[Record],
        translations: Sequence[Translation],
    ) -> bytes:
        alignments: Iterator[Alignment] = iter(())
        if self.form.shown.alignments:
            pairs = [
                (record.source, translator.target_of(hypothesis))
                for record, translation in zip(records, translations, strict=True)
                for hypothesis in translation.hypotheses
            ]
            alignments = iter(translator.align(pairs))
        output = []
        for index, (record, translation) in enumerate(zip(records, translations, strict=True)):
            own_alignments = list(itertools.islice(alignments, len(translation.hypotheses)))
            output.append(
                self.form.render(record, translation, own_alignments, number=window.first + index)
            )
        return b"".join(output)

    def identity(self) -> dict[str, Any]:
        """The settings that a later call must share to continue an output, as JSON.

        Their names, and null for what isn't wanted, are those of the first version's records.
        """
        search = self.search
        sampling = search.sampling
        settings: dict[str, Any] = {
            "form": self.form.identity(),
            "n_best": search.n_best,
            "overlong": search.overlong,
            "prefix": self.prefix,
            "suppress": list(search.suppress),
            "forbid": list(search.forbid) or None,
            "terminology": None if search.terminology is None else search.terminology.digest,
            "sampling": None if sampling is None else dataclasses.asdict(sampling),
            "mbr": search.mbr or None,
        }
        if search.several != "auto":
            settings["several"] = search.several
        if search.masks:
            settings["masks"] = [repr(mask) for mask in search.masks]
        return settings

    def counts(self, sums: Mapping[str, float]) -> TranslationCounts:
        """The counts behind the sums of `make`."""
        return TranslationCounts(
            split=int(sums.get("split", 0)),
            by_sentence=int(sums.get("by_sentence", 0)),
            at_limit=int(sums.get("at_limit", 0)),
        )
