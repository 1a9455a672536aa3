"""What a call of `reproduce` asks for beside the rows, and how files and commands name it."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Sequence

from flaxformer_mt.reproduction.paper import RowError
from flaxformer_mt.reproduction.result_file import ABSOLUTE_PATH
from flaxformer_mt.reproduction.text import TEXTS, Text

PAPER = "paper"  # the paper's own text, in names of files


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
    text: Text = "files"  # of the paper's, in which form
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
        plain = {
            "scale": self.scale,
            "seed": self.seed,
            "corpus": None if self.corpus is None else dataclasses.asdict(self.corpus),
            "overrides": self.overrides,
        }
        # Left out at its default, so that results from before this setting compare with later ones.
        text = {} if self.text == "files" else {"text": self.text}
        return json.dumps(plain | text)

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """The folder is called FOLDER. Raises RowError."""
        try:
            plain = json.loads(text)
            corpus = plain["corpus"]
            form = plain.get("text", "files")
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
