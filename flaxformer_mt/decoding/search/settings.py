"""What is compiled into a search, and the numbers that change without a compilation."""

import dataclasses
import functools
from typing import Any, NamedTuple

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.vocabulary import UNK
from flaxformer_mt.decoding.masks.at_least import AtLeast
from flaxformer_mt.decoding.masks.base import Mask
from flaxformer_mt.decoding.masks.forbidden import ForbiddenPhrases
from flaxformer_mt.decoding.masks.repeats import NoRepeats
from flaxformer_mt.decoding.masks.trees import Brackets, TreeShape
from flaxformer_mt.decoding.penalties import length_penalty
from flaxformer_mt.decoding.search.sampling import Sampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What is compiled into a search. Raises ValueError for settings that contradict each other.

    A name that `DecodingConfig` or `Translator.translate` has stands for the same thing here, given
    as the search uses it: `ends_among` and `patience` are numbers of hypotheses.
    """

    beam_size: int  # hypotheses kept at each step; 1 is greedy
    n_best: int = 1
    spare: int = 0  # finished hypotheses kept besides, for those whose text is another's
    suppress: tuple[int, ...] = ()  # never generated, as padding and the begin mark
    ends_among: int = 0  # only the likeliest so many continuations end a hypothesis (0: any)
    patience: int = 0  # so many ended hypotheses are enough for a group (0: no number is)
    diverse_groups: int = 1  # of hypotheses, which shun one another's tokens
    coverage_penalty: bool = False  # leaving parts of the source unattended costs score
    min_length: int = 0  # tokens of an output, its end mark not counted
    min_ratio: float = 0.0  # as many, for each token of the source
    no_repeat_ngram: int = 0  # no sequence of so many tokens occurs twice (0: any may)
    sampling: bool = False  # draw each hypothesis from the model instead of searching
    top_k: int = 0  # of the likeliest k tokens (0: of all)
    trees: Brackets | None = None  # outputs are trees over the words of the source
    masks: tuple[Mask, ...] = ()  # the caller's own

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam_size:
            raise ValueError(f"n_best = {self.n_best} must be 1 to beam_size = {self.beam_size}")
        if self.diverse_groups < 1 or self.beam_size % self.diverse_groups:
            raise ValueError(
                f"beam_size = {self.beam_size} must be divisible by {self.diverse_groups} groups"
            )
        if self.no_repeat_ngram < 0:
            raise ValueError(f"no_repeat_ngram = {self.no_repeat_ngram} must be at least 0")
        if self.trees is not None and (self.min_length or self.min_ratio):
            raise ValueError(
                "min_length and min_ratio are for text: a tree's words are its source's"
            )

    @functools.cached_property
    def slots(self) -> int:
        """Finished hypotheses kept: in each group as many as it can have of `n_best` and `spare`,
        since groups may come to the same output."""
        return min(self.n_best + self.spare, self.width) * self.diverse_groups

    @functools.cached_property
    def width(self) -> int:
        """Hypotheses of a group."""
        return self.beam_size // self.diverse_groups

    @functools.cached_property
    def candidates(self) -> int:
        """Continuations that a group looks at in each step: as many again as it keeps, since those
        that end leave it. A group of one hypothesis needs one."""
        return 1 if self.width == 1 else 2 * self.width

    @functools.cached_property
    def all_masks(self) -> tuple[Mask, ...]:
        """The masks that the settings ask for, then the caller's."""
        masks: list[Mask] = [ForbiddenPhrases(self.suppress)]
        if self.min_length or self.min_ratio:
            masks.append(AtLeast(self.min_length, self.min_ratio))
        if self.no_repeat_ngram:
            masks.append(NoRepeats(self.no_repeat_ngram))
        if self.trees is not None:
            masks.append(TreeShape(self.trees))
        return (*masks, *self.masks)


class SearchNumbers(NamedTuple):
    """Numbers and tables that change without a compilation, named as `Rules`' are."""

    length_penalty: Any = 0.6  # alpha of the equation
    average_length_norm: Any = False  # length_norm "average" instead of "gnmt"
    coverage_penalty: Any = 0.0  # beta of the equation
    diversity: Any = 0.0  # between groups of hypotheses
    temperature: Any = 1.0  # of sampling
    top_p: Any = 1.0
    mask_shared: tuple[Any, ...] = ()  # `MaskArrays.shared` of each of `Rules.all_masks`
    continues: Any = None  # with phrases that must occur: the types that continue a word

    def penalty(self, length: Any) -> Any:
        """The length penalty of outputs of `length` tokens."""
        return length_penalty(length, self.length_penalty, average=self.average_length_norm)


def rules_for(
    config: DecodingConfig,
    *,
    n_best: int = 1,
    spare: int = 0,
    suppress: tuple[int, ...] = (UNK,),
    sampling: Sampling | None = None,
    trees: Brackets | None = None,
    masks: tuple[Mask, ...] = (),
) -> Rules:
    """The rules of a search with these settings."""
    diverse_groups = 1 if sampling else config.diverse_groups  # draws differ by themselves
    width = config.beam_size // diverse_groups
    ended = max(round(config.patience * width), min(n_best, width))
    return Rules(
        beam_size=config.beam_size,
        n_best=n_best,
        spare=spare,
        suppress=suppress,
        ends_among=width if config.ends_among == "beam" else 0,
        patience=ended if config.patience and not sampling else 0,
        diverse_groups=diverse_groups,
        coverage_penalty=config.coverage_penalty > 0,
        min_length=config.min_length,
        min_ratio=config.min_ratio,
        no_repeat_ngram=config.no_repeat_ngram,
        sampling=sampling is not None,
        top_k=0 if sampling is None else sampling.top_k,
        trees=trees,
        masks=masks,
    )


def numbers_for(config: DecodingConfig, sampling: Sampling, rules: Rules) -> SearchNumbers:
    """The numbers of a search with these settings, before any batch's tables."""
    return SearchNumbers(
        length_penalty=config.length_penalty,
        average_length_norm=config.length_norm == "average",
        coverage_penalty=config.coverage_penalty,
        diversity=config.diversity,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        mask_shared=(None,) * len(rules.all_masks),
    )
