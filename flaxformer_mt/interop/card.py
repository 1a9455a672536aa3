"""The model card of a Hugging Face folder: the run's data, scores and commands."""

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from flaxformer_mt.config import CorpusConfig, DataConfig

# The hub's names for metrics; the first that begins ours stands for it.
_METRICS = ("sacrebleu", "bleu", "chrf", "ter", "comet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """What a run says about its model, and what its owner adds."""

    data: DataConfig
    """What it was trained on."""
    commands: Sequence[Sequence[str]] = ()
    """Those that made the run, as words."""
    evaluations: Sequence[Mapping[str, Any]] = ()
    """Of these weights, as `evaluate` keeps them in NAME.json."""
    license: str = ""
    """The hub's name of it, such as apache-2.0; empty: the person adds it."""
    hub_name: str = ""
    """ORG/NAME, where the folder goes to the hub."""

    def header(self) -> str:
        """YAML for the hub, with values as JSON, which is YAML too."""
        codes = [re.split("[-_]", code)[0] for code in (self.data.src_lang, self.data.tgt_lang)]
        metrics = {name for each in self.evaluations for name in each["metrics"]}
        known = [m for m in _METRICS if any(name.startswith(m) for name in metrics)]
        values: dict[str, Any] = {
            # The hub refuses other codes.
            "language": [code for code in codes if re.fullmatch("[a-z]{2,3}", code)],
            "license": self.license,
            "library_name": "transformers",
            "pipeline_tag": "translation",
            "tags": ["marian", "flaxformer-mt"],
            "metrics": known,
        }
        lines = [f"{key}: {json.dumps(value)}" for key, value in values.items() if value]
        if not self.license:
            lines.append("# license: what others may do with the model")
        return "".join(f"{line}\n" for line in ("---", *lines, "---"))

    def body(self) -> str:
        commands = dict.fromkeys(shlex.join(map(_public, words)) for words in self.commands)
        corpora = [f"- `{corpus.name}`: {_origin(corpus)}" for corpus in self.data.train]
        parts = [
            "## Data",
            "\n".join(corpora) or "Training text unknown.",
            "## Scores",
            "\n".join(self._scores()) or "These weights have not been evaluated.",
            "## How it was made",
            "\n".join(f"    {line}" for line in commands) or "Unknown.",
        ]
        return "\n\n".join(parts)

    def _scores(self) -> Iterator[str]:
        """Not a table: signatures contain bars."""
        if self.evaluations:
            yield "Translated by flaxformer-mt's own search.\n"
        for each in self.evaluations:
            search = f"beam {each['beam_size']}, length penalty {each['length_penalty']:g}"
            yield f"- `{each['name']}` ({search})"
            for name, score in each["metrics"].items():
                yield f"  - {name} **{score:.2f}** `{each['signatures'][name]}`"


def _origin(corpus: CorpusConfig) -> str:
    """File names without local folders; the full name of a public set."""
    if corpus.kind == "synthetic":
        return f"the built-in grammar, {corpus.size:,} pairs"
    if corpus.kind == "tfds":
        return f"{corpus.path}, split {corpus.split}, of TensorFlow Datasets"
    if "://" in corpus.path:
        return corpus.path
    sides = (corpus.src, corpus.tgt) if corpus.kind == "files" else (corpus.path,)
    return ", ".join(PurePath(side).name for side in sides)


def _public(word: str) -> str:
    """A word of a command, with absolute paths cut to their last part."""
    return re.sub(r"(^|[=,])[/~][^=,:]*/", r"\1", word)
