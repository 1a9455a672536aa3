"""A run's model as two StableHLO programs, for CPU, CUDA and TPU.

`encoder.jaxexport` maps token ids of any number of sentences of any length to what decoding needs;
`decode_step.jaxexport` maps a token of each and the cache to the next token's log-probabilities and
the new cache. Both take the weights, in `weights.npz`, as an argument.
"""

import dataclasses
import json
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Float, Int

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop import package_of_extra, runner
from flaxformer_mt.interop.folder import NGRAM_RULE, unsupported, write_program, write_readme
from flaxformer_mt.interop.parity import LogProbs, Rows, Runtime
from flaxformer_mt.model.parameters import unstack_layers
from flaxformer_mt.model.transformer import Transformer

PLATFORMS = ("cpu", "cuda", "tpu")
_USE = """\
from translate import Model

print(Model(".").translate(["TEXT"])[0])
"""
_NOTES = """\
Or `python translate.py < LINES`. It needs only the packages above, and shows how to call the two
programs. Arrays are int32 and float32; the number of sentences and the lengths of source and cache
are dynamic, the lengths up to `max_length` in `settings.json`.

Written by JAX {release}; an older JAX can't read programs whose sizes are dynamic.

The search is greedy: without the run's beam and length penalty.
{unsupported}"""


def write(translator: Translator, folder: Path) -> None:
    """Raises ExportError if the package flatbuffers is missing."""
    package_of_extra("flatbuffers", "the format 'stablehlo' is written by means of the package")
    config = dataclasses.replace(translator.model.config, dtype="float32", scan_layers=False)
    model = Transformer(config, translator.model.src_vocab_size, translator.model.tgt_vocab_size)
    params = translator.params
    if translator.model.config.scan_layers:
        params = unstack_layers(params)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), dict(params))
    for name, program in _programs(model, params).items():
        (folder / f"{name}.jaxexport").write_bytes(program.serialize())
    np.savez(folder / runner.WEIGHTS, **flatten_dict(params, sep="/"))
    vocabularies = translator.vocabularies
    for side, vocabulary in (("source", vocabularies.src), ("target", vocabularies.tgt)):
        pieces = json.dumps(vocabulary.pieces(), ensure_ascii=False, indent=0)
        (folder / f"{side}_pieces.json").write_text(pieces + "\n", "utf-8")
    write_program(
        folder,
        translator,
        [PAD, BOS, EOS, UNK],
        heads=config.num_heads,
        key_width=config.d_k,
        value_width=config.d_v,
        platforms=PLATFORMS,
        jax=jax.__version__,
    )
    missing = "".join(f"{note}\n" for note in unsupported(translator.config, NGRAM_RULE))
    release = ".".join(jax.__version__.split(".")[:2])
    write_readme(
        folder,
        translator,
        title=f"A model as StableHLO programs for {', '.join(PLATFORMS)}",
        install=f'"jax>={release}" flatbuffers numpy sentencepiece',
        use=_USE,
        notes=_NOTES.format(release=release, unsupported=missing and f"\n{missing}"),
    )


def _programs(model: Transformer, params: Mapping[str, Any]) -> dict[str, jax.export.Exported]:
    """Exports both programs, each with symbolic sizes of its own."""
    config = model.config
    abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    encoder = _encoder(model)
    b, s = jax.export.symbolic_shape("b, s", constraints=(f"s <= {config.max_length}",))
    encode = jax.export.export(jax.jit(encoder), platforms=PLATFORMS)(abstract, _ids(b, s), _ids(b))

    bounds = [f"{length} <= {config.max_length}" for length in "st"]
    b, s, t = jax.export.symbolic_shape("b, s, t", constraints=bounds)
    source = jax.eval_shape(encoder, abstract, _ids(b, s), _ids(b))
    target = {
        layer: {
            "key": jax.ShapeDtypeStruct((b, config.num_heads, config.d_k, t), jnp.float32),
            "value": jax.ShapeDtypeStruct((b, config.num_heads, t, config.d_v), jnp.float32),
        }
        for layer in source["cross"]
    }
    step = jax.export.export(jax.jit(_decode_step(model)), platforms=PLATFORMS)(
        abstract, _ids(b), _ids(), target, source
    )
    return dict(zip(runner.PROGRAMS, (encode, step), strict=True))


def _ids(*shape: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _encoder(model: Transformer) -> Callable[..., dict[str, Any]]:
    def encoder(
        params: Any, src: Int[Array, "b s"], src_lengths: Int[Array, " b"]
    ) -> dict[str, Any]:
        """The part of the cache that depends on the source alone."""
        positions = jnp.broadcast_to(jnp.arange(src.shape[1]), src.shape)  # [b, s]
        segment_ids = (positions < src_lengths[:, None]).astype(jnp.int32)
        variables = {"params": params}
        encoded = model.apply(
            variables,
            src,
            src_segment_ids=segment_ids,
            src_positions=positions * segment_ids,
            dropout_key=None,
            method=Transformer.encode,
        )
        cache: Any = model.apply(
            variables, encoded, segment_ids, beams=1, length=1, method=Transformer.start_cache
        )
        return {name: leaf for name, leaf in cache.items() if name not in ("self", "beams")}

    return encoder


def _decode_step(model: Transformer) -> Callable[..., tuple[Float[Array, "b vocab"], Any]]:
    def decode_step(
        params: Any,
        tokens: Int[Array, " b"],
        index: Int[Array, ""],
        target: dict[str, Any],
        source: dict[str, Any],
    ) -> tuple[Float[Array, "b vocab"], dict[str, Any]]:
        """The next token's log-probabilities, and the target's cache with `tokens` added."""
        rows = tokens.shape[0]
        length = next(iter(target.values()))["key"].shape[3]
        # One beam has only one slot.
        beams = {"ancestry": jnp.zeros((rows, 1, length), jnp.int32)}
        logits, cache = model.apply(
            {"params": params},
            tokens[:, None],  # [b, 1]
            index,
            {"self": target, "beams": beams, **source},
            method=Transformer.decode_step,
        )
        return jax.nn.log_softmax(logits[:, 0]), cache["self"]

    return decode_step


class StableHLORuntime(Runtime):
    """The `Model` of the folder's own `translate.py`; token ids are this program's."""

    def __init__(self, folder: Path) -> None:
        self.name = f"StableHLO in JAX {jax.__version__}"
        # Leaves no compiled file in the folder, as an import would.
        self._model = runpy.run_path(str(folder / "translate.py"))["Model"](folder)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return list(map(self._model.program.ids_of, self._model.encode(lines)))

    def search(
        self, sources: Rows, *, beam_size: int, limit: int, length_penalty: float = 0.0
    ) -> list[list[int]]:
        """The folder's program has no beam search."""
        raise NotImplementedError

    def greedy(self, sources: Rows, limits: Sequence[int]) -> list[list[int]]:
        return self._model.program.greedy(sources, limits)

    def log_probs(self, sources: Rows, targets: Rows) -> list[LogProbs]:
        with jax.default_matmul_precision("highest"):
            return self._model.program.log_probs(sources, targets)
