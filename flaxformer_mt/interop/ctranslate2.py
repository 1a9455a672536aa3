"""A run's model as a CTranslate2 model, through that package's own specification: post- and pre-LN,
sinusoids (as a table) and learned positions, ReLU and SiLU, all ways of tying, and heads up to
d_model / num_heads wide."""

import importlib
import math
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import BOUND, package_of_extra
from flaxformer_mt.interop.folder import search_of, write_program, write_readme
from flaxformer_mt.interop.parity import LogProbs, Rows, Runtime
from flaxformer_mt.interop.weights import Weights, from_model, tables, usual_heads
from flaxformer_mt.model.embedding import SOFTMAX_BIAS, fixed_positions, position_factor
from flaxformer_mt.model.parameters import STACKS, layer_name

# The largest difference of a token's log-probability that passes, and the share of it that the mean
# may reach. Three quickstart checkpoints had at most 0.32 in int8 (mean 0.010) and 0.36 in int7
# (0.015); the tests' random weights had means of 0.034 and 0.10. A zeroed bias or norm changes a
# trained model by as little as 0.05 (mean 0.002), which no bound on rounded weights detects: so
# `export` compares them before they are rounded.
BOUNDS = {"float32": BOUND, "float16": 5e-2, "int8": 0.75, "int7": 0.75}
MEAN_SHARES = {"float32": 1.0, "float16": 1.0, "int8": 1 / 15, "int7": 1 / 5}
# x86 without VNNI adds two products of an unsigned and a signed byte in 16 bits, which overflow
# (oneDNN, "Nuances of int8 computations"): 2 * 255 * 64 < 2^15.
_SEVEN_BITS = 64
_USE = """\
from translate import Model

model = Model(".")  # on a GPU: Model(".", device="cuda")
print(model.translate(["TEXT"])[0])
"""
_INT8 = """\
On an x86 CPU without VNNI (`grep -c vnni /proc/cpuinfo` prints 0) int8 products overflow 16 bits,
and translations may go wrong: use `compute_type="float32"` there, or export with `--quantization
int7`.

"""
_NOTES = """\
Or `python translate.py < LINES`. It needs only the packages above and shows how to call
CTranslate2: split lines into pieces, language codes such as >>fra<< first; CTranslate2 adds the end
mark. Search settings are in `settings.json`; override them with
`translate(lines, beam_size=..., length_penalty=...)`.

"""


def write(
    translator: Translator, folder: Path, *, quantization: str, positions: int | None = None
) -> None:
    """Writes a model of so many positions (default: the run's `model.max_length`). Learned ones
    beyond the run's are the last one.

    Raises ExportError if CTranslate2 has no form for the model, or isn't installed."""
    package = package_of_extra("ctranslate2", "the format 'ctranslate2' is written by the package")
    spec = _spec(package, translator, positions or translator.model.config.max_length)

    vocabularies = translator.vocabularies
    spec.register_source_vocabulary(vocabularies.src.pieces())
    spec.register_target_vocabulary(vocabularies.tgt.pieces())
    marks = vocabularies.tgt.pieces([BOS, EOS, UNK])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = marks
    spec.config.decoder_start_token = marks[0]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = translator.model.config.norm_epsilon

    spec.validate()
    spec.optimize(quantization="int8" if quantization == "int7" else quantization)
    if quantization == "int7":
        _to_seven_bits(spec)
    spec.save(str(folder))

    config = translator.config
    length_penalty, notes = search_of(config, "CTranslate2")
    write_program(
        folder,
        translator,
        vocabularies.tgt.pieces([PAD, BOS, EOS, UNK]),
        beam_size=config.beam_size,
        length_penalty=length_penalty,
        no_repeat_ngram=config.no_repeat_ngram,
    )
    write_readme(
        folder,
        translator,
        title=f"A CTranslate2 model, {quantization}",
        install="ctranslate2 sentencepiece",
        use=_USE,
        notes=_NOTES + (_INT8 if quantization == "int8" else "") + notes + "\n",
    )


