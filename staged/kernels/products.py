"""Contractions that run as nests with a schedule. The others are functions of the back end's.

| a product | runs |
|---|---|
| of integers, an empty or a tiny one, any contraction without vectors | as a nest |
| of floats, where the machine has a BLAS | by that, in a function of the back end's |
| of i8 in i32, whose left operand is not transposed | as a function of the back end's |
| of f16 or bf16 in f32 | as a function of the back end's, which converts what it copies |
| of floats whose columns fill vectors | as a nest in register tiles |
| any other one of floats: few rows, long sums, two transposed operands | as a function of the back end's |

On machines with vectors, convolutions and their gradients run as functions of the back end's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from staged.ir.convolutions import convolution_nest, convolution_of
from staged.ir.declaration import prims
from staged.ir.loops import Compute, Load, Loop, Nest, PositionOf, Store, walk
from staged.ir.machine import Machine
from staged.ir.names import name_of
from staged.ir.nodes import Block, Op, Value
from staged.ir.products import COLUMN, LONGEST_CHAIN, ROW, SUM, product_nest, sizes_of_product
from staged.ir.schedule import Schedule
from staged.ir.types import CPU, DType, bound, i8, i32
from staged.kernels.candidates import (
    PAGE,
    candidates,
    in_vectors,
    is_shared,
    loops_named,
    most_rows_side_by_side,
)
from staged.kernels.clone import Clone
from staged.kernels.epilogue import AXES as EPILOGUE_AXES
from staged.kernels.epilogue import matrix_shape
from staged.kernels.kinds import extents
from staged.kernels.schedule import calls_functions, schedule, vector_lanes

TINY = 64
"""Multiply-adds up to which a product is plain loops."""
TILED = 10_000
"""Multiply-adds from which on a product of integers is done in tiles."""
LEAST_BYTES = 4
"""Terms from which on a sum of products of i8 in i32 is one of groups of bytes."""
MANY_ROWS, MANY_COLUMNS = 16, 128
LONGEST_SUM = 2048
"""Terms of a sum whose operands are in the caches while tiles read them again."""
LONGEST_ROW = 512
"""Columns of rows that go to the epilogue through memory."""
SHORTEST_SUM = 64
"""Terms of sums whose rows may go to the epilogue through memory: of shorter ones that is a large part of the work, and
puts out of the first-level cache what the next kernels read (the recursive tree LSTM took 1.07 of the time).
"""
MOST_TAPS = 128
"""Taps of a weight for which the functions of images of any size have room."""
LEAST_ROWS_OF_A_NEST = 5
"""Rows from which on a product of floats is done in register tiles, a few more where the right operand is large: fewer
use each element so little that reading that in order is all that counts.
"""


def is_nest(root: Op, epilogue: Nest | None, machine: Machine) -> bool:
    """Return whether a contraction runs as a nest of loops, and not as a function of the back end's or a library's."""
    if root.device != CPU:
        return root.declared is not prims.MATMUL and not has_descriptors(root)
    if machine.is_iso_c:
        return True
    if root.declared is not prims.MATMUL:
        conv = convolution_of(root)
        return conv.taps[0] * conv.taps[1] > MOST_TAPS and not all(isinstance(size, int) for size in conv.image)
    dtype = root.operands[0].tensor.dtype
    if not all(operand.tensor.is_static for operand in root.operands):
        return not dtype.is_float or dtype.is_half or prod(map(bound, sizes_of_product(root)[1:])) <= TINY
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    batch, m, n = map(bound, matrix_shape(root))
    if machine.blas is not None and root.operands[0].tensor.dtype.is_float and batch * m * n * k >= TILED:
        return False
    if not root.operands[0].tensor.dtype.is_float:
        return not is_of_bytes(root, machine)
    if root.operands[0].tensor.dtype.is_half:
        return m * n * k <= TINY
    return m * n * k <= TINY or is_tiled(root, epilogue, machine)


def has_descriptors(root: Op) -> bool:
    """Return whether a library of a device may compute a convolution: of images of any size, with a known weight."""
    if all(value.tensor.is_static for value in (*root.operands, *root.results)):
        return True
    weight = convolution_of(root).weight_shape
    return root.operands[0].tensor.dtype.is_float and all(isinstance(size, int) for size in weight)


def may_have_epilogue(root: Op, machine: Machine) -> bool:
    """Return whether other ops may compute on finished elements of a contraction: not on those of a gradient's nest."""
    is_gradient = root.declared in (prims.CONV2D_BACKWARD_INPUT, prims.CONV2D_BACKWARD_WEIGHT)
    return not is_gradient or not is_nest(root, None, machine)


