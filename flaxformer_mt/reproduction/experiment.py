"""A row of the paper with the settings of a call: what is trained, and under which name."""

from __future__ import annotations

import dataclasses
import fractions
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from flaxformer_mt.config import (
    ConfigError,
    CorpusConfig,
    ExperimentConfig,
    flatten,
    freeze,
    load_config,
    thaw,
)
from flaxformer_mt.reproduction.paper import Row, RowError, row_of
from flaxformer_mt.reproduction.result_file import ABSOLUTE_PATH
from flaxformer_mt.reproduction.scaling import (
    scaled,
    scaled_pairs,
    validating_at_checkpoints,
)

# A row has another multiple of these than its base, whatever the base has.
_SIZES = frozenset(
    f"model.{name}"
    for name in "encoder_layers decoder_layers d_model d_ff num_heads d_k d_v".split()
)
_COUNTS = frozenset({"training.steps", "training.save_every", "training.keep_for_average"})
# Where and how an experiment is computed, and what it reports meanwhile: no part of what it is.
_NOT_DECISIVE = re.compile(
    r"name|mesh\..*|data\.(folder|workers)|data\..*\.(data_dir|archives)|decoding\.batch_tokens"
    r"|model\.(remat|scan_layers)|training\.(log_every|validate_.*|best_metric|keep_latest"
    r"|keep_best|loss_chunk|max_bad_updates|max_rollbacks|chip_tflops|deterministic)"
)
# Nor are these part of what the paper's experiment is.
_OURS = re.compile(r"model\.dtype|training\.seed|data\.(train|valid|test)\..*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """Text to run the rows on in place of the paper's: source and target file of each part."""

    name: str
    train: tuple[str, str]
    valid: tuple[str, str]
    test: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise RowError(
                f"--corpus {self.name}: a name has small letters, digits and '_', and begins with "
                "a letter"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a call asks for beside the row. `overrides` are `a.b=value`, of the row's base."""

    scale: float = 1.0
    seed: int = 1
    folder: str | None = None
    corpus: Corpus | None = None
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise RowError(f"--scale {self.scale:g}: must lie above 0 and at most be 1")
        for override in self.overrides:
            key, _, value = override.partition("=")
            if flag := {"data.folder": "--folder", "training.seed": "--seeds"}.get(key):
                raise RowError(f"--config.{override}: say {flag} in place of it")
            if ABSOLUTE_PATH.search(value):
                raise RowError(
                    f"--config.{override}: results name their settings, and this is a path of one "
                    "machine: give --folder, and file names within it"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """A row, resolved. `config` is what is trained, but that `pairs` cuts its training corpora."""

    row: Row
    settings: Settings
    config: ExperimentConfig
    pairs: Mapping[str, int] | None  # of each corpus at most the first so many; None: all
    test: str

    @property
    def name(self) -> str:
        """Of its result file: `table3_c_n2_paper_full_seed_1`."""
        settings = self.settings
        corpus = settings.corpus.name if settings.corpus else "paper"
        return f"{self.row.table}_{self.row.name.lower()}_{corpus}_{self.extent}_seed_{self.seed}"

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def extent(self) -> str:
        scale = self.settings.scale
        return "full" if scale == 1 else f"scale_{scale!r}".replace(".", "_").replace("-", "m")

    @property
    def is_the_paper_s(self) -> bool:
        """Whether nothing differs from the paper's experiment but place, seed and precision."""
        if self.settings.scale != 1 or self.settings.corpus is not None:
            return False
        theirs, ours = _decisive(load_config(self.row.spec)), _decisive(self.config)
        differing = {key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)}
        return all(_OURS.fullmatch(key) for key in differing)

    @property
    def digest(self) -> str:
        """Of all that decides its numbers but the text itself; the manifest digests that."""
        content = [_decisive(self.config), self.settings.scale, self.pairs, self.test]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def command(self) -> str:
        """The command that runs it; FOLDER stands for where the text is."""
        settings = self.settings
        words = ["flaxformer-mt", "reproduce", self.row.table, "--only", self.row.name]
        if settings.scale != 1:
            words += ["--scale", repr(settings.scale)]
        words += ["--seeds", str(self.seed)]
        if settings.folder is not None:
            words += ["--folder", "FOLDER"]
        if (corpus := settings.corpus) is not None:
            words += ["--corpus", corpus.name, "--train", *corpus.train, "--valid", *corpus.valid]
            words += ["--test", *corpus.test] if corpus.test else []
        words += [f"--config.{override}" for override in settings.overrides]
        return shlex.join(words)

    def details(self) -> dict[str, str]:
        """From which `again` makes it once more."""
        settings = self.settings
        plain = {
            "scale": settings.scale,
            "seed": settings.seed,
            "corpus": None if settings.corpus is None else dataclasses.asdict(settings.corpus),
            "overrides": settings.overrides,
        }
        return {"row": self.row.label, "settings": json.dumps(plain), "digest": self.digest}


def resolve(row: Row, settings: Settings) -> Experiment:
    """The experiment of a row.

    Overrides say what the base is; then the row's own changes are made: sizes and numbers of steps
    by their ratio to the paper's base, all else to the row's value. Last of all it is scaled.

    Raises RowError for a row that makes no sense on this base, ConfigError for wrong overrides.
    """
    config = _with_changes(row, load_config(row.base, settings.overrides))
    data, test = config.data, row.test
    if settings.folder is not None:
        data = dataclasses.replace(data, folder=settings.folder)
    pairs = row.pairs
    if (corpus := settings.corpus) is not None:
        if corpus.test is None and row.test != "valid":
            raise RowError(f"{row.label}: is measured on a test set: --test SRC TGT names it")
        data = dataclasses.replace(
            data,
            train=(_files(corpus.name, corpus.train),),
            valid=_files("valid", corpus.valid),
            test=(_files(corpus.name, corpus.test),) if corpus.test else (),
        )
        pairs = {corpus.name: sum(row.pairs.values())}
        test = corpus.name if row.test != "valid" else test
    training = dataclasses.replace(config.training, seed=settings.seed)
    config = dataclasses.replace(config, name=row.label, data=data, training=training)
    config = validating_at_checkpoints(scaled(config, settings.scale))
    cut = {name: scaled_pairs(count, settings.scale) for name, count in pairs.items()}
    experiment = Experiment(
        row=row,
        settings=settings,
        config=config,
        pairs=None if settings.scale == 1 else cut,
        test=test,
    )
    if ABSOLUTE_PATH.search(experiment.command):
        raise RowError(
            f"{experiment.command}: results name their command, and this one has a path of one "
            "machine: give --folder, and file names within it"
        )
    return experiment


def again(details: Mapping[str, str]) -> Experiment:
    """The experiment of a result, as the present configs resolve it.

    Raises RowError and ConfigError where they no longer do.
    """
    try:
        plain = json.loads(details["settings"])
        corpus = plain["corpus"]
        if corpus is not None:
            files = {part: tuple(corpus[part]) for part in ("train", "valid")}
            test = tuple(corpus["test"]) if corpus["test"] else None
            corpus = Corpus(name=corpus["name"], test=test, **files)
        settings = Settings(
            scale=plain["scale"],
            seed=plain["seed"],
            folder="FOLDER",
            corpus=corpus,
            overrides=tuple(plain["overrides"]),
        )
        row = row_of(details["row"])
    except (KeyError, TypeError, ValueError) as error:
        raise RowError(f"its details name no experiment: {error}") from error
    return resolve(row, settings)


def _with_changes(row: Row, ours: ExperimentConfig) -> ExperimentConfig:
    """`ours` with what the row has another value of than its base has in the paper."""
    base, changed = flatten(load_config(row.base)), flatten(load_config(row.spec))
    present = flatten(ours)
    changes = {
        key: _changed(row, key, base[key], value, present[key])
        for key, value in changed.items()
        if value != base.get(key) and key != "name"
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
    """What the row has of `key` where its base, in the paper `base`, is `ours`."""
    if ours == base:
        return value
    if key in _COUNTS:
        return max(1, round(ours * value / base))
    if key in _SIZES:
        ratio = fractions.Fraction(value, base)
        exact = ratio * ours
        if exact.denominator != 1:
            raise RowError(
                f"{row.label}: has {value}/{base} of its base's {key}, which --config.{key}={ours} "
                f"makes {float(exact):g}: choose a multiple of {ratio.denominator}"
            )
        return int(exact)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value == ours or (is_number and (value > base) != (value > ours)):
        raise RowError(
            f"{row.label}: has {key} {value} where the paper's base has {base}; to a base of "
            f"{ours} (--config.{key}) that is another question: leave the override out, or the row"
        )
    return value


def _files(name: str, files: tuple[str, str]) -> CorpusConfig:
    return CorpusConfig(name=name, src=files[0], tgt=files[1])


def _decisive(config: ExperimentConfig) -> dict[str, Any]:
    return {
        key: value for key, value in flatten(config).items() if not _NOT_DECISIVE.fullmatch(key)
    }
