"""Closed unions: the kinds of corpora, of learning-rate schedules, of optimizers and of batches.

A user writes, and a run records, one flat group with the settings of all kinds (`schema.py`). Each
class here is one kind: its fields are the settings of that group which the kind reads. The unions
are `CorpusSource`, `RateCurve`, `UpdateRule` and `BatchLayout`; mypy names a `match` that lacks a
case for one of their members.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from flaxformer_mt.config.schema import (
        BatchConfig,
        CorpusConfig,
        OptimizerConfig,
        ScheduleConfig,
    )

HUB = "hf://datasets/"
GRAMMAR_SPLITS = ("train", "valid", "test")
_Role = Literal["file", "optional_file", "content", "choice", "optional"]


def _reads(role: _Role) -> Any:
    return dataclasses.field(metadata={"role": role})


def a_file() -> Any:
    """A setting that names files: only what they hold decides the text."""
    return _reads("file")


def an_optional_file() -> Any:
    """A setting that names a file, or is empty."""
    return _reads("optional_file")


def a_content() -> Any:
    """A setting that decides the text itself, such as a key or a split."""
    return _reads("content")


def a_choice() -> Any:
    """A setting that decides the text, and may be empty."""
    return _reads("choice")


def an_option() -> Any:
    """A setting that may be empty and doesn't decide the text."""
    return _reads("optional")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusKind(abc.ABC):
    """Base of the kinds of corpora. A field is a setting of `CorpusConfig` that the kind reads."""

    kind: ClassVar[str]
    meaning: ClassVar[str]
    endings: ClassVar[tuple[str, ...]] = ()  # of the names of its files, if they show the kind
    is_by_file: ClassVar[bool] = True  # read file by file; others find theirs, or have none

    def contents(self) -> tuple[str, ...]:
        """The settings that decide the text themselves."""
        choices = (name for name in self._in_role("choice") if getattr(self, name))
        return (*self._in_role("content"), *choices)

    @classmethod
    def needed(cls) -> tuple[str, ...]:
        """The settings that may not be empty, those that name files first."""
        return cls._in_role("file") + cls._in_role("content")

    @classmethod
    def optional_files(cls) -> tuple[str, ...]:
        """The settings that name files and may be empty."""
        return cls._in_role("optional_file")

    def named_files(self) -> tuple[str, ...]:
        """The settings that name files, without optional ones that are empty."""
        given = (name for name in self.optional_files() if getattr(self, name))
        return (*self._in_role("file"), *given)

    @classmethod
    def _in_role(cls, role: _Role) -> tuple[str, ...]:
        fields = dataclasses.fields(cls)
        return tuple(field.name for field in fields if field.metadata["role"] == role)

    @property
    def sides(self) -> tuple[str, str] | None:
        """The file or key of source and of target; None for a kind that names neither."""
        return None

    @property
    def is_fetched(self) -> bool:
        """Whether TFDS or the hub has the corpus, so that reading it may download it."""
        return False

    @property
    @abc.abstractmethod
    def origin(self) -> str:
        """Where the text comes from, for people."""

    def problems(self, key: str) -> Iterator[str]:
        """What is wrong with the settings under a dotted key, beyond their types and bounds."""
        if self.sides is not None and any(self.sides) and not all(self.sides):
            yield f"'{key}': a corpus of kind '{self.kind}' needs both 'src' and 'tgt'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignedFiles(CorpusKind):
    kind = "files"
    meaning = "two line-aligned files"

    src: str = a_file()
    tgt: str = a_file()
    pair_weights: str = an_optional_file()

    @property
    def sides(self) -> tuple[str, str]:
        return self.src, self.tgt

    @property
    def origin(self) -> str:
        return f"{PurePath(self.src).name}, {PurePath(self.tgt).name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _OnePath(CorpusKind):
    path: str = a_file()

    @property
    def origin(self) -> str:
        return self.path if "://" in self.path else PurePath(self.path).name


