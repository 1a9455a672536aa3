"""A text's translation and the alignments of its sentences, with the places of both."""

from collections.abc import Sequence

from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.text.coded_sentences import CodedSentences
from flaxformer_mt.markup.placing import AlignedSentence


def joined_and_aligned(
    text: CodedSentences,
    translations: Sequence[str],
    alignments: Sequence[Alignment | None],
    *,
    blanks: bool,
) -> tuple[str, list[AlignedSentence]]:
    """The translation of a text, and where in both each sentence is; None: not aligned. `blanks`
    is whether the target language has blanks between sentences."""
    joined = text.translated(translations, blanks=blanks)
    sentences = []
    source_start, target_start = len(text.glue[0]), 0
    for source, after, target, alignment in zip(
        text.texts, text.glue[1:], translations, alignments, strict=True
    ):
        target_start = joined.index(target, target_start)
        sentences.append(_aligned(source, target, source_start, target_start, alignment))
        source_start += len(source) + len(after)
        target_start += len(target)
    return joined, sentences


def _aligned(
    source: str, target: str, source_start: int, target_start: int, alignment: Alignment | None
) -> AlignedSentence:
    if alignment is None:
        return AlignedSentence(source, target, source_start, target_start)
    return AlignedSentence(
        source,
        target,
        source_start,
        target_start,
        links=alignment.links,
        # Tags that the sentence begins with are no words of the alignment.
        source_words=alignment.src_words,
        target_words=alignment.tgt_words,
    )
