"""Bytes, networks and times of collectives, against formulas written out here."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.collectives import collectives, communications, replica_groups
from flaxformer_mt.planning.cycles import costs_by_cycles
from flaxformer_mt.planning.hlo import parse
from flaxformer_mt.planning.topology import usable_links
from tests.planning.programs import LOOP, OFFLOADED, collective, topology

SIZE = 4096  # bytes of the one array


def sums(text, chips, mesh):
    return collectives(communications(parse(text), chips, mesh))


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("f32[1024]{0} all-reduce(%x), replica_groups=[1,8]<=[8]", 2 * SIZE * 7 / 8),
        ("f32[128] reduce-scatter(%x), replica_groups=[1,8]<=[8]", SIZE * 7 / 8),
        ("f32[1024]{0} all-to-all(%x), replica_groups=[2,4]<=[8]", SIZE * 3 / 4),
        ("f32[1024]{0} collective-permute(%x), source_target_pairs={{0,1},{1,2}}", SIZE),
        ("(f32[1024], f32[8192]) all-gather-start(%x), replica_groups=[1,8]<=[8]", SIZE * 7),
    ],
)
def test_what_a_device_sends(line, sent):
    kind = line.partition("(%x)")[0].split()[-1].removesuffix("-start")
    (sent_once,) = sums(collective(line), *topology(2, 4))
    assert (sent_once.kind, sent_once.network, sent_once.count, sent_once.bytes) == (
        kind,
        "ICI",
        1,
        SIZE,
    )
    assert sent_once.sent == pytest.approx(sent)
    links = 1 if kind == "collective-permute" or "[2,4]" in line else 2
    assert sent_once.seconds == pytest.approx(sent / (links * 50e9))
    alone = line.replace("[1,8]<=", "[8,1]<=")  # a group of one exchanges nothing
    assert alone == line or sums(collective(alone), *topology(2, 4)) == ()


def test_across_slices_the_scattered_part_goes_over_the_data_centre():
    line = "f32[1024]{0} all-reduce(%x), replica_groups=[1,16]<=[16]"
    chips = topology(2, 4, slices=2)
    by_network = {cost.network: cost for cost in sums(collective(line), *chips)}
    assert by_network["ICI"].sent == pytest.approx(2 * SIZE * 7 / 8)
    assert by_network["DCN"].sent == pytest.approx(2 * (SIZE / 8) * 1 / 2)
    assert by_network["DCN"].seconds == pytest.approx(by_network["DCN"].sent / 3.125e9)
    (inside,) = sums(collective(line.replace("[1,16]<=", "[2,8]<=")), *chips)
    assert inside.network == "ICI"


def test_a_loop_multiplies_its_collectives():
    add = "  %next = s32[] add(%i, %one)\n"
    all_reduce = "  %g = f32[8,128]{1,0} all-reduce(%x), replica_groups=[1,8]<=[8]\n"
    (cost,) = sums(LOOP.replace(add, add + all_reduce), *topology(2, 4))
    assert (cost.count, cost.bytes) == (6, 6 * 4096)


def test_what_the_compiler_has_made_of_it_between_slices():
    """A send by way of the host and the recv of the result, of what the slices' parts hold."""
    transfer = (
        "channel_id=2, is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="
        '"xla_megascale_runtime",_xla_megascale_transfer_type="ALL_REDUCE"}'
    )
    text = collective("f32[1024]{0} recv(%t), " + transfer).replace(
        "  ROOT",
        f"  %t = token[] after-all()\n  %s = (f32[1024], u32[], token[]) send(%x, %t), {transfer}\n"
        "  ROOT",
    )
    (cost,) = sums(text, *topology(2, 4, slices=2))
    assert (cost.kind, cost.network, cost.count, cost.bytes) == ("all-reduce", "DCN", 1, SIZE)
    assert cost.sent == pytest.approx(2 * SIZE / 2)
    assert costs_by_cycles(parse(text), topology(2, 4)[0].chip).unestimated == ()


