"""Contractions that run as nests with a schedule. The others are functions of the back end's.

| a product | runs |
|---|---|
| of integers, an empty or a tiny one, any contraction without vectors | as a nest |
| of floats whose columns fill vectors | as a nest in register tiles |
| any other one of floats: transposed right operands, few rows, long sums | as a function of the back end's |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from staged.ir.convolutions import convolution_nest
from staged.ir.declaration import prims
from staged.ir.loops import Compute, Load, Loop, Nest, PositionOf, Store, walk
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Op, Value
from staged.ir.products import COLUMN, ROW, SUM, product_nest
from staged.ir.schedule import Schedule
from staged.ir.types import CPU, Dim
from staged.kernels.candidates import LONGEST_CHAIN, PAGE, candidates, in_vectors, loops_named, most_rows_side_by_side
from staged.kernels.clone import Clone
from staged.kernels.epilogue import AXES as EPILOGUE_AXES
from staged.kernels.epilogue import matrix_shape
from staged.kernels.kinds import extents
from staged.kernels.schedule import calls_functions, schedule, vector_lanes

TINY = 64
"""Multiply-adds up to which a product is plain loops."""
TILED = 10_000
"""Multiply-adds from which on a product of integers is done in tiles."""
MANY_ROWS, MANY_COLUMNS = 16, 128
LONGEST_SUM = 2048
"""Terms of a sum whose operands are in the caches while tiles read them again."""
LONGEST_ROW = 512
"""Columns of rows that go to the epilogue through memory."""
LEAST_ROWS = 5
"""Rows from which on a product of floats is done in register tiles, a few more where the right operand is large: fewer
use each element so little that reading that in order is all that counts.
"""


def is_nest(root: Op, epilogue: Nest | None, machine: Machine) -> bool:
    """Return whether a contraction of the host runs as a nest of loops, and not as a function of the back end's."""
    if root.device != CPU:
        return False
    if root.declared is not prims.MATMUL or machine.is_iso_c:
        return machine.is_iso_c
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    _, m, n = matrix_shape(root)
    return not root.operands[0].tensor.dtype.is_float or m * n * k <= TINY or is_tiled(root, epilogue, machine)


def is_tiled(root: Op, epilogue: Nest | None, machine: Machine) -> bool:
    """Return whether a product of floats runs in register tiles.

    Exact: a sum takes in its terms in the order in which the back end's function does, and rounds as often.
    """
    shape, dtype = root.operands[0].tensor.shape, root.operands[0].tensor.dtype
    if root.attrs.get("transpose_b", False) or any(isinstance(extent, Dim) for extent in shape):
        return False
    _, m, n = matrix_shape(root)
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    lanes = machine.lanes(dtype.size)
    least = LEAST_ROWS if k * n * dtype.size <= machine.l2 // 2 else 8
    stride = dtype.size * (1 if root.attrs.get("transpose_a", False) else k)
    if k > LONGEST_CHAIN and (k * n * dtype.size > machine.l2 or stride % PAGE == 0 and n > MANY_COLUMNS):
        return False  # copies of the operands pay
    if n < 2 * lanes and most_rows_side_by_side(stride, machine) < MANY_ROWS:
        return False  # tiles of one vector have many rows
    if m < least or not 0 < k <= LONGEST_SUM or not are_columns_worth_it(m, n, k, lanes, machine):
        return False
    if epilogue is None:
        return True
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


def calls_functions_in(epilogue: Nest) -> bool:
    """Return whether an epilogue calls functions."""
    return any(isinstance(s, Loop) and calls_functions(s) for s in epilogue.body)


def is_elementwise(epilogue: Nest, lanes: int, machine: Machine) -> bool:
    """Return whether an epilogue does all that it does on vectors of so many lanes."""
    (columns,) = loops_named(epilogue, EPILOGUE_AXES[-1])
    simple = all(isinstance(s, Load | Store | Compute | PositionOf | Loop) for s in walk(epilogue.body))
    return simple and vector_lanes(columns, machine) == lanes


def product_kernel(
    root: Op,
    ops: Sequence[Op],
    inputs: Sequence[Value],
    results: Sequence[Value],
    epilogue: Nest | None,
    sizes: Sequence[Value],
) -> tuple[Block, Nest]:
    """The block and the nest of a kernel of a product and what happens to its elements; its operands are those of the
    product, `inputs` and `sizes`.
    """
    operands = (*root.operands, *inputs)
    params = [Value(value.type, value.hint) for value in (*operands, *sizes)]
    clone = Clone(lambda value: False)
    for value, param in zip(operands, params, strict=False):
        clone.values.setdefault(value, param)
    body = clone.block(ops, results)
    if root.declared is prims.MATMUL:
        nest = product_nest(root, "product", epilogue)
    else:
        nest = convolution_nest(root, epilogue)
    alone = tuple((o, i) for o, i in nest.in_place if operands.count(operands[i]) == 1)
    return Block(tuple(params), body.ops, body.end), replace(nest, in_place=alone)


def scheduled_product(nest: Nest, machine: Machine) -> tuple[Nest, Schedule]:
    """The nest and how it runs: small products as they are, others in the way that is guessed to be the best."""
    if not loops_named(nest, COLUMN):
        return nest, schedule(nest, machine)
    sizes = [loop.axis.extent for name in (ROW, COLUMN, SUM) for loop in loops_named(nest, name)]
    small = prod(sizes) < TILED and not (nest.inputs[0].dtype.is_float and prod(sizes) > TINY)
    if small or any(loop.axis.dim for name in (ROW, SUM) for loop in loops_named(nest, name)):
        return in_vectors(nest, machine)
    return next(candidates(nest, machine))


def tiles_of(root: Op, nest: Nest) -> str:
    """The sizes of a product and of its largest tiles, for readers; nothing if it has no tiles.

    (64, 10) @ (10, 128), f32; tiles of 13 x 32 sums in registers
    """
    sizes = [max((loop.axis.extent for loop in loops_named(nest, name)), default=0) for name in ("r", "s")]
    if not all(sizes):
        return ""
    batch, m, n = matrix_shape(root)
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    many = f"{batch} times " if batch > 1 else ""
    return f"{many}({m}, {k}) @ ({k}, {n}), {nest.inputs[0].dtype}; tiles of {sizes[0]} x {sizes[1]} sums in registers"
