"""Contractions that run as plain loops: of integers, empty sums, products too small for anything else, and all without
vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from staged.ir.convolutions import convolution_nest
from staged.ir.declaration import prims
from staged.ir.loops import Nest
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Op, Value
from staged.ir.products import COLUMN, ROW, SUM, product_nest
from staged.ir.schedule import Schedule
from staged.ir.types import CPU
from staged.kernels.candidates import candidates, in_vectors, loops_named
from staged.kernels.clone import Clone
from staged.kernels.epilogue import matrix_shape
from staged.kernels.kinds import extents
from staged.kernels.schedule import schedule

TINY = 64
"""Multiply-adds up to which a product is plain loops."""
TILED = 10_000
"""Multiply-adds from which on a product of integers is done in tiles."""


def is_plain_loops(root: Op, machine: Machine) -> bool:
    """Return whether a contraction of the host runs as a nest of loops, and not as a kernel of the back end's, which
    has vectors.
    """
    if root.device != CPU:
        return False
    if root.declared is not prims.MATMUL or machine.is_iso_c:
        return machine.is_iso_c
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    _, m, n = matrix_shape(root)
    return not root.operands[0].tensor.dtype.is_float or m * n * k <= TINY


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
    if prod(sizes) < TILED or any(loop.axis.dim for name in (ROW, SUM) for loop in loops_named(nest, name)):
        return in_vectors(nest, machine)
    return next(candidates(nest, machine))
