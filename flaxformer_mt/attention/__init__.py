"""A sentence's attention to look at: its weights, what is picked of them, and a page."""

from typing import Literal, get_args

# A command makes a flag of the kinds before it loads any weights.
Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)
