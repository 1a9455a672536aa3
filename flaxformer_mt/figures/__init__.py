"""Pictures of a model's attention and of training."""

from flaxformer_mt.errors import UserError


class FigureError(UserError):
    """A picture that can't be drawn; the message lists valid choices, or says what to do."""
