"""What an evaluation refuses."""

from __future__ import annotations

from flaxformer_mt.errors import UserError


class ScoringError(UserError):
    """Hypotheses and references, or settings, that cannot be scored; says what to do."""
