"""What an evaluation refuses."""

from __future__ import annotations


class ScoringError(ValueError):
    """Hypotheses and references, or settings, that cannot be scored; says what to do."""
