"""The phrases that a source's translation must have: a line's own, and those of its terms."""

from collections.abc import Sequence

from flaxformer_mt.data.vocabulary import Vocabulary
from flaxformer_mt.decoding.constraints.phrases import Phrase, spell_phrases
from flaxformer_mt.decoding.constraints.terminology import Terminology


def required_phrases(
    own: Sequence[str],
    terminology: Terminology | None,
    source: str,
    vocabulary: Vocabulary,
    *,
    suppressed: Sequence[int],
) -> list[Phrase]:
    """The phrases of a source's translation, `own` and those of its terms, without repetitions.
    Raises DecodingError for phrases that can't be spelled or are suppressed."""
    phrases = dict.fromkeys(spell_phrases(own, vocabulary, soft=False, suppressed=suppressed))
    if terminology is not None:
        spelled = terminology.spelled(vocabulary, suppressed=suppressed)
        phrases |= dict.fromkeys(spelled[words] for words in terminology.found(source))
    return list(phrases)
