"""Elements that are read, and written, together: packs of neighbours, and what tiles of shared memory hold ready."""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.c_family.expr import Index, Infix, Name, address
from staged.backends.c_family.loops import LoopEmitter
from staged.backends.gpu_family.packs import Access, pack_name
from staged.ir.loops import Affine, ArrayRef, Axis, Load, Statement, Store


class PackStatements(LoopEmitter):
    """Writes loads and stores of elements that come together."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.ready: dict[tuple[ArrayRef, Affine], Index] = {}
        """Elements that have been read together with others: where they are now."""
        self.waiting: dict[Store, Index] = {}
        """Elements that will be written together with others: where they wait."""

    def load(self, s: Load, inline: bool) -> None:
        place = self.ready.get((s.array, s.index)) if not s.guards else None
        if place is None:
            super().load(s, inline)
        else:
            self.bind(s.target, place, False, inline, False)

    def store(self, s: Store) -> None:
        place = self.waiting.get(s)
        if place is None:
            super().store(s)
        else:
            self.w.line(f"{place} = {self.operand(s.value).expr};")

    def packed_body(self, body: Sequence[Statement], axis: Axis, width: int, packs: frozenset[Access]) -> None:
        """`width` neighbours along `axis`, whose first is what the axis' name holds."""
        w, first = self.w, self.axes[axis]
        u = self.names.fresh("u")
        written: list[tuple[Store, str, str]] = []
        for s in body:
            if not isinstance(s, Load | Store) or s not in packs:
                continue
            if isinstance(s, Load) and (s.array, s.index) in self.ready:
                continue
            kind = pack_name(s.array.dtype, width)
            self.need(kind)
            name = self.names.fresh(f"{s.array.name}_{width}")
            element = Index(Name(f"{name}.at"), Name(u))
            place = str(address(self.arrays[s.array], self.index(s.index)))
            if isinstance(s, Load):
                w.line(f"const st_{kind} {name} = *(const st_{kind} *)({place});")
                self.ready[s.array, s.index] = element
            else:
                w.line(f"st_{kind} {name};")
                self.waiting[s] = element
                written.append((s, name, f"*(st_{kind} *)({place})"))
        w.line("ST_UNROLLED")
        with self.block(f"for (int {u} = 0; {u} < {width}; ++{u})"):
            self.axes[axis] = Infix("+", first, Name(u))
            self.body(tuple(body))
        for _, name, place in written:
            w.line(f"{place} = {name};")
        self.ready.clear()
        self.waiting.clear()
