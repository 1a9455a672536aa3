"""From tokens to a line of text: spacing, commas, the capital and the final mark."""

from __future__ import annotations


def punctuate(tokens: list[str], mark: str) -> str:
    """Tokens to text: commas joined to words, doubled or final ones merged, a capital in front."""
    text = " ".join(tokens)
    if "," in text:
        text = text.replace(" , ,", " ,").removesuffix(" ,").replace(" ,", ",")
    return text[0].upper() + text[1:] + mark
