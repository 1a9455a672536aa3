"""A row of the paper with a call's settings: the config to train, and names for its files."""

import dataclasses
import fractions
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flaxformer_mt.config import (
    ConfigError,
    CorpusConfig,
    DataConfig,
    ExperimentConfig,
    differences,
    flatten,
    freeze,
    thaw,
)
from flaxformer_mt.config.digest_keys import decides, deciding
from flaxformer_mt.config.schema import WEIGHT_FIELDS, Decides
from flaxformer_mt.reproduction import settings as options
from flaxformer_mt.reproduction.paper import Row, RowError, row_of
from flaxformer_mt.reproduction.settings import Corpus, ReproductionSettings

_NUMBERS: tuple[Decides, ...] = ("training", "scoring")  # settings that decide numbers
# A row scales these of its base.
_SIZES = frozenset(f"model.{field.name}" for field in WEIGHT_FIELDS if field.type is int)
_COUNTS = frozenset({"training.steps", "training.save_every", "training.keep_for_average"})
# Like place and speed, these are not part of the paper's experiment.
_OURS = frozenset({"model.dtype", "training.seed"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A row, resolved: `config`, with training corpora cut to `pairs`. `variant` is a digest of
    overrides that decide something."""

    row: Row
    settings: ReproductionSettings
    config: ExperimentConfig
    pairs: Mapping[str, int] | None  # the first pairs to use of each corpus; None: all
    test: str
    variant: str = ""

    @property
    def name(self) -> str:
        """Name of its result file: `table3_c_n2_paper_full_seed_1`."""
        return f"{self.stem(self.row.name.lower())}_seed_{self.seed}"

    def stem(self, subject: str) -> str:
        """How names of files about `subject` of its table begin, for any seed."""
        stem = f"{self.row.table}_{subject}_{self.settings.extent}"
        return f"{stem}_{self.variant}" if self.variant else stem

    @property
    def run_name(self) -> str:
        """Name of its run directory, shared by experiments that only score differently."""
        row = f"{self.row.table}_{self.row.name.lower()}"
        trained = _digest([deciding(self.config, "training"), self.pairs])
        return f"{row}_{self.settings.extent}_seed_{self.seed}-{trained[:8]}"

    @property
    def kept_as(self) -> str:
        """The name under which the run keeps its translations of the test set."""
        return f"{self.test}_{self.variant}" if self.variant else self.test

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def is_the_paper_s(self) -> bool:
        """Whether only place, seed and precision differ from the paper's experiment."""
        if self.settings.scale != 1 or self.settings.corpus is not None:
            return False
        paper = options.load_on(self.settings.text, self.row.spec)
        changed = differences(paper, self.config)
        return {key for key in changed if decides(key) in _NUMBERS} <= _OURS

    @property
    def digest(self) -> str:
        """Digest of all that decides its numbers except the text, which the manifest digests."""
        settings = deciding(self.config, *_NUMBERS)
        return _digest([settings, self.settings.scale, self.pairs, self.test])

    @property
    def command(self) -> str:
        return self.settings.command(self.row.table, only=[self.row.name])

    def details(self) -> dict[str, str]:
        """The details of its result, from which `again` rebuilds it."""
        return {
            "row": self.row.label,
            "settings": self.settings.to_json(),
            "digest": self.digest,
        }


def resolve(row: Row, settings: ReproductionSettings) -> Experiment:
    """The experiment of a row: overrides change the base, then the row changes it (sizes and step
    counts by their ratio to the paper's base), then scaling. Raises RowError for a row that doesn't
    apply to this base, ConfigError for wrong overrides."""
    base = options.base_of(row.base, settings)
    config = _with_changes(row, base)
    data, pairs, test = config.data, row.pairs, row.test
    if settings.folder is not None:
        data = options.placed(settings.text, data, settings.folder)
    corpus = settings.corpus
    if corpus is not None:
        data = _on_corpus(corpus, data, row)
        pairs = {corpus.name: sum(row.pairs.values())}
        test = "valid" if row.test == "valid" else corpus.name

    training = dataclasses.replace(config.training, seed=settings.seed)
    config = dataclasses.replace(config, name=row.label, data=data, training=training)
    config = options.validating_at_checkpoints(options.scaled(config, settings.scale))
    scaled_pairs = {name: options.share_of(count, settings.scale) for name, count in pairs.items()}
    return Experiment(
        row=row,
        settings=settings,
        config=config,
        pairs=None if settings.scale == 1 else scaled_pairs,
        test=test,
        variant=_variant(options.load_on(settings.text, row.base), base),
    )


def _on_corpus(corpus: Corpus, data: DataConfig, row: Row) -> DataConfig:
    """The data of a row with the user's own text instead of the paper's."""
    if corpus.test is None and row.test != "valid":
        raise RowError(f"{row.label}: needs a test set: give --test SRC TGT")
    tests = (_files(corpus.name, corpus.test),) if corpus.test else ()
    return dataclasses.replace(
        data,
        train=(_files(corpus.name, corpus.train),),
        valid=_files("valid", corpus.valid),
        test=tests,
    )


def _files(name: str, pair: tuple[str, str]) -> CorpusConfig:
    return CorpusConfig(name=name, src=pair[0], tgt=pair[1])


def _variant(paper_base: ExperimentConfig, base: ExperimentConfig) -> str:
    """A name for overrides of the base that decide something; empty without any."""
    changed = {
        key: new
        for key, (_, new) in differences(paper_base, base).items()
        if decides(key) != "nothing"
    }
    return f"with_{_digest(changed)[:8]}" if changed else ""


def again(details: Mapping[str, str]) -> Experiment:
    """The experiment of a result with today's configs. Raises RowError, ConfigError."""
    missing = {"row", "settings"} - set(details)
    if missing:
        raise RowError(f"its details lack {', '.join(sorted(missing))}")
    return resolve(row_of(details["row"]), ReproductionSettings.from_json(details["settings"]))


def _with_changes(row: Row, ours: ExperimentConfig) -> ExperimentConfig:
    """Raises RowError for a change that doesn't apply to our base."""
    paper_base = flatten(options.paper_config(row.base))
    paper_row = flatten(options.paper_config(row.spec))
    our_base = flatten(ours)
    changes = {
        key: _changed(row, key, paper_base[key], new, our_base[key])
        for key, new in paper_row.items()
        if new != paper_base.get(key) and key != "name"
    }
    if not changes:
        return ours
    thawed = thaw(ours)
    thawed.update_from_flattened_dict(changes)
    try:
        return freeze(thawed, row.label)
    except ConfigError as error:
        raise RowError(str(error)) from error


def _changed(row: Row, key: str, base: Any, value: Any, ours: Any) -> Any:
    """The setting of a row on our base, if the row changes `base` to `value` on the paper's."""
    if ours == base:
        return value
    if key in _COUNTS:
        return max(1, round(ours * value / base))
    if key in _SIZES:
        ratio = fractions.Fraction(value, base)
        exact = ratio * ours
        if exact.denominator != 1:
            raise RowError(
                f"{row.label}: has {value}/{base} of --config.{key}={ours}: "
                f"choose a multiple of {ratio.denominator}"
            )
        return int(exact)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value == ours or (is_number and (value > base) != (value > ours)):
        raise RowError(
            f"{row.label}: changes {key} from the paper's {base} to {value}, not from {ours}: "
            f"leave out --config.{key} or the row"
        )
    return value


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
