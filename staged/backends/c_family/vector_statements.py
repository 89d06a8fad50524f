"""Statements of a loop over vectors that take more than an operator: functions, random numbers, neighbours sorted by lane."""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.c_family.expr import Call, Expr, Index, Literal, Name, address
from staged.backends.c_family.nest_writer import NestWriter
from staged.backends.c_family.scalars import spell
from staged.backends.c_family.vectors import Vec
from staged.ir.loops import Compute, LoadPair, StorePair
from staged.ir.types import DType


class VectorStatements(NestWriter):
    """The part of a loop emitter that writes what vectors need statements for."""

    def load_pair(self, s: LoadPair) -> None:
        """Neighbours: in a vector loop two vectors, sorted into even and odd lanes."""
        array = self.arrays[s.array]
        if self.vector_axis is None:
            for offset, target in enumerate((s.first, s.second)):
                self.bind(target, Index(array, self.index(s.index + offset)), False, False, True)
            return
        dtype, lanes = s.array.dtype, self.schedule.lanes
        type = self.types.type(dtype)
        whole = [self.names.fresh("low"), self.names.fresh("high")]
        for number, name in enumerate(whole):
            place = address(array, self.index(s.index + number * lanes))
            self.w.line(f"const {type} {name} = {self.speller.load(dtype, place)};")
        for offset, target in enumerate((s.first, s.second)):
            picks = [2 * lane + offset for lane in range(lanes)]
            self.bind(target, self.shuffled(dtype, whole[0], whole[1], picks), True, False, True)

    def store_pair(self, s: StorePair) -> None:
        array = self.arrays[s.array]
        values = [self.operand(s.first), self.operand(s.second)]
        if self.vector_axis is None:
            for offset, value in enumerate(values):
                self.w.line(f"{Index(array, self.index(s.index + offset))} = {value.expr};")
            return
        dtype, lanes = s.array.dtype, self.schedule.lanes
        names = [self.settled(value) for value in values]
        for half in (0, 1):
            picks = [lane for n in range(lanes // 2) for lane in (half * lanes // 2 + n, lanes + half * lanes // 2 + n)]
            place = address(array, self.index(s.index + half * lanes))
            mixed = Vec(self.shuffled(dtype, names[0], names[1], picks), dtype, True)
            target, number = self.speller.store(dtype, place, mixed)
            self.w.line(f"{target} = {number};")

    def shuffled(self, dtype: DType, x: str, y: str, picks: Sequence[int]) -> Expr:
        self.need("shuffle")
        kind = Name(self.types.mask(dtype.size))
        return Call("ST_SHUFFLE", (kind, Name(x), Name(y), *(Literal(str(pick)) for pick in picks)))

    def is_drawn_along(self, s: Compute) -> bool:
        """Whether the element numbers of a random op differ along the vector axis."""
        return s.operands[-1] in self.drawn

    def draw_vector(self, s: Compute, operands: Sequence[Expr]) -> None:
        dtype = s.target.dtype
        suffix = {"random_bits": "u32v", "bernoulli": "i32v"}.get(s.op, f"{dtype}v")
        function = f"st_{s.op}_{suffix}"
        self.need(function)
        name = self.fresh(s.target.name)
        self.w.line(f"{self.types.type(dtype)} {name};")
        self.w.line(f"{function}({', '.join(map(str, [f'&{name}', *operands]))});")
        self.values[s.target] = Vec(Name(name), dtype, True)

    def vector_call(self, s: Compute, operands: Sequence[Vec]) -> None:
        """A function on vectors: by pointers, or lane by lane."""
        result = s.target.dtype
        type = self.types.type(result)
        whole = [Name(self.settled(o)) for o in operands]
        name = self.fresh(s.target.name)
        function = self.speller.function(s.op, operands[0].dtype)
        self.w.line(f"{type} {name};")
        if function is not None:
            arguments = ", ".join(f"&{x}" for x in [Name(name), *whole])
            self.w.line(f"{function}({arguments});")
        else:
            lane = Name("lane")
            scalar = spell(
                s.op, [o.dtype for o in operands], result, [Index(x, lane) for x in whole], s.attrs, self.need
            )
            self.w.line(f"#pragma GCC unroll {self.schedule.lanes}")
            with self.block(f"for (int lane = 0; lane < {self.schedule.lanes}; ++lane)"):
                self.w.line(f"{name}[lane] = {scalar};")
        self.values[s.target] = Vec(Name(name), result, True)

    def settled(self, value: Vec) -> str:
        """A vector variable that holds `value` (its address can be taken)."""
        if value.varies and isinstance(value.expr, Name | Index):
            return str(value.expr)
        name = self.names.fresh("x")
        self.w.line(f"const {self.types.type(value.dtype)} {name} = {self.speller.splat(value)};")
        return name
