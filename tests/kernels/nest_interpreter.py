"""Runs loop nests statement by statement, in Python: what a nest means, whatever a back end makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from staged.ir.declaration import Declaration
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Begin,
    Bound,
    Compute,
    Constant,
    Guarded,
    Load,
    Local,
    Loop,
    Nest,
    Operand,
    PositionOf,
    Statement,
    Store,
    Take,
    Tile,
    identity,
)
from staged.ops.primitive import PRIMITIVES


class NestInterpreter:
    """One nest under way. Workspace and results begin with numbers that are wrong in every sum; items go backwards."""

    def __init__(self, nest: Nest, inputs: Sequence[Any]) -> None:
        self.nest = nest
        self.arrays: dict[ArrayRef, np.ndarray[Any, Any]] = {}
        self.locals: dict[Local, Any] = {}
        self.axes: dict[Axis, int] = {}
        self.ranges: dict[Axis, tuple[int, int]] = {}
        self.written: dict[ArrayRef, np.ndarray[Any, Any]] = {}
        """The number of stores of each element of a result."""
        for source, value in zip(nest.inputs, inputs, strict=True):
            if isinstance(source, Local):
                self.locals[source] = source.dtype.numpy.type(value)
            else:
                self.arrays[source] = np.array(value, source.dtype.numpy).reshape(-1)
        for array in (*nest.outputs, *nest.scratch):
            self.arrays[array] = np.full(array.size, 77).astype(array.dtype.numpy)
        for array in nest.outputs:
            self.written[array] = np.zeros(array.size, int)

    def run(self) -> list[np.ndarray[Any, Any]]:
        """The results, flat."""
        with np.errstate(all="ignore"):
            self.body(self.nest.body)
        return [self.arrays[output] for output in self.nest.outputs]

    def body(self, body: Sequence[Statement]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, s: Statement) -> None:
        match s:
            case Load(target, array, index, guards, fill):
                inside = self.holds(guards)
                self.locals[target] = self.element(array, index) if inside else self.operand(fill)
            case Compute(target, op, operands, attrs):
                self.locals[target] = applied(op, [self.operand(operand) for operand in operands], attrs, target)
            case PositionOf(target, index):
                self.locals[target] = target.dtype.numpy.type(self.index(index))
            case Store(array, index, value):
                place = self.index(index)
                assert 0 <= place < array.size, f"{array.name}[{place}] of {array.size}"
                self.arrays[array][place] = self.operand(value)
                if array in self.written:
                    self.written[array][place] += 1
            case Accumulate(reduction, value):
                parts = [self.locals[reduction.target], self.operand(value)]
                self.locals[reduction.target] = applied(reduction.combine, parts, {}, reduction.target)
            case Begin(fold):
                for local, start in zip(fold.state, fold.starts, strict=True):
                    self.locals[local] = self.operand(start)
            case Take(fold, values):
                merge = fold.merge
                given = [self.operand(value) for value in (*fold.state, *values)]
                self.locals |= dict(zip((*merge.left, *merge.right), given, strict=True))
                self.body(merge.body)
                self.locals |= dict(zip(fold.state, [self.operand(result) for result in merge.results], strict=True))
            case Loop(axis, body, reductions):
                self.start(reductions)
                first, stop = self.ranges.get(axis, (0, axis.extent))
                places = range(first, stop)
                for place in reversed(places) if self.nest.items != 1 and s in self.nest.body else places:
                    self.axes[axis] = place
                    self.body(body)
            case Tile(axis, size, body, reductions):
                self.start(reductions)
                first, stop = before = self.ranges.get(axis, (0, axis.extent))
                for place in range(first, stop, size):
                    self.ranges[axis] = place, min(place + size, stop)
                    self.body(body)
                self.ranges[axis] = before
            case Guarded(bounds, body):
                if self.holds(bounds):
                    self.body(body)
            case _:
                raise AssertionError(f"no way to run {s!r}")

    def start(self, reductions: Sequence[Any]) -> None:
        for reduction in reductions:
            first = identity(reduction.op, reduction.target.dtype)
            self.locals[reduction.target] = reduction.target.dtype.numpy.type(first.value)

    def holds(self, bounds: Sequence[Bound]) -> bool:
        return all(0 <= self.index(bound.index) < bound.extent for bound in bounds)

    def element(self, array: ArrayRef, index: Affine) -> Any:
        place = self.index(index)
        assert 0 <= place < array.size, f"{array.name}[{place}] of {array.size}"
        return self.arrays[array][place]

    def index(self, index: Affine) -> int:
        places = [self.axes[n] if isinstance(n, Axis) else int(self.locals[n]) for n, _ in index.terms]
        return index.offset + sum(place * step for place, (_, step) in zip(places, index.terms, strict=True))

    def operand(self, operand: Operand | None) -> Any:
        assert operand is not None
        return operand.dtype.numpy.type(operand.value) if isinstance(operand, Constant) else self.locals[operand]


def applied(op: Declaration, operands: Sequence[Any], attrs: Mapping[str, Any], target: Local) -> Any:
    """One element of an op, by its reference."""
    return target.dtype.numpy.type(PRIMITIVES[op.name].reference(*operands, **attrs))


def run_nest(nest: Nest, inputs: Sequence[Any], most: int = 1) -> list[np.ndarray[Any, Any]]:
    """The results of a nest, flat; each element is stored, at `most` so many times."""
    running = NestInterpreter(nest, inputs)
    results = running.run()
    for output in nest.outputs:
        times = running.written[output]
        assert ((times >= 1) & (times <= most)).all(), f"{output.name} is not stored once: {times}"
    return results