def is_of_bytes(root: Op, machine: Machine) -> bool:
    """Return whether a product is one of i8 in i32 that the back end has a function for: the rows of its left operand
    are dense.
    """
    a, b = (operand.tensor for operand in root.operands[:2])
    if a.dtype is not i8 or root.attrs.get("dtype") is not i32 or not (a.is_static and b.is_static):
        return False
    _, m, n = map(bound, matrix_shape(root))
    k = extents(root.operands[0])[-1]
    return not root.attrs.get("transpose_a", False) and k >= LEAST_BYTES and m * n * k >= TILED


def is_tiled(root: Op, epilogue: Nest | None, machine: Machine) -> bool:
    """Return whether a product of floats runs in register tiles.

    Exact: a sum takes in its terms in the order in which the back end's function does, and rounds as often.
    """
    dtype = root.operands[0].tensor.dtype
    turned = [bool(root.attrs.get(f"transpose_{side}", False)) for side in "ab"]
    if all(turned) or not all(operand.tensor.is_static for operand in root.operands[:2]):
        return False
    _, m, n = map(bound, matrix_shape(root))
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    lanes = machine.lanes(dtype.size)
    least = LEAST_ROWS_OF_A_NEST if k * n * dtype.size <= machine.l2 // 2 else 8
    stride = dtype.size * (1 if root.attrs.get("transpose_a", False) else k)
    results = 1 if epilogue is None else len(epilogue.outputs)
    if turned[1] and not is_transposition_worth_it(m, n, k, dtype, results, machine):
        return False
    if k > LONGEST_CHAIN and (
        not turned[1] and k * n * dtype.size > machine.l2 or stride % PAGE == 0 and n > MANY_COLUMNS
    ):
        return False  # copies of the operands pay
    if n < 2 * lanes and most_rows_side_by_side(stride, machine) < MANY_ROWS:
        return False  # tiles of one vector have many rows
    if m < least or not 0 < k <= LONGEST_SUM or not are_columns_worth_it(m, n, k, lanes, machine):
        return False
    if epilogue is None:
        return True
    if n % lanes and k < SHORTEST_SUM:
        return False  # rows that go to the epilogue through memory
    # Of columns that do not fill vectors some would be computed twice: by functions on vectors, which round otherwise.
    whole = n % lanes == 0 or n <= LONGEST_ROW and not calls_functions_in(epilogue)
    return whole and is_elementwise(epilogue, lanes, machine)


