"""Kind `tfds`: translation sets of TensorFlow Datasets, read without TensorFlow.

The shards are read straight from the files that the set's own metadata names: faster than through
`tfds.as_data_source`, for TFRecord as well, and streamed from object stores.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import paths, shards, tfds_prepare
from flaxformer_mt.data.corpus.pairs import NO_TEXT, CorpusError, Defect, defect_of_sides
from flaxformer_mt.data.corpus.paths import AnyPath

DEFAULT_DATA_DIR = "~/tensorflow_datasets"


@dataclasses.dataclass(frozen=True)
class ShardPart:
    """`take` records of a shard after the first `skip`."""

    path: AnyPath
    skip: int
    take: int


@dataclasses.dataclass(frozen=True)
class TfdsSplit:
    """A split of a prepared set, or a slice of one, in one direction."""

    label: str
    """Such as "wmt14_translate/de-en/1.0.0 train[:10%]"."""
    parts: tuple[ShardPart, ...]
    file_format: str
    src: str
    tgt: str

    @property
    def files(self) -> dict[str, AnyPath]:
        found = dict.fromkeys(part.path for part in self.parts)
        return {f"path[{number}]": path for number, path in enumerate(found)}

    def records(self) -> Iterator[tuple[bytes, ...]]:
        """Record n counts through the split, in the order in which the set keeps it."""
        from google.protobuf.message import DecodeError
        from tensorflow_datasets.proto import tf_example_pb2

        read, parse = shards.READERS[self.file_format], tf_example_pb2.Example.FromString
        for part in self.parts:
            for record in read(part.path, part.skip, part.take):
                try:
                    features = parse(record).features.feature
                except DecodeError as error:
                    raise CorpusError(
                        f"{part.path}: a record is not what TFDS writes ({error}); the file is "
                        f"damaged: fetch or prepare it again"
                    ) from error
                src = features[self.src].bytes_list.value
                tgt = features[self.tgt].bytes_list.value
                yield (src[0], tgt[0]) if len(src) == len(tgt) == 1 else (record,)

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        if len(columns) != 2:
            return Defect(self.label, NO_TEXT, f"not one text each for {self.src!r}, {self.tgt!r}")
        return defect_of_sides(columns, (self.label, self.label), where=" of the {side} text")


def open_set(corpus: CorpusConfig, folder: str, key: str, *, make: bool) -> TfdsSplit:
    """The split that a corpus of kind `tfds` names, in the direction that it names.

    `corpus.path` is a set by its name in TFDS, looked up in `data_dir`, or the folder of a prepared
    one. A set that is not prepared is made from its archives if `make`. Raises CorpusError.
    """
    builder = _prepared(corpus, folder, key, make=make)
    name = builder.info.full_name
    languages = [
        feature
        for feature, info in builder.info.features.get_tensor_info().items()
        if getattr(info, "shape", None) == () and np.dtype(info.np_dtype).kind in "OSU"
    ]
    for setting in ("src", "tgt"):
        language = getattr(corpus, setting)
        if language not in languages:
            raise CorpusError(
                f"{key}.{setting}: {language!r} is no language of {name}: "
                f"it has {', '.join(map(repr, sorted(languages))) or 'none'}"
            )
    file_format = builder.info.file_format.value
    if file_format not in shards.READERS:
        raise CorpusError(
            f"{key}.path: {name} in {builder.data_dir} is stored as {file_format}; "
            f"{' and '.join(shards.READERS)} are read: prepare it in one of those"
        )
    return TfdsSplit(
        label=f"{name} {corpus.split}",
        parts=_parts(builder, corpus.split, key),
        file_format=file_format,
        src=corpus.src,
        tgt=corpus.tgt,
    )


def _prepared(corpus: CorpusConfig, folder: str, key: str, *, make: bool) -> Any:
    """The builder of a set whose shards are there."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import read_only_builder

    directory = paths.locate(corpus.path, folder)
    with paths.reaching(directory):
        if (directory / "dataset_info.json").exists():
            return tfds.builder_from_directory(str(directory))
    data_dir = data_dir_of(corpus, folder)
    with paths.reaching(data_dir):
        try:
            return read_only_builder.builder_from_files(corpus.path, data_dir=str(data_dir))
        except tfds.core.DatasetNotFoundError:
            pass
        except ValueError as error:  # A name that is none, such as one with a blank in it.
            raise CorpusError(f"{key}.path: {corpus.path!r}: {error}") from error
    if not make:
        raise CorpusError(f"{key}.path: {corpus.path} is not prepared in {data_dir}")
    if not isinstance(data_dir, Path):
        raise CorpusError(
            f"{key}.path: {corpus.path} is not prepared in {data_dir}, and sets are prepared on "
            f"local disks only: set {key}.data_dir to a local folder, and copy what comes of it"
        )
    archives = paths.locate(corpus.archives, folder) if corpus.archives else None
    if not (archives is None or isinstance(archives, Path)):
        raise CorpusError(f"{key}.archives: {archives} is not on a local disk: copy it to one")
    return tfds_prepare.prepare(corpus.path, data_dir, archives, key)


def data_dir_of(corpus: CorpusConfig, folder: str) -> AnyPath:
    """Where prepared sets are: the setting, else TFDS_DATA_DIR, else TFDS's own default."""
    if corpus.data_dir:
        return paths.locate(corpus.data_dir, folder)
    return paths.locate(os.environ.get("TFDS_DATA_DIR") or DEFAULT_DATA_DIR, "")


def _parts(builder: Any, split: str, key: str) -> tuple[ShardPart, ...]:
    splits = builder.info.splits
    try:
        instructions = splits[split].file_instructions
    # TFDS refuses in many ways what it does not understand.
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{key}.split: {split!r} is no split of {builder.info.full_name}: it has "
            f"{', '.join(sorted(splits)) or 'none'}, and slices of them such as 'train[:10%]' "
            f"({type(error).__name__}: {error})"
        ) from error
    parts = []
    for one in instructions:
        path = paths.locate(str(one.filename), "")
        with paths.reaching(path):
            exists = path.exists()
        if not exists:
            raise CorpusError(
                f"{key}.path: {path} does not exist, and {builder.info.full_name} counts it among "
                f"its shards: copy the set again"
            )
        parts.append(ShardPart(path, one.skip, one.take))
    return tuple(parts)
