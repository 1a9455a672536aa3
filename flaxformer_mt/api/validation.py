"""BLEU on the validation set, decoded during training."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flaxformer_mt.api import say
from flaxformer_mt.config import DataConfig
from flaxformer_mt.config.tokenizers import (
    USUAL,
    for_corpus,
    tokenizer_for,
    validation_tokenizer,
)
from flaxformer_mt.data.prepare.make import Text, valid_sets
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.decoding.masks.copies import copied_types
from flaxformer_mt.decoding.text.translation import Hypothesis, Translation
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.metrics import Bleu
from flaxformer_mt.evaluation.scoring import corpus_scores
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.trackers import Sample
from flaxformer_mt.training.validation import Evaluator, mean_of_sets

SAMPLES = 8


def bleu_evaluator(
    program: Program,
    vocabularies: Vocabularies,
    run: RunDirectory,
    show: Callable[[int, Sequence[Sample]], None],
    processes: Processes,
) -> Evaluator:
    """`(params, step) -> {"bleu": ..., "chrf": ...}` over the whole validation text of the run; of
    several sets their means, and `bleu/SET` and so on.

    Each call gives `show` the step and a few sentences. Several processes share the text.
    """
    config = program.config
    sets = _ValidationSets.of(run, config.data)
    sources, references = sets.text
    settings = dataclasses.replace(
        config.decoding, beam_size=config.training.validate_beam, diverse_groups=1
    )
    tags = config.data.tags
    symbols = config.data.vocabulary.symbols
    if settings.copy_symbols:  # what can't be copied is an error before the first step
        copied_types(vocabularies, symbols, tags)
    sampled = range(0, len(sources), max(1, len(sources) // SAMPLES))

    def scored(hypotheses: Sequence[str], step: int) -> dict[str, float]:
        show(step, [Sample(sources[i], references[i], hypotheses[i]) for i in sampled])
        return mean_of_sets(sets.scored(hypotheses))

    def evaluate(params: Any, step: int) -> Mapping[str, float]:
        translator = Translator(
            params,
            program.model,
            vocabularies,
            settings,
            name=f"step {step}",
            src_lang=config.data.src_lang,
            tags=tags,
            symbols=symbols,
        )
        hypotheses = sets.translated(translator, processes)
        return processes.first(lambda: scored(hypotheses, step))

    return evaluate


@dataclasses.dataclass(frozen=True)
class _ValidationSets:
    """A run's validation text by set, and how BLEU is tokenised for each."""

    sets: Mapping[str, Text]
    languages: Mapping[str, tuple[str, str]]  # codes of both sides
    tokenizers: Mapping[str, str]

    @classmethod
    def of(cls, run: RunDirectory, data: DataConfig) -> _ValidationSets:
        """Raises as `valid_sets` and `announced_tokenizer`."""
        in_languages = {
            key.rpartition(".")[2]: for_corpus(data, corpus)
            for key, corpus in data.validation.items()
        }
        languages = {name: (own.src_lang, own.tgt_lang) for name, own in in_languages.items()}
        sets = valid_sets(local_copy(run.data))
        return cls(sets, languages, announced_tokenizers(in_languages))

    @property
    def text(self) -> Text:
        """The sources and references of all sets, one set after the other."""
        sources = [line for lines, _ in self.sets.values() for line in lines]
        return sources, [line for _, lines in self.sets.values() for line in lines]

    def translated(self, translator: Translator, processes: Processes) -> list[str]:
        """The translations of `text` on the first process, [] on the others: each set's lines are
        cut and joined as its languages are written."""
        return [
            translation.text
            for name, (sources, _) in self.sets.items()
            for translation in translate_together(
                translator.in_languages(*self.languages[name]), sources, processes
            )
        ]

    def scored(self, hypotheses: Sequence[str]) -> dict[str, dict[str, float]]:
        """Each set's scores; `hypotheses` are of `text`."""
        outputs = iter(hypotheses)
        by_set = {}
        for name, (_, references) in self.sets.items():
            of_set = list(itertools.islice(outputs, len(references)))
            scores = corpus_scores(of_set, references, tokenizer=self.tokenizers[name])
            by_set[name] = {"bleu": scores.bleu, "chrf": scores.chrf}
        return by_set


def announced_tokenizers(sets: Mapping[str, DataConfig]) -> dict[str, str]:
    """How BLEU is tokenised for each validation set, by the run's settings in its languages. Says
    and raises as `announced_tokenizer`, for one set of each language."""
    by_language = {data.tgt_lang: data for data in sets.values()}
    tokenizers = {code: announced_tokenizer(data) for code, data in by_language.items()}
    return {name: tokenizers[data.tgt_lang] for name, data in sets.items()}


def announced_tokenizer(data: DataConfig) -> str:
    """How BLEU is tokenised at each of a run's validations; says so if it isn't the usual 13a.

    Runs record their choice; those of earlier versions, which don't, keep 13a. Raises ScoringError
    if it can't be used here.
    """
    tokenizer = validation_tokenizer(data)
    if tokenizer == "none":
        return tokenizer
    Bleu(tokenizer=tokenizer)  # fails now rather than at the first validation
    choice = tokenizer_for(data.tgt_lang)
    if choice.reason and tokenizer == choice.tokenizer:
        say(f"{choice.reason} (data.bleu_tokenizer)")
    elif tokenizer != USUAL or choice.tokenizer != USUAL:
        say(
            f"BLEU is tokenised by '{tokenizer}' (data.bleu_tokenizer, settled at this run's start)"
        )
    return tokenizer


def translate_together(
    translator: Translator, lines: Sequence[str], processes: Processes
) -> list[Translation]:
    """`translator.translate_lines` of `lines` on the first process; [] on the others.

    Each translates every n-th line, so that their times are alike.
    """
    own_lines = lines[processes.number :: processes.count]
    own_translations = list(
        # The caller says what became of lines of several sentences.
        translator.translate_lines(own_lines, warn=False)
    )
    if processes.count == 1:
        return own_translations

    shares = processes.gather(
        [json.dumps(dataclasses.asdict(translation)) for translation in own_translations]
    )
    if not processes.is_first:
        return []
    # Places to fill: the first process has a line unless there is none at all.
    translations: list[Translation] = own_translations[:1] * len(lines)
    for number, share in enumerate(shares):
        translations[number :: processes.count] = [
            _translation(**json.loads(text)) for text in share
        ]
    return translations


def _translation(hypotheses: Sequence[dict[str, Any]], **fields: Any) -> Translation:
    """A translation after a round trip through JSON."""
    return Translation(
        hypotheses=tuple(
            Hypothesis(**{**hypothesis, "tokens": tuple(hypothesis["tokens"])})
            for hypothesis in hypotheses
        ),
        **fields,
    )
