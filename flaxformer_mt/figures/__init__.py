"""Pictures of a model's attention and of training."""

from typing import Literal, get_args

from flaxformer_mt.errors import UserError

# Commands make flags of these before they load what draws.
Axis = Literal["steps", "tokens", "hours"]
AXES: tuple[Axis, ...] = get_args(Axis)
FAR = 5  # pieces between a query and a key that count as a long distance


class FigureError(UserError):
    """A picture that can't be drawn; the message lists valid choices, or says what to do."""
