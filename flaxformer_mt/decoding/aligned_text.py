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
        sentences.append(
            AlignedSentence(source, target, source_start, target_start, _links(source, alignment))
        )
        source_start += len(source) + len(after)
        target_start += len(target)
    return joined, sentences


def _links(source: str, alignment: Alignment | None) -> list[tuple[int, int]] | None:
    """The alignment's links, counted from the sentence's first word."""
    if alignment is None:
        return None
    # Tags that the sentence begins with are no words of the alignment.
    tags = len(source.split()) - len(alignment.src_words)
    return [(word + tags, target_word) for word, target_word in alignment.links]
