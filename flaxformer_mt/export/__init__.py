"""Models for other programs, and from them: CTranslate2, Hugging Face, StableHLO."""

from __future__ import annotations

from flaxformer_mt.errors import UserError


class ExportError(UserError):
    """A model that a format or this program cannot hold, a missing package, outputs that differ."""
