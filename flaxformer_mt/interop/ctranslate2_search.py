"""CTranslate2 as what searches for a `Translator`: its beam search, our choice among the outputs.

CTranslate2 knows |Y|^alpha alone as a length penalty. So it ranks hypotheses by log-probability
while it searches, as this program does, returns all that ended, and this program's penalty decides
between them. It stops once as many have ended as the beam holds (`decoding.patience` 1), and only
the best of the beam may end (`ends_among` "beam").
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.processes import processors
from flaxformer_mt.data.vocabulary import BOS, PAD, UNK, Vocabularies
from flaxformer_mt.decoding import arguments
from flaxformer_mt.decoding.constraints.symbols import Continues
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.options import SearchOptions
from flaxformer_mt.decoding.penalties import length_penalty
from flaxformer_mt.decoding.rounding import power_of_two_at_least
from flaxformer_mt.decoding.run.checks import check_source
from flaxformer_mt.decoding.search.settings import rules_for
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.text.decoded import NO_NUMBERS, Decoded, TextOf, distinct
from flaxformer_mt.decoding.text.limits import OutputLimits
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import package_of_extra
from flaxformer_mt.interop.ctranslate2_cache import exported

ROWS = 32  # sentences that are searched together
_OF_A_CALL = 512  # sentences
QUANTIZATIONS = ("float32", "int8", "int7")
_SHORTEST_LIMIT = 16
# Settings that CTranslate2 doesn't have, with the values that have no effect.
_WITHOUT: Mapping[str, object] = {
    "coverage_penalty": 0.0,
    "diverse_groups": 1,
    "min_ratio": 0.0,
    "copy_symbols": False,
    "outputs": "text",
}


def ctranslate2_runtime(
    translator: Translator,
    *,
    quantization: str = "float32",
    data: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> "LoadedCTranslate2":
    """CTranslate2 with the translator's model, for `Translator.with_runtime`; its weights are
    multiplied as `quantization`, "float32", "int8" or "int7".

    The first call for some weights exports them into the cache folder, and compares both programs
    as `export` does, on validation text of the prepared `data` if given. `say` gets a line then.

    Raises ExportError if CTranslate2 isn't installed, has no form for the model or gives other
    outputs, and DecodingError on an accelerator, for an ensemble, a shortlist or settings that
    CTranslate2 doesn't have.
    """
    arguments.one_of("quantization", quantization, QUANTIZATIONS)
    package = package_of_extra("ctranslate2", "this search is done by the package")
    platform = translator.mesh.devices.flat[0].platform
    if platform != "cpu":
        raise DecodingError(
            f"CTranslate2 searches on CPUs here, but JAX has found a {platform}: leave it out, or "
            "`export --format ctranslate2` and run the folder's own program"
        )
    name = f"CTranslate2 {package.__version__} in {quantization}"
    if len(translator.members) > 1:
        raise DecodingError(f"{name} searches with a single model, not an ensemble")
    if translator.shortlist is not None:
        raise DecodingError(f"{name} searches without this program's shortlist")
    _check(name, translator.config, SearchOptions())  # before the export, which takes its time

    with exported(translator, name, quantization, data, say) as folder:
        model = package.Translator(
            str(folder),
            device="cpu",
            compute_type="float32" if quantization == "float32" else "int8",
            # Batches side by side: threads that share one wait for each other at every product,
            # which takes long where other work keeps the cores busy.
            inter_threads=processors(),
            intra_threads=1,
        )
    return LoadedCTranslate2(
        name, model, translator.params, translator.vocabularies, translator.max_length
    )


def _check(name: str, config: DecodingConfig, options: SearchOptions) -> None:
    """Raises DecodingError for settings and options that CTranslate2 doesn't have, and ValueError
    for those that no search has."""
    asked = {
        **{f"decoding.{key}": getattr(config, key) != off for key, off in _WITHOUT.items()},
        "decoding.patience below 1": 0 < config.patience < 1,
        "sampling": options.sampling is not None,
        "masks of the caller's": bool(options.masks),
    }
    refused = [what for what, is_asked in asked.items() if is_asked]
    if refused:
        raise DecodingError(f"{name} searches without {', '.join(refused)}")
    rules_for(config, n_best=options.n_best)


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedCTranslate2:
    """An `OtherRuntime`: a model loaded by CTranslate2."""

    name: str
    model: Any  # ctranslate2.Translator
    params: Any  # the translator's
    vocabularies: Vocabularies
    max_length: int

    def search(
        self,
        config: DecodingConfig,
        options: SearchOptions,
        *,
        suppress: tuple[int, ...],
        text_of: TextOf,
    ) -> "CTranslate2Search":
        """Raises DecodingError for settings and options that CTranslate2 doesn't have."""
        _check(self.name, config, options)
        n_best = config.beam_size if options.mbr else options.n_best
        return CTranslate2Search(
            self, config, n_best, suppress, text_of=None if options.mbr else text_of
        )


