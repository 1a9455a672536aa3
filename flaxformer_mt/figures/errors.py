"""What a picture cannot be made of."""

from __future__ import annotations


class FigureError(ValueError):
    """A picture that cannot be drawn as asked; says what there is and what to do."""
