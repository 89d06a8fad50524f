"""Directives that give the values of a nest memory of its own: registers, a tile of totals, a copy of what is read.

Each rewrites the nest as those of `rewrites.py` do, and is checked in the same way.

Tested by `tests/kernels/test_rewrites.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from staged.errors import article
from staged.ir.declaration import Declaration
from staged.ir.dependences import (
    Body,
    guarded_loads,
    is_pure,
    needed,
    same,
    written,
    zero,
)
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Compute,
    Load,
    LoadPair,
    Local,
    Loop,
    Nest,
    PositionOf,
    Statement,
    Store,
    Tile,
    identity,
    map_indices,
    walk,
)
from staged.ir.named_loops import (
    at_loops,
    illegal,
    loops_inside,
    nested,
    refused_here,
    require_static,
    row_major_over,
    with_axis,
    with_body,
)
from staged.ir.sizes import at_bounds


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the totals of `loop` for all iterations of the loops `over` in registers at once.

    The loops `over`, directly around it, move inside; copies of them before it start the totals, and copies after it
    use them.
    """

    loop: str
    over: tuple[str, ...]

    def __str__(self) -> str:
        return f"keep {self.loop}: over {', '.join(self.over)}, in registers"

    def apply(self, nest: Nest) -> Nest:
        if not self.over:
            raise illegal(self, "there are no loops to keep totals over")
        kept: list[ArrayRef] = []

        def change(outer: Loop) -> Body:
            axes, body = loops_inside(self, outer, self.over)
            return self.split(axes, body, kept)

        body = at_loops(self, nest.body, self.over[0], change)
        return replace(nest, body=body, scratch=(*nest.scratch, *kept))

    def split(self, axes: Sequence[Axis], body: Body, kept: list[ArrayRef]) -> Body:
        """The statements in the loops over `axes`, in separate loops before, in and after the loop with the totals."""
        places = [n for n, s in enumerate(body) if isinstance(s, Loop | Tile) and s.axis.name == self.loop]
        if len(places) != 1:
            raise refused_here(self, f"{axes[-1].name} has {len(places)} loops of this name in it")
        loop = body[places[0]]
        assert isinstance(loop, Loop | Tile)
        for axis in (*axes, loop.axis):
            require_static(self, axis)
        before, after = body[: places[0]], body[places[0] + 1 :]
        if not loop.reductions:
            raise illegal(self, "it has no totals")
        inner = {r for s in walk(loop.body) if isinstance(s, Loop | Tile) for r in s.reductions}
        for s in (*before, *walk(loop.body)):
            own = isinstance(s, Accumulate) and (s.reduction in loop.reductions or s.reduction in inner)
            if not (own or isinstance(s, Load | LoadPair | PositionOf | Loop | Tile) or is_pure(s)):
                raise illegal(self, f"{article(type(s).__name__)} keeps its place")
        read = {s.array for s in (*before, *walk(loop.body)) if isinstance(s, Load | LoadPair)}
        for array, _ in written(after):
            if array in read:
                raise illegal(self, f"{array.name} is read for later totals than those after which it is written")
        index, size = row_major_over(axes)
        totals: dict[Local, tuple[ArrayRef, Declaration]] = {}
        for r in loop.reductions:
            if r.op.is_position:
                raise illegal(self, f"{r.target.name} is an {r.op.name}, which is not made of two partial ones")
            totals[r.target] = ArrayRef(r.target.name, r.target.dtype, size, "registers"), r.combine
        kept += [array for array, _ in totals.values()]

        def around(inside: Sequence[Statement]) -> Loop:
            return nested(axes, inside)

        def accumulated(body: Body) -> Body:
            out: list[Statement] = []
            for s in body:
                if isinstance(s, Accumulate) and s.reduction.target in totals:
                    array, combine = totals[s.reduction.target]
                    old, new = Local(array.name, array.dtype), Local(array.name, array.dtype)
                    out += [
                        Load(old, array, index),
                        Compute(new, combine, (old, s.value), {}),
                        Store(array, index, new),
                    ]
                else:
                    out.append(with_body(s, accumulated))
            return tuple(out)

        starts = [Store(totals[r.target][0], index, identity(r.op, r.target.dtype)) for r in loop.reductions]
        terms = (*needed(before, loop.body), *accumulated(loop.body))
        ends = [Load(target, array, index) for target, (array, _) in totals.items()]
        inside = (around(terms),)
        sums = Loop(loop.axis, inside) if isinstance(loop, Loop) else Tile(loop.axis, loop.size, inside)
        return around(starts), sums, around((*needed(before, after), *ends, *after))


