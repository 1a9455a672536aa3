"""Pictures of what a model attends to and of how runs have learnt."""

from flaxformer_mt.errors import UserError


class FigureError(UserError):
    """A picture that cannot be drawn as asked; says what there is and what to do."""
