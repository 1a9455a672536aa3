"""What a picture cannot be made of."""

from __future__ import annotations

from flaxformer_mt.errors import UserError


class FigureError(UserError):
    """A picture that cannot be drawn as asked; says what there is and what to do."""
