"""XLA's three ways of writing who takes part give the same groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.planning.hlo import HloError
from flaxformer_mt.planning.replica_groups import replica_groups


@pytest.mark.parametrize(
    ("attributes", "groups"),
    [
        ("channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true", "01 23"),
        ("replica_groups={}", "0123"),
        ("replica_groups=[2,2]<=[4], dimensions={0}", "01 23"),
        ("replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}", "02 13"),
        ("replica_groups=mesh['a'=4] {'a'}, to_apply=%add", "0123"),
        ("replica_groups=mesh['a'=2,'b'=2] {'b'}, to_apply=%add", "01 23"),
        ("replica_groups=mesh['a'=2,'b'=2] {'a'}, to_apply=%add", "02 13"),
        ("replica_groups=mesh['a'=2,'b'=2] {'a','b'}, to_apply=%add", "0123"),
        ("replica_groups=mesh['a'=4] {'a':(1)2}, to_apply=%add", "02 13"),
        ("replica_groups=mesh['a'=4] {'a':(2)2}, to_apply=%add", "01 23"),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", "02 13"),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", "02 13"),
        ("replica_groups=[1,2]<=[2], dimensions={0}", "01"),  # one slice of two
        ("source_target_pairs={{0,1},{1,0}}, metadata={}", "01 10"),
    ],
)
def test_forms(attributes, groups):
    wanted = sorted(tuple(int(n) for n in group) for group in groups.split())
    assert sorted(replica_groups(attributes, 4)) == wanted


def test_another_form_is_an_error():
    with pytest.raises(HloError, match="which devices"):
        replica_groups("replica_groups=<something new>", 4)


@given(
    st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3).flatmap(
        lambda sizes: st.tuples(
            st.just(sizes), st.sets(st.sampled_from(range(len(sizes))), min_size=1)
        )
    )
)
def test_axes_of_a_mesh_split_all_devices_evenly(case):
    """Devices of a group differ along the chosen axes alone."""
    sizes, chosen = case
    names = "abc"
    mesh = ",".join(f"'{names[i]}'={size}" for i, size in enumerate(sizes))
    axes = ",".join(f"'{names[i]}'" for i in sorted(chosen))
    devices = int(np.prod(sizes))
    groups = replica_groups(f"replica_groups=mesh[{mesh}] {{{axes}}}", devices)
    assert sorted(itertools.chain(*groups)) == list(range(devices))
    places = list(np.ndindex(*sizes))
    for group in groups:
        assert len(group) == np.prod([sizes[i] for i in chosen])
        rest = {tuple(p for i, p in enumerate(places[n]) if i not in chosen) for n in group}
        assert len(rest) == 1
