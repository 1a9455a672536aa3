"""A window of lines translated and rendered."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from flaxformer_mt.bulk.forms import Form, Record, counted
from flaxformer_mt.bulk.stream import Made, Window, made_of
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.sampling import Sampling
from flaxformer_mt.decoding.segments import Overlong
from flaxformer_mt.decoding.translator import Translator


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateSettings:
    """What decides of the output besides the model and its own settings."""

    form: Form
    n_best: int = 1
    overlong: Overlong = "split"
    prefix: str = ""  # of every translation, where the record has none
    suppress: tuple[str, ...] = ()
    sampling: Sampling | None = None


def translate_window(window: Window, settings: TranslateSettings, translator: Translator) -> Made:
    """The translations of a window's lines, rendered; counts lines in pieces and at the limit."""
    form = settings.form

    def make(records: list[Record]) -> Made:
        sources = [record.source for record in records]
        prefixes = [record.prefix or settings.prefix for record in records]
        translations = translator.translate(
            sources,
            n_best=settings.n_best,
            overlong=settings.overlong,
            prefixes=prefixes if any(prefixes) else None,
            suppress=settings.suppress,
            sampling=settings.sampling,
            first=window.first,
        )
        aligned: Sequence[Alignment] = ()
        if form.shown.alignments:
            pairs = [
                (source, hypothesis.tokens)
                for source, translation in zip(sources, translations, strict=True)
                for hypothesis in translation.hypotheses
            ]
            aligned = translator.align(pairs)
        waiting, output, notes = iter(aligned), [], []
        for number, (record, translation) in enumerate(
            zip(records, translations, strict=True), start=window.first
        ):
            if translation.split:
                notes.append(
                    f"{window.name}:{number}: longer than the model takes; translated in pieces "
                    "and rejoined"
                )
            links = list(itertools.islice(waiting, len(translation.hypotheses)))
            output.append(form.render(record, translation, links, number=number))
        return Made(
            output=b"".join(output),
            tokens=sum(len(translation.tokens) + 1 for translation in translations),
            sums={
                "split": len(notes),
                "at_limit": sum(translation.at_limit for translation in translations),
            },
            notes=notes,
        )

    return made_of(window, form.parse, make)


def describe_translated(sums: Mapping[str, float]) -> list[str]:
    """Lines for people, at the end."""
    lines = []
    if split := int(sums.get("split", 0)):
        lines.append(f"{counted(split, 'line')} longer than the model takes: translated in pieces")
    if at_limit := int(sums.get("at_limit", 0)):
        lines.append(
            f"{counted(at_limit, 'translation')} as long as an output may be, perhaps cut short: "
            "see --max-ratio and --max-extra-tokens"
        )
    return lines
