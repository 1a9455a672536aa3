"""A Marian folder as the package transformers runs it, for comparison."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.export.parity import greedy_each

PACKAGES = ("torch", "transformers")


def missing() -> list[str]:
    """The packages that are not installed, of those that are needed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


class Runtime:
    """MarianMTModel and MarianTokenizer on a folder, on the CPU in float32.

    `ids` are the folder's ids of this program's types, by side; without them they are the same.
    """

    def __init__(
        self, folder: Path, ids: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> None:
        with _quiet() as transformers:
            self.name = f"transformers {transformers.__version__}"
            self._torch = importlib.import_module("torch")
            self._tokenizer = transformers.MarianTokenizer.from_pretrained(
                str(folder), local_files_only=True
            )
            self._model = transformers.MarianMTModel.from_pretrained(
                str(folder), local_files_only=True, dtype=self._torch.float32
            ).eval()
        if ids is None:
            config = self._model.config
            ids = range(config.vocab_size), range(config.decoder_vocab_size)
        self._src, self._tgt = ids
        self._start = self._tgt[BOS]
        # The first of this program's types that has an id: two may share one.
        self._ours_of_src = {there: here for here, there in reversed(list(enumerate(self._src)))}
        self._ours_of_tgt = {there: here for here, there in reversed(list(enumerate(self._tgt)))}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """As in parity.Runtime."""
        return [
            [self._ours_of_src[token] for token in self._tokenizer(line).input_ids]
            for line in lines
        ]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of target ids."""
        there = [[self._tgt[token] for token in row] for row in rows]
        return self._tokenizer.batch_decode(there, skip_special_tokens=True)

    def greedy(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """As in parity.Runtime."""
        return greedy_each(self, sources, limits)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        *,
        beam_size: int,
        limit: int,
        length_penalty: float = 0.0,
    ) -> list[list[int]]:
        """The best output of each source, as one batch; the penalty is |Y|^length_penalty."""
        torch, width = self._torch, max(map(len, sources))
        pad = self._src[PAD]
        src = [[self._src[token] for token in ids] + [pad] * (width - len(ids)) for ids in sources]
        mask = [[1] * len(ids) + [0] * (width - len(ids)) for ids in sources]
        with torch.no_grad(), _quiet():
            outputs = self._model.generate(
                torch.tensor(src),
                attention_mask=torch.tensor(mask),
                num_beams=beam_size,
                do_sample=False,
                length_penalty=length_penalty,
                early_stopping=False,
                max_new_tokens=limit,
                max_length=None,
                decoder_start_token_id=self._start,
                forced_eos_token_id=self._tgt[EOS],
                no_repeat_ngram_size=0,
                bad_words_ids=[[token] for token in {self._tgt[mark] for mark in (PAD, BOS, UNK)}],
            ).tolist()
        found = []
        for output in outputs:
            tokens = [self._ours_of_tgt[token] for token in output[1:]]
            found.append(tokens[: tokens.index(EOS)] if EOS in tokens else tokens)
        return found

    def log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " tokens"]]:
        """As in parity.Runtime."""
        torch, found = self._torch, []
        for source, target in zip(sources, targets, strict=True):
            out = [self._tgt[token] for token in (*target, EOS)]
            with torch.no_grad():
                logits = self._model(
                    input_ids=torch.tensor([[self._src[token] for token in source]]),
                    decoder_input_ids=torch.tensor([[self._start, *out[:-1]]]),
                ).logits[0]
            log_probs = torch.log_softmax(logits.float(), dim=-1)
            found.append(log_probs[torch.arange(len(out)), torch.tensor(out)].numpy())
        return found


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """The package, which speaks of optional ones and of its own defaults otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = importlib.import_module("transformers")
        logging = transformers.utils.logging
        before = logging.get_verbosity()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield transformers
        finally:
            logging.set_verbosity(before)
