"""How long an output may be."""

import dataclasses

from flaxformer_mt.config import DecodingConfig


@dataclasses.dataclass(frozen=True)
class OutputLimits:
    """The lengths of outputs by the lengths of sources, in tokens with end marks."""

    config: DecodingConfig
    max_length: int  # tokens that the model takes, of either side

    def of(self, source: int) -> int:
        """The most tokens that the output for `source` tokens may have."""
        return output_limit(self.config, source, self.max_length)


def output_limit(config: DecodingConfig, source: int, max_length: int) -> int:
    """How many tokens the output for `source` tokens may have, end marks included."""
    # Past `max_length` a product could be beyond any integer.
    return min(
        int(min(config.max_ratio * source, max_length)) + config.max_extra_tokens, max_length
    )
