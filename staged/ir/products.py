"""Matrix products as loop nests, with their prologues and epilogues: every back end can run them, and schedules
rewrite them.

nest scores(a: i32[12], b: i32[20]) -> c: i32[15]
  for row < 3:
    for column < 5:
      total = 0
      for k < 4:
        x = a[4*row + k]
        y = b[5*k + column]
        term = multiply(x, y)
        total = sum(total, term)
      c[5*row + column] = total
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    CheckIndex,
    Compute,
    Load,
    Local,
    Loop,
    Nest,
    Operand,
    Reduction,
    Statement,
    Store,
    StorePair,
    Tile,
    identity,
    map_indices,
)
from staged.ir.named_loops import with_axis, with_body
from staged.ir.names import name_of
from staged.ir.nodes import Op
from staged.ir.sizes import Extent, largest, product
from staged.ir.types import DType, bound, dims_of, i64

ROW, COLUMN, SUM = "row", "column", "k"
"""The names of a product's axes."""
LONGEST_CHAIN = 384
"""Terms that a sum in registers takes in before it joins what came before: what makes long sums round little."""


def turned_operands(op: Op) -> tuple[bool, bool]:
    """Whether each operand of a product lies transposed in memory."""
    return bool(op.attrs.get("transpose_a", False)), bool(op.attrs.get("transpose_b", False))


def sizes_of_product(op: Op) -> tuple[Extent, Extent, Extent, Extent]:
    """(matrices, rows, columns, terms of a sum)."""
    a, b = (operand.tensor.shape for operand in op.operands[:2])
    turned_a, turned_b = turned_operands(op)
    m, k = (a[-1], a[-2]) if turned_a else (a[-2], a[-1])
    return product(a[:-2]), m, b[-2] if turned_b else b[-1], k


def product_nest(
    op: Op,
    name: str,
    epilogue: Nest | None = None,
    prologues: tuple[Nest | None, Nest | None] = (None, None),
    total_dtype: DType | None = None,
) -> Nest:
    """The loops of a matrix product: batch, row and column around the sum.

    A prologue is what happens to each element of an operand before it is multiplied (its first input is the operand, as
    it is stored), the epilogue what happens to each sum (its first input is the product). Terms are made and added up
    in `total_dtype`, without one in the operands' own: int8 in i32, bf16 in f32. The nest's inputs are the operands,
    the other inputs of the epilogue and of the prologues, and the size of a dimension.
    """
    dtype = total_dtype or op.attrs.get("dtype") or op.operands[0].tensor.dtype
    turned_a, turned_b = turned_operands(op)
    batch, m, n, k = sizes_of_product(op)
    counts = {dim: Local(dim.name, i64) for operand in op.operands[:2] for dim in dims_of(operand.type)}
    left, right = (
        ArrayRef(name_of(operand) or side, operand.tensor.dtype, largest(1, product(operand.tensor.shape)), "input")
        for side, operand in zip("ab", op.operands, strict=False)
    )
    matrix, row, inner, column = Axis("matrix", batch), Axis(ROW, m), Axis(SUM, k), Axis(COLUMN, n)
    at_a = Affine.of(matrix, m * k) + Affine.of(row, 1 if turned_a else k) + Affine.of(inner, m if turned_a else 1)
    at_b = Affine.of(matrix, k * n) + Affine.of(column, k if turned_b else 1) + Affine.of(inner, 1 if turned_b else n)
    place_a, place_b = (
        [Affine.of(axis) for axis in ((matrix, second, first) if is_turned else (matrix, first, second))]
        for is_turned, first, second in ((turned_a, row, inner), (turned_b, inner, column))
    )
    x, y, term = Local("x", left.dtype), Local("y", right.dtype), Local("term", dtype)
    enter_x, entered_x = entering(prologues[0], x, place_a, dtype)
    enter_y, entered_y = entering(prologues[1], y, place_b, dtype)
    total = Reduction(Local("total", dtype), prims.SUM)
    term_of_sum = (
        Load(x, left, at_a),
        *enter_x,
        Load(y, right, at_b),
        *enter_y,
        Compute(term, prims.MULTIPLY, (entered_x, entered_y), {}),
        Accumulate(total, term),
    )
    inputs: tuple[ArrayRef | Local, ...] = (left, right)
    in_place: tuple[tuple[int, int], ...] = ()
    if epilogue is None:
        stored = op.results[0].tensor.dtype
        outputs: tuple[ArrayRef, ...] = (
            ArrayRef(op.results[0].hint or "c", stored, largest(1, batch * m * n), "output"),
        )
        at_c = Affine.of(matrix, m * n) + Affine.of(row, n) + Affine.of(column)
        narrowed, value = cast_to(total.target, stored)
        finish: tuple[Statement, ...] = (*narrowed, Store(outputs[0], at_c, value))
    else:
        inputs, outputs = (*inputs, *epilogue.inputs[1:]), epilogue.outputs
        in_place = tuple((o, i + 1) for o, i in epilogue.in_place)
        finish = finished(epilogue, total.target, [Affine.of(axis) for axis in (matrix, row, column)])
    inputs = (*inputs, *(each for prologue in prologues if prologue is not None for each in prologue.inputs[1:]))
    # Without any terms nothing is read, and the sum is where it starts.
    summed: tuple[Statement, ...] = (Loop(inner, term_of_sum, (total,)), *finish)
    if k == 0:
        summed = map_operands(finish, {total.target: identity(total.op, dtype)})
    body: tuple[Statement, ...] = (Loop(row, (Loop(column, summed),)),)
    body = with_axis(body, matrix, Affine()) if batch == 1 else (Loop(matrix, body),)
    items = bound(m if batch == 1 else batch)
    return Nest(name, (*inputs, *counts.values()), outputs, (), body, items, in_place, counts)