@dataclasses.dataclass(frozen=True, kw_only=True)
class _MayHaveWeights(CorpusKind):
    """A kind whose records may have a weight under a key, or in a column, of its own."""

    pair_weights: str = a_choice()

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys or columns to read: of both sides, if they are named, and of the weights."""
        sides = self.sides or ()
        return (*sides, self.pair_weights) if self.pair_weights else sides


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SidesMayBeNamed(_OnePath):
    src: str = a_choice()
    tgt: str = a_choice()

    @property
    def sides(self) -> tuple[str, str] | None:
        return (self.src, self.tgt) if self.src or self.tgt else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TabSeparated(_SidesMayBeNamed, _MayHaveWeights):
    kind = "tsv"
    meaning = "one file, columns between tabs"
    endings = ("tsv",)

    def problems(self, key: str) -> Iterator[str]:
        yield from super().problems(key)
        if self.pair_weights and self.sides is None:
            yield f"'{key}.pair_weights' needs the columns 'src' and 'tgt', too"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TwoKeys(_OnePath):
    src: str = a_content()
    tgt: str = a_content()

    @property
    def sides(self) -> tuple[str, str]:
        return self.src, self.tgt


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommaSeparated(_TwoKeys, _MayHaveWeights):
    kind = "csv"
    meaning = "one file, comma-separated values with quotation marks"
    endings = ("csv",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonLines(_TwoKeys, _MayHaveWeights):
    kind = "jsonl"
    meaning = "one JSON object per line, or an array of them"
    endings = ("jsonl", "ndjson", "json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZipArchive(_TwoKeys):
    kind = "zip"
    meaning = "OPUS's archive of two line-aligned files"
    endings = ("zip",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslationMemory(_SidesMayBeNamed):
    kind = "memory"
    meaning = "a translation memory or catalogue: TMX, XLIFF or PO"
    endings = ("tmx", "xliff", "xlf", "po")

    inline: Literal["drop", "keep"] = a_choice()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSet(CorpusKind):
    kind = "tfds"
    meaning = "a TensorFlow Datasets translation set"
    is_by_file = False

    path: str = a_content()
    split: str = a_content()
    src: str = a_content()
    tgt: str = a_content()
    data_dir: str = an_option()
    archives: str = an_option()

    @property
    def sides(self) -> tuple[str, str]:
        return self.src, self.tgt

    @property
    def is_fetched(self) -> bool:
        return True

    @property
    def origin(self) -> str:
        return f"{self.path}, split {self.split}, of TensorFlow Datasets"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArrayRecords(_TwoKeys, _MayHaveWeights):
    kind = "array_record"
    meaning = "ArrayRecord shards of JSON objects"
    is_by_file = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetFiles(_TwoKeys, _MayHaveWeights):
    kind = "hf"
    meaning = "parquet files, yours or from the Hugging Face hub"
    endings = ("parquet",)
    is_by_file = False

    @property
    def is_fetched(self) -> bool:
        return self.path.startswith(HUB)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrammarText(CorpusKind):
    kind = "synthetic"
    meaning = "the built-in grammar"
    is_by_file = False

    split: str = a_content()
    size: int = a_content()

    @property
    def origin(self) -> str:
        return f"the built-in grammar, {self.size:,} pairs"

    def problems(self, key: str) -> Iterator[str]:
        if self.size < 1:
            yield f"'{key}.size' must be at least 1 for the built-in grammar"
        if self.split not in GRAMMAR_SPLITS:
            yield f"'{key}.split' = '{self.split}' must be train, valid or test"


# Add a kind to both: mypy takes neither from the other. Messages name kinds in this order.
CorpusSource: TypeAlias = (
    AlignedFiles
    | TabSeparated
    | CommaSeparated
    | JsonLines
    | ZipArchive
    | TranslationMemory
    | TfdsSet
    | ArrayRecords
    | ParquetFiles
    | GrammarText
)
SourceName = Literal[
    "files",
    "tsv",
    "csv",
    "jsonl",
    "zip",
    "memory",
    "tfds",
    "array_record",
    "hf",
    "synthetic",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperCurve:
    kind: ClassVar[str] = "paper"
    meaning: ClassVar[str] = "factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)"

    factor: float
    warmup_steps: int

    def problems(self, key: str) -> Iterator[str]:
        if self.factor <= 0:
            yield f"'{key}.factor' = {self.factor} must be positive"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CurveToPeak:
    """A curve that is set by its highest value."""

    kind: ClassVar[str]
    meaning: ClassVar[str]

    peak: float
    warmup_steps: int

    def problems(self, key: str) -> Iterator[str]:
        if self.peak <= 0:
            yield f"'{key}.peak' must be set when '{key}.kind' is '{self.kind}'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndingCurve(_CurveToPeak):
    """A curve that falls to `final * peak` at a last step."""

    final: float
    total_steps: int

    def last_step(self, steps: int) -> int:
        """Where it ends in a training of `steps`."""
        return self.total_steps or steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeakCurve(_CurveToPeak):
    kind: ClassVar[str] = "peak"
    meaning: ClassVar[str] = "the same curve, set by its highest value"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantCurve(_CurveToPeak):
    kind: ClassVar[str] = "constant"
    meaning: ClassVar[str] = "peak, from the end of the warm-up on"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearCurve(EndingCurve):
    kind: ClassVar[str] = "linear"
    meaning: ClassVar[str] = "from peak along a line to final * peak at the last step"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CosineCurve(EndingCurve):
    kind: ClassVar[str] = "cosine"
    meaning: ClassVar[str] = "the same along half a cosine"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StableCurve(EndingCurve):
    kind: ClassVar[str] = "wsd"
    meaning: ClassVar[str] = "warm-up, stable, decay: peak, and in the last steps along a line"

    decay_steps: int

    def decay(self, steps: int) -> int:
        """The steps of its decay in a training of `steps`: unless set, a tenth of all."""
        return self.decay_steps or max(1, self.last_step(steps) // 10)


RateCurve: TypeAlias = (
    PaperCurve | PeakCurve | ConstantCurve | LinearCurve | CosineCurve | StableCurve
)
CurveName = Literal["paper", "peak", "constant", "linear", "cosine", "wsd"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rule:
    """How an optimizer turns gradients into updates, before they meet the learning rate."""

    kind: ClassVar[str]
    meaning: ClassVar[str]

    weight_decay: float

    def problems(self, key: str) -> Iterator[str]:
        """What is wrong with the settings under a dotted key, beyond their types and bounds."""
        yield from ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TwoMoments(_Rule):
    beta1: float
    beta2: float
    epsilon: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(_TwoMoments):
    kind = "adam"
    meaning = "the paper's; weight_decay shrinks all parameters"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(_TwoMoments):
    kind = "adamw"
    meaning = "the same; weight_decay shrinks matrices only (Loshchilov and Hutter, 2019)"

    def problems(self, key: str) -> Iterator[str]:
        if not self.weight_decay:
            yield f"'{key}.weight_decay' must be set when '{key}.kind' is 'adamw', such as 0.01"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adafactor(_Rule):
    kind = "adafactor"
    meaning = "second moments by rows and columns, little memory (Shazeer and Stern, 2018)"

    decay_exponent: float
    parameter_scale: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lion(_Rule):
    kind = "lion"
    meaning = "the sign of one moment; needs a third to a tenth of Adam's rate (Chen et al., 2023)"

    beta1: float
    beta2: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon(_TwoMoments):
    kind = "muon"
    meaning = (
        "orthogonal updates of the layers' matrices, as large as Adam's (Jordan, 2024; Liu et al., "
        "2025); Adam for embeddings and vectors"
    )

    momentum: float


UpdateRule: TypeAlias = Adam | AdamW | Adafactor | Lion | Muon
RuleName = Literal["adam", "adamw", "adafactor", "lion", "muon"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucketed:
    kind: ClassVar[str] = "bucket"
    meaning: ClassVar[str] = "one pair per row, rows of similar length (paper)"

    tokens: int
    max_shapes: int
    window: int
    multiple: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    kind: ClassVar[str] = "pack"
    meaning: ClassVar[str] = "several pairs per row, one shape for all batches"

    tokens: int
    max_shapes: int  # of validation's batches, which aren't packed
    src_length: int
    tgt_length: int
    window: int
    multiple: int


BatchLayout: TypeAlias = Bucketed | Packed
LayoutName = Literal["bucket", "pack"]


def meanings(union: Any) -> str:
    """What each member of a union is, for people."""
    return "; ".join(f"{member.kind}: {member.meaning}" for member in get_args(union))


def typed(
    union: Any, kind: str, group: CorpusConfig | ScheduleConfig | OptimizerConfig | BatchConfig
) -> Any:
    """The member of a union for this kind, with its settings in a flat group."""
    (member,) = (member for member in get_args(union) if member.kind == kind)
    settings = {field.name: getattr(group, field.name) for field in dataclasses.fields(member)}
    return member(**settings)
