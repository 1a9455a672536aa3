"""Paths in object stores, mainly `gs://`: the only place that makes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from flaxformer_mt.errors import UserError

if TYPE_CHECKING:
    from etils import epath

# The names under which fsspec keeps settings of the stores that etils' epath knows.
_SCHEMES = ("gs://", "s3://", "az://", "hf://")
_PROTOCOLS = ("gcs", "gs", "s3", "az", "abfs", "hf")


class StorageError(UserError):
    """A path that cannot be made."""


def local_path(text: str | os.PathLike[str]) -> Path:
    """A path of this machine; `~` is the home. Raises StorageError for the home of nobody."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise StorageError(f"{os.fspath(text)}: no such user: write the path in full") from error


def bucket_path(address: str) -> epath.Path:
    """The path of `gs://BUCKET/NAME`, or of another store's address, which is asked afresh.

    fsspec's clients remember listings and would not see what TensorStore, or another process, has
    written. They read this when the first file system is made, so that nothing may make one before.
    A choice of the user's own in fsspec's configuration stands. Raises StorageError for an address
    of another kind.
    """
    if not address.startswith(_SCHEMES):
        raise StorageError(
            f"{address}: is neither a local path nor in a supported store: {', '.join(_SCHEMES)}"
        )
    # The imports take a while, and local files do not need them.
    import fsspec.config
    from etils import epath

    for protocol in _PROTOCOLS:
        fsspec.config.conf.setdefault(protocol, {}).setdefault("use_listings_cache", False)
    return epath.Path(address)