@dataclass(frozen=True, slots=True)
class Expand:
    """Put the totals of `loop` into memory for all iterations of the loops `over`, directly around it, before others
    named `r_after` for `r` use them (scalar expansion).

        for s < 32: (total = 0; for k < 256: total += x * y; c[...] = total)
    ->  for s < 32: (total = 0; for k < 256: total += x * y; tile[s] = total)
        for s_after < 32: c[...] = tile[s_after]
    """

    loop: str
    over: tuple[str, ...]

    def __str__(self) -> str:
        return f"expand {self.loop}: over {', '.join(self.over)}, in memory"

    def apply(self, nest: Nest) -> Nest:
        if not self.over:
            raise illegal(self, "there are no loops to expand totals over")
        kept: list[ArrayRef] = []
        copies: dict[Axis, Axis] = {}

        def change(outer: Loop) -> Body:
            axes, body = loops_inside(self, outer, self.over)
            places = [n for n, s in enumerate(body) if isinstance(s, Loop | Tile) and s.axis.name == self.loop]
            if len(places) != 1:
                raise refused_here(self, f"{axes[-1].name} has {len(places)} loops of this name in it")
            for axis in axes:
                require_static(self, axis)
            before, loop, after = body[: places[0]], body[places[0]], body[places[0] + 1 :]
            assert isinstance(loop, Loop | Tile)
            for s in (*before, *walk((loop,))):
                if not (isinstance(s, Load | LoadPair | PositionOf | Loop | Tile | Accumulate) or is_pure(s)):
                    raise illegal(self, f"{article(type(s).__name__)} keeps its place")
            read = {s.array for s in (*before, *walk((loop,))) if isinstance(s, Load | LoadPair)}
            for array, _ in written(after):
                if array in read:
                    raise illegal(self, f"{array.name} is read for later totals than those after which it is written")
            index, size = row_major_over(axes)
            totals = {r.target: ArrayRef("sums", r.target.dtype, size, "registers") for r in loop.reductions}
            kept.extend(totals.values())
            stores = [Store(array, index, target) for target, array in totals.items()]
            rest: Body = (*needed(before, after), *(Load(t, array, index) for t, array in totals.items()), *after)
            for axis in axes:
                copy = copies.setdefault(axis, Axis(f"{axis.name}_after", axis.extent, word=axis.word or axis.name))
                rest = with_axis(rest, axis, Affine.of(copy))
            return nested(axes, (*needed(before, (loop,)), loop, *stores)), nested([copies[a] for a in axes], rest)

        body = at_loops(self, nest.body, self.over[0], change)
        return replace(nest, body=body, scratch=(*nest.scratch, *kept))