def are_columns_worth_it(m: int, n: int, k: int, lanes: int, machine: Machine) -> bool:
    """Return whether tiles with vectors of columns are as fast as the back end's function, by experiment.

    That has vectors of rows where these waste less, and copies what is unaligned, which pays with narrower vectors.
    Sums in chains have twice as many totals, which few registers do not hold.
    """
    if n < lanes or machine.vector_bytes < 32 or machine.vector_bytes < 64 and k > LONGEST_CHAIN:
        return False
    columns, rows = (-(-extent // lanes) * lanes / extent for extent in (n, m))
    return columns == 1 or machine.vector_bytes >= 64 and columns < (1.16 if k <= LONGEST_CHAIN else 1.02) * rows


def is_transposition_worth_it(m: int, n: int, k: int, dtype: DType, results: int, machine: Machine) -> bool:
    """Return whether panels of a transposed right operand, which are copied, are as fast as the back end's function, by
    experiment.

    That copies the left operand where it is the smaller one, and has vectors of rows; few columns are dot products. It
    splits the rows among threads, which here share panels, and among blocks that stay in the second-level cache.
    Columns that do not fill vectors are its own. Several `results` of an epilogue (a relu and what its gradient keeps)
    mean a branch.
    """
    lanes = machine.lanes(dtype.size)
    if k < lanes or n < 8 or m * k * dtype.size > 2 * machine.l2:
        return False
    shared = is_shared(m * n * k, machine)
    if n % lanes or shared and n < 4 * lanes * machine.cores:
        return False
    by_columns, by_rows = 1 + 4 / m, -(-m // lanes) * lanes / m * (1 + 4 / n)
    return by_columns < (1.035 if results == 1 else 1.06) * by_rows


def calls_functions_in(epilogue: Nest) -> bool:
    """Return whether an epilogue calls functions."""
    return any(isinstance(s, Loop) and calls_functions(s) for s in epilogue.body)


def is_elementwise(epilogue: Nest, lanes: int, machine: Machine) -> bool:
    """Return whether an epilogue does all that it does on vectors of so many lanes."""
    simple = all(isinstance(s, Load | Store | Compute | PositionOf | Loop) for s in walk(epilogue.body))
    return simple and vector_lanes(columns_of(epilogue), machine) == lanes


def columns_of(epilogue: Nest) -> Loop:
    """The loop over the columns of a product in its epilogue."""
    (columns,) = loops_named(epilogue, EPILOGUE_AXES[-1])
    return columns


def product_block(
    root: Op, ops: Sequence[Op], inputs: Sequence[Value], results: Sequence[Value], sizes: Sequence[Value]
) -> Block:
    """The block of a kernel of a product and what happens to its elements; its operands are those of the product,
    `inputs` and `sizes`.
    """
    operands = (*root.operands, *inputs)
    params = [Value(value.type, name_of(value)) for value in (*operands, *sizes)]
    clone = Clone(lambda value: False)
    for value, param in zip(operands, params, strict=False):
        clone.values.setdefault(value, param)
    body = clone.block(ops, results)
    return Block(tuple(params), body.ops, body.end)


def product_kernel(root: Op, inputs: Sequence[Value], epilogue: Nest | None) -> Nest:
    """The nest of the same kernel."""
    operands = (*root.operands, *inputs)
    if root.declared is prims.MATMUL:
        nest = product_nest(root, "product", epilogue)
    else:
        nest = convolution_nest(root, epilogue)
    alone = tuple((o, i) for o, i in nest.in_place if operands.count(operands[i]) == 1)
    return replace(nest, in_place=alone)


def scheduled_product(nest: Nest, machine: Machine) -> tuple[Nest, Schedule]:
    """The nest and how it runs: small products as they are, others in the way that is guessed to be the best."""
    if not loops_named(nest, COLUMN):
        return nest, schedule(nest, machine)
    sizes = [loop.axis.extent for name in (ROW, COLUMN, SUM) for loop in loops_named(nest, name)]
    small = prod(sizes) < TILED and not (nest.inputs[0].dtype.is_float and prod(sizes) > TINY)
    if small or any(not loop.axis.is_static for name in (ROW, COLUMN, SUM) for loop in loops_named(nest, name)):
        return in_vectors(nest, machine)
    return next(candidates(nest, machine))


def tiles_of(root: Op, nest: Nest) -> str:
    """The sizes of a contraction and of its largest tiles, for readers; nothing if it has no tiles.

    (64, 10) @ (10, 128), f32; tiles of 13 x 32 sums in registers
    """
    sizes = [max((loop.axis.extent for loop in loops_named(nest, name)), default=0) for name in ("r", "s")]
    if not all(sizes):
        return ""
    tiles = f"{nest.inputs[0].dtype}; tiles of {sizes[0]} x {sizes[1]} sums in registers"
    batch, m, n = map(bound, matrix_shape(root))
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    many = f"{batch} times " if batch > 1 else ""
    return f"{many}({m}, {k}) @ ({k}, {n}), {tiles}"
