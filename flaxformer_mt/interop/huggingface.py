"""A run's model as a folder for transformers' `MarianMTModel` and `MarianTokenizer`.

Writing needs neither PyTorch nor transformers. Pre-LN, learned positions, and heads wider than
d_model / num_heads are refused. Marian's layer normalisation has epsilon 1e-5 whatever the model
had; the comparison shows the effect.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import json
import re
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.config import DataConfig
from flaxformer_mt.config.languages import tag_of_each_pair
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files.reading import json_errors_as, load_json
from flaxformer_mt.interop import ExportError, runner
from flaxformer_mt.interop.folder import search_of, write_models, write_readme
from flaxformer_mt.interop.marian import Numbering, to_state
from flaxformer_mt.interop.parity import LogProbs, Rows, Runtime
from flaxformer_mt.interop.weights import from_model, save_safetensors, usual_heads
from flaxformer_mt.rundir.paths import write_json

_USE = """\
from transformers import MarianMTModel, MarianTokenizer

name = "{name}"
tokenizer, model = MarianTokenizer.from_pretrained(name), MarianMTModel.from_pretrained(name)
best = model.generate(**tokenizer(["TEXT"], return_tensors="pt"))
print(tokenizer.batch_decode(best, skip_special_tokens=True)[0])
"""
_SAVING = """\
`ct2-transformers-converter --model FOLDER --output_dir NEW` converts it for CTranslate2. Before you
save a changed model by `save_pretrained`, set `model._keys_to_ignore_on_save = None`: the begin
mark is in the decoder's table of positions, which transformers otherwise leaves out."""
# The hub's names for metrics: each begins our names of it.
_METRICS = ("sacrebleu", "bleu", "chrf", "ter", "comet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """A model card's content: from the run's records, and added by the model's owner."""

    data: DataConfig
    commands: Sequence[Sequence[str]] = ()  # words of each that made the run
    evaluations: Sequence[Mapping[str, Any]] = ()  # of these weights, as in NAME.json
    license: str = ""  # the hub's name of it, such as apache-2.0; empty: the person adds it
    hub_name: str = ""  # ORG/NAME, if the folder goes to the hub

    def header(self) -> str:
        """YAML for the hub, with values as JSON, which is YAML too."""
        fields: dict[str, Any] = {
            "language": self._languages(),
            "license": self.license,
            "library_name": "transformers",
            "pipeline_tag": "translation",
            "tags": ["marian", "flaxformer-mt"],
            "metrics": self._metrics(),
        }
        lines = [f"{key}: {json.dumps(content)}" for key, content in fields.items() if content]
        if not self.license:
            lines.append("# license: what others may do with the model")
        return "".join(f"{line}\n" for line in ("---", *lines, "---"))

    def _languages(self) -> list[str]:
        """All languages' codes, without those that the hub refuses."""
        pairs = tag_of_each_pair(self.data.directions) or [(self.data.src_lang, self.data.tgt_lang)]
        codes = dict.fromkeys(re.split("[-_]", code)[0] for pair in pairs for code in pair)
        return [code for code in codes if re.fullmatch("[a-z]{2,3}", code)]

    @property
    def title(self) -> str:
        """What the model does."""
        pairs = tag_of_each_pair(self.data.directions)
        if len(pairs) > 1:
            return f"Translation in {len(pairs)} directions"
        return f"Translation from {self.data.src_lang} to {self.data.tgt_lang}"

    def _metrics(self) -> list[str]:
        """The hub's names for the metrics of all evaluations."""
        ours = {name for evaluation in self.evaluations for name in evaluation["metrics"]}
        return [name for name in _METRICS if any(metric.startswith(name) for metric in ours)]

    def body(self) -> str:
        # Leaves out the names of this machine's folders.
        public = functools.partial(re.sub, r"(^|[=,])[/~][^=,:]*/", r"\1")
        commands = dict.fromkeys(shlex.join(map(public, words)) for words in self.commands)
        corpora = [f"- `{corpus.name}`: {corpus.source.origin}" for corpus in self.data.train]
        parts = [
            "## Data",
            "\n".join(corpora) or "Training text unknown.",
            "## Scores",
            "\n".join(self._scores()) or "These weights have not been evaluated.",
            "## How it was made",
            "\n".join(f"    {line}" for line in commands) or "Unknown.",
        ]
        return "\n\n".join(parts)

    def _scores(self) -> Iterator[str]:
        """Not a table: signatures contain bars."""
        if self.evaluations:
            has_others = any("runtime" in evaluation for evaluation in self.evaluations)
            unless = ", unless another program is named" if has_others else ""
            yield f"Translated by flaxformer-mt's own search{unless}.\n"
        for evaluation in self.evaluations:
            program = f", {evaluation['runtime']}" if "runtime" in evaluation else ""
            yield (
                f"- `{evaluation['name']}` (beam {evaluation['beam_size']}, length penalty "
                f"{evaluation['length_penalty']:g}{program})"
            )
            for name, score in evaluation["metrics"].items():
                yield f"  - {name} **{score:.2f}** `{evaluation['signatures'][name]}`"


def write(translator: Translator, folder: Path, *, card: Card) -> None:
    """Raises ExportError if the form can't represent the model, or safetensors is missing."""
    config = translator.model.config
    program = "Hugging Face's Marian"
    problems = []
    if config.norm != "post":
        problems.append("its layers are post-LN, but model.norm = 'pre'")
    if config.positions != "sinusoidal":
        problems.append(
            f"its positions are the paper's sinusoids, but model.positions = '{config.positions}'"
        )
    if problems:
        raise ExportError(f"{program} cannot hold this model: {'; '.join(problems)}")

    weights = usual_heads(from_model(translator), config, program)
    numbering = numbering_of(translator)
    save_safetensors(folder / "model.safetensors", to_state(weights, config, numbering))
    notes = write_settings(translator, folder, card=card, numbering=numbering)
    write_readme(
        folder,
        translator,
        title=f"{card.title} by transformers",
        install="transformers sentencepiece torch",
        use=_USE.format(name=card.hub_name or "."),
        notes=(
            "Search settings are in `generation_config.json`; arguments of `generate` override "
            f"them.\n\n{_SAVING}\n\n{notes}\n\n{card.body()}\n"
        ),
        header=card.header(),
        where="Anywhere" if card.hub_name else "In this folder",
    )


def numbering_of(translator: Translator) -> Numbering:
    """The ids of a folder for Hugging Face."""
    vocabularies = translator.vocabularies
    return Numbering.of(vocabularies.src.pieces(), vocabularies.tgt.pieces())


def write_settings(
    translator: Translator, folder: Path, *, card: Card, numbering: Numbering
) -> str:
    """Writes everything of a folder for `MarianMTModel` and `MarianTokenizer` but the weights and
    the README. Returns Markdown notes on how the search differs from the run's."""
    marks = {
        "pad_token_id": numbering.start,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": numbering.start,
        "forced_eos_token_id": EOS,
    }
    write_json(folder / "config.json", _config(translator, numbering) | marks)
    length_penalty, notes = search_of(translator.config, "transformers")
    generation = {
        **marks,
        # This program never generates these.
        "bad_words_ids": [[PAD], [BOS], [UNK], [numbering.start]],
        "max_length": translator.model.config.max_length,
        "num_beams": translator.config.beam_size,
        "length_penalty": length_penalty,
        "no_repeat_ngram_size": translator.config.no_repeat_ngram,
        "early_stopping": translator.config.patience == 1,
    }
    write_json(folder / "generation_config.json", generation)
    _write_tokenizer(translator, folder, card, numbering)
    return notes


def _config(translator: Translator, numbering: Numbering) -> dict[str, Any]:
    model = translator.model
    config = model.config
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": len(numbering.pieces),
        "decoder_vocab_size": len(numbering.pieces),
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": {"relu": "relu", "silu": "swish"}[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.ffn_dropout,
        "scale_embedding": True,
        "static_position_embeddings": config.positions != "learned",
        "normalize_before": config.norm == "pre",
        "normalize_embedding": False,
        "max_position_embeddings": config.max_length,
        "is_encoder_decoder": True,
        "torch_dtype": "float32",
    }