def chain_of(terms: int) -> int:
    """The terms that a sum takes in before it joins what came before, in chains as equal as possible."""
    return -(-terms // -(-terms // LONGEST_CHAIN))


def in_chains(nest: Nest, loop: str, size: int) -> Nest:
    """A nest whose totals of `loop` take in so many of its iterations at a time, and then join what came before.

    That is what makes long sums round little: it changes their bits.
    """

    def changed(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        out: list[Statement] = []
        for s in body:
            if isinstance(s, Loop) and s.axis.name == loop and s.reductions and s.axis.extent > size:
                (total,) = s.reductions
                part = Reduction(Local("part", total.target.dtype), total.op)
                terms = with_reduction(s.body, total, part)
                chain = (Loop(s.axis, terms, (part,)), Accumulate(total, part.target))
                out.append(Tile(s.axis, size, chain, (total,)))
            else:
                out.append(Loop(s.axis, changed(s.body), s.reductions) if isinstance(s, Loop) else s)
        return tuple(out)

    return replace(nest, body=changed(nest.body))


def with_reduction(body: tuple[Statement, ...], old: Reduction, new: Reduction) -> tuple[Statement, ...]:
    """The statements with terms that go to another total."""
    return tuple(
        Accumulate(new, s.value, s.position)
        if isinstance(s, Accumulate) and s.reduction is old
        else with_body(s, lambda body: with_reduction(body, old, new))
        for s in body
    )


def finished(epilogue: Nest, total: Operand, place: Sequence[Affine]) -> tuple[Statement, ...]:
    """The statements of an epilogue for the element of a `place`: in the batch, its row and its column."""
    product = epilogue.inputs[0]
    body, loops = epilogue.body, []
    found: list[Statement] = []
    while loop := next((s for s in body if isinstance(s, Loop)), None):
        found += [s for s in body if s is not loop]
        loops.append(loop.axis)
        body = loop.body
    at = dict(zip(loops, place, strict=True))

    def change(index: Affine) -> Affine:
        found = Affine((), index.offset)
        for name, step in index.terms:
            found += at[name] * step if isinstance(name, Axis) else Affine(((name, step),))
        return found

    statements = map_indices((*found, *body), change)
    elements = {s.target: total for s in statements if isinstance(s, Load) and s.array is product}
    rest = tuple(s for s in statements if not (isinstance(s, Load) and s.array is product))
    return map_operands(rest, elements)


def entering(
    prologue: Nest | None, element: Local, place: Sequence[Affine], dtype: DType
) -> tuple[tuple[Statement, ...], Operand]:
    """The statements of a prologue for the element of a `place` of an operand, and the number that enters the product,
    of the dtype of its sums.
    """
    if prologue is None:
        return cast_to(element, dtype)
    *statements, store = finished(prologue, element, place)
    assert isinstance(store, Store), "a prologue ends with what enters the product"
    casts, value = cast_to(store.value, dtype)
    return (*statements, *casts), value


def cast_to(value: Operand, dtype: DType) -> tuple[tuple[Statement, ...], Operand]:
    """The cast of a number, where one is needed, and its result."""
    if value.dtype == dtype:
        return (), value
    made = Local(f"{value.name}_{dtype}" if isinstance(value, Local) else "converted", dtype, True)
    return (Compute(made, prims.CAST, (value,), {"dtype": dtype}),), made


def map_operands(body: Sequence[Statement], values: Mapping[Local, Operand]) -> tuple[Statement, ...]:
    """The statements with other operands in place of locals."""

    def operand(given: Operand) -> Operand:
        return values.get(given, given) if isinstance(given, Local) else given

    changes: dict[type[Statement], Callable[..., Statement]] = {
        Compute: lambda s: replace(s, operands=tuple(map(operand, s.operands))),
        Store: lambda s: replace(s, value=operand(s.value)),
        StorePair: lambda s: replace(s, first=operand(s.first), second=operand(s.second)),
        CheckIndex: lambda s: replace(s, index=operand(s.index)),
        Accumulate: lambda s: replace(s, value=operand(s.value)),
    }
    return tuple(changes[type(s)](s) if type(s) in changes else s for s in body)
