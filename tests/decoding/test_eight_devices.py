"""Beam search and scoring split over the sentences of a batch find what one device finds."""

from typing import Any

import jax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from flaxformer_mt.config import MeshConfig
from flaxformer_mt.decoding.run import programs, sizes
from flaxformer_mt.decoding.search.state import State
from flaxformer_mt.parallel.mesh import local_mesh, make_mesh, whole_on
from tests.decoding.examples import as_part, decoded, forcing, sentences, tiny
from tests.parallel.test_eight_devices import on_eight_devices

SENTENCES = 21  # no number of devices divides it but three


@pytest.mark.extended
def test_equals_one_device():
    on_eight_devices("tests.decoding.test_eight_devices")


def found(mesh: Any, params: Any, beam: int) -> tuple[list[Any], list[float]]:
    """Tokens and ends, which are to be the same, and numbers, which are so to rounding."""
    settings = {"beam_size": beam, "batch_tokens": 16 * beam, "n_best": beam, "mesh": mesh}
    outputs = decoded(sentences(SENTENCES), given=((params,), (tiny()[0],)), **settings)
    every = [output for each in outputs for output in each]
    numbers = [number for output in every for number in (output.log_prob, output.score)]
    return [(output.tokens, output.at_limit) for output in every], numbers


def scores(mesh: Any) -> list[float]:
    model, params = tiny()
    drawn = zip(sentences(SENTENCES), sentences(SENTENCES, seed=1), strict=True)
    lines = [[as_part(src[:-1], tgt[:-1])] for src, tgt in drawn]
    scored = forcing(model, whole_on(params, mesh), mesh, batch_tokens=64).score(lines)
    return [number for each in scored for number in (*each.token_log_probs, each.score)]


def check() -> None:
    # A small model on one device has shapes of its own; here it is searched in those of many.
    sizes.SMALL = 0
    _, params = tiny()
    devices = jax.devices()
    meshes = {count: make_mesh(MeshConfig(), devices[:count]) for count in (1, 3, 8)}
    expected = {beam: found(meshes[1], params, beam) for beam in (1, 4)}

    def assert_same(beam: int, mesh: Any, params: Any) -> None:
        ours, numbers = found(mesh, params, beam)
        assert ours == expected[beam][0]
        assert numbers == pytest.approx(expected[beam][1], abs=1e-5)

    for count in (3, 8):
        for beam in (1, 4):
            assert_same(beam, meshes[count], params)
        assert scores(meshes[count]) == pytest.approx(scores(meshes[1]), abs=1e-5)

    # As training leaves them: split over a mesh of another form.
    split = NamedSharding(make_mesh(MeshConfig(fsdp=4, tensor=2), devices), PartitionSpec("fsdp"))
    spread = jax.tree.map(
        lambda leaf: jax.device_put(leaf, split) if leaf.shape[0] % 4 == 0 else leaf, params
    )
    assert_same(4, None, spread)
    for leaf in jax.tree.leaves(whole_on(spread, local_mesh())):
        assert leaf.sharding.is_fully_replicated and len(leaf.sharding.device_set) == 8

    # Every device has its rows, of the sources and of what was found, padding among them.
    watched = 0
    advance = programs.advance_search

    def watch(params: Any, state: State, *rest: Any, **settings: Any) -> State:
        nonlocal watched
        watched += 1
        for leaf in (state.stopped, state.cache["beams"][0]["ancestry"]):
            shards = [shard.data.shape[0] for shard in leaf.addressable_shards]
            assert shards == [leaf.shape[0] // 8] * 8
        return advance(params, state, *rest, **settings)

    programs.advance_search = watch  # type: ignore[assignment]
    found(local_mesh(), params, 4)
    assert watched >= 2


if __name__ == "__main__":
    check()