def _write_tokenizer(
    translator: Translator, folder: Path, card: Card, numbering: Numbering
) -> None:
    vocabularies = translator.vocabularies
    write_models(folder, vocabularies)
    ids = {piece: number for number, piece in enumerate(numbering.pieces)}
    write_json(folder / "vocab.json", ids)
    write_json(
        folder / runner.NUMBERING,
        {
            "vocabulary": file_digest(folder / "vocab.json"),
            "source": numbering.src,
            "target": numbering.tgt,
        },
    )
    src = vocabularies.src.pieces()
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": card.data.src_lang,
        "target_lang": card.data.tgt_lang,
        # One vocabulary, also of two SentencePiece models.
        "separate_vocabs": False,
        "pad_token": src[PAD],
        "eos_token": src[EOS],
        "unk_token": src[UNK],
        # Blanks before full stops and the like are text.
        "clean_up_tokenization_spaces": False,
        "model_max_length": translator.model.config.max_length,
    }
    # Transformers' form of an added token has all these keys.
    if vocabularies.src.added_tokens:
        tokenizer["added_tokens_decoder"] = {
            str(ids[token.text]): {
                "content": token.text,
                "lstrip": token.lstrip,
                "rstrip": token.rstrip,
                "single_word": token.single_word,
                "normalized": False,
                "special": False,
            }
            for token in vocabularies.src.added_tokens
        }
    write_json(folder / "tokenizer_config.json", tokenizer)


