"""Decodes on one, three and eight simulated devices and prints what came of it, as JSON.

A program of its own: the number of devices is a matter of the whole process.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from flaxformer_mt.config import MeshConfig
from flaxformer_mt.decoding import batch_search
from flaxformer_mt.decoding.search import State
from flaxformer_mt.parallel import local_mesh, make_mesh, whole_on
from tests.decoding.examples import as_part, decoded, forcing, sentences, tiny

SENTENCES = 21  # no number of devices divides it but three


def found(mesh: Any, params: Any, model: Any, beam: int) -> list[Any]:
    settings = {"beam_size": beam, "batch_tokens": 16 * beam, "n_best": beam, "mesh": mesh}
    outputs = decoded(sentences(SENTENCES), given=((params,), (model,)), **settings)
    return [[[list(o.tokens), o.log_prob, o.score, o.at_limit] for o in each] for each in outputs]


def scores(mesh: Any, params: Any, model: Any) -> list[list[float]]:
    drawn = zip(sentences(SENTENCES), sentences(SENTENCES, seed=1), strict=True)
    lines = [[as_part(src[:-1], tgt[:-1])] for src, tgt in drawn]
    scored = forcing(model, whole_on(params, mesh), mesh, batch_tokens=64).score(lines)
    return [[*each.token_log_probs, each.score] for each in scored]


def main() -> None:
    # Its failures are harmless, and pytest is told the same (pyproject.toml).
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    model, params = tiny()
    devices = jax.devices()
    results: dict[str, Any] = {"scores": {}}
    for count in (1, 3, 8):
        mesh = make_mesh(MeshConfig(), devices[:count])
        for beam in (1, 4):
            results[f"{beam} on {count}"] = found(mesh, params, model, beam)
        results["scores"][count] = scores(mesh, params, model)
    # As training leaves them: split over a mesh of another form.
    split = NamedSharding(make_mesh(MeshConfig(fsdp=4, tensor=2), devices), PartitionSpec("fsdp"))
    spread = jax.tree.map(
        lambda leaf: jax.device_put(leaf, split) if leaf.shape[0] % 4 == 0 else leaf, params
    )
    results["spread"] = found(None, spread, model, 4)
    whole = whole_on(spread, local_mesh())
    results["everywhere"] = all(
        leaf.sharding.is_fully_replicated and len(leaf.sharding.device_set) == 8
        for leaf in jax.tree.leaves(whole)
    )

    where: list[list[int]] = []
    advance = batch_search.advance

    def watched(params: Any, state: State, *rest: Any, **settings: Any) -> State:
        for leaf in (state.stopped, state.cache["beams"][0]["ancestry"]):
            where.append([leaf.shape[0], *(s.data.shape[0] for s in leaf.addressable_shards)])
        return advance(params, state, *rest, **settings)

    batch_search.advance = watched  # type: ignore[assignment]
    found(local_mesh(), params, model, 4)
    results["rows"] = where
    print(json.dumps(results))


if __name__ == "__main__":
    main()
