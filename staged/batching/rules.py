"""Rules by which primitives take a leading axis: the shift that they declare, or a function here.

A rule receives handles of the operands, and which of them have the axis; it returns results that all have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.batching.indexing import check, gather, read_window, scatter, write_window
from staged.batching.lanes import each_lane
from staged.batching.values import emit, repeat
from staged.errors import ShapeError
from staged.ir.declaration import prims
from staged.ir.nodes import Op
from staged.ir.op_table import OpTable
from staged.ir.sizes import Extent
from staged.ops.array import Array
from staged.ops.custom import CUSTOM_LAUNCH, CFunction
from staged.ops.primitive import Primitive
from staged.ops.promote import as_array
from staged.ops.shape import moveaxis, reshape

Rule = Callable[[Op, Sequence[Array], Sequence[bool], Extent], Sequence[Array]]


def _all_full(operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> list[Array]:
    return [x if flag else repeat(x, size) for x, flag in zip(operands, flags, strict=True)]


def shifted(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """The op itself, its axes counted behind the new one; element by element where its declaration does not say how."""
    assert isinstance(op.declared, Primitive)
    shift = op.declared.shift
    if shift is None:
        return each_lane(op, operands, flags, size)
    return emit(op.declared, _all_full(operands, flags, size), shift(dict(op.attrs), size))


# ---- ranks --------------------------------------------------------------------------------------


def _in_rows(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """One message for all elements. The axis of the ranks stays the first one."""
    given = operands if op.declared is prims.ALL_GATHER else [moveaxis(x, 1, 0) for x in operands]
    made = emit(op.declared, given, dict(op.attrs))
    return [moveaxis(y, 1, 0) for y in made] if op.declared in (prims.ALL_GATHER, prims.ALL_TO_ALL) else made


# ---- contractions and pooling -------------------------------------------------------------------


def _matmul(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """One product of batches; of matrices and one matrix that is not mapped, a single large one."""
    a, b = operands
    plain = op.results[0].tensor.ndim == 2
    if plain and flags == [True, False] and not op.attrs["transpose_a"]:
        m, k = a.shape[1:]
        (flat,) = emit(prims.RESHAPE, [a], {"shape": (size * m, k)})
        (product,) = emit(op.declared, [flat, b], dict(op.attrs))
        return emit(prims.RESHAPE, [product], {"shape": (size, m, product.shape[1])})
    return emit(op.declared, _all_full(operands, flags, size), dict(op.attrs))


def _merged(*shapes: str) -> Rule:
    """Ops on (N, C, H, W): the axis joins N, if only the first operands have one;
    `shapes` name attributes with an N."""

    def rule(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
        count = len(operands) if op.declared.kind == "pooling" else 1
        if not all(flags[:count]) or any(flags[count:]):
            return each_lane(op, operands, flags, size)
        n = operands[0].shape[1]
        flat = [emit(prims.RESHAPE, [x], {"shape": (size * n, *x.shape[2:])})[0] for x in operands[:count]]
        attrs = dict(op.attrs)
        for key in shapes:
            attrs[key] = (size * n, *attrs[key][1:])
        made = emit(op.declared, [*flat, *operands[count:]], attrs)
        return [emit(prims.RESHAPE, [y], {"shape": (size, n, *y.shape[1:])})[0] for y in made]

    return rule


def _custom(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """The user's rule on arguments that all have the axis, else the C function for one element after another."""
    function: CFunction = op.attrs["function"]
    if function.batched is None:
        return each_lane(op, operands, flags, size)
    made = function.batched(*_all_full(operands, flags, size))
    made = made if isinstance(made, tuple) else (made,)
    results = [as_array(each) for each in made]
    if op.declared is CUSTOM_LAUNCH:  # there a number is an array of one element
        numbers = [not axes for _, axes in function.results]
        results = [reshape(x, (size, 1)) if is_number else x for x, is_number in zip(results, numbers, strict=False)]
    wanted = [(result.tensor.dtype, (size, *result.tensor.shape)) for result in op.results]
    if [(result.type.dtype, result.type.shape) for result in results] != wanted:
        raise ShapeError(
            f"the `vmap` of `{function.name}` is to give {wanted}, it gives {[str(result.type) for result in results]}",
            where=op.where,
        )
    return results


BATCHES: OpTable[Rule] = OpTable(
    {
        prims.CUSTOM_OP: _custom,
        CUSTOM_LAUNCH: _custom,
        prims.ALL_GATHER: _in_rows,
        prims.SHARD: _in_rows,
        prims.REDUCE_SCATTER: _in_rows,
        prims.ALL_TO_ALL: _in_rows,
        prims.INDEX_CHECK: check,
        prims.DYNAMIC_SLICE: read_window,
        prims.DYNAMIC_UPDATE: write_window,
        prims.TAKE: gather,
        prims.SCATTER: scatter,
        prims.SCATTER_ADD: scatter,
        prims.SCATTER_REDUCE: scatter,
        prims.MATMUL: _matmul,
        prims.CONV2D: _merged(),
        prims.CONV2D_BACKWARD_INPUT: _merged("input_shape"),
        prims.MAX_POOL2D: _merged(),
        prims.AVG_POOL2D: _merged(),
        prims.MAX_POOL2D_BACKWARD: _merged("input_shape"),
        prims.AVG_POOL2D_BACKWARD: _merged("input_shape"),
    }
)
"""Ops for which it is not enough to shift attributes."""


def rule_of(op: Op) -> Rule:
    """The rule of a primitive: one registered here, else its declared shift, else one element after another."""
    return BATCHES.get(op.declared, shifted)
