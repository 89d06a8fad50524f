"""The meaning of a thread kernel: threads run to their next barrier in turn. Slow; the reference for devices."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from staged.errors import ProgramError, ProgramIndexError, ProgramValueError, ProgramZeroDivisionError
from staged.ir.thread_kernel import (
    WARP,
    Argument,
    Assign,
    Atomic,
    Barrier,
    Builtin,
    Compute,
    Const,
    Do,
    Element,
    Expression,
    Extent,
    For,
    If,
    Leave,
    Local,
    Memory,
    Shuffle,
    Statement,
    Store,
    ThreadKernel,
    While,
    nodes_of,
)
from staged.ops.primitive import PRIMITIVES

Wait = Barrier | Shuffle
Steps = Generator[tuple[Wait, Any, int], Any, str]
"""A thread up to its next stop: yields the reason, with value and lane of a shuffle; receives the shuffled value."""
_GO_ON = ""


def run_kernel(
    kernel: ThreadKernel, grid: tuple[int, int, int], arguments: Sequence[Any]
) -> list[np.ndarray[Any, Any]]:
    """The new values of the arrays that the kernel writes, in the order of its parameters.

    `arguments` are NumPy arrays and numbers, in that order. Raises: the errors of a program, at the kernel's line;
    ProgramError where threads of a block do not meet at the same barrier.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    numbers: dict[str, Any] = {}
    for parameter, given in zip(kernel.parameters, arguments, strict=True):
        value = np.asarray(given, dtype=parameter.dtype.numpy)
        if parameter.is_array:
            arrays[parameter.name] = value.copy() if parameter.written else value
        else:
            numbers[parameter.name] = value[()]
    sizes = kernel.extent_values([np.shape(given) for given in arguments])
    for place in itertools.product(*(range(size) for size in reversed(grid))):
        _run_block(kernel, grid, place[::-1], arrays, numbers, sizes)
    return [arrays[kernel.parameters[number].name] for number in kernel.written]


def _run_block(
    kernel: ThreadKernel,
    grid: tuple[int, int, int],
    block_index: tuple[int, ...],
    arrays: dict[str, np.ndarray[Any, Any]],
    numbers: dict[str, Any],
    sizes: Sequence[int],
) -> None:
    shared = {memory.name: _memory(memory) for memory in kernel.memories if memory.kind == "shared"}
    threads = []
    for place in itertools.product(*(range(size) for size in reversed(kernel.block))):
        own = {memory.name: _memory(memory) for memory in kernel.memories if memory.kind == "local"}
        builtins = {
            "thread_index": place[::-1], "block_index": block_index, "block_size": kernel.block, "grid_size": grid,
        }  # fmt: skip
        threads.append(_Thread({**arrays, **shared, **own}, numbers, builtins, sizes).run(kernel.body))
    _Block(threads).run()


def _memory(memory: Memory) -> np.ndarray[Any, Any]:
    dtype = memory.dtype.numpy
    filler = np.nan if memory.dtype.is_float else False if memory.dtype.is_bool else np.iinfo(dtype).max
    return np.full(memory.shape, filler, dtype)


class _Block:
    """The threads of a block, each at the stop where it waits."""

    def __init__(self, threads: Sequence[Steps]) -> None:
        self.threads = list(threads)
        self.waits: list[tuple[Wait, Any, int] | None] = [None] * len(threads)

    def run(self) -> None:
        """All threads to their end."""
        ready: dict[int, Any] = dict.fromkeys(range(len(self.threads)))
        while ready:
            for number, given in ready.items():
                try:
                    self.waits[number] = self.threads[number].send(given)
                except StopIteration:
                    self.waits[number] = None
            ready = self.met()

    def met(self) -> dict[int, Any]:
        """The threads that can continue, with a value each: warps that meet at a shuffle,
        else the block at a barrier."""
        ready: dict[int, Any] = {}
        for first in range(0, len(self.waits), WARP):
            waits = self.waits[first : first + WARP]
            if not any(wait is not None and isinstance(wait[0], Shuffle) for wait in waits):
                continue
            shuffle = self.one_place(waits, "lanes of a warp meet at a shuffle")
            assert isinstance(shuffle, Shuffle)
            for lane, (_, _, wanted) in enumerate(wait for wait in waits if wait is not None):
                source = {"idx": wanted, "up": lane - wanted, "down": lane + wanted, "xor": lane ^ wanted}[shuffle.kind]
                if shuffle.kind == "idx":
                    source %= WARP
                source = source if 0 <= source < len(waits) else lane
                found = waits[source]
                assert found is not None
                ready[first + lane] = found[1]
        if not ready and any(wait is not None for wait in self.waits):
            self.one_place(self.waits, "threads of a block meet at a barrier")
            ready = dict.fromkeys(range(len(self.threads)))
        return ready

    def one_place(self, waits: Sequence[tuple[Wait, Any, int] | None], rule: str) -> Wait:
        """The statement at which all of them wait. Raises: ProgramError if they wait at different ones."""
        place = next(wait[0] for wait in waits if wait is not None)
        for wait in waits:
            if wait is None or type(wait[0]) is not type(place) or wait[0].where != place.where:
                raise ProgramError(f"all {rule}, and some do not reach this one", where=place.where)
        return place


