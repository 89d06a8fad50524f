"""What the kernel stage needs to know of each op: how it moves through indices, and what it costs."""

from __future__ import annotations

from math import prod

from staged.errors import UnsupportedError
from staged.ir.loops import ArrayRef
from staged.ir.nodes import Op, Value
from staged.ir.types import Dim, Shape, TensorType, bound

UNARY = frozenset(
    """exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf erfc log2 log10 floor ceil round trunc
    negative abs sign square isnan isinf isfinite logical_not bitwise_invert cast""".split()
)
BINARY = frozenset(
    """add subtract multiply divide floor_divide remainder pow maximum minimum atan2 equal not_equal less less_equal
    greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift
    bitwise_right_shift""".split()
)
ELEMENTWISE = UNARY | BINARY | {"select"}
REDUCTIONS = frozenset("sum prod max min any all argmax argmin".split())
RANDOM = frozenset("random_bits uniform normal bernoulli".split())
GATHERS = frozenset(("take", "take_along"))

# Ops that only rename or repeat elements, or make them from nothing: copied into every kernel that wants them.
MOVES = frozenset(("broadcast_to", "reshape", "permute", "slice", "dynamic_slice", "pad", "stop_gradient"))
SOURCES = frozenset(("constant", "iota"))
FREE = MOVES | SOURCES

# One kernel each, with a loop tree of its own.
ALONE = frozenset(
    """concat scatter scatter_add scatter_add_along max_pool2d max_pool2d_backward avg_pool2d avg_pool2d_backward dynamic_update
    permutation""".split()
)
CHANGES_FIRST = frozenset(("scatter", "scatter_add", "scatter_add_along", "dynamic_update"))
"""Of those, the ones whose result is their first operand, changed."""
CONTRACTIONS = frozenset(("matmul", "conv2d", "conv2d_backward_input", "conv2d_backward_weight"))

# Too dear to compute twice.
EXPENSIVE = (
    frozenset(
        """exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf erfc log2 log10 pow divide
    floor_divide remainder atan2""".split()
    )
    | RANDOM
)


def is_scalar(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.shape


def shape_of(value: Value) -> Shape:
    """The shape of what a kernel works on; an UnsupportedError where another axis than the first is symbolic."""
    shape = value.tensor.shape
    if any(isinstance(extent, Dim) for extent in shape[1:]):
        raise UnsupportedError(
            f"a dimension whose size is known when the program runs is the first axis of an array, got {value.type}",
            where=value.producer.where if value.producer else None,
            hint="put that axis first, or give the others sizes that are known while staging",
        )
    if shape and isinstance(shape[0], Dim) and shape[0].max is None:
        raise UnsupportedError(
            f"dimension {shape[0]} of {value.type} has no value and no bound",
            where=value.producer.where if value.producer else None,
            hint='give it both: `n = st.dim("N", n, max=64)`',
        )
    return shape


def extents(value: Value) -> tuple[int, ...]:
    """The room that memory has along each axis: the shape, with the bound of a symbolic dimension."""
    return tuple(bound(extent) for extent in shape_of(value))


def dim_of(value: Value) -> Dim | None:
    """The symbolic dimension of a value's first axis."""
    shape = shape_of(value)
    return shape[0] if shape and isinstance(shape[0], Dim) else None


def array_of(name: str, value: Value, role: str) -> ArrayRef:
    """A value as an array of a loop nest."""
    return ArrayRef(name, value.tensor.dtype, prod(extents(value)), role, dim_of(value))


def is_elementwise(op: Op) -> bool:
    return op.name in ELEMENTWISE or op.name in RANDOM


def may_fail(op: Op) -> bool:
    return any(effect.kind == "fail" for effect in op.effects)
