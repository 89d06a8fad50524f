"""Elements that are read, and written, together: packs of neighbours, and what tiles of shared memory hold ready."""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.gpu.nest.statements import DeviceStatements
from staged.backends.gpu.packs import Access, pack_name
from staged.code.expr import Cast, Expr, Group, Index, Infix, Literal, Member, Prefix, address
from staged.code.nest.lowering import ZERO, Lowering
from staged.code.tree import Assign, Declare
from staged.code.types import SHORT_INDEX, CType, Space, lanes, pointer
from staged.ir.loops import Affine, ArrayRef, Axis, Load, Statement, Store
from staged.ir.types import DType


class Packs:
    """Lowers loads and stores of elements that come together, and leaves the others to `single`."""

    def __init__(self, low: Lowering, single: DeviceStatements) -> None:
        self.low = low
        self.single = single
        self.ready: dict[tuple[ArrayRef, Affine], Index] = {}
        """Elements that have been read together with others: where they are now."""
        self.waiting: dict[Store, Index] = {}
        """Elements that will be written together with others: where they wait."""
        low.statements |= {Load: self.load, Store: self.store}

    def load(self, s: Load) -> None:
        place = self.ready.get((s.array, s.index)) if not s.guards else None
        if place is None:
            self.single.scalars.load(s)
        else:
            self.low.bind_scalar(s.target, place, self.low.loads_in_place)

    def store(self, s: Store) -> None:
        place = self.waiting.get(s)
        if place is None:
            self.single.store(s)
        else:
            self.low.code.add(Assign(place, self.low.operand(s.value).expr))

    def body(self, body: Sequence[Statement], axis: Axis, width: int, packs: frozenset[Access]) -> None:
        """`width` neighbours along `axis`, whose first is what the axis' name holds."""
        low, first = self.low, self.low.axes[axis]
        u = low.variable("u", SHORT_INDEX)
        written: list[Assign] = []
        for s in body:
            if not isinstance(s, Load | Store) or s not in packs:
                continue
            if isinstance(s, Load) and (s.array, s.index) in self.ready:
                continue
            type = self.type(s.array.dtype, width)
            pack = low.variable(f"{s.array.name}_{width}", type)
            element = Index(Member(pack, "at", arrow=False), u)
            place = Group(address(low.arrays[s.array], low.index(s.index)))
            if isinstance(s, Load):
                low.code.add(Declare(pack, self.at(place, type, is_const=True)))
                self.ready[s.array, s.index] = element
            else:
                low.code.add(Declare(pack, is_const=False))
                self.waiting[s] = element
                written.append(Assign(self.at(place, type), pack))
        with low.loop(u, ZERO, Literal(str(width)), unroll=width):
            low.axes[axis] = Infix("+", first, u)
            low.body(tuple(body))
        for statement in written:
            low.code.add(statement)
        self.ready.clear()
        self.waiting.clear()

    def type(self, dtype: DType, width: int) -> CType:
        """The type of a pack."""
        kind = pack_name(dtype, width)
        self.low.need(kind)
        return lanes(dtype, width, self.single.dialect.words.function(f"st_{kind}"))

    def at(self, place: Expr, type: CType, is_const: bool = False) -> Expr:
        """The pack at an address."""
        return Prefix("*", Cast(pointer(type, Space.GLOBAL, is_const), place))
