"""The run directory: layout, format version, lock, status, metrics, checkpoints, digests."""
