"""cuDNN's operation graphs on the emulated device: what a descriptor takes, which graphs have engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cudnn_library import Cudnn

ELEMENTS = {
    "CUDNN_TYPE_INT64": "int64_t[]",
    "CUDNN_TYPE_BOOLEAN": "bool[]",
    "CUDNN_TYPE_DATA_TYPE": "cudnnDataType_t[]",
    "CUDNN_TYPE_POINTWISE_MODE": "cudnnPointwiseMode_t[]",
    "CUDNN_TYPE_HEUR_MODE": "cudnnBackendHeurMode_t[]",
    "CUDNN_TYPE_BACKEND_DESCRIPTOR": "cudnnBackendDescriptor_t[]",
    "CUDNN_TYPE_VOID_PTR": "void *[]",
    "CUDNN_TYPE_HANDLE": "cudnnHandle_t[]",
}


class Graphs:
    """Descriptors of graphs."""

    def __init__(self, cudnn: Cudnn) -> None:
        self.cudnn = cudnn
        self.made: list[Any] = []

    def make(self, kind: str) -> Any:
        out = self.cudnn.ffi.new("cudnnBackendDescriptor_t *")
        self.cudnn.do("cudnnBackendCreateDescriptor", f"CUDNN_BACKEND_{kind}_DESCRIPTOR", out)
        self.made.append(out[0])
        return out[0]

    def setting(self, made: Any, name: str, type: str, *values: Any) -> tuple[Any, ...]:
        """The arguments of `cudnnBackendSetAttribute`."""
        words = [getattr(self.cudnn.lib, value) if isinstance(value, str) else value for value in values]
        elements = self.cudnn.ffi.new(ELEMENTS[f"CUDNN_TYPE_{type}"], words)
        return made, f"CUDNN_ATTR_{name}", f"CUDNN_TYPE_{type}", len(words), elements

    def set(self, made: Any, name: str, type: str, *values: Any) -> None:
        self.cudnn.do("cudnnBackendSetAttribute", *self.setting(made, name, type, *values))

    def finalize(self, made: Any) -> Any:
        self.cudnn.do("cudnnBackendFinalize", made)
        return made

    def tensor(self, id: int, *extents: int, dtype: str = "CUDNN_DATA_FLOAT", virtual: bool = False) -> Any:
        made = self.make("TENSOR")
        strides = [1]
        for extent in reversed(extents[1:]):
            strides.insert(0, strides[0] * extent)
        self.set(made, "TENSOR_UNIQUE_ID", "INT64", id)
        self.set(made, "TENSOR_DATA_TYPE", "DATA_TYPE", dtype)
        self.set(made, "TENSOR_DIMENSIONS", "INT64", *extents)
        self.set(made, "TENSOR_STRIDES", "INT64", *strides)
        self.set(made, "TENSOR_BYTE_ALIGNMENT", "INT64", 16)
        self.set(made, "TENSOR_IS_VIRTUAL", "BOOLEAN", virtual)
        return self.finalize(made)

    def pointwise(self, mode: str, x: Any, b: Any, y: Any) -> Any:
        """An operation that is not finalized."""
        how = self.make("POINTWISE")
        self.set(how, "POINTWISE_MODE", "POINTWISE_MODE", f"CUDNN_POINTWISE_{mode}")
        self.set(how, "POINTWISE_MATH_PREC", "DATA_TYPE", "CUDNN_DATA_FLOAT")
        self.finalize(how)
        made = self.make("OPERATION_POINTWISE")
        self.set(made, "OPERATION_POINTWISE_PW_DESCRIPTOR", "BACKEND_DESCRIPTOR", how)
        for letter, tensor in (("X", x), ("B", b), ("Y", y)):
            if tensor is not None:
                self.set(made, f"OPERATION_POINTWISE_{letter}DESC", "BACKEND_DESCRIPTOR", tensor)
        return made

    def graph(self, *operations: Any) -> Any:
        """A graph that is not finalized."""
        made = self.make("OPERATIONGRAPH")
        self.set(made, "OPERATIONGRAPH_HANDLE", "HANDLE", self.cudnn.handle)
        self.set(made, "OPERATIONGRAPH_OPS", "BACKEND_DESCRIPTOR", *operations)
        return made


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    cudnn = Cudnn()
    with cudnn.session():
        graphs = Graphs(cudnn)
        yield graphs
        for made in reversed(graphs.made):
            cudnn.do("cudnnBackendDestroyDescriptor", made)


def test_attributes_are_those_of_the_kind_of_their_type_and_before_it_is_finalized(graphs: Graphs) -> None:
    tensor, refused = graphs.make("TENSOR"), graphs.cudnn.refused
    set_, setting = "cudnnBackendSetAttribute", graphs.setting
    refused("attribute 0 of this kind cannot be set", set_, *setting(tensor, "POINTWISE_MODE", "INT64", 1))
    refused("is not of type 2", set_, *setting(tensor, "TENSOR_UNIQUE_ID", "BOOLEAN", True))
    refused("attribute 906 with 2 elements", set_, *setting(tensor, "TENSOR_UNIQUE_ID", "INT64", 1, 2))
    refused("attribute 906 was not set", "cudnnBackendFinalize", tensor)
    whole = graphs.tensor(3, 1, 2, 3, 4)
    refused("after the descriptor was finalized", set_, *setting(whole, "TENSOR_UNIQUE_ID", "INT64", 1))


def test_operations_have_operands_that_fit(graphs: Graphs) -> None:
    x, row, y = graphs.tensor(1, 1, 2, 3, 4), graphs.tensor(2, 1, 2, 3, 1), graphs.tensor(3, 1, 2, 3, 4)
    refused = graphs.cudnn.refused
    refused("does not broadcast", "cudnnBackendFinalize", graphs.pointwise("ADD", x, y, row))
    refused("another number of operands", "cudnnBackendFinalize", graphs.pointwise("EXP", x, row, y))
    graphs.finalize(graphs.pointwise("SUB", x, row, y))


def test_tensors_of_a_graph_have_one_maker_and_numbers_of_their_own(graphs: Graphs) -> None:
    x, inner, y = graphs.tensor(1, 1, 2, 3, 4), graphs.tensor(2, 1, 2, 3, 4, virtual=True), graphs.tensor(3, 1, 2, 3, 4)
    other = graphs.tensor(1, 1, 2, 3, 1)
    late = graphs.finalize(graphs.pointwise("EXP", inner, None, y))
    makes = graphs.finalize(graphs.pointwise("EXP", x, None, inner))
    again = graphs.finalize(graphs.pointwise("LOG", x, None, inner))
    confused = graphs.finalize(graphs.pointwise("SUB", x, other, y))
    refused = graphs.cudnn.refused
    refused("tensor 2 is virtual, and read before it is made", "cudnnBackendFinalize", graphs.graph(late, makes))
    refused("tensor 2 is made twice", "cudnnBackendFinalize", graphs.graph(makes, again))
    refused("two tensors have the number 1", "cudnnBackendFinalize", graphs.graph(confused))
    graphs.finalize(graphs.graph(makes, late))


def test_a_graph_that_is_no_attention_has_no_engine(graphs: Graphs) -> None:
    x, y = graphs.tensor(1, 1, 2, 3, 4), graphs.tensor(3, 1, 2, 3, 4)
    graph = graphs.finalize(graphs.graph(graphs.finalize(graphs.pointwise("EXP", x, None, y))))
    offers = graphs.make("ENGINEHEUR")
    graphs.set(offers, "ENGINEHEUR_OPERATION_GRAPH", "BACKEND_DESCRIPTOR", graph)
    graphs.set(offers, "ENGINEHEUR_MODE", "HEUR_MODE", "CUDNN_HEUR_MODE_A")
    graphs.finalize(offers)
    count = graphs.cudnn.ffi.new("int64_t *", -1)
    asked = "CUDNN_ATTR_ENGINEHEUR_RESULTS", "CUDNN_TYPE_BACKEND_DESCRIPTOR", 0, count, None
    graphs.cudnn.do("cudnnBackendGetAttribute", offers, *asked)
    assert count[0] == 0
