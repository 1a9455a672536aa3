"""Weights that do not fit are named before anything is trained."""

from __future__ import annotations

import numpy as np
import pytest

from flaxformer_mt.training.start_from import StartError, check_same_form
from tests.training.examples import on_host, program


def test_weights_of_the_same_model_fit():
    abstract = program().abstract.params
    check_same_form(on_host(program().init().params), abstract, "runs/a")


def test_what_does_not_fit_is_named():
    here = {"encoder": {"w": np.zeros((2, 3)), "b": np.zeros(3)}, "only_here": np.zeros(1)}
    there = {"encoder": {"w": np.zeros((2, 4)), "b": np.zeros(3)}, "only_there": np.zeros(1)}
    with pytest.raises(StartError) as error:
        check_same_form(there, here, "runs/a")
    assert str(error.value) == (
        "runs/a: its weights do not fit this model: encoder/w: (2, 4) there, (2, 3) here; "
        "only_here: absent there, (1,) here; only_there: (1,) there, absent here"
    )


def test_a_long_list_is_cut():
    here = {f"w{number}": np.zeros(1) for number in range(9)}
    with pytest.raises(StartError, match="; w4: absent there, .* here; and 4 more$"):
        check_same_form({}, here, "runs/a")