class CTranslate2Runtime(Runtime):
    """A written model in CTranslate2, on the CPU, by the folder's own `translate.py`; its weights
    are multiplied in the type of `quantization`."""

    def __init__(self, folder: Path, vocabularies: Vocabularies, *, quantization: str) -> None:
        package = importlib.import_module("ctranslate2")
        self.name = f"CTranslate2 {package.__version__}"
        self._src, self._tgt = vocabularies.src, vocabularies.tgt
        # CPUs have no float16 products: weights that were rounded to it, in float32.
        compute_type = "int8" if quantization in ("int8", "int7") else "float32"
        # Leaves no compiled file in the folder, as an import would.
        model = runpy.run_path(str(folder / "translate.py"))["Model"]
        self._model = model(folder, compute_type=compute_type)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        # A run of unknown characters is one piece, which may look like a mark.
        ids = {piece: id for id, piece in enumerate(self._src.pieces()) if id > UNK}
        rows = self._model.encode(lines)
        return [[*(ids.get(piece, UNK) for piece in pieces), EOS] for pieces in rows]

    def search(
        self, sources: Rows, *, beam_size: int, limit: int, length_penalty: float = 0.0
    ) -> list[list[int]]:
        ids = {piece: number for number, piece in enumerate(self._tgt.pieces())}
        outputs = self._model.program.search(
            [self._src.pieces(source[:-1]) for source in sources],
            limit,
            beam_size=beam_size,
            length_penalty=length_penalty,
            no_repeat_ngram=0,
        )
        return [[ids[piece] for piece in output] for output in outputs]

    def log_probs(self, sources: Rows, targets: Rows) -> list[LogProbs]:
        scores = self._model.program.translator.score_batch(
            [self._src.pieces(source[:-1]) for source in sources],
            [*map(self._tgt.pieces, targets)],
            max_input_length=0,  # the default cuts both sides at 1,024 tokens
        )
        return [np.asarray(score.log_probs, np.float32) for score in scores]


def _to_seven_bits(spec: Any) -> None:
    variables = spec.variables()
    for name, scale in variables.items():
        weight = variables.get(name.removesuffix("_scale"))
        if name.endswith("_scale") and weight is not None and weight.dtype == "int8":
            weight.numpy()[...] = np.rint(weight.numpy() * np.float32(_SEVEN_BITS / 127))
            scale.numpy()[...] *= _SEVEN_BITS / 127


def _spec(package: Any, translator: Translator, longest: int) -> Any:
    config = translator.model.config
    weights = usual_heads(from_model(translator), config, "CTranslate2")
    activations = package.specs.Activation
    spec = package.specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation={"relu": activations.RELU, "silu": activations.SWISH}[config.activation],
    )
    *embeddings, spec.decoder.projection.weight = tables(weights, config)
    if (bias := weights.get(f"embedding/{SOFTMAX_BIAS}")) is not None:
        spec.decoder.projection.bias = bias

    embedding_specs = (spec.encoder.embeddings[0], spec.decoder.embeddings)
    stacks = zip(STACKS, ("src", "tgt"), embedding_specs, embeddings, strict=True)
    for name, side, embedding_spec, embedding in stacks:
        stack = getattr(spec, name)
        embedding_spec.weight = embedding
        stack.scale_embeddings = True
        # CTranslate2's own sinusoids are in halves.
        positions = weights.get(f"embedding/{side}_positions")
        if positions is None:
            positions = fixed_positions(config, longest)
        else:
            # CTranslate2 scales tokens but adds positions as they are.
            positions = positions * np.float32(position_factor(config))
            missing = max(longest - len(positions), 0)
            positions = np.pad(positions, ((0, missing), (0, 0)), mode="edge")
        stack.position_encodings.encodings = positions
        if config.norm == "pre":
            _fill_norm(stack.layer_norm, weights, f"{name}/norm")
        for number, layer in enumerate(stack.layer):
            _fill_layer(layer, weights, f"{name}/{layer_name(number)}", cross=name == "decoder")
    return spec


def _fill_layer(spec: Any, weights: Weights, path: str, *, cross: bool) -> None:
    attentions = [(spec.self_attention, "self_attention", [("query", "key", "value"), ("out",)])]
    if cross:
        projections = [("query",), ("key", "value"), ("out",)]
        attentions.append((spec.attention, "cross_attention", projections))
    for attention, name, projections in attentions:
        for linear_spec, side_by_side in zip(attention.linear, projections, strict=True):
            paths = (f"{path}/{name}/{projection}" for projection in side_by_side)
            _fill_linear(linear_spec, weights, *paths)
        _fill_norm(attention.layer_norm, weights, f"{path}/{name}_residual/norm")
    _fill_linear(spec.ffn.linear_0, weights, f"{path}/feed_forward/w_in")
    _fill_linear(spec.ffn.linear_1, weights, f"{path}/feed_forward/w_out")
    _fill_norm(spec.ffn.layer_norm, weights, f"{path}/feed_forward_residual/norm")


def _fill_linear(spec: Any, weights: Weights, *paths: str) -> None:
    """Projections side by side, each as [out, in] without heads."""
    kernels, biases = [], []
    for path in paths:
        kernel = weights[path]
        rows = math.prod(kernel.shape[:-1]) if path.endswith("/out") else len(kernel)
        kernels.append(kernel.reshape(rows, -1).T)
        name = path.replace("/w_", "/b_") if "/w_" in path else f"{path}_bias"
        if name in weights:
            biases.append(weights[name].ravel())
    spec.weight = np.ascontiguousarray(np.concatenate(kernels))
    if biases:
        spec.bias = np.concatenate(biases)


def _fill_norm(spec: Any, weights: Weights, path: str) -> None:
    spec.gamma, spec.beta = weights[f"{path}/scale"], weights[f"{path}/bias"]
