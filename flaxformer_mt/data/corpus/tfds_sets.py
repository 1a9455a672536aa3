"""Kind `tfds`: translation sets of TensorFlow Datasets, read without TensorFlow.

Shards are read from the files that the set's metadata names: faster than `tfds.as_data_source`, for
TFRecord as well, and streamed from object stores. `download_and_prepare` unpacks archives with
TensorFlow; so a set's `_split_generators` gets a download manager that doesn't.
"""

import bz2
import contextlib
import functools
import gzip
import os
import shutil
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flaxformer_mt.config.kinds import TfdsSet
from flaxformer_mt.data.corpus import paths, shards
from flaxformer_mt.data.corpus.json_records import trimmed
from flaxformer_mt.data.corpus.pairs import (
    NO_TEXT,
    CorpusError,
    CorpusRecord,
    NoText,
    PairSource,
    record_of,
)
from flaxformer_mt.files.reading import AnyPath

DEFAULT_DATA_DIR = "~/tensorflow_datasets"
_CONNECT_SECONDS = 10
_NOT_FETCHED = Path("/not-fetched")


def open_set(settings: TfdsSet, folder: str, key: str, *, download: bool) -> PairSource:
    """The split and direction that the settings name. Raises CorpusError.

    `settings.path` is a set in `data_dir`, made from archives with `download`, or a prepared
    folder.
    """
    builder = _prepared(settings, folder, key, download=download)
    name = builder.info.full_name
    _require_languages(builder, settings, key)
    file_format = builder.info.file_format.value
    if file_format not in shards.READERS:
        known = " or ".join(shards.READERS)
        raise CorpusError(f"{key}.path: {name} is stored as {file_format}: prepare it as {known}")
    parts = _parts(builder, settings.split, key)
    files = dict.fromkeys(path for path, _, _ in parts)
    return PairSource(
        {f"path[{number}]": path for number, path in enumerate(files)},
        f"{name} {settings.split}",  # such as "wmt14_translate/de-en/1.0.0 train[:10%]"
        tuple(functools.partial(_examples, file_format, *part) for part in parts),
        functools.partial(_texts, settings.src, settings.tgt),
    )


def _require_languages(builder: Any, settings: TfdsSet, key: str) -> None:
    """Raises CorpusError unless the set has texts in both languages."""
    import numpy as np  # which TFDS has loaded; commands that read no set do without

    languages = [
        feature
        for feature, info in builder.info.features.get_tensor_info().items()
        if getattr(info, "shape", None) == () and np.dtype(info.np_dtype).kind in "OSU"
    ]
    for setting in ("src", "tgt"):
        language = getattr(settings, setting)
        if language not in languages:
            known = ", ".join(map(repr, sorted(languages))) or "none"
            raise CorpusError(
                f"{key}.{setting}: {builder.info.full_name} has no language {language!r}, "
                f"only {known}"
            )


def _examples(file_format: str, path: AnyPath, skip: int, take: int) -> Iterator[Any]:
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    for record in shards.READERS[file_format](path, skip, take):
        try:
            yield tf_example_pb2.Example.FromString(record).features.feature
        except DecodeError as error:
            raise CorpusError(
                f"{path}: a record is not in TFDS's format ({error}): prepare it again"
            ) from error


def _texts(src: str, tgt: str, features: Any) -> CorpusRecord:
    src_texts, tgt_texts = features[src].bytes_list.value, features[tgt].bytes_list.value
    if not len(src_texts) == len(tgt_texts) == 1:
        return NoText(NO_TEXT, f"not one text each for {src!r}, {tgt!r}")
    return record_of(trimmed(src_texts[0]), trimmed(tgt_texts[0]))