def read_numbering(folder: Path) -> dict[str, list[int]] | None:
    """The folder's ids of this program's types, `source` and `target`, if this program wrote its
    vocabulary. Raises ExportError."""
    if not (path := folder / runner.NUMBERING).exists():
        return None
    with json_errors_as(ExportError, path, ""):
        content = load_json(path)
        if content["vocabulary"] != file_digest(folder / "vocab.json"):
            return None  # another program has changed it
        return {side: [*map(int, content[side])] for side in ("source", "target")}


def file_digest(path: Path) -> str:
    """sha256, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def missing() -> list[str]:
    """The packages for running a folder that aren't installed."""
    return [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]


class HuggingFaceRuntime(Runtime):
    """MarianMTModel and MarianTokenizer on a folder, on the CPU in float32; `ids` are the folder's
    ids of this program's types, by side, and `start` is the one that the decoder begins with
    (default: as this program wrote them)."""

    def __init__(
        self,
        folder: Path,
        ids: tuple[Sequence[int], Sequence[int]] | None = None,
        start: int | None = None,
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
            numbers = read_numbering(folder)
            assert numbers is not None
            ids = numbers["source"], numbers["target"]
        self._src, self._tgt = ids
        config = self._model.config
        self._start = config.decoder_start_token_id if start is None else start
        self._ours_of_src, self._ours_of_tgt = map(_ours, (self._src, self._tgt))
        never = {self._start, *(self._tgt[mark] for mark in (PAD, BOS, UNK))}
        # One that the decoder begins with may have a use of its own.
        self._never = sorted(
            id for id in never if self._ours_of_tgt.get(id, PAD) in (PAD, BOS, UNK)
        )

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [
            [self._ours_of_src.get(token, UNK) for token in self._tokenizer(line).input_ids]
            for line in lines
        ]

    def search(
        self, sources: Rows, *, beam_size: int, limit: int, length_penalty: float = 0.0
    ) -> list[list[int]]:
        torch = self._torch
        width = max(map(len, sources))
        pad = self._src[PAD]
        src = [[self._src[token] for token in ids] + [pad] * (width - len(ids)) for ids in sources]
        mask = [[1] * len(ids) + [0] * (width - len(ids)) for ids in sources]
        with self._without_own_settings(), torch.no_grad(), _quiet():
            outputs = self._model.generate(
                torch.tensor(src),  # [sources, width]
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
                bad_words_ids=[[token] for token in self._never],
            ).tolist()
        return [self._tokens(output) for output in outputs]

    @contextlib.contextmanager
    def _without_own_settings(self) -> Iterator[None]:
        """A plain search has none of the folder's settings, such as a `min_length`."""
        folders = self._model.generation_config
        self._model.generation_config = type(folders)(
            pad_token_id=folders.pad_token_id,
            bos_token_id=folders.bos_token_id,
            eos_token_id=folders.eos_token_id,
        )
        try:
            yield
        finally:
            self._model.generation_config = folders

    def by_own_settings(self, source: Sequence[int], *, limit: int) -> list[int]:
        """The output by the folder's own search settings, of at most `limit` tokens, its end mark
        included."""
        torch = self._torch
        if self._model.generation_config.forced_eos_token_id is None:
            limit -= 1  # its last token is no end mark
        ids = torch.tensor([[self._src[token] for token in source]])
        with torch.no_grad(), _quiet():
            [output] = self._model.generate(ids, max_new_tokens=limit, max_length=None).tolist()
        return self._tokens(output)

    def _tokens(self, output: Sequence[int]) -> list[int]:
        """This program's tokens of an output, without its first token and its end mark."""
        tokens = [self._ours_of_tgt.get(token, UNK) for token in output[1:]]
        return tokens[: tokens.index(EOS)] if EOS in tokens else tokens

    def log_probs(self, sources: Rows, targets: Rows) -> list[LogProbs]:
        return [
            self._log_probs_of(source, target)
            for source, target in zip(sources, targets, strict=True)
        ]

    def _log_probs_of(self, source: Sequence[int], target: Sequence[int]) -> LogProbs:
        torch = self._torch
        output = [self._tgt[token] for token in (*target, EOS)]
        with torch.no_grad():
            logits = self._model(
                input_ids=torch.tensor([[self._src[token] for token in source]]),
                decoder_input_ids=torch.tensor([[self._start, *output[:-1]]]),
            ).logits[0]  # [tokens, types]
        log_probs = torch.log_softmax(logits.float(), dim=-1)
        chosen: LogProbs = log_probs[torch.arange(len(output)), torch.tensor(output)].numpy()
        return chosen


def _ours(ids: Sequence[int]) -> dict[int, int]:
    """This program's type for each id of the folder.

    Of several types with one id it is the first, except that the begin mark comes last.
    """
    numbers = [*(number for number in range(len(ids)) if number != BOS), BOS]
    return {ids[number]: number for number in reversed(numbers)}


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """Yields transformers, which neither warns nor shows progress meanwhile."""
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
