"""A small model with random weights, and sentences for it."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.vocabulary import EOS, UNK
from flaxformer_mt.decoding.masks.at_least import AtLeast
from flaxformer_mt.decoding.masks.repeats import NoRepeats
from flaxformer_mt.decoding.masks.trees import TreeShape
from flaxformer_mt.decoding.run.decoder import BatchDecoder
from flaxformer_mt.decoding.search.state import SearchRows, begin
from flaxformer_mt.decoding.search.step import advance
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.teacher_forcing import TeacherForcing
from flaxformer_mt.decoding.text.segments import Part
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import local_mesh
from tests.decoding.runs import parameters
from tests.model.examples import tiny_config

VOCAB = 30
CONFIG = DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=6, batch_tokens=2048)


@functools.cache
def tiny(positions: str = "sinusoidal", seed: int = 0):
    sizes = {"d_model": 16, "d_ff": 32, "num_heads": 2, "d_k": 8, "d_v": 8, "max_length": 24}
    config = tiny_config(**sizes, positions=positions, dropout=0.1)
    model = Transformer(config, VOCAB, VOCAB)
    # Wider spread than at the start of training, so that hypotheses differ in more than rounding.
    params = jax.tree.map(lambda leaf: leaf * 1.5, parameters(model, seed))
    return model, params


def sentences(count: int, seed: int = 0, longest: int = 22) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest, size=count)
    return [[*rng.integers(UNK + 1, VOCAB, size=length).tolist(), EOS] for length in lengths]


def decoded(sources, *, prefixes=None, numbers=None, **settings):
    """What `decoder(**settings)` makes of the sources."""
    numbers = numbers or enumerate([0] * len(sources))
    prefixes = prefixes or [()] * len(sources)
    return decoder(**settings).decode([*map(Source, sources, numbers, prefixes)])


def decoder(*, seed=0, members=None, **changes) -> BatchDecoder:
    """A decoder for `tiny(seed=seed)`, or for `members` (params, models)."""
    names = ("n_best", "suppress", "sampling", "mesh", "shortlist")
    arguments = {name: changes.pop(name) for name in names if name in changes}
    model, params = tiny(seed=seed)
    params, models = members or ((params,), (model,))
    return BatchDecoder(params, models, replace(CONFIG, **changes), **arguments)


def as_part(src, tgt) -> Part:
    """Token ids of a pair, without marks."""
    return Part("", tuple(src), "", tuple(tgt))


def forcing(model, params, mesh=None, **changes) -> TeacherForcing:
    return TeacherForcing(params, model, replace(CONFIG, **changes), mesh or local_mesh())


def beam_search(
    step, cache, limits, numbers, rules, *, length, prefix=(), words=0, source=(0,), phrases=None
):
    """The hypotheses, and how many steps they took; all rows have one prefix and one source."""
    count = len(limits)
    source = jnp.broadcast_to(jnp.array(source, jnp.int32), (count, len(source)))
    arrays = {
        NoRepeats: (),
        AtLeast: jnp.full(count, rules.min_length),
        TreeShape: (jnp.full(count, words), source),
    }
    rows = SearchRows(
        jnp.asarray(limits),
        prefix=jnp.broadcast_to(jnp.array(prefix, jnp.int32), (count, len(prefix))),
        seeds=jnp.zeros((count, 2), jnp.uint32),
        mask_rows=tuple(arrays.get(type(mask)) for mask in rules.all_masks),
        phrases=phrases,
    )
    numbers = numbers._replace(mask_shared=(None,) * len(rules.all_masks))
    state = advance(step, begin(cache, rows, rules, length=length), numbers, rules, until=length)
    return state.finished, state.position


def translate_ids(params, model, sources, config) -> list[list[int]]:
    """The best output of each source (pieces + EOS), without its end mark."""
    batch = [Source(source, (number, 0)) for number, source in enumerate(sources)]
    translations = BatchDecoder((params,), (model,), config).decode(batch)
    return [list(hypotheses[0].tokens) for hypotheses in translations]
