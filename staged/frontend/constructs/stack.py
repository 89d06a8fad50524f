"""`Stack`: a list that grows while the program runs, up to a bound that is known while staging."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from staged.errors import CarriedValueError, DTypeError, ShapeError, StagedError, StagedValueError, StagingError
from staged.frontend.constructs.assert_ import require
from staged.frontend.constructs.iterables import StagedIterable
from staged.frontend.constructs.stores import set_attribute
from staged.frontend.constructs.strings import fstring
from staged.frontend.trace.context import current_trace
from staged.frontend.values import trees
from staged.ir.types import DType, TensorType, i64
from staged.ops.array import Array, StagedArray, static_hint
from staged.ops.choice import where
from staged.ops.comparisons import logical_and
from staged.ops.context import bind
from staged.ops.dynamic_slice import dynamic_slice_op, dynamic_update_op
from staged.ops.promote import as_array, cast, constant, read
from staged.ops.shape import reshape
from staged.ops.source import zeros
from staged.ops.subscript import set_item
from staged.source import here


@dataclasses.dataclass(eq=False, repr=False, init=False)
class Stack:
    """Values of one type, collected while the program runs: the list to append to in a staged loop.

        rows = st.Stack(x, max=100)          # room for 100 arrays like x
        for i in st.range(n):
            rows.append(step(x, i))
        rows.array(), len(rows)              # (100, *x.shape), zeros from len(rows) on

    `like` is an array, a number (a float becomes f32, an int i64) or a tree of them: the elements have its shapes and
    dtypes. `max` is the largest number of elements, known while staging. `append`, `pop`, `stack[i]` (negative from the
    end), `stack[i] = v`, `len`, iteration and `while stack:` mean what they do for a list. It is a tree of arrays: it
    can be carried by loops, returned, passed and differentiated through.

    Errors: ProgramOverflowError where it is full, ProgramIndexError for a pop of an empty one and an index out of
    range, each with the line; CarriedValueError for an element of another structure.
    """

    rows: Any
    """The elements one after another, in arrays with `max` rows."""
    length: Any
    """The number of elements."""

    def __init__(self, like: Any, max: int | None = None) -> None:
        if max is None:
            raise StagingError(
                "a Stack without a bound cannot be staged: memory is planned while staging",
                where=here(),
                hint="give the largest number of elements: `st.Stack(like, max=1000)`",
            )
        if isinstance(max, Array | bool) or not hasattr(max, "__index__"):
            raise StagedValueError(
                "the bound of a Stack is an integer that is known while staging",
                where=here(),
                hint=f"write the number, or {static_hint(max)}",
            )
        if max < 1:
            raise StagingError(f"the bound of a Stack must be at least 1, got {max}", where=here())
        self.rows = trees.map_leaves(lambda leaf: _room(leaf, int(max)), like)
        self.length = 0

    @property
    def max(self) -> int:
        """The largest number of elements."""
        leaves, _ = trees.flatten(self.rows)
        return int(leaves[0].shape[0])

    def append(self, value: Any) -> None:
        """Add an element at the end; stops the program where the stack is full."""
        where, limit = self.length, self.max
        require(where < limit, OverflowError, f"the stack is full: it holds at most {limit} elements (`max={limit}`)")
        self._write(where, value)
        set_attribute(self, "length", where + 1)

    def pop(self) -> Any:
        """Remove and return the last element."""
        require(self.length > 0, IndexError, "pop from an empty stack")
        last = self.length - 1
        value = self._read(last)
        rows, spec = trees.flatten(self.rows)
        self._write(last, trees.unflatten(spec, [zeros(row.shape[1:], row.dtype) for row in rows]))
        set_attribute(self, "length", last)
        return value

    def array(self) -> Any:
        """All rows as one array (max, ...), zeros from `len` on; for elements that are trees, a tree of such arrays."""
        return self.rows

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._place(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._write(self._place(index), value)

    def __len__(self) -> int:
        return int(self.length)

    def __staged_len__(self) -> Any:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(StackElements(self))

    def __staged_loop__(self) -> StagedIterable:
        return StackElements(self)

    def __repr__(self) -> str:
        leaves, _ = trees.flatten(self.rows)
        types = ", ".join(str(TensorType(row.dtype, tuple(row.shape[1:]))) for row in map(as_array, leaves))
        return f"Stack({self.length} of at most {self.max}: {types})"

    # ---- places ----

    def _place(self, index: Any) -> Any:
        """A user's index counted from the front, in range."""
        if isinstance(index, slice | tuple) or index is None or index is Ellipsis:
            raise StagingError(
                "a Stack is indexed by one integer", where=here(), hint="take `stack.array()`, and index that"
            )
        index = read(index)
        if isinstance(index, Array) and (index.shape or not index.dtype.is_integer):
            raise StagedValueError(f"an index is an integer, got {index.type}", where=here())
        from_front = (
            where(index < 0, index + self.length, index)
            if _is_staged(index, self.length)
            else (index + self.length if index < 0 else index)
        )
        in_range = logical_and(from_front >= 0, from_front < self.length)
        words = fstring(
            "index ", (index, "", ""), " is out of range for a stack of ", (self.length, "", ""), " elements"
        )
        require(in_range if _is_staged(in_range) else bool(in_range), IndexError, words)
        return from_front

    def _read(self, place: Any) -> Any:
        rows, spec = trees.flatten(self.rows)
        out = []
        for row in rows:
            array = as_array(row)
            element = bind(dynamic_slice_op, [array, *_starts(place, array)], sizes=(1, *array.shape[1:]))
            out.append(reshape(element, array.shape[1:]))
        return trees.unflatten(spec, out)

    def _check_element(self, row: TensorType, new: TensorType) -> None:
        """A float element is not narrowed unseen, and every element has the shape of the first argument."""
        narrower = new.dtype.is_float and not new.weak and new.dtype != row.dtype
        if narrower or (new.shape != row.shape and new.shape):
            error: type[StagedError] = ShapeError if new.shape != row.shape else DTypeError
            raise error(
                f"an element of this Stack is {row}, got {new}",
                where=here(),
                hint="make the Stack with something of that type as its first argument (`st.Stack(x, "
                f"max={self.max})`), "
                f"or cast it: `st.astype(x, st.{row.dtype.name})`",
            )

    def _write(self, place: Any, value: Any) -> None:
        rows, spec = trees.flatten(self.rows)
        values, given = trees.flatten(value)
        if given != spec:
            raise CarriedValueError(
                "an element of a Stack has the structure of its first argument",
                where=here(),
                details=(f"element: {given}", f"the stack's: {spec}"),
                hint="append what `like` looked like: the same keys, fields and lengths",
            )
        out = []
        for row, new in zip(rows, values, strict=True):
            array = as_array(row)
            self._check_element(TensorType(array.dtype, tuple(array.shape[1:])), as_array(new).type)
            # `set_item` at a static place brings the dtype and the shape to those of a row, or refuses.
            element = set_item(zeros((1, *array.shape[1:]), array.dtype), 0, new)
            out.append(bind(dynamic_update_op, [array, element, *_starts(place, array)]))
        set_attribute(self, "rows", trees.unflatten(spec, out))


class StackElements(StagedIterable):
    """The elements of a stack, from the first."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack

    @property
    def length(self) -> Any:
        return self.stack.length

    def element(self, index: Any) -> Any:
        return self.stack._read(index)


def _room(leaf: Any, count: int) -> Array:
    like = as_array(leaf)
    dtype: DType = like.dtype
    if like.type.weak:
        dtype = dtype.natural
    return zeros((count, *like.shape), dtype)


def _starts(place: Any, array: Array) -> list[Array]:
    """The start of the row at `place`, which is in range."""
    first = cast(as_array(place), i64)
    return [first, *(constant(0, TensorType(i64)) for _ in array.shape[1:])]


def _is_staged(*values: Any) -> bool:
    return current_trace() is not None and any(isinstance(value, StagedArray) for value in values)
