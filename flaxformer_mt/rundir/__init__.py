"""The run directory: its layout, checkpoints and digests, on a disk or in a bucket; its errors."""

from flaxformer_mt.errors import FINAL, FlaxformerError


class RunDirectoryError(FlaxformerError):
    """A run directory that is missing, unusable, locked or of another format."""


class WorkdirError(RunDirectoryError):
    """A path that is not a usable run directory, is of a later format, or has a damaged file.

    Trying again does not help; another path, version or copy may.
    """

    exit_status = FINAL


class CheckpointError(RunDirectoryError):
    """A checkpoint that cannot be written, read, or used with this model."""


class DamagedError(CheckpointError):
    """A checkpoint whose files are missing, or not what was written."""


class UnreadError(CheckpointError):
    """A checkpoint that could not be read just now, which says nothing about it."""
