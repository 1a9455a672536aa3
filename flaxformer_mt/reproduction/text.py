"""The paper's text: as files, or as TensorFlow Datasets has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from flaxformer_mt.config import CorpusConfig, DataConfig, ExperimentConfig, load_config
from flaxformer_mt.config.presets import TFDS_SETS, TFDS_SPLITS
from flaxformer_mt.data.corpus.paths import is_remote
from flaxformer_mt.reproduction.paper import RowError

Text = Literal["files", "tfds"]
TEXTS: tuple[Text, ...] = get_args(Text)


def load_on(text: Text, spec: str, overrides: Sequence[str] = ()) -> ExperimentConfig:
    """The config `spec` on that text, with overrides made last.

    Raises RowError where TensorFlow Datasets does not have it, and ConfigError.
    """
    if text == "files":
        return load_config(spec, overrides)
    return load_config(spec, [*_from_tfds(spec, load_config(spec).data), *overrides])


def placed(text: Text, data: DataConfig, folder: str) -> DataConfig:
    """`data` with its files in `folder`; of `tfds` the prepared sets, where no other place of a set
    was given."""
    if text == "files":
        return dataclasses.replace(data, folder=folder)
    # A relative one would be taken for a place below `data.folder`.
    place = folder if is_remote(folder) else str(Path(folder).absolute())

    def moved(corpora: Sequence[CorpusConfig]) -> tuple[CorpusConfig, ...]:
        return tuple(
            dataclasses.replace(corpus, data_dir=corpus.data_dir or place) for corpus in corpora
        )

    (valid,) = moved([data.valid])
    return dataclasses.replace(data, train=moved(data.train), valid=valid, test=moved(data.test))


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