def _prepared(settings: TfdsSet, folder: str, key: str, *, download: bool) -> Any:
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import read_only_builder

    directory = paths.locate(settings.path, folder)
    with paths.reaching(directory):
        if (directory / "dataset_info.json").exists():
            return tfds.builder_from_directory(str(directory))
    data_dir = data_dir_of(settings, folder)
    with paths.reaching(data_dir):
        try:
            return read_only_builder.builder_from_files(settings.path, data_dir=str(data_dir))
        except tfds.core.DatasetNotFoundError:
            pass
        except ValueError as error:  # not a name, such as one with a blank
            raise CorpusError(f"{key}.path: {settings.path!r}: {error}") from error
    if not download:
        raise CorpusError(f"{key}.path: {settings.path} is not prepared in {data_dir}")
    if not isinstance(data_dir, Path):
        raise CorpusError(
            f"{key}.path: {settings.path} is not prepared in {data_dir}: set {key}.data_dir to a "
            "local folder, and copy the result"
        )
    archives = paths.locate(settings.archives, folder) if settings.archives else None
    if not (archives is None or isinstance(archives, Path)):
        raise CorpusError(f"{key}.archives: {archives} is not on a local disk: copy it to one")
    return _make(settings.path, data_dir, archives, key)


def data_dir_of(settings: TfdsSet, folder: str) -> AnyPath:
    """Where prepared sets are: the setting, TFDS_DATA_DIR, or TFDS's default."""
    if settings.data_dir:
        return paths.locate(settings.data_dir, folder)
    return paths.locate(os.environ.get("TFDS_DATA_DIR") or DEFAULT_DATA_DIR, "")


def _parts(builder: Any, split: str, key: str) -> tuple[tuple[AnyPath, int, int], ...]:
    splits = builder.info.splits
    try:
        instructions = splits[split].file_instructions
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError) as error:
        known = ", ".join(sorted(splits)) or "none"
        raise CorpusError(
            f"{key}.split: {builder.info.full_name} has no split {split!r}, only {known} and "
            f"slices such as 'train[:10%]' ({error!r})"
        ) from error
    return tuple(
        (paths.locate(str(shard.filename), ""), shard.skip, shard.take) for shard in instructions
    )


