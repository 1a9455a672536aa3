"""Preparing a TFDS set without TensorFlow, from its original archives.

TFDS unpacks archives with TensorFlow's file layer. But it takes as unpacked what already stands in
its extraction folder under the documented name METHOD.FILE (`tfds.download.DownloadManager`), so we
unpack there first. And where no network is, it retries for minutes: we look first.
"""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import gzip
import hashlib
import lzma
import os
import shutil
import socket
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flaxformer_mt.data.corpus.pairs import CorpusError
from flaxformer_mt.data.corpus.paths import AnyPath

CONNECT_SECONDS = 1.0
"""How long the servers may take to be found and to answer, before nothing is downloaded."""


@dataclasses.dataclass(frozen=True)
class Archive:
    """An original file of a set; size in bytes and digest where TFDS knows them."""

    url: str
    name: str
    size: int | None
    sha256: str | None

    def __str__(self) -> str:
        size = "size not known" if self.size is None else f"{self.size / 1e6:,.1f} MB"
        return f"{self.name}  {size}  {self.url}"


def prepare(name: str, data_dir: Path, archives: AnyPath | None, key: str) -> Any:
    """Makes ArrayRecord shards of a set in `data_dir`; the builder that reads them.

    The archives are those in the folder `archives`, or are downloaded if that is None.

    Raises:
      CorpusError: no such set; archives that are missing, damaged or out of reach; the message
        names them, their sizes and the setting to put them under.
    """
    import tensorflow_datasets as tfds

    builder = _builder(name, data_dir, key)
    needed = _archives(builder, archives or data_dir, key)
    if archives is None:
        _require_servers(needed, name, data_dir, key)
    elif not isinstance(archives, Path):
        raise CorpusError(f"{key}.archives: {archives} is not on a local disk: copy it to one")
    else:
        _require_archives(needed, archives, name, key)
        _make_known(builder, needed, archives, key)
    data_dir.mkdir(parents=True, exist_ok=True)
    download_dir = data_dir / "downloads"
    # TFDS writes its progress to stdout as well, which belongs to the command.
    with (
        contextlib.redirect_stdout(sys.stderr),
        tempfile.TemporaryDirectory(prefix="unpacked-", dir=data_dir) as unpacked,
    ):
        for archive in needed:
            path = (
                archives / archive.name
                if archives
                else _download(builder, archive, download_dir, key)
            )
            _unpack(tfds.download.Resource(path=path), Path(unpacked))
        config = tfds.download.DownloadConfig(
            manual_dir=archives, extract_dir=unpacked, try_download_gcs=False
        )
        try:
            builder.download_and_prepare(download_dir=download_dir, download_config=config)
        # The set's own code reads the archives: what it raises is as varied as the sets.
        except Exception as error:
            # A set takes its place whole: another process, that made it too, was there first.
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
        set_name, _, configuration = name.partition("/")
        known = [one.name for one in tfds.builder_cls(set_name).BUILDER_CONFIGS]
        if configuration.partition(":")[0] in known:
            raise CorpusError(f"{key}.path: {name!r}: {error}") from error
        raise CorpusError(
            f"{key}.path: {name!r}: {set_name} has the configurations {', '.join(known) or 'none'}"
        ) from error


class _Recorder:
    """Stands in for TFDS's download manager: notes what a set asks for and gives it nothing."""

    def __init__(self, folder: AnyPath) -> None:
        self.urls: dict[str, None] = {}
        self.manual_dir = self.download_dir = folder

    def download(self, urls: Any) -> Any:
        import tree

        return tree.map_structure(self._note, urls)

    download_and_extract = download

    def extract(self, paths: Any) -> Any:
        return paths

    def _note(self, resource: Any) -> Path:
        url = resource if isinstance(resource, str) else resource.url
        self.urls[url] = None
        return Path("/not-fetched") / url.rpartition("/")[2]


def _archives(builder: Any, folder: AnyPath, key: str) -> list[Archive]:
    """What the set needs in this configuration; TFDS's own list is of all of a set's languages."""
    from tensorflow_datasets.core.download import checksums

    recorder = _Recorder(folder)
    try:
        builder._split_generators(recorder)
    except AssertionError as error:
        # How sets say that files must be fetched by hand whose addresses they do not know.
        raise CorpusError(f"{key}.path: {error}") from error
    except Exception:
        # Some sets look into what they asked for; by then we know what that is.
        if not recorder.urls:
            raise
    known = builder.url_infos or {}
    everyones: dict[str, Any] = {}
    if any(url not in known for url in recorder.urls):
        everyones = checksums.get_all_url_infos()
    needed = []
    for url in recorder.urls:
        info = known.get(url) or everyones.get(url)
        in_url = os.path.basename(urllib.parse.urlparse(url).path)
        name = (info.filename if info else None) or in_url
        size, sha256 = (int(info.size), info.checksum) if info else (None, None)
        needed.append(Archive(url, name, size, sha256))
    return needed


