"""Matrix products that run as plain loops: of integers, empty sums, and products too small for anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from staged.ir.declaration import prims
from staged.ir.loops import Loop, Nest, walk
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Op, Value
from staged.ir.products import COLUMN, ROW, product_nest
from staged.ir.rewrites import Divide, Keep, Reorder, Rewriting, StripMine, rewritten
from staged.ir.schedule import Bind, Directive, Level, Schedule, Vectorise, WriteOut
from staged.ir.types import CPU
from staged.kernels.clone import Clone
from staged.kernels.epilogue import matrix_shape
from staged.kernels.kinds import extents
from staged.kernels.schedule import best_width, calls_functions, chunk_of, schedule, vector_lanes

TINY = 64
"""Multiply-adds up to which a product is plain loops."""
TILED = 10_000
"""Multiply-adds from which on a product of integers is done in tiles."""
TILE_ROWS, TILE_VECTORS = 6, 2
"""The most of a tile of integers in registers."""


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


def scheduled_product(nest: Nest, machine: Machine) -> tuple[Nest, Schedule]:
    """The nest and how it runs: in vectors of columns, which leave each sum in its order. Sums of integers may have any order."""
    column = _loops(nest, COLUMN)[0]
    extent, most = column.axis.extent, vector_lanes(column, machine)
    lanes = most if extent >= most or not most or calls_functions(column) else best_width(extent)
    is_float = nest.inputs[0].dtype.is_float
    if lanes <= 1 or extent < lanes:
        return nest, _on_cores(nest, machine, ()) if is_float else schedule(nest, machine)
    vectors = [COLUMN]
    rewrites: tuple[Rewriting, ...] = ()
    rows = _loops(nest, ROW)[0].axis
    multiply_adds = rows.extent * extent * max((loop.axis.extent for loop in _loops(nest, "k")), default=0)
    if not is_float and rows.dim is None and rows.extent > 1 and multiply_adds >= TILED:
        rewrites = register_tile(rows.extent, extent, TILE_ROWS, lanes * min(TILE_VECTORS, extent // lanes))
        nest, vectors = rewritten(nest, rewrites), ["s", f"{COLUMN}_tail"]
    loops = [loop for name in vectors for loop in _loops(nest, name)]
    axes = tuple(dict.fromkeys(loop.axis for loop in loops if loop.axis.extent >= lanes))
    directives: list[Directive] = [
        Vectorise(axes, lanes, frozenset(loop for loop in loops if loop.axis in axes), machine.vector_bytes // most)
    ]
    if rewrites:
        directives.append(WriteOut(tuple(dict.fromkeys(loop.axis for name in ("r", "s") for loop in _loops(nest, name)))))
    return nest, _on_cores(nest, machine, directives, rewrites)


def register_tile(m: int, n: int, rows: int, columns: int) -> tuple[Rewriting, ...]:
    """Tiles of at most `rows` rows, as equal as possible, and of `columns` columns, whose totals are in registers.

    The loops `tile` and `panel` count tiles, `r` and `s` are inside of one; the columns that are left over are `column_tail`.
    """
    count = -(-m // rows)
    large = -(-m // count)
    few = count * large - m  # tiles with a row less
    found: list[Rewriting] = []
    if few:
        found.append(Divide(ROW, m - few * (large - 1)))
        found += [StripMine(f"{ROW}_head", large, "tile", "r"), StripMine(f"{ROW}_tail", large - 1, "tile", "r")]
    else:
        found.append(StripMine(ROW, large, "tile", "r"))
    found.append(Reorder(("tile", COLUMN, "r")))
    whole, left = COLUMN, n % columns
    if left:
        whole = f"{COLUMN}_head"
        found += [Divide(COLUMN, n - left), Reorder(("r", f"{COLUMN}_tail")), Keep("k", ("r", f"{COLUMN}_tail"))]
    return (*found, StripMine(whole, columns, "panel", "s"), Reorder(("panel", "r", "s")), Keep("k", ("r", "s")))


def _loops(nest: Nest, name: str) -> list[Loop]:
    return [s for s in walk(nest.body) if isinstance(s, Loop) and s.axis.name == name]


def _on_cores(
    nest: Nest, machine: Machine, directives: Sequence[Directive], rewrites: tuple[Rewriting, ...] = ()
) -> Schedule:
    chunk = chunk_of(nest, machine, Schedule(tuple(directives)).lanes)
    outermost = tuple(s.axis for s in nest.body if isinstance(s, Loop))
    shared = (Bind(outermost, Level.CORES, machine.cores, chunk),) if chunk else ()
    return Schedule((*directives, *shared), rewrites)
