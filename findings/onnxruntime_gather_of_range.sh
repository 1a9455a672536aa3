#!/usr/bin/env bash
# onnxruntime 1.32.0 (and 1.24.1): the ONNX specification makes an index outside the data an error of Gather, and so
# does ONNX Runtime, unless the indices come from Range: then its default optimisation replaces both by Slice, which
# is cut short without an error. Of one row beyond the end of a table nothing is left, and a sum with it broadcasts
# to an array without rows. Position encodings are looked up so: a decoder that is past its longest position returns
# empty arrays instead of an error. With optimisation disabled, or where the indices are Range plus an offset, it
# is the error.
#
# So the decoder in `flaxformer_mt/interop/onnx_graph.py` adds the cache's length to a range from 0.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/check.py" <<'PYTHON'
import importlib.metadata
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

print("Python", sys.version.split()[0], *(
    f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "onnx", "onnxruntime")
))


def graph(offset):
    """table[start : end], and its sum with one row; `offset`: by a range from 0, plus `start`."""
    if offset:
        indices = [
            helper.make_node("Sub", ["end", "start"], ["count"]),
            helper.make_node("Range", ["zero", "count", "one"], ["new"]),
            helper.make_node("Add", ["new", "start"], ["positions"]),
        ]
    else:
        indices = [helper.make_node("Range", ["start", "end", "one"], ["positions"])]
    arrays = {"table": np.ones((4, 2), np.float32), "zero": np.array(0), "one": np.array(1)}
    model = helper.make_model(
        helper.make_graph(
            [
                *indices,
                helper.make_node("Gather", ["table", "positions"], ["rows"]),
                helper.make_node("Add", ["x", "rows"], ["sum"]),
            ],
            "graph",
            [
                helper.make_tensor_value_info("start", TensorProto.INT64, []),
                helper.make_tensor_value_info("end", TensorProto.INT64, []),
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2]),
            ],
            [helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["rows", 2])],
            [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def outcome(*, offset, optimised):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    session = onnxruntime.InferenceSession(graph(offset), options, providers=["CPUExecutionProvider"])
    inputs = {"start": np.array(4), "end": np.array(5), "x": np.ones((1, 2), np.float32)}
    try:
        [result] = session.run(None, inputs)
    except Exception as error:
        return "error" if "out of data bounds" in str(error) else str(error)
    return f"shape {result.shape}"


outcomes = {}
for offset in (False, True):
    for optimised in (True, False):
        indices = "a range plus an offset" if offset else "a range"
        outcomes[offset, optimised] = outcome(offset=offset, optimised=optimised)
        level = "default optimisation" if optimised else "no optimisation"
        print(f"row 4 of 4 by {indices}, {level}: {outcomes[offset, optimised]}")
expected = {(False, True): "shape (0, 2)", (False, False): "error"}
expected |= {(True, True): "error", (True, False): "error"}
sys.exit(0 if outcomes == expected else 1)
PYTHON

for version in 1.24.1 1.32.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/python" -m pip install --quiet --disable-pip-version-check \
        "onnxruntime==$version" onnx==1.23.2 numpy==2.4.6
    "$folder/$version/bin/python" "$folder/check.py"
done