def _require_archives(needed: list[Archive], folder: Path, name: str, key: str) -> None:
    missing = [archive for archive in needed if not (folder / archive.name).is_file()]
    if missing:
        raise CorpusError(
            f"{key}.archives: {name} is made from {len(needed)} archives, and in {folder} there "
            f"is no{_listed(missing)}"
        )
    for archive in needed:
        path = folder / archive.name
        if archive.size is None or archive.sha256 is None:
            continue
        size = path.stat().st_size
        if size != archive.size:
            raise CorpusError(
                f"{path}: has {size:,} bytes and not {archive.size:,}: it is incomplete or another "
                f"file; fetch {archive.url} again"
            )
        with open(path, "rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != archive.sha256:
                raise CorpusError(
                    f"{path}: its SHA-256 is not {archive.sha256}: it is damaged or another file; "
                    f"fetch {archive.url} again"
                )


def _make_known(builder: Any, needed: list[Archive], folder: Path, key: str) -> None:
    """Gives TFDS a name and a digest of each archive: without them it does not look into a folder.

    Of some it has none, such as those of WMT14's French that only that year used.
    """
    from tensorflow_datasets.core.download import checksums

    for archive in needed:
        if archive.sha256 is not None:
            continue
        if builder.url_infos is None:
            raise CorpusError(
                f"{key}.archives: TFDS cannot make {builder.name} from archives fetched by hand: "
                f"it keeps no list of them"
            )
        builder.url_infos[archive.url] = checksums.compute_url_info(folder / archive.name)


def _require_servers(needed: list[Archive], name: str, data_dir: Path, key: str) -> None:
    unreached = _unreached(archive.url for archive in needed)
    if unreached:
        raise CorpusError(
            f"{key}.path: {name} is not prepared in {data_dir}, and it cannot be downloaded: no "
            f"connection to {', '.join(unreached)}. Fetch these archives elsewhere, put them into "
            f"one folder and set {key}.archives to it; or set {key}.data_dir to where the prepared "
            f"set is:{_listed(needed)}"
        ) from ConnectionError(f"none to {', '.join(unreached)}")  # there may be one later


def _listed(archives: Iterable[Archive]) -> str:
    return "".join(f"\n  {archive}" for archive in archives)


def _unreached(urls: Iterable[str]) -> list[str]:
    """The servers, or the proxies before them, that do not take a connection in time."""
    hops = sorted({_first_hop(url) for url in urls})
    reached: set[tuple[str, int]] = set()

    def connect(hop: tuple[str, int]) -> None:
        with contextlib.suppress(OSError, UnicodeError):
            socket.create_connection(hop, timeout=CONNECT_SECONDS).close()
            reached.add(hop)

    # A resolver that does not answer keeps its caller for half a minute: it keeps a thread.
    threads = [threading.Thread(target=connect, args=(hop,), daemon=True) for hop in hops]
    deadline = time.monotonic() + CONNECT_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [host for host, port in hops if (host, port) not in reached]


def _first_hop(url: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy and not urllib.request.proxy_bypass(parts.netloc):
        parts = urllib.parse.urlsplit(proxy)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _download(builder: Any, archive: Archive, folder: Path, key: str) -> Any:
    """The path of an archive in TFDS's cache, from which preparing takes it again."""
    import requests
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import download_manager

    manager = tfds.download.DownloadManager(
        download_dir=folder,
        url_infos=builder.url_infos,
        dataset_name=builder.name,
    )
    try:
        return manager.download(archive.url)
    except (
        requests.exceptions.RequestException,
        tfds.download.DownloadError,
        download_manager.NonMatchingChecksumError,
        OSError,
    ) as error:
        raise CorpusError(
            f"{key}.path: cannot download {archive}: {type(error).__name__}: {error}; fetch it by "
            f"hand and set {key}.archives to its folder"
        ) from error


def _unpack(resource: Any, folder: Path) -> None:
    """Unpacks an archive to where TFDS looks for it before it unpacks it itself."""
    path, method = Path(resource.path), resource.extract_method.name
    if method == "NO_EXTRACT":
        return
    target = folder / f"{method}.{path.name}"
    try:
        if method.startswith("TAR"):
            with tarfile.open(path) as archive:
                # "data": nothing lands outside the folder, no devices, no foreign owners.
                archive.extractall(target, filter="data")
        elif method == "ZIP":
            with zipfile.ZipFile(path) as zipped:
                zipped.extractall(target)
        else:
            with (
                (gzip.open if method == "GZIP" else bz2.open)(path) as packed,
                open(target, "wb") as plain,
            ):
                shutil.copyfileobj(packed, plain, 1 << 20)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        OSError,
        # zipfile's: encrypted, or compressed in a way that it does not know.
        RuntimeError,
    ) as error:
        raise CorpusError(f"{path}: cannot be unpacked: {error}") from error
