"""Models for other programs, and from them: CTranslate2, Hugging Face, StableHLO."""

from __future__ import annotations

from flaxformer_mt.errors import UserError


class ExportError(UserError):
    """A model that a format cannot hold, a missing package, or outputs that do not agree."""


class ModelImportError(ExportError):
    """A folder that holds no model which this program has the form for."""
