"""Several processes translate one text: each its share of the lines, and the first has them all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from flaxformer_mt.decoding.translation import Hypothesis, Translation
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.parallel import Processes


def translate_together(
    translator: Translator,
    lines: Sequence[str],
    processes: Processes,
) -> list[Translation]:
    """`translator.translate_lines` of `lines` on the first process; [] on the others.

    All processes call it with the same arguments, and each translates every n-th line, so that
    everyone has lines of all lengths and none has to wait long for the others.
    """
    mine = list(translator.translate_lines(lines[processes.number :: processes.count]))
    if processes.count == 1:
        return mine
    shares = processes.gather([json.dumps(dataclasses.asdict(each)) for each in mine])
    if not processes.is_first:
        return []
    whole: list[Translation] = [mine[0]] * len(lines) if mine else []
    for number, share in enumerate(shares):
        whole[number :: processes.count] = [_translation(json.loads(text)) for text in share]
    return whole


def _translation(fields: dict[str, Any]) -> Translation:
    hypotheses = tuple(
        Hypothesis(**{**each, "tokens": tuple(each["tokens"])}) for each in fields["hypotheses"]
    )
    return Translation(**{**fields, "hypotheses": hypotheses})
