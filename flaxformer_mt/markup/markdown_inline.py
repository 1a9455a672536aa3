"""What the inline rules of markdown-it-py find in a text, with the characters that each has taken:
its tokens don't say where they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

if TYPE_CHECKING:
    from markdown_it.token import Token

Environment = dict[str, Any]
"""What a document's blocks define for its inline text: references and footnotes."""
_BREAKS = ("softbreak", "hardbreak")


@dataclasses.dataclass(frozen=True)
class InlineStep:
    """The characters `start` to `end - 1` of a text, which one rule took, or none: then they are
    text. `inner` are the steps within a link, or, counted from its beginning, within the label of
    an image or a footnote."""

    start: int
    end: int
    tokens: Sequence[Token] = ()
    inner: Sequence[InlineStep] = ()

    @property
    def kind(self) -> str:
        """The type of the token that the step made, or "text"."""
        return self.tokens[0].type if self.tokens else "text"


def make_parser() -> MarkdownIt:
    """CommonMark with tables, strikethrough, footnotes and front matter, for blocks alone."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    footnote_plugin(parser)
    front_matter_plugin(parser)
    # The last would move footnotes to the end.
    parser.core.ruler.disable(["inline", "text_join", "footnote_tail"])
    inline = _RecordingParser()
    inline.ruler, inline.ruler2 = parser.inline.ruler, parser.inline.ruler2
    inline.ruler2.disable("fragments_join")
    parser.inline = inline
    return parser


def read_steps(parser: MarkdownIt, text: str, environment: Environment) -> Sequence[InlineStep]:
    """The steps of an inline text, in order and without gaps."""
    assert isinstance(parser.inline, _RecordingParser)
    parser.inline.parse(text, parser, environment, [])
    return parser.inline.last


class _RecordingParser(ParserInline):
    """Keeps the steps of the text that it has read `last`."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Sequence[InlineStep] = ()

    def tokenize(self, state: StateInline) -> None:
        rules = self.ruler.getRules("")
        is_deepest = state.level >= state.md.options["maxNesting"]
        end = state.posMax
        steps: list[InlineStep] = []
        while state.pos < end:
            start, count = state.pos, len(state.tokens)
            flushed = bool(state.pending)
            self.last = ()
            if is_deepest or not any(rule(state, False) for rule in rules):
                state.append_pending(state.src[start])
                state.pos = start + 1
            tokens = state.tokens[count:]
            if tokens and tokens[-1].type in _BREAKS:
                tokens = tokens[-1:]
            elif flushed:
                tokens = tokens[1:]  # the first one is the text before
            steps.append(InlineStep(start, state.pos, tuple(tokens), self.last))
        if state.pending:
            state.pushPending()
        self.last = steps


@dataclasses.dataclass(frozen=True)
class Delimited:
    """The sign that begins or ends emphasis ("em", "strong" or "s"), or one that is text: ""."""

    sign: str
    name: str = ""
    is_end: bool = False


def delimiters(text: str, step: InlineStep) -> Iterator[Delimited]:
    """Those of a step with several signs, such as "***". Of two signs for one strong emphasis,
    the parser leaves one without content."""
    place = step.start
    signs = ""
    waiting: Delimited | None = None  # for its second sign
    for token in step.tokens:
        # Of an odd number of "~", the first is text.
        odd = token.type == "text" and (step.end - place) % 2 == 1 and text[place] == "~"
        width = 2 if text[place] == "~" and not odd else 1
        sign = text[place : place + width]
        place += width
        if token.type == "text" and not token.content:
            if waiting is not None:
                yield dataclasses.replace(waiting, sign=waiting.sign + sign)
                waiting = None
            else:
                signs += sign
            continue
        if token.type == "text":
            yield Delimited(sign)
            continue
        name, _, edge = token.type.rpartition("_")
        delimiter = Delimited(signs + sign, name, edge == "close")
        signs = ""
        if delimiter.is_end and name == "strong":
            waiting = delimiter
        else:
            yield delimiter