class _Thread:
    """One thread: its variables, and the memory it can access."""

    def __init__(
        self,
        arrays: dict[str, np.ndarray[Any, Any]],
        numbers: dict[str, Any],
        builtins: dict[str, tuple[int, ...]],
        sizes: Sequence[int],
    ) -> None:
        self.arrays = arrays
        self.numbers = numbers
        self.builtins = builtins
        self.sizes = sizes
        self.locals: dict[str, Any] = {}
        self.exchanged: dict[int, Any] = {}
        """Results of the shuffles of the current statement, by identity."""

    # ---- statements ----

    def run(self, body: Sequence[Statement]) -> Steps:
        """The statements; returns how they were left: '' at their end, or 'break', 'continue', 'return'."""
        for statement in body:
            how = yield from self.statement(statement)
            if how:
                return how
        return _GO_ON

    def statement(self, s: Statement) -> Steps:
        yield from self.exchange(s)
        match s:
            case Assign():
                self.locals[s.target.name] = self.value(s.value)
            case Store():
                place = self.place(s.target)
                self.arrays[s.target.array][place] = self.value(s.value)
            case Do():
                self.value(s.value)
            case If():
                return (yield from self.run(s.then if self.value(s.condition) else s.other))
            case While():
                while self.value(s.condition):
                    how = yield from self.run(s.body)
                    if how == "break":
                        break
                    if how == "return":
                        return how
                    yield from self.exchange(s)
            case For():
                bounds = (int(self.value(bound)) for bound in (s.start, s.stop, s.step))
                for number in range(*bounds):
                    self.locals[s.target.name] = s.target.type.dtype.numpy.type(number)
                    how = yield from self.run(s.body)
                    if how == "break":
                        break
                    if how == "return":
                        return how
            case Leave():
                return s.kind
            case Barrier():
                yield s, None, 0
        return _GO_ON

    def exchange(self, s: Statement) -> Generator[tuple[Wait, Any, int], Any, None]:
        """Meet the other lanes at the shuffles of a statement."""
        self.exchanged.clear()
        for node in nodes_of(s):
            if isinstance(node, Shuffle):
                self.exchanged[id(node)] = yield node, self.value(node.value), int(self.value(node.lane))

    # ---- expressions ----

    def value(self, e: Expression) -> Any:
        match e:
            case Const():
                return e.type.dtype.numpy.type(e.value)
            case Local():
                return self.locals[e.name]
            case Argument():
                return self.numbers[e.name]
            case Extent():
                return np.int64(self.sizes[e.number])
            case Builtin():
                return np.int64(self.builtins[e.name][e.axis])
            case Element():
                return self.arrays[e.array][self.place(e)]
            case Compute():
                return self.compute(e)
            case Shuffle():
                return self.exchanged[id(e)]
            case Atomic():
                array, place = self.arrays[e.target.array], self.place(e.target)
                before, given = array[place], self.value(e.value)
                with np.errstate(all="ignore"):
                    array[place] = {"add": np.add, "min": np.minimum, "max": np.maximum}[e.op](before, given)
                return before

    def compute(self, e: Compute) -> Any:
        if e.op in ("logical_and", "logical_or"):
            left = bool(self.value(e.operands[0]))
            decided = left if e.op == "logical_or" else not left
            return np.bool_(left if decided else bool(self.value(e.operands[1])))
        if e.op == "select":
            condition, yes, no = e.operands
            return self.value(yes if self.value(condition) else no)
        operands = [np.asarray(self.value(operand)) for operand in e.operands]
        try:
            with np.errstate(all="ignore"):
                made = PRIMITIVES[e.op].reference(*operands, **e.attributes())
        except ZeroDivisionError as error:
            raise ProgramZeroDivisionError(str(error), where=e.where) from None
        except (ProgramZeroDivisionError, ProgramValueError) as error:
            error.where = error.where or e.where
            raise
        return np.asarray(made)[()]

    def place(self, e: Element) -> tuple[int, ...]:
        """The indices of an element. Raises ProgramIndexError at the user's line where one is out of range."""
        indices = tuple(int(self.value(index)) for index in e.indices)
        for index, extent in zip(indices, self.arrays[e.array].shape, strict=True):
            if not 0 <= index < extent:
                raise ProgramIndexError(
                    f"index {index} is out of range for an axis of {extent} elements", where=e.where
                )
        return indices
