"""Whether another runtime gives the same outputs as this program, and on which sentences."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Float

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.data.prepare.manifest import VALID_TEXT
from flaxformer_mt.data.vocabulary import EOS, UNK, Vocabularies, Vocabulary
from flaxformer_mt.decoding.run.decoder import BatchDecoder
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.teacher_forcing import TeacherForcing
from flaxformer_mt.decoding.text.limits import output_limit
from flaxformer_mt.decoding.text.segments import Part
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files.reading import read_text
from flaxformer_mt.interop import ExportError

Rows = Sequence[Sequence[int]]  # token ids
LogProbs = Float[np.ndarray, " tokens"]

COUNT = 32


class Reference:
    """Greedy outputs and log-probabilities of a run's model, from and to token ids.

    Products are float32 at full precision, whatever `model.dtype` is, and on hardware that would
    round them, too.
    """

    def __init__(self, translator: Translator) -> None:
        self.vocabularies = translator.vocabularies
        config = dataclasses.replace(translator.model.config, dtype="float32")
        self.longest = config.max_length  # tokens that a source may have, the end mark included
        # The plain model, since not every program has the search's rules.
        search = dataclasses.replace(
            translator.config,
            beam_size=1,
            diverse_groups=1,
            length_penalty=0.0,
            no_repeat_ngram=0,
            min_length=0,
            min_ratio=0.0,
        )
        model = translator.model.clone(config=config)
        self._forcing = TeacherForcing(translator.params, model, search, translator.mesh)

    def limits(self, sources: Rows) -> list[int]:
        """The most tokens that each source's output may have, the end mark included."""
        config = self._forcing.config
        return [output_limit(config, len(ids), self.longest) for ids in sources]

    def greedy(self, sources: Rows) -> list[list[int]]:
        """The greedy output of each source (pieces + EOS), without its end mark."""
        forcing = self._forcing
        with jax.default_matmul_precision("highest"):
            decoder = BatchDecoder((forcing.params,), (forcing.model,), forcing.config)
            decoded = decoder.decode([Source(ids, (0, 0)) for ids in sources])
            return [list(hypotheses[0].tokens) for hypotheses in decoded]

    def log_probs(self, sources: Rows, targets: Rows) -> list[LogProbs]:
        """Natural log-probability of every token of each target and of the end mark after it."""
        parts = [
            Part("", tuple(source[:-1]), "", tuple(target))
            for source, target in zip(sources, targets, strict=True)
        ]
        with jax.default_matmul_precision("highest"):
            return self._forcing.log_probs(parts)


class Runtime(Protocol):
    """A written model run by its own program, called `name`; token ids are this program's."""

    name: str

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Source ids of each line, the end mark included, by the tokenizer in the folder."""

    def search(
        self, sources: Rows, *, beam_size: int, limit: int, length_penalty: float = 0.0
    ) -> list[list[int]]:
        """The best outputs of at most `limit` tokens, as one batch; penalty |Y|^length_penalty."""

    def greedy(self, sources: Rows, limits: Sequence[int]) -> list[list[int]]:
        """Greedy outputs of at most that many tokens, end mark included, without the end mark."""
        pairs = zip(sources, limits, strict=True)
        return [self.search([source], beam_size=1, limit=limit)[0] for source, limit in pairs]

    def log_probs(self, sources: Rows, targets: Rows) -> list[LogProbs]:
        """Log-probability of every token of each target and of the end mark after it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity:
    """How far two runtimes agree on a sample."""

    runtime: str
    sample: str
    sentences: int
    left_out: int  # lines of the sample that are blank, or longer than the model takes
    tokens: int  # of this program's greedy outputs, end marks included
    largest: float  # difference of a token's natural log-probability
    mean: float
    same_output: int  # sentences with the same greedy output
    near_ties: int  # of the others, those that part at two tokens within 2 * `bound`
    bound: float
    mean_bound: float

    @property
    def agrees(self) -> bool:
        within_bounds = self.largest <= self.bound and self.mean <= self.mean_bound
        return within_bounds and self.same_output + self.near_ties == self.sentences

    def __str__(self) -> str:
        outputs = f"greedy outputs equal for {self.same_output} of {self.sentences} sentences"
        if self.same_output < self.sentences:
            outputs += f" ({self.near_ties} of the others diverge at near-equal tokens)"
        if self.left_out:
            outputs += f" ({self.left_out} blank or too long for the model, skipped)"
        return (
            f"{self.runtime} on {self.sample}: {outputs}; log-probabilities of {self.tokens:,} "
            f"tokens differ by at most {self.largest:.1e} (bound {self.bound:g}; mean "
            f"{self.mean:.1e}, bound {self.mean_bound:g})"
        )


