"""Directives that rewrite a nest: the same results, to the bit, by other loops.

    keep k over r, s                         for r < 4:                      for k < 256:
                                               for s < 32:                     for r < 4:
    for r < 4:                                   total[32*r + s] = 0             for s < 32:
      for s < 32:                            for k < 256:               ->         total[32*r + s] += x * y
        total = 0                              ...                           for r < 4:
        for k < 256: total += x * y                                            for s < 32:
        c[...] = total                                                           c[...] = total[32*r + s]

Loops are named by their axes; a directive is for every loop of its name that stands among the loops that it names. Each
is checked: what would change a result, or the order in which a sum takes in its terms, is refused with an
`IllegalSchedule` that says why. Source of the terms: Allen and Kennedy, Optimizing Compilers for Modern Architectures,
2001 (strip mining, interchange, fission, scalar expansion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from staged.errors import article
from staged.ir.declaration import DECLARED
from staged.ir.dependences import (
    Body,
    accesses,
    bounds_around,
    guarded_loads,
    is_injective,
    is_movable,
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
    Bound,
    Compute,
    Guarded,
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
    at_chosen_loops,
    at_loops,
    illegal,
    loops_inside,
    nested,
    refused_here,
    require_static,
    require_whole,
    row_major_over,
    with_axis,
    with_body,
)
from staged.ir.nest_items import with_items


@dataclass(frozen=True, slots=True)
class Divide:
    """A loop becomes two: one over the first `at` iterations, and one over the others.

    The second has `tail` iterations if that is more than there are left: it begins so much earlier, and computes some
    elements a second time (Halide's term is to shift inwards).
    """

    loop: str
    at: int
    tail: int = 0

    def __str__(self) -> str:
        shifted = f", the last {self.tail} apart" if self.tail else ""
        return f"divide {self.loop}: at {self.at}{shifted}"

    def apply(self, nest: Nest) -> Nest:
        axes: dict[Axis, tuple[Axis, Axis]] = {}

        def change(loop: Loop) -> Body:
            axis = loop.axis
            require_whole(self, nest, axis)
            if not 0 < self.at < axis.extent:
                raise illegal(self, f"it has {axis.extent} iterations")
            if loop.reductions:
                raise illegal(
                    self, f"the total {loop.reductions[0].target.name} goes on from its first iterations to the others"
                )
            tail = max(self.tail, axis.extent - self.at)
            if tail > axis.extent:
                raise illegal(self, f"it has {axis.extent} iterations")
            if tail > axis.extent - self.at:
                self.check_repeated(loop, nest)
            halves = (Axis(f"{axis.name}_head", self.at), Axis(f"{axis.name}_tail", tail))
            first, second = axes.setdefault(axis, halves)
            return (
                Loop(first, with_axis(loop.body, axis, Affine.of(first))),
                Loop(second, with_axis(loop.body, axis, Affine.of(second) + (axis.extent - tail))),
            )

        return replace(nest, body=at_loops(self, nest.body, self.loop, change))

    def check_repeated(self, loop: Loop, nest: Nest) -> None:
        """Iterations may be repeated if none reads what one writes."""
        read = {s.array for s in walk(loop.body) if isinstance(s, Load | LoadPair)}
        operands = {nest.outputs[o]: nest.inputs[i] for o, i in nest.in_place}
        for s in walk(loop.body):
            if not is_movable(s) or isinstance(s, Store) and s.atomic:
                raise illegal(self, f"{article(type(s).__name__)} is not repeated")
        for array, _ in written(loop.body):
            if array in read or operands.get(array) in read:
                raise illegal(self, f"{array.name} would be read after it was written")


@dataclass(frozen=True, slots=True)
class StripMine:
    """A loop becomes two, one inside the other: `size` iterations each, which it must have a multiple of."""

    loop: str
    size: int
    outer: str
    inner: str

    def __str__(self) -> str:
        return f"strip-mine {self.loop}: {self.outer} by {self.size} {self.inner}"

    def apply(self, nest: Nest) -> Nest:
        axes: dict[Axis, tuple[Axis, Axis]] = {}

        def change(loop: Loop) -> Body:
            axis = loop.axis
            require_whole(self, nest, axis)
            if axis.extent % self.size:
                raise illegal(self, f"{axis.extent} iterations are no multiple of {self.size}: divide or pad it first")
            both = (Axis(self.outer, axis.extent // self.size), Axis(self.inner, self.size))
            outer, inner = axes.setdefault(axis, both)
            body = with_axis(loop.body, axis, Affine.of(outer, self.size) + Affine.of(inner))
            return (Loop(outer, (Loop(inner, body),), loop.reductions),)

        return replace(nest, body=at_loops(self, nest.body, self.loop, change))


@dataclass(frozen=True, slots=True)
class Reorder:
    """Loops that are directly inside one another change places: `loops` from the outermost to the innermost."""

    loops: tuple[str, ...]

    def __str__(self) -> str:
        return f"reorder: {', '.join(self.loops)}"

    def apply(self, nest: Nest) -> Nest:
        for name in self.loops:
            at_loops(self, nest.body, name, lambda loop: (loop,))
        return replace(
            nest,
            body=at_chosen_loops(
                self, nest.body, lambda s: s.axis.name in self.loops, lambda loop: (self.chain(loop),)
            ),
        )

    def chain(self, loop: Loop) -> Loop:
        """The loop and those inside of it, in their new order."""
        axes, body = [loop.axis], loop.body
        if loop.reductions:
            raise refused_here(self, f"{loop.axis.name} keeps a total")
        while len(axes) < len(self.loops):
            inner = body[0] if len(body) == 1 else None
            if not isinstance(inner, Loop) or inner.axis.name not in self.loops:
                raise refused_here(self, f"{axes[-1].name} has more in it than another of these loops")
            if inner.reductions:
                raise illegal(self, f"{inner.axis.name} keeps a total")
            axes.append(inner.axis)
            body = inner.body
        self.check(axes, body)
        made = body
        for name in reversed(self.loops):
            made = (Loop(next(axis for axis in axes if axis.name == name), made),)
        (chained,) = made
        assert isinstance(chained, Loop)
        return chained

    def check(self, axes: Sequence[Axis], body: Body) -> None:
        """Iterations that touch the same element must keep their order."""
        order = [axis.name for axis in axes]

        def keeps(free: Sequence[Axis]) -> bool:
            names = [axis.name for axis in free]
            return [name for name in self.loops if name in names] == [name for name in order if name in names]

        inside = {r for s in walk(body) if isinstance(s, Loop | Tile) for r in s.reductions}
        for s in walk(body):
            if isinstance(s, Accumulate) and s.reduction not in inside and not keeps(axes):
                raise illegal(self, f"{s.reduction.target.name} would take in its terms in another order")
            if not is_movable(s):
                raise illegal(self, f"{article(type(s).__name__)} keeps its place")
        for array, index in written(body):
            if any(not same(index, other) for other in accesses(body, array)):
                raise illegal(self, f"{array.name} is read or written at several places")
            if not is_injective(index, bounds_around(body, index)) or not keeps(
                [axis for axis in axes if not index.stride(axis)]
            ):
                raise illegal(self, f"elements of {array.name} would be written in another order")


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
        totals: dict[Local, tuple[ArrayRef, str]] = {}
        for r in loop.reductions:
            combine = DECLARED[r.op].combine
            if not combine:
                raise illegal(self, f"{r.target.name} is an {r.op}, which is not made of two partial ones")
            totals[r.target] = ArrayRef(r.target.name, r.target.dtype, size, "registers"), combine
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
            totals = {r.target: ArrayRef("tile", r.target.dtype, size, "registers") for r in loop.reductions}
            kept.extend(totals.values())
            stores = [Store(array, index, target) for target, array in totals.items()]
            rest: Body = (*needed(before, after), *(Load(t, array, index) for t, array in totals.items()), *after)
            for axis in axes:
                copy = copies.setdefault(axis, Axis(f"{axis.name}_after", axis.extent))
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
        if {axis.name for axis in read} != set(self.axes) or len(read) != len(self.axes):
            raise refused_here(self, f"it is read along {', '.join(sorted(axis.name for axis in read))}")
        ordered = [next(axis for axis in read if axis.name == name) for name in self.axes]
        for axis in ordered:
            require_static(self, axis)
        at, size = row_major_over(ordered)
        panel = ArrayRef(f"{array.name}_panel", array.dtype, size, "scratch")
        panels.append(panel)
        copies = {axis: Axis(axis.name, axis.extent) for axis in ordered}

        def copied(index: Affine) -> Affine:
            terms = tuple((copies.get(n, n) if isinstance(n, Axis) else n, step) for n, step in index.terms)
            return Affine(terms, index.offset)

        element = Local(array.name, array.dtype)
        copy: Body = map_indices((Load(element, array, first.index, guards, fill), Store(panel, at, element)), copied)
        for axis in reversed(ordered):
            copy = (Loop(copies[axis], copy),)

        def reading(body: Body) -> Body:
            return tuple(
                Load(s.target, panel, at) if isinstance(s, Load) and s.array is array else with_body(s, reading)
                for s in body
            )

        return *copy, *reading((loop,))


@dataclass(frozen=True, slots=True)
class Pad:
    """Extend a loop to a `multiple` of iterations: the additional ones read zeros past the arrays' ends and store
    nothing.
    """

    loop: str
    multiple: int

    def __str__(self) -> str:
        return f"pad {self.loop}: to a multiple of {self.multiple}"

    def apply(self, nest: Nest) -> Nest:
        axes: dict[Axis, Axis] = {}

        def change(loop: Loop) -> Body:
            axis = loop.axis
            require_whole(self, nest, axis)
            longer = axes.setdefault(axis, Axis(axis.name, -(-axis.extent // self.multiple) * self.multiple))
            bound = Bound(Affine.of(longer), axis.extent)
            return (Loop(longer, self.padded(with_axis(loop.body, axis, Affine.of(longer)), bound)),)

        return replace(nest, body=at_loops(self, nest.body, self.loop, change))

    def padded(self, body: Body, bound: Bound) -> Body:
        """Loops with totals take in zeros; all else is done where there are elements."""
        out: list[Statement] = []
        rest: list[Statement] = []
        for s in body:
            if isinstance(s, Loop) and s.reductions and not rest:
                out.append(self.filled(s, bound))
            elif isinstance(s, Loop) and not s.reductions and len(body) == 1:
                out.append(Loop(s.axis, self.padded(s.body, bound)))
            else:
                rest.append(s)
        inside = {r for s in walk(tuple(rest)) if isinstance(s, Loop | Tile) for r in s.reductions}
        for s in walk(tuple(rest)):
            if isinstance(s, Accumulate) and s.reduction not in inside:
                raise illegal(self, f"{s.reduction.target.name} would take in more terms")
        if rest:
            out.append(Guarded((bound,), tuple(rest)))
        return tuple(out)

    def filled(self, loop: Loop, bound: Bound) -> Loop:
        """The loop with guards around its reads."""
        axis = bound.index.axes[0]

        def fill(body: Body) -> Body:
            out: list[Statement] = []
            for s in body:
                if isinstance(s, Load) and s.index.stride(axis):
                    filling = zero(s.array.dtype) if s.fill is None else s.fill
                    out.append(Load(s.target, s.array, s.index, (*s.guards, bound), filling))
                elif isinstance(s, Loop):
                    out.append(Loop(s.axis, fill(s.body), s.reductions))
                elif isinstance(s, Load | PositionOf | Accumulate) or isinstance(s, Compute) and s.declared.harmless:
                    out.append(s)
                else:
                    what = s.op if isinstance(s, Compute) else type(s).__name__
                    raise illegal(self, f"what is not there is not for a {what}")
            return tuple(out)

        return Loop(loop.axis, fill(loop.body), loop.reductions)


Rewriting = Divide | StripMine | Reorder | Keep | Expand | Pack | Pad


def rewritten(nest: Nest, rewrites: Sequence[Rewriting]) -> Nest:
    """The nest after the directives, one after the other. Raises: IllegalSchedule, for the first that is none."""
    made = nest
    for directive in rewrites:
        made = directive.apply(made)
    return with_items(made, nest) if rewrites else nest