class _Ended(NamedTuple):
    """A hypothesis as CTranslate2 returns it."""

    pieces: list[str]
    log_prob: float


@dataclasses.dataclass(frozen=True, eq=False)
class CTranslate2Search:
    """A `Searcher` with fixed settings."""

    runtime: LoadedCTranslate2
    config: DecodingConfig
    n_best: int
    suppress: tuple[int, ...]  # types that are never generated
    text_of: TextOf | None  # with it no two outputs of a source have the same text

    def decode(
        self, sources: Sequence[Source], *, continues: Continues | None = None
    ) -> list[list[Decoded]]:
        """As `Searcher.decode`. Raises DecodingError where phrases are required, and LineError for
        a source with a prefix or forbidden phrases."""
        if continues is not None:
            raise DecodingError(f"{self.runtime.name} searches without terms and required phrases")
        limits = [self._limits.of(len(source.tokens)) for source in sources]
        for number, (source, limit) in enumerate(zip(sources, limits, strict=True)):
            self._check_source(number, source, limit)

        # A call has one limit, and few calls make large batches. So an output may first be longer
        # than its own limit, and is then searched again. Rounding depends on nothing else: a line's
        # translation doesn't depend on the other lines.
        longest = self.runtime.max_length
        rounded = [
            min(max(power_of_two_at_least(limit), _SHORTEST_LIMIT), longest) for limit in limits
        ]
        decoded = self._searched(sources, range(len(sources)), rounded, limits)
        over = [
            number
            for number, outputs in decoded.items()
            if any(len(output.tokens) + 1 > limits[number] for output in outputs)
        ]
        decoded |= self._searched(sources, over, limits, limits)
        return [decoded[number] for number in range(len(sources))]

    def compile(
        self, lengths: Sequence[int], *, longest: int = 0, constrained: bool = False
    ) -> frozenset[tuple[int, int]]:
        """Nothing: CTranslate2 compiles no programs."""
        return frozenset()

    @functools.cached_property
    def _limits(self) -> OutputLimits:
        return OutputLimits(self.config, self.runtime.max_length)

    @functools.cached_property
    def _pieces(self) -> tuple[list[str], list[str]]:
        vocabularies = self.runtime.vocabularies
        return vocabularies.src.pieces(), vocabularies.tgt.pieces()

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        """Target ids by piece."""
        return {piece: number for number, piece in enumerate(self._pieces[1])}

    def _check_source(self, number: int, source: Source, limit: int) -> None:
        for what, is_there in (
            ("prefixes", source.prefix),
            ("forbidden phrases", source.forbidden),
        ):
            if is_there:
                raise LineError(number, f"{self.runtime.name} searches without {what}")
        longest = self.runtime.max_length
        check_source(number, source, limit, max_length=longest, continues=None)

    def _searched(
        self,
        sources: Sequence[Source],
        numbers: Sequence[int],
        call_limits: Sequence[int],
        limits: Sequence[int],
    ) -> dict[int, list[Decoded]]:
        """The outputs of these sources by number, of at most `call_limits` tokens each."""
        outputs: dict[int, list[Decoded]] = {}
        by_limit = sorted(numbers, key=call_limits.__getitem__)
        for call_limit, group in itertools.groupby(by_limit, call_limits.__getitem__):
            of_limit = sorted(group, key=lambda number: len(sources[number].tokens))
            # A call can't be interrupted, so none takes all lines of a large window.
            for first in range(0, len(of_limit), _OF_A_CALL):
                together = of_limit[first : first + _OF_A_CALL]
                translated = self._translated([sources[number] for number in together], call_limit)
                for number, hypotheses in zip(together, translated, strict=True):
                    outputs[number] = self._ranked(hypotheses, limits[number])
        return outputs

    def _translated(self, sources: Sequence[Source], limit: int) -> list[list[_Ended]]:
        """What CTranslate2 finds for each source; `limit` counts the end mark."""
        of_source, of_target = self._pieces
        lines = [[of_source[token] for token in source.tokens[:-1]] for source in sources]
        if limit == 1:  # room for the end mark alone, which CTranslate2 takes for no room
            return self._with_end_marks(lines, [[_Ended([], 0.0)] for _ in lines], limit)
        config = self.config
        never = [[of_target[token]] for token in (PAD, BOS, *self.suppress) if token != UNK]
        results = self.runtime.model.translate_batch(
            lines,
            max_batch_size=min(ROWS, -(-len(lines) // self.runtime.model.num_translators)),
            beam_size=config.beam_size,
            num_hypotheses=config.beam_size,
            patience=config.patience or 1,
            length_penalty=0,
            no_repeat_ngram_size=config.no_repeat_ngram,
            disable_unk=UNK in self.suppress,
            suppress_sequences=never,
            max_input_length=0,  # cuts nothing off
            max_decoding_length=limit - 1,
            min_decoding_length=min(config.min_length, limit - 1),
            return_scores=True,
        )
        translated = [
            [_Ended(*ended) for ended in zip(result.hypotheses, result.scores, strict=True)]
            for result in results
        ]
        return self._with_end_marks(lines, translated, limit)

    def _with_end_marks(
        self, lines: Sequence[list[str]], translated: Sequence[list[_Ended]], limit: int
    ) -> list[list[_Ended]]:
        """The same, with the end mark's log-probability where an output was cut at the limit.
        CTranslate2 leaves it out (4.8.5), so that of all outputs a cut one would seem likeliest."""
        cut = [
            (line, ended)
            for line, of_line in zip(lines, translated, strict=True)
            for ended in of_line
            if len(ended.pieces) == limit - 1
        ]
        if not cut:
            return list(translated)
        scored = self.runtime.model.score_batch(
            [line for line, _ in cut],
            [ended.pieces for _, ended in cut],
            max_batch_size=ROWS,
            max_input_length=0,
        )
        end_marks = iter([result.log_probs[-1] for result in scored])
        return [
            [
                ended._replace(log_prob=ended.log_prob + next(end_marks))
                if len(ended.pieces) == limit - 1
                else ended
                for ended in of_line
            ]
            for of_line in translated
        ]

    def _ranked(self, hypotheses: Sequence[_Ended], limit: int) -> list[Decoded]:
        """A source's outputs, best first by this program's length penalty."""
        outputs = [self._decoded(ended, limit) for ended in hypotheses]
        if not all(math.isfinite(output.score) for output in outputs):
            raise DecodingError(f"the model's scores are {NO_NUMBERS}")
        outputs.sort(key=lambda output: -output.score)
        if self.text_of is not None:
            text_of = self.text_of
            outputs = list(distinct(outputs, lambda output: text_of(output.tokens)))
        return outputs[: self.n_best]

    def _decoded(self, ended: _Ended, limit: int) -> Decoded:
        length = len(ended.pieces) + 1  # the end mark counts
        penalty = length_penalty(
            length, self.config.length_penalty, average=self.config.length_norm == "average"
        )
        return Decoded(
            tokens=tuple(self._ids[piece] for piece in ended.pieces),
            log_prob=ended.log_prob,
            score=ended.log_prob / penalty,
            at_limit=length >= limit,
        )
