"""The run directory: its layout, checkpoints and digests, on a disk or in a bucket; its errors."""

from flaxformer_mt.errors import FINAL, FlaxformerError


class RunDirectoryError(FlaxformerError):
    """A run directory that is missing, unusable, locked or of another format."""


class WorkdirError(RunDirectoryError):
    """A path that is no usable run directory, or has a damaged file: trying again doesn't help."""

    exit_status = FINAL


class CheckpointError(RunDirectoryError):
    """A checkpoint that cannot be written, read, or used with this model."""


class DamagedError(CheckpointError):
    """A checkpoint whose files are missing, or differ from the written ones."""


class UnreadError(CheckpointError):
    """A checkpoint that could not be read just now, which says nothing about it."""
