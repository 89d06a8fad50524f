"""The uses of locals, parameters and workspace in a loop nest, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from staged.code.operators import EXTREMES
from staged.code.scalars import is_checked
from staged.ir.declaration import prims
from staged.ir.dependences import reads
from staged.ir.loops import (
    Accumulate,
    Axis,
    CheckIndex,
    Compute,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Operand,
    PositionOf,
    Statement,
    Store,
    StorePair,
    Take,
    Tile,
)
from staged.ir.types import f32, f64


def count_uses(body: tuple[Statement, ...]) -> dict[Local, tuple[int, int]]:
    """(direct, nested) uses of every local: only what is used once, right here, is written in place.

    What a statement's text may repeat (`x * x` for a square) counts twice.
    """
    counts: dict[Local, list[int]] = {}

    def use(operand: Operand | Axis | None, nested: int, weight: int = 1) -> None:
        if isinstance(operand, Local):
            counts.setdefault(operand, [0, 0])[nested] += weight

    def visit(statements: tuple[Statement, ...], nested: int) -> None:
        for s in statements:
            match s:
                case Compute(_, op, operands):
                    for operand in operands:
                        use(
                            operand,
                            nested,
                            2 if op in (prims.SQUARE, prims.ABS, prims.MAXIMUM, prims.MINIMUM, prims.ISNAN) else 1,
                        )
                case Store(_, index, value):
                    use(value, nested)
                    for name, _ in index.terms:
                        use(name, nested, 2)
                case Accumulate(reduction, value, _):
                    use(value, nested, 2 if reduction.combine.name in EXTREMES else 1)
                case Take(_, values):
                    for value in values:
                        use(value, nested, 2)
                case StorePair(_, _, first, second):
                    use(first, nested)
                    use(second, nested)
                case CheckIndex(_, index):
                    use(index, nested)
                case Load(_, _, index, guards):
                    for name, _ in index.terms:
                        use(name, nested, 2)
                    for guard in guards:
                        for name, _ in guard.index.terms:
                            use(name, nested, 2)
                case PositionOf(_, index):
                    for name, _ in index.terms:
                        use(name, nested, 2)
                case Loop(_, inner) | Tile(_, _, inner) | Guarded(_, inner):
                    visit(inner, 1)

    visit(body, 0)
    return {local: (direct, nested) for local, (direct, nested) in counts.items()}


def stored_once(body: tuple[Statement, ...], uses: Mapping[Local, tuple[int, int]]) -> set[Local]:
    """The locals that are used once, by a store or by a total: the array or the total has their name."""
    values = {s.value for s in body if isinstance(s, Store | Accumulate)}
    return {value for value in values if isinstance(value, Local) and uses.get(value) == (1, 0)}


def loads_before_changes(body: tuple[Statement, ...], uses: Mapping[Local, tuple[int, int]]) -> set[Local]:
    """The loads whose values are used before a later statement changes memory, and which need no name for that.

    The use of a value may itself be part of a later expression, which then counts.
    """
    last: dict[Local, int] = {}
    change = len(body)
    found: set[Local] = set()
    for n, s in reversed([*enumerate(body)]):
        if isinstance(s, Load) and last.get(s.target, n) <= change:
            found.add(s.target)
        place = last[s.target] if isinstance(s, Compute) and uses.get(s.target) == (1, 0) else n
        for local in reads(s):
            last[local] = max(place, last.get(local, n))
        if isinstance(s, Store):
            change = n
        elif not isinstance(s, Load | LoadPair | Compute | PositionOf | CheckIndex | Accumulate):
            change = n - 1
    return found


def products_of_sums(
    body: tuple[Statement, ...], uses: Mapping[Local, tuple[int, int]]
) -> tuple[set[Local], dict[Local, Local]]:
    """The products in a loop body that are only added to a sum: those of reductions, and those of sums in workspace.

    The latter are by new value of the sum, which this body reads and writes.
    """
    products = {s.target for s in body if isinstance(s, Compute) and s.op in (prims.MULTIPLY, prims.SQUARE)}
    products = {p for p in products if p.dtype in (f32, f64) and uses.get(p) == (1, 0)}
    read = {s.target: s for s in body if isinstance(s, Load) and s.array.is_workspace}
    written = {s.value: s for s in body if isinstance(s, Store) and isinstance(s.value, Local)}
    reduced: set[Local] = set()
    added: dict[Local, Local] = {}
    for s in body:
        match s:
            case Accumulate(reduction, value) if reduction.op is prims.SUM and value in products:
                if reduction.target.dtype is value.dtype:
                    reduced.add(value)
            case Compute(after, prims.ADD, (before, value)) if (
                value in products and before in read and after in written
            ):
                load, store = read[before], written[after]
                if load.array is store.array and load.index == store.index and not load.guards:
                    added[after] = value
    return reduced, added


def may_stop(s: Statement) -> bool:
    """Return whether a statement may stop the program."""
    return isinstance(s, CheckIndex) or isinstance(s, Compute) and is_checked(s.op, s.target.dtype)
