"""What a call of `reproduce` asks for beside the rows, and how files and commands name it."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from flaxformer_mt.config import CorpusConfig, DataConfig, ExperimentConfig, load_config
from flaxformer_mt.config.presets import TFDS_SETS, TFDS_SPLITS
from flaxformer_mt.data.corpus.paths import is_remote
from flaxformer_mt.reproduction.paper import RowError
from flaxformer_mt.reproduction.result_file import ABSOLUTE_PATH

PAPER = "paper"  # the paper's own text, in names of files
Text = Literal["files", "tfds"]  # the paper's text as files, or as TensorFlow Datasets has it
TEXTS: tuple[Text, ...] = get_args(Text)


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
        # Also what begins with it: `paper_full` is how files name the paper's text at full length.
        if self.name == PAPER or self.name.startswith(f"{PAPER}_"):
            raise RowError(
                f"--corpus {self.name}: files name results of the paper's own text so: give the "
                "corpus another name, which does not begin with 'paper'"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a call asks for beside the row. `overrides` are `a.b=value`, of the row's base."""

    scale: float = 1.0
    seed: int = 1
    text: Text = "files"
    folder: str | None = None
    corpus: Corpus | None = None
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise RowError(f"--scale {self.scale:g}: must lie above 0 and at most be 1")
        if self.text != "files" and self.corpus is not None:
            raise RowError(f"--text {self.text}: is the paper's text, and --corpus is another")
        for override in self.overrides:
            key, _, value = override.partition("=")
            if flag := {"data.folder": "--folder", "training.seed": "--seeds"}.get(key):
                raise RowError(f"--config.{override}: say {flag} in place of it")
            if ABSOLUTE_PATH.search(value):
                raise RowError(
                    f"--config.{override}: results name their settings, and this is a path of one "
                    "machine: give --folder, and file names within it"
                )

    @property
    def extent(self) -> str:
        """Text and scale, as names of files have them: `paper_full`, `toy_scale_0_05`."""
        text = self.corpus.name if self.corpus else PAPER
        text += "" if self.text == "files" else f"_{self.text}"
        scale = f"scale_{self.scale!r}".replace(".", "_").replace("-", "m")
        return f"{text}_{'full' if self.scale == 1 else scale}"

    def command(self, table: str, *, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> str:
        """The command that runs rows of a table, all of them if none is named.

        Without `seeds` these settings' own counts. FOLDER stands for where the text is.
        """
        words = ["flaxformer-mt", "reproduce", table]
        words += ["--only", *only] if only else []
        words += ["--scale", repr(self.scale)] if self.scale != 1 else []
        words += ["--seeds", *map(str, seeds or (self.seed,))]
        words += ["--text", self.text] if self.text != "files" else []
        words += ["--folder", "FOLDER"] if self.folder is not None else []
        if (corpus := self.corpus) is not None:
            words += ["--corpus", corpus.name, "--train", *corpus.train, "--valid", *corpus.valid]
            words += ["--test", *corpus.test] if corpus.test else []
        words += [f"--config.{override}" for override in self.overrides]
        return shlex.join(words)

    def to_json(self) -> str:
        """From which `from_json` makes them once more; the folder is left out."""
        plain = dataclasses.asdict(self)
        del plain["folder"]
        text = plain.pop("text")
        # Left out at its default, so that results from before this setting compare with later ones.
        return json.dumps(plain | ({} if text == "files" else {"text": text}))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The folder is called FOLDER. Raises RowError."""
        try:
            plain = json.loads(text)
            corpus, form = plain["corpus"], plain.get("text", "files")
            if form not in TEXTS:
                raise ValueError(f"no text {form!r}")
            if corpus is not None:
                files = {part: tuple(corpus[part]) for part in ("train", "valid")}
                test = tuple(corpus["test"]) if corpus["test"] else None
                corpus = Corpus(name=corpus["name"], test=test, **files)
            return cls(
                scale=plain["scale"],
                seed=plain["seed"],
                text=form,
                folder="FOLDER",
                corpus=corpus,
                overrides=tuple(plain["overrides"]),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RowError(f"its details name no experiment: {error}") from error


def load_on(text: Text, spec: str, overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The config `spec` on the paper's text in that form, with overrides made last.

    Raises RowError where TensorFlow Datasets does not have it, and ConfigError.
    """
    if text == "files":
        return load_config(spec, overrides)
    return load_config(spec, [*_from_tfds(spec, load_config(spec).data), *overrides])


def placed(text: Text, data: DataConfig, folder: str) -> DataConfig:
    """`data` with its files in `folder`.

    `tfds` has its prepared sets there, where no other place of a set was given.
    """
    if text == "files":
        return dataclasses.replace(data, folder=folder)
    # A relative one would be taken for a place below `data.folder`.
    place = folder if is_remote(folder) else str(Path(folder).absolute())

    def moved(corpus: CorpusConfig) -> CorpusConfig:
        return dataclasses.replace(corpus, data_dir=corpus.data_dir or place)

    return dataclasses.replace(
        data,
        train=tuple(map(moved, data.train)),
        valid=moved(data.valid),
        test=tuple(map(moved, data.test)),
    )


def _from_tfds(spec: str, data: DataConfig) -> Iterator[str]:
    corpora = {f"data.train.{corpus.name}": corpus for corpus in data.train}
    corpora |= {"data.valid": data.valid}
    corpora |= {f"data.test.{corpus.name}": corpus for corpus in data.test}
    for key, corpus in corpora.items():
        split = TFDS_SPLITS.get(corpus.src.partition(".")[0])
        if data.tgt_lang not in TFDS_SETS or split is None:
            raise RowError(
                f"{spec}: TensorFlow Datasets has no such text as its {key}: leave --text out"
            )
        yield f"{key}.kind=tfds"
        yield f"{key}.path={TFDS_SETS[data.tgt_lang]}"
        yield f"{key}.split={split}"
        yield f"{key}.src={data.src_lang}"
        yield f"{key}.tgt={data.tgt_lang}"
