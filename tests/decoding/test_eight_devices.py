"""Beam search and scoring split over the sentences of a batch find what one device finds."""

from typing import Any, NamedTuple

import jax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from flaxformer_mt.config import MeshConfig
from flaxformer_mt.decoding.run import programs, sizes
from flaxformer_mt.decoding.search.state import State
from flaxformer_mt.parallel.mesh import local_mesh, make_mesh, whole_on
from tests.decoding.examples import as_part, decoded, forcing, sentences, tiny
from tests.parallel.test_eight_devices import on_eight_devices
from tests.training.test_compilations import logged_times

SENTENCES = 21  # no number of devices divides it but three


@pytest.mark.extended
def test_equals_one_device():
    on_eight_devices("tests.decoding.test_eight_devices")


class Searched(NamedTuple):
    """Tokens and ends, which are to be the same, and numbers, which are so to rounding."""

    outputs: list[tuple[tuple[int, ...], bool]]
    numbers: list[float]

    def assert_same(self, expected: "Searched") -> None:
        assert self.outputs == expected.outputs
        assert self.numbers == pytest.approx(expected.numbers, abs=1e-5)


def searched(mesh: Any, params: Any, beam: int) -> Searched:
    settings = {"beam_size": beam, "batch_tokens": 16 * beam, "n_best": beam, "mesh": mesh}
    outputs = decoded(sentences(SENTENCES), members=((params,), (tiny()[0],)), **settings)
    hypotheses = [hypothesis for of_sentence in outputs for hypothesis in of_sentence]
    return Searched(
        [(hypothesis.tokens, hypothesis.at_limit) for hypothesis in hypotheses],
        [number for hypothesis in hypotheses for number in (hypothesis.log_prob, hypothesis.score)],
    )


def scores(mesh: Any) -> list[float]:
    model, params = tiny()
    pairs = zip(sentences(SENTENCES), sentences(SENTENCES, seed=1), strict=True)
    lines = [[as_part(src[:-1], tgt[:-1])] for src, tgt in pairs]
    scored = forcing(model, whole_on(params, mesh), mesh, batch_tokens=64).score(lines)
    return [number for pair in scored for number in (*pair.token_log_probs, pair.score)]


def check() -> None:
    # A small model on one device has shapes of its own; here it is searched in those of many.
    sizes.SMALL = 0
    _, params = tiny()
    devices = jax.devices()
    meshes = {count: make_mesh(MeshConfig(), devices[:count]) for count in (1, 3, 8)}
    expected = {beam: searched(meshes[1], params, beam) for beam in (1, 4)}
    for count in (3, 8):
        for beam in (1, 4):
            searched(meshes[count], params, beam).assert_same(expected[beam])
        assert scores(meshes[count]) == pytest.approx(scores(meshes[1]), abs=1e-5)
    check_an_accelerators_schedule(meshes[8], params, expected[4])
    check_parameters_of_another_mesh(params, expected[4])
    check_every_device_has_its_rows(params)


def check_an_accelerators_schedule(mesh: Any, params: Any, expected: Searched) -> None:
    """What is compiled beside the search is what the search runs."""
    fast, sizes.COMPILES_FAST = sizes.COMPILES_FAST, ()
    sizes.ACCELERATOR_SHORTEST, sizes.ACCELERATOR_FEW = 8, 1
    with logged_times("backend_compile_duration") as compiled:
        searched(mesh, params, 4).assert_same(expected)
    # Sources of up to 8 and 24 tokens; the cache of the first grows.
    assert 1 < len(compiled) <= 4 + 2
    with logged_times("backend_compile_duration") as compiled:
        searched(mesh, params, 4).assert_same(expected)
    assert not compiled
    sizes.COMPILES_FAST = fast


def check_parameters_of_another_mesh(params: Any, expected: Searched) -> None:
    """Training leaves parameters split over a mesh of another form."""
    mesh = make_mesh(MeshConfig(fsdp=4, tensor=2), jax.devices())
    split = NamedSharding(mesh, PartitionSpec("fsdp"))
    spread = jax.tree.map(
        lambda leaf: jax.device_put(leaf, split) if leaf.shape[0] % 4 == 0 else leaf, params
    )
    searched(None, spread, 4).assert_same(expected)
    for leaf in jax.tree.leaves(whole_on(spread, local_mesh())):
        assert leaf.sharding.is_fully_replicated and len(leaf.sharding.device_set) == 8


def check_every_device_has_its_rows(params: Any) -> None:
    """Rows of sources and of hypotheses, including padding."""
    watched = 0
    advance = programs.advance_search

    def watch(params: Any, state: State, *arguments: Any, **settings: Any) -> State:
        nonlocal watched
        watched += 1
        for leaf in (state.stopped, state.cache["beams"][0]["ancestry"]):
            shards = [shard.data.shape[0] for shard in leaf.addressable_shards]
            assert shards == [leaf.shape[0] // 8] * 8
        return advance(params, state, *arguments, **settings)

    programs.advance_search = watch  # type: ignore[assignment]
    searched(local_mesh(), params, 4)
    assert watched >= 2


if __name__ == "__main__":
    check()
