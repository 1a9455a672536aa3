"""Pictures of a model's attention and of training."""

from flaxformer_mt.errors import UserError


class FigureError(UserError):
    """A picture that cannot be drawn as asked; says what there is and what to do."""