def test_a_collective_that_runs_beside_several_fusions_is_sent_once():
    piece = (
        "f32[1024]{0} all-reduce(%x), channel_id=7, replica_groups=[1,8]<=[8], "
        'frontend_attributes={chain_id="3"}'
    )
    text = collective(piece).replace("  ROOT", f"  %first = {piece}\n  ROOT")
    (cost,) = sums(text, *topology(2, 4))
    assert (cost.count, cost.bytes) == (1, SIZE)


def test_what_a_sparsecore_sends_counts_and_its_estimates_do_not():
    chips, mesh = topology(2, 2, 2, kind="TPU7x")
    (cost,) = sums(OFFLOADED, chips, mesh)
    size = 4 * 32 * 128 * 4
    assert (cost.kind, cost.network, cost.count) == ("reduce-scatter", "ICI", 1)
    assert (cost.bytes, cost.sent) == (size, pytest.approx(size * 7 / 8))

    compute = costs_by_cycles(parse(OFFLOADED), chips.chip)
    assert compute.cycles == 1000

    # By its bytes, beside the rest: 2,000 rows in and out, 384 more and their numbers.
    (scatter,) = compute.unestimated
    assert (scatter.name, scatter.count, scatter.asynchronous) == ("SparseCore fusion", 1, True)
    assert scatter.bytes == 4 * (2 * 2000 * 128 + 384 * 128 + 384)


@pytest.mark.parametrize(
    ("sides", "kind", "links"),
    [
        ((2, 4), "TPU v5e", 2),
        ((1, 4), "TPU v5e", 1),
        ((16, 16), "TPU v5e", 4),
        ((4, 16), "TPU v5e", 3),
        ((2, 2, 1), "TPU v5p", 2),
        ((4, 4, 4), "TPU v5p", 6),
    ],
)
def test_links_that_can_be_used_at_a_time(sides, kind, links):
    chips, _ = topology(*sides, kind=kind)
    assert usable_links(chips, chips.devices) == links


@pytest.mark.parametrize(
    ("attributes", "groups"),
    [
        ("channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true", "01 23"),
        ("replica_groups={}", "0123"),
        ("replica_groups=[2,2]<=[4], dimensions={0}", "01 23"),
        ("replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}", "02 13"),
        ("replica_groups=mesh['a'=4] {'a'}, to_apply=%add", "0123"),
        ("replica_groups=mesh['a'=4] {'a':(1)2}, to_apply=%add", "02 13"),
        ("replica_groups=mesh['a'=4] {'a':(2)2}, to_apply=%add", "01 23"),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", "02 13"),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", "02 13"),
        ("replica_groups=[1,2]<=[2], dimensions={0}", "01"),  # one slice of two
        ("source_target_pairs={{0,1},{1,0}}, metadata={}", "01 10"),
    ],
)
def test_forms_of_groups(attributes, groups):
    expected = sorted(tuple(int(n) for n in group) for group in groups.split())
    assert sorted(replica_groups(attributes, 4)) == expected
    with pytest.raises(PlanningError, match="which devices"):
        replica_groups("replica_groups=<something new>", 4)


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3), st.data())
def test_axes_of_a_mesh_split_all_devices_evenly(sizes, data):
    """Devices of a group differ along the chosen axes alone."""
    chosen = data.draw(st.sets(st.sampled_from(range(len(sizes))), min_size=1))
    mesh = ",".join(f"'{'abc'[i]}'={size}" for i, size in enumerate(sizes))
    axes = ",".join(f"'{'abc'[i]}'" for i in sorted(chosen))
    places = list(np.ndindex(*sizes))
    groups = replica_groups(f"replica_groups=mesh[{mesh}] {{{axes}}}", len(places))
    assert sorted(itertools.chain(*groups)) == list(range(len(places)))
    for group in groups:
        assert len(group) == np.prod([sizes[i] for i in chosen])
        along_others = {tuple(p for i, p in enumerate(places[n]) if i not in chosen) for n in group}
        assert len(along_others) == 1