@dataclass(frozen=True, slots=True)
class Pack:
    """Copy the elements that `loop` reads of an array before it, by loops like those named `axes` inside of it.

    The last axis is contiguous in the copy. Elements outside of guards are filled.
    """

    array: str | ArrayRef
    """An input, or the name that only one of them has."""
    loop: str
    axes: tuple[str, ...]
    """A sum of two names, `i+p`, is one axis of the copy: the places where a window has its taps."""

    def __str__(self) -> str:
        name = self.array.name if isinstance(self.array, ArrayRef) else self.array
        return f"pack {name}: at {self.loop}, by {', '.join(self.axes)}"

    def apply(self, nest: Nest) -> Nest:
        arrays = [each for each in nest.inputs if isinstance(each, ArrayRef) and self.array in (each, each.name)]
        if len(arrays) != 1:
            names = ", ".join(each.name for each in nest.inputs if isinstance(each, ArrayRef))
            raise illegal(self, f"there are the inputs {names}")
        (array,) = arrays
        if any(array is nest.outputs[o] for o, _ in nest.in_place):
            raise illegal(self, "it is written")
        panels: list[ArrayRef] = []
        body = at_loops(self, nest.body, self.loop, lambda loop: self.packed(loop, array, panels))
        place = nest.inputs.index(array)
        in_place = tuple(
            pair for pair in nest.in_place if pair[1] != place
        )  # it is read again after it may have been written
        return replace(nest, body=body, scratch=(*nest.scratch, *panels), in_place=in_place)

    def packed(self, loop: Loop, array: ArrayRef, panels: list[ArrayRef]) -> Body:
        loads = [(s, bounds) for s, bounds in guarded_loads((loop,)) if s.array is array]
        if not loads:
            raise refused_here(self, f"the loop {self.loop} does not read it")
        first, around = loads[0]
        if any(not same(s.index, first.index) or s.guards != first.guards or bounds != around for s, bounds in loads):
            raise illegal(self, "it is read at several places")
        guards, fill = (*first.guards, *around), first.fill
        if guards and fill is None:
            fill = zero(array.dtype)
        inside = {s.axis for s in walk((loop,)) if isinstance(s, Loop)}
        read = {axis for index in (first.index, *(g.index for g in guards)) for axis in index.axes if axis in inside}
        if any(isinstance(n, Local) for index in (first.index, *(g.index for g in guards)) for n, _ in index.terms):
            raise illegal(self, "its index is found in the loop")
        names = [name for axis in self.axes for name in axis.split("+")]
        if {axis.name for axis in read} != set(names) or len(read) != len(names):
            raise refused_here(self, f"it is read along {', '.join(sorted(axis.name for axis in read))}")
        for axis in read:
            require_static(self, axis)
        indices = (first.index, *(g.index for g in guards))
        copies: list[Axis] = []
        places: dict[Axis, tuple[Axis, int]] = {}  # the axis of the copy that each has, and its steps along that
        starts: dict[Axis, int] = {}  # of an axis of the copy: how far before the first iterations it begins
        for words in self.axes:
            members = [next(axis for axis in read if axis.name == name) for name in words.split("+")]
            steps = self.steps(members, indices)
            reach = [step * (axis.extent - 1) for axis, step in zip(members, steps, strict=True)]
            extent = 1 + sum(map(abs, reach))
            copies.append(Axis("_".join(axis.name for axis in members), extent))
            places |= {axis: (copies[-1], step) for axis, step in zip(members, steps, strict=True)}
            starts[copies[-1]] = sum(min(0, far) for far in reach)
        at_copy, size = row_major_over(copies)
        panel = ArrayRef(f"{array.name}_panel", array.dtype, size, "scratch")
        panels.append(panel)
        at = Affine((), -sum(start * at_copy.stride(whole) for whole, start in starts.items()))
        for axis, (whole, step) in places.items():
            at += Affine.of(axis, step * at_copy.stride(whole))

        def copied(index: Affine) -> Affine:
            found = Affine((), index.offset)
            for n, step in index.terms:
                if not isinstance(n, Axis) or n not in places:
                    found += Affine(((n, step),))
                elif not found.moves(places[n][0]):
                    whole, apart = places[n]
                    found += (Affine.of(whole) + starts[whole]) * (step // apart)
            return found

        element = Local(array.name, array.dtype)
        (read_there,) = map_indices((Load(element, array, first.index, guards, fill),), copied)
        copy: Body = (nested(copies, (read_there, Store(panel, at_copy, element))),)

        def reading(body: Body) -> Body:
            return tuple(
                Load(s.target, panel, at) if isinstance(s, Load) and s.array is array else with_body(s, reading)
                for s in body
            )

        return *copy, *reading((loop,))

    def steps(self, members: Sequence[Axis], indices: Sequence[Affine]) -> list[int]:
        """The steps of axes along the one that they share: the same ones in every index."""
        found: list[int] | None = None
        for index in indices:
            strides = [at_bounds(index.stride(axis)) for axis in members]
            unit = gcd(*strides)
            if not unit:
                continue
            steps = [stride // unit for stride in strides]
            if 0 in steps or found is not None and steps != found:
                raise illegal(self, f"{' and '.join(axis.name for axis in members)} do not go along one axis")
            found = steps
        return found or [1] * len(members)
