"""A sentence's attention to look at: its weights, what is picked of them, and a page."""

from flaxformer_mt.errors import UserError


class FigureError(UserError):
    """A picture that can't be drawn; the message lists valid choices, or says what to do."""
