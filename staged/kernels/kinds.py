"""What the kernel stage needs to know of each op: how it moves through indices, and what it costs."""

from __future__ import annotations

from staged.errors import UnsupportedError
from staged.ir.nodes import Op, Value
from staged.ir.types import TensorType

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
    """concat scatter_add scatter_add_along max_pool2d max_pool2d_backward avg_pool2d avg_pool2d_backward dynamic_update
    permutation""".split()
)
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


def extents(value: Value) -> tuple[int, ...]:
    """The shape, all of ints; an UnsupportedError for one with a symbolic dimension."""
    shape = value.tensor.shape
    found = tuple(extent for extent in shape if isinstance(extent, int))
    if len(found) != len(shape):
        raise UnsupportedError(
            f"a kernel needs sizes that are known while staging, got {value.type}",
            where=value.producer.where if value.producer else None,
            hint="call the function with arrays of fixed sizes instead of `st.dim`: each size gets its own program",
        )
    return found


def is_elementwise(op: Op) -> bool:
    return op.name in ELEMENTWISE or op.name in RANDOM


def may_fail(op: Op) -> bool:
    return any(effect.kind == "fail" for effect in op.effects)
