"""What decoding refuses, of a whole call or of one of its lines."""

from flaxformer_mt.errors import UserError


class DecodingError(UserError):
    """What a model can't take (a line, a constraint, a setting), or outputs that are no numbers."""


class LineError(DecodingError):
    """What the model can't take of one line; `number` is its index among those given, `splits`
    says whether it may fit in pieces."""

    def __init__(self, number: int, reason: str, *, splits: bool = False) -> None:
        super().__init__(reason)
        self.number, self.reason, self.splits = number, reason, splits


class OverlongError(LineError):
    """A line too long for the model."""


class TargetError(LineError):
    """Tokens given as a translation that aren't one."""

    def __str__(self) -> str:
        return f"pair {self.number}: {self.reason}"


class UnspeltError(DecodingError):
    """A phrase, of this index among those given, that no output can have."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


class TooManyPhrases(DecodingError):
    """A table of the forbidden phrases of a batch's sentences that is too large. A batch of fewer
    sentences needs a smaller one."""
