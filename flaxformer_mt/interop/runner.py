"""Translates with the model in this file's folder: a CTranslate2 model, StableHLO programs or ONNX
graphs.

    python translate.py < source.txt > target.txt

Needs numpy and sentencepiece, and ctranslate2, onnxruntime, or jax and flatbuffers, but not the
program that wrote the folder.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

PROGRAMS = ("encoder", "decode_step")  # of StableHLO
WEIGHTS = "weights.npz"
PAST = "past_key_values."  # begins the names of ONNX's cache
NUMBERING = "flaxformer_types.json"  # beside them: the source's ids in vocab.json, and the target's
GRAPHS = ("encoder_model.onnx", "decoder_model_merged.onnx")  # of ONNX
STEP_OF_LENGTHS = 16  # programs are compiled for each length, so there are few
BATCH = 32

# Zero-width marks, and the sign for a blank.
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u2581"))
Pieces = Sequence[Sequence[str]]
Ids = Sequence[Sequence[int]]


class Model:
    """The model and the vocabularies of a folder; `options` are for CTranslate2: its `device`,
    "cpu" or "cuda", and `compute_type`; or for ONNX Runtime: its `providers`."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        folder = Path(folder)
        self.settings: dict[str, Any] = json.loads((folder / "settings.json").read_text("utf-8"))
        self.program = _program(folder)(folder, self.settings, **options)
        self._src, self._tgt = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
            for side in ("source", "target")
        )
        self._codes = frozenset(self.settings["codes"])
        self._added = {token["text"]: token for token in self.settings.get("added", [])}

    def translate(self, lines: Sequence[str], **search: float) -> list[str]:
        """The translation of each line; that of a blank one is empty.

        `search` replaces settings of CTranslate2: `beam_size`, `length_penalty`, `no_repeat_ngram`.
        Raises ValueError for a line that is longer than the model takes.
        """
        # A single no-break space may have a token, which a model would turn into text.
        sources = {
            number: pieces
            for number, pieces in enumerate(self.encode(lines))
            if pieces and lines[number].translate(_INVISIBLE).strip()
        }
        longest = self.settings["max_length"] - 1
        for number, pieces in sources.items():
            if len(pieces) > longest:
                raise ValueError(f"line {number + 1} has {len(pieces)} tokens of at most {longest}")
        outputs = [""] * len(lines)
        translated = self.program.translate(list(sources.values()), **search)
        for number, pieces in zip(sources, translated, strict=True):
            outputs[number] = self.decode(pieces)
        return outputs

    def encode(self, lines: Sequence[str]) -> list[list[str]]:
        """Pieces of each line, without the end mark."""
        return [self._encode_line(line) for line in lines]

    def _encode_line(self, line: str) -> list[str]:
        # Some models are told the target language by a code, such as >>fra<<.
        begin, closing, after_code = line.partition("<<")
        code = begin + closing
        has_code = code in self._codes
        pieces = [code] if has_code else []
        text = (after_code if has_code else line).replace("\u2581", " ")
        for part in self._parts(text):
            pieces += [part] if part in self._added else self._src.encode(part, out_type=str)
        return pieces

    def _parts(self, text: str) -> list[str]:
        """The text, cut at tokens that were added to the vocabulary, as transformers cuts it."""
        if not self._added:
            return [text]
        longest_first = sorted(map(re.escape, self._added), key=len, reverse=True)
        parts = [part for part in re.split(f"({'|'.join(longest_first)})", text) if part]
        parts = ["", *parts, ""]
        for number in range(1, len(parts) - 1):
            before, part, after = parts[number - 1 : number + 2]
            if part in self._added:
                parts[number - 1 : number + 2] = _around(before, self._added[part], after)
        return [part for part in parts if part]

    def decode(self, pieces: Sequence[str]) -> str:
        """The text of target pieces, on one line."""
        text = str(self._tgt.decode(list(pieces))).replace("\u2581", " ")
        return text.replace("\r", " ").replace("\n", " ").strip(" ")


