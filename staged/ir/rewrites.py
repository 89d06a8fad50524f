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
`IllegalSchedule` that says why. Those that need memory are in `storage_rewrites.py`. Source of the terms: Allen and
Kennedy, Optimizing Compilers for Modern Architectures, 2001 (strip mining, interchange, fission, scalar expansion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from staged.errors import article
from staged.ir.dependences import (
    Body,
    accesses,
    bounds_around,
    is_injective,
    is_movable,
    same,
    written,
    zero,
)
from staged.ir.loops import (
    Accumulate,
    Affine,
    Axis,
    Bound,
    Compute,
    Guarded,
    Load,
    LoadPair,
    Loop,
    Nest,
    PositionOf,
    Statement,
    Store,
    Tile,
    map_indices,
    walk,
)
from staged.ir.named_loops import (
    at_chosen_loops,
    at_loops,
    illegal,
    loops_inside,
    refused_here,
    require_whole,
    with_axis,
)
from staged.ir.nest_items import with_items
from staged.ir.storage_rewrites import Expand, Keep, Pack


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
class Fuse:
    """Two loops, the second directly inside of the first, become one over all their pairs, in the same order.

    Each index must go on from the last iteration of the inner loop to the next one of the outer loop.
    """

    outer: str
    inner: str
    into: str

    def __str__(self) -> str:
        return f"fuse {self.outer}, {self.inner}: {self.into}"

    def apply(self, nest: Nest) -> Nest:
        axes: dict[tuple[Axis, Axis], Axis] = {}

        def change(loop: Loop) -> Body:
            (outer, inner), body = loops_inside(self, loop, (self.outer, self.inner))
            for axis in (outer, inner):
                require_whole(self, nest, axis)

            def without_outer(index: Affine) -> Affine:
                step = index.stride(inner)
                if index.stride(outer) != step * inner.extent and outer.extent > 1:
                    raise illegal(self, f"{outer.name} is {index.stride(outer)} apart, {inner.name} {step}")
                return Affine(tuple(term for term in index.terms if term[0] is not outer), index.offset)

            fused = axes.setdefault((outer, inner), Axis(self.into, outer.extent * inner.extent))
            body = map_indices(body, without_outer)
            return (Loop(fused, with_axis(body, inner, Affine.of(fused))),)

        return replace(nest, body=at_loops(self, nest.body, self.outer, change))


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
                [axis for axis in axes if not index.moves(axis)]
            ):
                raise illegal(self, f"elements of {array.name} would be written in another order")


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
                if isinstance(s, Load) and s.index.moves(axis):
                    filling = zero(s.array.dtype) if s.fill is None else s.fill
                    out.append(Load(s.target, s.array, s.index, (*s.guards, bound), filling))
                elif isinstance(s, Loop):
                    out.append(Loop(s.axis, fill(s.body), s.reductions))
                elif isinstance(s, Load | PositionOf | Accumulate) or isinstance(s, Compute) and s.op.harmless:
                    out.append(s)
                else:
                    what = s.op.name if isinstance(s, Compute) else type(s).__name__
                    raise illegal(self, f"what is not there is not for a {what}")
            return tuple(out)

        return Loop(loop.axis, fill(loop.body), loop.reductions)


Rewriting = Divide | StripMine | Fuse | Reorder | Keep | Expand | Pack | Pad


def rewritten(nest: Nest, rewrites: Sequence[Rewriting]) -> Nest:
    """The nest after the directives, one after the other. Raises: IllegalSchedule, for the first that is none."""
    made = nest
    for directive in rewrites:
        made = directive.apply(made)
    return with_items(made, nest) if rewrites else nest
