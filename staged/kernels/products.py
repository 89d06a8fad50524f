"""Matrix products that run as plain loops: of integers, empty sums, and products too small for anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staged.ir.declaration import prims
from staged.ir.loops import Loop, Nest, walk
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Op, Value
from staged.ir.products import COLUMN, product_nest
from staged.ir.schedule import Bind, Directive, Level, Schedule, Vectorise
from staged.ir.types import CPU
from staged.kernels.clone import Clone
from staged.kernels.epilogue import matrix_shape
from staged.kernels.kinds import extents
from staged.kernels.schedule import best_width, calls_functions, chunk_of, schedule, vector_lanes

TINY = 64
"""Multiply-adds up to which a product is plain loops."""


def is_plain_loops(root: Op) -> bool:
    """Whether a contraction of the host runs as a nest of loops, and not as a kernel of the back end's."""
    if root.declared is not prims.MATMUL or root.device != CPU:
        return False
    k = extents(root.operands[0])[-2 if root.attrs.get("transpose_a", False) else -1]
    _, m, n = matrix_shape(root)
    return not root.operands[0].tensor.dtype.is_float or m * n * k <= TINY


def product_kernel(
    root: Op, ops: Sequence[Op], inputs: Sequence[Value], results: Sequence[Value], epilogue: Nest | None, sizes: Sequence[Value]
) -> tuple[Block, Nest]:
    """The block and the nest of a kernel of a product and what happens to its elements; its operands are those of the product,
    `inputs` and `sizes`."""
    operands = (*root.operands, *inputs)
    params = [Value(value.type, value.hint) for value in (*operands, *sizes)]
    clone = Clone(lambda value: False)
    for value, param in zip(operands, params, strict=False):
        clone.values.setdefault(value, param)
    body = clone.block(ops, results)
    nest = product_nest(root, "product", epilogue)
    alone = tuple((o, i) for o, i in nest.in_place if operands.count(operands[i]) == 1)
    return Block(tuple(params), body.ops, body.end), replace(nest, in_place=alone)


def schedule_product(nest: Nest, machine: Machine) -> Schedule:
    """Vectors of columns, which leave each sum in its order; sums of integers, which have none, in any vectors."""
    column = next(s for s in walk(nest.body) if isinstance(s, Loop) and s.axis.name == COLUMN)
    extent, most = column.axis.extent, vector_lanes(column, machine)
    lanes = most if extent >= most or not most or calls_functions(column) else best_width(extent)
    if lanes <= 1 or extent < lanes:
        return _on_cores(nest, machine, ()) if nest.inputs[0].dtype.is_float else schedule(nest, machine)
    vectors = Vectorise((column.axis,), lanes, frozenset((column,)), machine.vector_bytes // most)
    return _on_cores(nest, machine, (vectors,))


def _on_cores(nest: Nest, machine: Machine, directives: tuple[Directive, ...]) -> Schedule:
    chunk = chunk_of(nest, machine, Schedule(directives).lanes)
    outermost = next(s.axis for s in nest.body if isinstance(s, Loop))
    shared = (Bind((outermost,), Level.CORES, machine.cores, chunk),) if chunk else ()
    return Schedule((*directives, *shared))
