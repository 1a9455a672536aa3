"""An ONNX graph while it is built: its nodes in order and its arrays, by the package onnx."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flaxformer_mt.interop import package_of_extra

OPSET = 17  # the first with LayerNormalization
IR_VERSION = 8  # of the file format, the one that came with this opset


class GraphBuilder:
    """Methods add to the graph and return the name of what they added.

    Raises ExportError if the package onnx is missing.
    """

    def __init__(self) -> None:
        self._onnx = package_of_extra("onnx", "the format 'onnx' is written by the package")
        self._nodes: list[Any] = []
        self._arrays: dict[str, np.ndarray] = {}
        self._unnamed = 0

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """A node with one output, called `name` if given."""
        if not name:
            self._unnamed += 1
            name = f"{operator}_{self._unnamed}"
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [name], **attributes))
        return name

    def array(self, name: str, array: np.ndarray | np.generic) -> str:
        """An array of the file; of one name there is one."""
        self._arrays[name] = np.asarray(array)
        return name

    def cast(self, name: str, dtype: str) -> str:
        """`dtype` is ONNX's name of it, such as INT64."""
        return self.node("Cast", name, to=self._onnx.TensorProto.DataType.Value(dtype))

    def choice(
        self,
        condition: str,
        outputs: Mapping[str, Sequence[int | str]],
        if_true: Callable[[str], str],
        if_false: Callable[[str], str],
    ) -> None:
        """An If with these outputs, float32 of these shapes: each function adds the nodes of one
        and returns its name in the branch. Both use the arrays and values around them."""
        branches = {
            "then_branch": self._branch(f"{condition}/true", outputs, if_true),
            "else_branch": self._branch(f"{condition}/false", outputs, if_false),
        }
        node = self._onnx.helper.make_node("If", [condition], list(outputs), **branches)
        self._nodes.append(node)

    def _branch(
        self, name: str, outputs: Mapping[str, Sequence[int | str]], add: Callable[[str], str]
    ) -> Any:
        nodes_around, self._nodes = self._nodes, []
        infos = [self.floats(add(output), *shape) for output, shape in outputs.items()]
        nodes, self._nodes = self._nodes, nodes_around
        return self._onnx.helper.make_graph(nodes, name, [], infos)

    def integers(self, name: str, *shape: int | str) -> Any:
        """What the file says of an input or output: int64; a size with a name is dynamic."""
        return self._info(name, "INT64", shape)

    def floats(self, name: str, *shape: int | str) -> Any:
        """The same, float32."""
        return self._info(name, "FLOAT", shape)

    def booleans(self, name: str, *shape: int | str) -> Any:
        """The same, boolean."""
        return self._info(name, "BOOL", shape)

    def _info(self, name: str, dtype: str, shape: Sequence[int | str]) -> Any:
        number = self._onnx.TensorProto.DataType.Value(dtype)
        return self._onnx.helper.make_tensor_value_info(name, number, shape)

    def model(self, name: str, *, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The ModelProto of all that was added."""
        helper = self._onnx.helper
        arrays = [
            self._onnx.numpy_helper.from_array(np.array(array, order="C"), array_name)
            for array_name, array in self._arrays.items()
        ]
        return helper.make_model(
            helper.make_graph(self._nodes, name, inputs, outputs, arrays),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="flaxformer-mt",
        )
