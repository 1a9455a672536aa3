"""Reading compiled programs: of this machine's own compiler, and in the TPU compiler's form."""

import jax
import jax.numpy as jnp
import pytest

from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.hlo import executions, parse, shape_bytes
from tests.planning.programs import LOOP


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[8,128]{1,0:T(8,128)S(1)}", 4096),
        ("bf16[3]", 6),
        ("pred[]", 1),
        ("s4[6]", 3),
        ("f8e4m3fn[5]{0}", 5),
        ("(f32[2]{0}, /*index=5*/s32[], (u8[7], u32[]{:S(2)}))", 23),
        ("token[]", 0),
        ("f32[<=10]{0}", 40),
    ],
)
def test_sizes(shape, size):
    assert shape_bytes(shape) == size
    with pytest.raises(PlanningError, match="'q7'"):
        shape_bytes("q7[2]")
    with pytest.raises(PlanningError, match="ENTRY"):
        parse("nothing of the kind")


LENGTH = "%begin = s32[] copy(%zero)"
WHILE = "while(%start), condition=%condition, body=%body"


@pytest.mark.parametrize(
    ("known", "text", "times"),
    [
        (True, LOOP, 5),  # from 2 to below 7
        (False, LOOP.replace(LENGTH, "%begin = s32[] parameter(1)"), 9),
        # The compiler's word comes first.
        (
            *(True, LOOP.replace(WHILE, WHILE + ', backend_config={"known_trip_count":{"n":"3"}}')),
            3,
        ),
    ],
)
def test_loops_are_multiplied_out(known, text, times):
    by_name = {e.instruction.name: e for e in executions(parse(text), unknown_trips=9)}
    assert by_name["y"].times == by_name["inner"].times == times
    assert by_name["y"].guessed != known
    assert by_name["inner"].fused and not by_name["y"].fused
    assert by_name["sum"].times == 1 and not by_name["sum"].guessed


def test_a_real_conditional_and_an_unknown_loop():
    def run(x, n):
        x = jax.lax.cond(n > 3, lambda x: jnp.sin(x) @ x, lambda x: jnp.cos(x) @ x, x)
        return jax.lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] @ s[0], s[1] + 1), (x, 0))

    text = jax.jit(run).lower(jnp.eye(8), 5).compile().as_text()
    executed = list(executions(parse(text), unknown_trips=100))
    products = [
        e for e in executed if e.instruction.op_name.endswith("dot_general") and not e.fused
    ]
    inside = [e for e in products if e.guessed]
    assert inside and all(e.times == 100 for e in inside)
    assert sum(e.times for e in products if not e.guessed) >= 2  # both branches
