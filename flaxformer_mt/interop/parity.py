"""Whether another runtime gives the same outputs as this program, and on which sentences."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import jax
import numpy as np
from jaxtyping import Float

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.data.prepare.make import valid_text
from flaxformer_mt.data.prepare.manifest import VALID_TEXT
from flaxformer_mt.data.vocabulary import EOS, UNK, Vocabularies
from flaxformer_mt.decoding.masks.source import Source
from flaxformer_mt.decoding.run.decoder import BatchDecoder
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

    Products are float32 at full precision, whatever `model.dtype` is and the hardware would round.
    """

    def __init__(self, translator: Translator) -> None:
        self.vocabularies = translator.vocabularies
        config = dataclasses.replace(translator.model.config, dtype="float32")
        self.longest = config.max_length  # tokens that a source may have, the end mark included
        # The plain model, since not every program has the search's rules.
        search = dataclasses.replace(
            translator.config, beam_size=1, diverse_groups=1, length_penalty=0.0, no_repeat_ngram=0
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
            found = decoder.decode([Source(ids, (0, 0)) for ids in sources])
            return [list(hypotheses[0].tokens) for hypotheses in found]

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
        near = self.largest <= self.bound and self.mean <= self.mean_bound
        return near and self.same_output + self.near_ties == self.sentences

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
    vocabulary = reference.vocabularies.src
    longest = reference.longest
    encoded = [[*ids, EOS] for ids in vocabulary.encode(lines)]
    kept = [number for number, ids in enumerate(encoded) if 1 < len(ids) <= longest]
    if not kept:
        raise ExportError(f"{sample}: no line has 1 to {longest - 1} tokens: nothing to compare")
    lines = [lines[number] for number in kept]
    sources = [encoded[number] for number in kept]
    for line, ours, theirs in zip(lines, sources, runtime.encode(lines), strict=True):
        if ours != theirs:
            raise ExportError(
                f"{runtime.name} splits {line!r} into tokens {theirs}, this program into {ours}"
            )
    outputs = reference.greedy(sources)
    expected = reference.log_probs(sources, outputs)
    found = runtime.log_probs(sources, outputs)
    differences = np.concatenate([np.abs(a - b) for a, b in zip(expected, found, strict=True)])
    if not np.isfinite(differences).all():
        raise ExportError(f"{runtime.name} returns log-probabilities that are not finite")
    limits = reference.limits(sources)
    others = runtime.greedy(sources, limits)
    parted = [
        (source, ours, theirs)
        for source, ours, theirs, limit in zip(sources, outputs, others, limits, strict=True)
        # Not every program ends an output by force at its limit.
        if ours[: limit - 1] != theirs[: limit - 1]
    ]
    return Parity(
        runtime=runtime.name,
        sample=sample,
        sentences=len(sources),
        left_out=len(encoded) - len(sources),
        tokens=len(differences),
        largest=float(differences.max()),
        mean=float(differences.mean()),
        same_output=len(sources) - len(parted),
        # Each of two tokens may be off by the bound.
        near_ties=sum(_gap(reference, *case) <= 2 * bound for case in parted),
        bound=bound,
        mean_bound=bound * mean_share,
    )


def _gap(
    reference: Reference, source: Sequence[int], ours: Sequence[int], theirs: Sequence[int]
) -> float:
    a, b = [*ours, EOS], [*theirs, EOS]
    at = next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)) - 1
    )
    # The end mark added for scoring comes after what is read here.
    one, other = reference.log_probs([source, source], [a[: at + 1], b[: at + 1]])
    return abs(float(one[at] - other[at]))


def sample_lines(
    vocabularies: Vocabularies, data: Path | None, file: str | os.PathLike[str] | None
) -> tuple[list[str], str]:
    """At most `COUNT` source lines, and where they are from: `file`, else the validation text in
    the folder `data`, else the vocabulary's pieces. Raises ExportError, and as `valid_text`."""
    if file is not None:
        text = read_text(Path(file), ExportError).split("\n")
        if not (lines := [line.removesuffix("\r") for line in text if not is_blank(line)]):
            raise ExportError(f"{file}: has no line of text to compare")
        return _spread(lines), str(file)
    valid = valid_text(data)[0] if data is not None and (data / VALID_TEXT[0]).exists() else []
    if lines := [line for line in valid if not is_blank(line)]:
        return _spread(lines), "the run's validation text"
    vocabulary, random = vocabularies.src, np.random.default_rng(0)
    plain = [number for number, kind in enumerate(vocabulary.types()) if kind.plain]
    lengths = random.integers(1, 25, 2 * COUNT)
    rows = [random.choice(plain, length).tolist() for length in lengths]
    texts = [text for text in vocabulary.decode(rows) if not is_blank(text)]
    encoded = zip(texts, vocabulary.encode(texts), strict=True)
    made = [text for text, ids in encoded if ids and UNK not in ids]
    return made[:COUNT], "random pieces of the vocabulary"


def _spread(lines: list[str]) -> list[str]:
    count = min(len(lines), COUNT)
    return [lines[number * len(lines) // count] for number in range(count)]
