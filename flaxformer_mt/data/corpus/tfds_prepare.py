"""Preparing a TFDS set without TensorFlow, by TFDS's own `download_and_prepare`.

TFDS unpacks archives with TensorFlow's file layer. But a set asks for its files in the method that
its author writes, `_split_generators`: there it gets TFDS's download manager with the unpacking
done by the standard library.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import os
import shutil
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

from flaxformer_mt.data.corpus.pairs import CorpusError

_CONNECT_SECONDS = 10
_NOT_FETCHED = Path("/not-fetched")


def prepare(name: str, data_dir: Path, archives: Path | None, key: str) -> Any:
    """Makes ArrayRecord shards of a set in `data_dir`; the builder that reads them.

    The archives are those in the folder `archives`, or are downloaded if that is None. Raises
    CorpusError, which names archives that are missing, their sizes and the setting to put them
    under.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import checksums

    builder = _builder(name, data_dir, key)
    split_generators = builder._split_generators
    data_dir.mkdir(parents=True, exist_ok=True)
    # TFDS writes its progress to stdout as well, which belongs to the command.
    with (
        contextlib.redirect_stdout(sys.stderr),
        tempfile.TemporaryDirectory(prefix="unpacked-", dir=data_dir) as unpacked,
    ):

        def from_archives(manager: Any) -> Any:
            # Of some archives only the lists of other sets know size and digest.
            known = {**checksums.get_all_url_infos(), **(builder.url_infos or {})}
            found = _Archives(manager, known, archives, Path(unpacked))
            try:
                return split_generators(found)
            finally:
                # Some sets look at once into what they asked for: this explains their error.
                if found.missing:
                    raise CorpusError(
                        f"{key}.archives: {name} is made from archives, and these are not in "
                        f"{archives}{''.join(found.missing)}"
                        if archives
                        else f"{key}.path: {name} is not prepared in {data_dir}, and its archives "
                        f"cannot be downloaded ({found.failure}). Fetch these elsewhere, put them "
                        f"into one folder and set {key}.archives to it; or set {key}.data_dir to "
                        f"where `tfds build {name}` has prepared the set:{''.join(found.missing)}"
                    ) from found.failure

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
        # The set's own code reads the archives: what it raises is as varied as the sets.
        except Exception as error:
            # A set takes its place whole: another process that made it too was there first.
            if (Path(builder.data_dir) / "dataset_info.json").exists():
                return tfds.builder_from_directory(str(builder.data_dir))
            raise CorpusError(
                f"{key}.path: {name} cannot be prepared from its archives: "
                f"{type(error).__name__}: {error}"
            ) from error
    return tfds.builder_from_directory(str(builder.data_dir))


def _builder(name: str, data_dir: Path, key: str) -> Any:
    import tensorflow_datasets as tfds

    # TFDS looks for sets in its packages one after the other and stops at the first that lacks an
    # optional dependency, before it gets to this one.
    import tensorflow_datasets.translate

    try:
        return tfds.builder(name, data_dir=str(data_dir), file_format="array_record")
    except tfds.core.DatasetNotFoundError as error:
        raise CorpusError(
            f"{key}.path: TFDS {tfds.__version__} has no set {name!r}, and none of that name is "
            f"prepared in {data_dir}"
        ) from error
    except ValueError as error:
        known = [one.name for one in tfds.builder_cls(name.partition("/")[0]).BUILDER_CONFIGS]
        raise CorpusError(
            f"{key}.path: {name!r}: {error}; its configurations: {', '.join(known) or 'none'}"
        ) from error


class _Archives:
    """TFDS's download manager, which can take archives from a folder and needs no TensorFlow.

    `known` is what TFDS knows of the set's archives, by URL; `unpacked` where they go.
    """

    def __init__(
        self, manager: Any, known: dict[str, Any], folder: Path | None, unpacked: Path
    ) -> None:
        self._manager, self._known = manager, known
        self._folder, self._unpacked = folder, unpacked
        self._downloaded_before = any(Path(manager.download_dir).iterdir())
        self.missing: dict[str, None] = {}
        """A line of each archive that is not there: name, size and URL."""
        self.failure: Exception | None = None
        """Why downloading ended."""

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

    def _fetch(self, resource: Any) -> Path:
        import requests
        import tensorflow_datasets as tfds

        url = resource if isinstance(resource, str) else resource.url
        info = self._known.get(url)
        in_url = os.path.basename(urllib.parse.urlparse(url).path)
        name = (info.filename if info else None) or in_url
        if self._folder is not None and (path := self._folder / name).is_file():
            # TFDS takes it from there as well, and compares size and digest where it knows them.
            return Path(self._manager.download(url)) if info and info.filename else path
        if self._folder is None and self.failure is None:
            try:
                # requests knows no ftp://, which TFDS does.
                if not self._downloaded_before and url.startswith("http"):
                    # Without a network TFDS would try for minutes.
                    requests.head(url, timeout=_CONNECT_SECONDS)
                return Path(self._manager.download(url))
            except (OSError, tfds.download.DownloadError) as error:
                self.failure = error
        size = f"{info.size / 1e6:,.1f} MB" if info else "size not known"
        self.missing[f"\n  {name}  {size}  {url}"] = None
        return _NOT_FETCHED / name

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
                # "data": nothing lands outside the folder, no devices, no foreign owners.
                shutil.unpack_archive(path, target, "tar", filter="data")
        # Each form of archive has errors of its own.
        except Exception as error:
            raise CorpusError(f"{path}: cannot be unpacked: {error}") from error
        return target