def _make(name: str, data_dir: Path, archives: Path | None, key: str) -> Any:
    """Makes ArrayRecord shards of a set in `data_dir`; the builder that reads them.

    Archives come from the folder `archives` or are downloaded. Raises CorpusError, which lists
    missing archives, their sizes and the setting for them.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import checksums

    builder = _builder(name, data_dir, key)
    split_generators = builder._split_generators
    data_dir.mkdir(parents=True, exist_ok=True)
    # TFDS writes progress to stdout, which belongs to the command.
    with (
        contextlib.redirect_stdout(sys.stderr),
        tempfile.TemporaryDirectory(prefix="unpacked-", dir=data_dir) as unpacked,
    ):

        def from_archives(manager: Any) -> Any:
            # Other sets' lists know size and digest of some archives.
            known = {**checksums.get_all_url_infos(), **(builder.url_infos or {})}
            unpacking = _Archives(manager, known, archives, Path(unpacked))
            try:
                return split_generators(unpacking)
            finally:
                # This explains errors of sets that open missing files.
                if unpacking.missing:
                    raise unpacking.missing_error(name, data_dir, key) from unpacking.failure

        builder._split_generators = from_archives
        config = tfds.download.DownloadConfig(
            manual_dir=archives, extract_dir=unpacked, try_download_gcs=False
        )
        try:
            builder.download_and_prepare(
                download_dir=data_dir / "downloads", download_config=config
            )
        except CorpusError:
            raise
        except Exception as error:  # whatever the set's own code raises
            # Another process may have made it first.
            if not (Path(builder.data_dir) / "dataset_info.json").exists():
                raise CorpusError(f"{key}.path: {name} cannot be prepared: {error!r}") from error
    return tfds.builder_from_directory(str(builder.data_dir))


def _builder(name: str, data_dir: Path, key: str) -> Any:
    import tensorflow_datasets as tfds

    # TFDS's own search for sets stops at a package that lacks an optional dependency.
    import tensorflow_datasets.translate

    try:
        return tfds.builder(name, data_dir=str(data_dir), file_format="array_record")
    except tfds.core.DatasetNotFoundError as error:
        raise CorpusError(
            f"{key}.path: TFDS {tfds.__version__} has no dataset {name!r}, "
            f"and none is prepared in {data_dir}"
        ) from error
    except ValueError as error:
        known = tfds.builder_cls(name.partition("/")[0]).BUILDER_CONFIGS
        names = ", ".join(config.name for config in known) or "none"
        raise CorpusError(f"{key}.path: {name!r}: {error}; its configurations: {names}") from error


class _Archives:
    """TFDS's download manager, unpacking without TensorFlow; `known` is TFDS's list by URL."""

    def __init__(
        self, manager: Any, known: dict[str, Any], folder: Path | None, unpacked: Path
    ) -> None:
        self._manager = manager
        self._known = known
        self._folder = folder
        self._unpacked = unpacked
        self._downloaded_before = any(Path(manager.download_dir).iterdir())
        self.missing: dict[str, None] = {}  # a line for each missing archive: name, size and URL
        self.failure: Exception | None = None  # of downloading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def download(self, urls: Any) -> Any:
        import tree

        return tree.map_structure(self._fetch, urls)

    def extract(self, paths: Any) -> Any:
        import tree

        return tree.map_structure(lambda path: self._unpack(Path(path)), paths)

    def download_and_extract(self, urls: Any) -> Any:
        return self.extract(self.download(urls))

    def missing_error(self, name: str, data_dir: Path, key: str) -> CorpusError:
        """The error for a set whose archives are `missing`."""
        archives = "".join(self.missing)
        if self._folder:
            return CorpusError(
                f"{key}.archives: {name} needs these archives, which are not in "
                f"{self._folder}{archives}"
            )
        return CorpusError(
            f"{key}.path: {name} is not prepared in {data_dir}, and its archives "
            f"cannot be downloaded ({self.failure}). Download these elsewhere into "
            f"one folder and set {key}.archives to it; or set {key}.data_dir to where "
            f"`tfds build {name}` prepared it:{archives}"
        )

    def _fetch(self, resource: Any) -> Path:
        url = resource if isinstance(resource, str) else resource.url
        info = self._known.get(url)
        known_name = info.filename if info else None
        name = known_name or os.path.basename(urllib.parse.urlparse(url).path)
        if self._folder is None:
            if downloaded := self._downloaded(url):
                return downloaded
        elif (self._folder / name).is_file():
            return Path(self._manager.download(url)) if known_name else self._folder / name
        size = f"{info.size / 1e6:,.1f} MB" if info else "size not known"
        self.missing[f"\n  {name}  {size}  {url}"] = None
        return _NOT_FETCHED / name

    def _downloaded(self, url: str) -> Path | None:
        """None if it can't be downloaded, or an archive before it couldn't."""
        import requests
        import tensorflow_datasets as tfds

        if self.failure is not None:
            return None
        try:
            # Without a network TFDS would try for minutes. It also knows ftp://.
            if not self._downloaded_before and url.startswith("http"):
                requests.head(url, timeout=_CONNECT_SECONDS)
            return Path(self._manager.download(url))
        except (OSError, tfds.download.DownloadError) as error:
            self.failure = error
            return None

    def _unpack(self, path: Path) -> Path:
        import tensorflow_datasets as tfds

        method = tfds.download.Resource(path=path).extract_method.name
        target = self._unpacked / f"{method}.{path.name}"
        if method == "NO_EXTRACT" or path.parent == _NOT_FETCHED or target.exists():
            return path if method == "NO_EXTRACT" else target
        try:
            if method in ("GZIP", "BZIP2"):
                opened = gzip.open(path) if method == "GZIP" else bz2.open(path)
                with opened as packed, open(target, "wb") as plain:
                    shutil.copyfileobj(packed, plain, 1 << 20)
            elif method == "ZIP":
                shutil.unpack_archive(path, target, "zip")
            else:
                # "data": nothing outside the folder, no devices, no foreign owners.
                shutil.unpack_archive(path, target, "tar", filter="data")
        except Exception as error:  # each form of archive has its own
            raise CorpusError(f"{path}: cannot be unpacked: {error}") from error
        return target