def compare(
    reference: Reference,
    runtime: Runtime,
    lines: Sequence[str],
    sample: str,
    *,
    bound: float,
    mean_share: float = 1.0,
) -> Parity:
    """Both runtimes' greedy outputs and log-probabilities on the lines that the model takes.
    `mean_share` of `bound` is for the mean. Raises ExportError if the tokenizers disagree, or no
    line is short enough."""
    sources = _sources(reference, runtime, lines, sample)
    outputs = reference.greedy(sources)
    differences = _differences(reference, runtime, sources, outputs)
    diverging = _diverging(reference, runtime, sources, outputs)
    return Parity(
        runtime=runtime.name,
        sample=sample,
        sentences=len(sources),
        left_out=len(lines) - len(sources),
        tokens=len(differences),
        largest=float(differences.max()),
        mean=float(differences.mean()),
        same_output=len(sources) - len(diverging),
        # Each of two tokens may be off by the bound.
        near_ties=sum(_gap(reference, *case) <= 2 * bound for case in diverging),
        bound=bound,
        mean_bound=bound * mean_share,
    )


def _sources(
    reference: Reference, runtime: Runtime, lines: Sequence[str], sample: str
) -> list[list[int]]:
    """Source ids, the end mark included, of the lines that the model takes."""
    longest = reference.longest
    encoded = [
        (line, [*ids, EOS])
        for line, ids in zip(lines, reference.vocabularies.src.encode(lines), strict=True)
    ]
    fitting = [(line, ids) for line, ids in encoded if 1 < len(ids) <= longest]
    if not fitting:
        raise ExportError(f"{sample}: no line has 1 to {longest - 1} tokens: nothing to compare")

    encoded_there = runtime.encode([line for line, _ in fitting])
    for (line, ours), theirs in zip(fitting, encoded_there, strict=True):
        if ours != theirs:
            raise ExportError(
                f"{runtime.name} splits {line!r} into tokens {theirs}, this program into {ours}"
            )
    return [ids for _, ids in fitting]


def _differences(reference: Reference, runtime: Runtime, sources: Rows, outputs: Rows) -> LogProbs:
    """By how much the log-probabilities of all outputs' tokens differ."""
    ours = reference.log_probs(sources, outputs)
    theirs = runtime.log_probs(sources, outputs)
    differences = np.concatenate([np.abs(a - b) for a, b in zip(ours, theirs, strict=True)])
    if not np.isfinite(differences).all():
        raise ExportError(f"{runtime.name} returns log-probabilities that are not finite")
    return differences


class _Diverging(NamedTuple):
    """Token ids of a source whose greedy outputs differ."""

    source: Sequence[int]
    ours: Sequence[int]
    theirs: Sequence[int]


def _diverging(
    reference: Reference, runtime: Runtime, sources: Rows, outputs: Rows
) -> list[_Diverging]:
    limits = reference.limits(sources)
    their_outputs = runtime.greedy(sources, limits)
    return [
        _Diverging(source, ours, theirs)
        for source, ours, theirs, limit in zip(sources, outputs, their_outputs, limits, strict=True)
        # Not every program ends an output by force at its limit.
        if ours[: limit - 1] != theirs[: limit - 1]
    ]


def _gap(
    reference: Reference, source: Sequence[int], ours: Sequence[int], theirs: Sequence[int]
) -> float:
    """By how much the log-probabilities differ where the outputs have different tokens first."""
    our_tokens, their_tokens = [*ours, EOS], [*theirs, EOS]
    shorter = min(len(our_tokens), len(their_tokens))
    position = 0
    while position < shorter - 1 and our_tokens[position] == their_tokens[position]:
        position += 1
    # The end mark that is added for scoring comes after this position.
    prefixes = [our_tokens[: position + 1], their_tokens[: position + 1]]
    our_log_probs, their_log_probs = reference.log_probs([source, source], prefixes)
    return abs(float(our_log_probs[position] - their_log_probs[position]))


def sample_lines(
    vocabularies: Vocabularies, data: Path | None, file: str | os.PathLike[str] | None
) -> tuple[list[str], str]:
    """At most `COUNT` source lines, and where they are from: `file`, else the validation text in
    the folder `data`, else the vocabulary's pieces. Raises ExportError, and as `valid_text`."""
    if file is not None:
        text = read_text(Path(file), ExportError)
        lines = [line.removesuffix("\r") for line in text.split("\n") if not is_blank(line)]
        if not lines:
            raise ExportError(f"{file}: has no line of text to compare")
        return _spread(lines), str(file)
    if data is not None and (data / VALID_TEXT[0]).exists():
        sources, _ = valid_text(data)
        lines = [line for line in sources if not is_blank(line)]
        if lines:
            return _spread(lines), "the run's validation text"
    return _random_lines(vocabularies.src), "random pieces of the vocabulary"


def _random_lines(vocabulary: Vocabulary) -> list[str]:
    """At most `COUNT` lines of pieces that the vocabulary encodes without unknown ones."""
    random = np.random.default_rng(0)
    plain = [number for number, kind in enumerate(vocabulary.types()) if kind.plain]
    lengths = random.integers(1, 25, 2 * COUNT)
    rows = [random.choice(plain, length).tolist() for length in lengths]
    texts = [text for text in vocabulary.decode(rows) if not is_blank(text)]
    encoded = zip(texts, vocabulary.encode(texts), strict=True)
    return [text for text, ids in encoded if ids and UNK not in ids][:COUNT]


def _spread(lines: list[str]) -> list[str]:
    count = min(len(lines), COUNT)
    return [lines[number * len(lines) // count] for number in range(count)]