def _program(folder: Path) -> Any:
    """The class of the programs in the folder."""
    if (folder / WEIGHTS).exists():
        return StableHLO
    return ONNX if (folder / GRAPHS[0]).exists() else CTranslate2


def _around(before: str, token: dict[str, Any], after: str) -> tuple[str, str, str]:
    """The texts before an added token, of it, and after it, once it is applied."""
    text = token["text"]
    # Part of a longer word, it joins the text beside it.
    joins_before = token["single_word"] and before != "" and before[-1] != " "
    joins_after = token["single_word"] and after != "" and after[0] != " "
    before = before.rstrip() if token["lstrip"] else before
    after = after.lstrip() if token["rstrip"] else after
    if joins_before:
        return before + text, "", after
    if joins_after:
        return before, "", text + after
    return before, text, after


def _release(version: str) -> tuple[int, int]:
    """The first two numbers of a version; programs with dynamic sizes differ between these."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _limit(settings: dict[str, Any], length: int) -> int:
    """The most tokens in the output for `length` tokens, end marks included."""
    ratio, extra = settings["max_ratio"], settings["max_extra_tokens"]
    return min(int(ratio * length) + extra, settings["max_length"])


class CTranslate2:
    def __init__(self, folder: Path, settings: dict[str, Any], **options: Any) -> None:
        import ctranslate2

        self.translator = ctranslate2.Translator(str(folder), **options)
        self._settings = settings
        self._marks = {settings[mark] for mark in ("pad", "bos", "eos")}

    def translate(self, sources: Pieces, **search: float) -> list[list[str]]:
        outputs: list[list[str]] = [[]] * len(sources)
        # A call has one limit, so it gets sentences of one length.
        for length in sorted(set(map(len, sources))):
            numbers = [number for number, pieces in enumerate(sources) if len(pieces) == length]
            limit = _limit(self._settings, length + 1) - 1
            batch = [sources[number] for number in numbers]
            for number, pieces in zip(numbers, self.search(batch, limit, **search), strict=True):
                outputs[number] = pieces
        return outputs

    def search(self, sources: Pieces, limit: int, **search: float) -> list[list[str]]:
        settings = self._settings | search
        unknown = settings["unk"]
        # A run of unknown characters is one piece, which may look like a mark.
        without_marks = [
            [unknown if piece in self._marks else piece for piece in pieces] for pieces in sources
        ]
        translations = self.translator.translate_batch(
            without_marks,
            max_batch_size=BATCH,
            max_input_length=0,  # cuts nothing off
            max_decoding_length=limit,
            min_decoding_length=0,  # the default of 1 forbids empty translations
            beam_size=settings["beam_size"],
            length_penalty=settings["length_penalty"],
            no_repeat_ngram_size=settings["no_repeat_ngram"],
            disable_unk=True,
            suppress_sequences=[[settings["pad"]], [settings["bos"]]],
        )
        return [translation.hypotheses[0] for translation in translations]


class Stepwise:
    """Greedy search with two programs: one reads the sources, one gives the next tokens' scores.

    `_begin` reads sources for outputs of at most `length` tokens, `_step` returns the scores after
    a token of each at position `index` and the next state, and `_log_probs` makes log-probabilities
    of scores.
    """

    def __init__(self, settings: dict[str, Any], source: dict[int, str], target: Any) -> None:
        """`source` and `target` have the pieces of types, by id."""
        self._settings = settings
        self._pieces = target
        # A run of unknown characters is one piece, which may look like a mark.
        marks = {settings[mark] for mark in ("pad", "bos", "eos", "unk")}
        self._ids = {piece: number for number, piece in source.items() if number not in marks}
        self._start = settings.get("start", settings["bos"])

    def _begin(self, sources: Ids, length: int) -> Any:
        raise NotImplementedError

    def _step(self, tokens: np.ndarray, index: int, state: Any) -> tuple[np.ndarray, Any]:
        raise NotImplementedError

    def _log_probs(self, scores: np.ndarray) -> np.ndarray:
        return scores

    def translate(self, sources: Pieces) -> list[list[str]]:
        outputs: list[list[str]] = [[]] * len(sources)
        # Sentences of similar length together.
        order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
        for start in range(0, len(order), BATCH):
            numbers = order[start : start + BATCH]
            batch = [self.ids_of(sources[number]) for number in numbers]
            limits = [_limit(self._settings, len(ids)) for ids in batch]
            for number, ids in zip(numbers, self.greedy(batch, limits), strict=True):
                outputs[number] = [self._pieces[id] for id in ids]
        return outputs

    def ids_of(self, pieces: Sequence[str]) -> list[int]:
        """Source ids, the end mark last."""
        unknown, end = self._settings["unk"], self._settings["eos"]
        return [*(self._ids.get(piece, unknown) for piece in pieces), end]

    def greedy(self, sources: Ids, limits: Sequence[int]) -> list[list[int]]:
        """The likeliest token at each position, up to the end mark, which is left out. An output
        has at most as many tokens as its limit, with the end mark."""
        never = [self._start, *(self._settings[mark] for mark in ("pad", "bos", "unk"))]
        end = self._settings["eos"]
        last_steps = np.array(limits) - 1
        state = self._begin(sources, max(limits))
        outputs = np.full((len(sources), max(limits)), end)
        running = np.ones(len(sources), bool)
        tokens = np.full(len(sources), self._start, np.int32)
        for index in range(max(limits)):
            scores, state = self._step(tokens, index, state)
            scores[:, never] = -np.inf
            tokens = scores.argmax(axis=1).astype(np.int32)
            tokens[index >= last_steps] = end
            outputs[running, index] = tokens[running]
            running &= tokens != end
            if not running.any():
                break
        return [row[: row.tolist().index(end)].tolist() for row in outputs]

    def log_probs(self, sources: Ids, targets: Ids) -> list[np.ndarray]:
        """Log-probability of every token of each target and of the end mark after it."""
        length = max(map(len, targets)) + 1
        state = self._begin(sources, length)
        forced = np.full((len(targets), length + 1), self._settings["eos"], np.int32)
        forced[:, 0] = self._start
        for row, target in enumerate(targets):
            forced[row, 1 : len(target) + 1] = target

        rows = np.arange(len(targets))
        steps = []
        for index in range(length):
            scores, state = self._step(forced[:, index], index, state)
            steps.append(self._log_probs(scores)[rows, forced[:, index + 1]])
        by_target = np.stack(steps, axis=1)  # [targets, length]
        return [row[: len(target) + 1] for row, target in zip(by_target, targets, strict=True)]


class StableHLO(Stepwise):
    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        import jax
        import jax.export

        if _release(jax.__version__) < _release(needed := settings.get("jax", "0.0")):
            raise ValueError(
                f"{folder}: its programs were written by JAX {needed} and this is JAX "
                f"{jax.__version__}, which may not read them: "
                f"pip install 'jax>={'.'.join(map(str, _release(needed)))}'"
            )
        self._params: dict[str, Any] = {}
        with np.load(folder / WEIGHTS) as arrays:
            for path, array in arrays.items():
                *modules, name = path.split("/")
                tree = self._params
                for module in modules:
                    tree = tree.setdefault(module, {})
                tree[name] = jax.numpy.asarray(array)
        programs = (bytearray((folder / f"{name}.jaxexport").read_bytes()) for name in PROGRAMS)
        self._encoder, self._decode_step = (
            jax.jit(jax.export.deserialize(program).call) for program in programs
        )
        src, tgt = (
            json.loads((folder / f"{side}_pieces.json").read_text("utf-8"))
            for side in ("source", "target")
        )
        super().__init__(settings, dict(enumerate(src)), tgt)

    def _begin(self, sources: Ids, length: int) -> tuple[Any, Any]:
        settings = self._settings
        width = self._padded(max(map(len, sources)))
        slots = self._padded(length)
        src = np.full((len(sources), width), settings["pad"], np.int32)
        for row, ids in enumerate(sources):
            src[row, : len(ids)] = ids
        lengths = np.array(list(map(len, sources)), np.int32)
        encoded = self._encoder(self._params, src, lengths)

        rows, heads = len(sources), settings["heads"]
        empty = {
            "key": np.zeros((rows, heads, settings["key_width"], slots), np.float32),
            "value": np.zeros((rows, heads, slots, settings["value_width"]), np.float32),
        }
        return dict.fromkeys(encoded["cross"], empty), encoded

    def _padded(self, length: int) -> int:
        """One of the few lengths for which programs are compiled."""
        multiple = -(-length // STEP_OF_LENGTHS) * STEP_OF_LENGTHS
        return min(multiple, self._settings["max_length"])

    def _step(self, tokens: np.ndarray, index: int, state: Any) -> tuple[np.ndarray, Any]:
        cache, encoded = state
        log_probs, cache = self._decode_step(self._params, tokens, np.int32(index), cache, encoded)
        return np.array(log_probs), (cache, encoded)


class ONNX(Stepwise):
    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        import onnxruntime

        self._encoder, self._decoder = (
            onnxruntime.InferenceSession(str(folder / name), providers=list(providers))
            for name in GRAPHS
        )
        ids: dict[str, int] = json.loads((folder / "vocab.json").read_text("utf-8"))
        pieces = {number: piece for piece, number in ids.items()}
        types: dict[str, Any] = json.loads((folder / NUMBERING).read_text("utf-8"))
        source = {number: pieces[number] for number in types["source"]}
        super().__init__(settings, source, pieces)
        inputs = [given for given in self._decoder.get_inputs() if given.name.startswith(PAST)]
        # Each is [sentences, heads, tokens, width].
        self._cache_sizes = {given.name: (given.shape[1], given.shape[3]) for given in inputs}

    def _begin(self, sources: Ids, length: int) -> dict[str, np.ndarray]:
        rows, width = len(sources), max(map(len, sources))
        src = np.full((rows, width), self._settings["pad"], np.int64)
        mask = np.zeros((rows, width), np.int64)
        for row, ids in enumerate(sources):
            src[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        [encoded] = self._encoder.run(None, {"input_ids": src, "attention_mask": mask})
        sizes = self._cache_sizes.items()
        return {
            "encoder_attention_mask": mask,
            "encoder_hidden_states": encoded,
            "use_cache_branch": np.array([False]),
            **{name: np.zeros((rows, heads, 0, size), np.float32) for name, (heads, size) in sizes},
        }

    def _step(self, tokens: np.ndarray, index: int, state: Any) -> tuple[np.ndarray, Any]:
        inputs = {**state, "input_ids": tokens[:, None].astype(np.int64)}
        logits, *cache = self._decoder.run(None, inputs)
        # Both sides list the cache in the same order.
        longer = dict(zip(self._cache_sizes, cache, strict=True))
        return logits[:, -1], state | longer | {"use_cache_branch": np.array([True])}

    def _log_probs(self, scores: np.ndarray) -> np.ndarray:
        scores = scores - scores.max(axis=1, keepdims=True)
        shares: np.ndarray = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return shares


def main() -> None:
    """Standard input to standard output, line by line."""
    try:
        # Only line feeds end lines, so that every line has its translation.
        content = sys.stdin.buffer.read().decode("utf-8").removeprefix("\ufeff")
        lines = content.split("\n")
        if lines[-1] == "":
            lines.pop()
        texts = Model(Path(__file__).parent).translate([line.rstrip("\r") for line in lines])
    except UnicodeDecodeError as error:
        sys.exit(f"the input is not UTF-8 text (byte {error.start + 1})")
    except ValueError as error:
        sys.exit(str(error))
    sys.stdout.buffer.writelines(f"{text}\n".encode() for text in texts)


if __name__ == "__main__":
    main()
