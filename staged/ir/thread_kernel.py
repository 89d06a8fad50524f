"""Kernels that the user writes for one thread (`st.gpu_func`): typed expressions and statements on numbers.

A kernel takes numbers by value and arrays by reference. It has its own memory: arrays shared by the threads of a block,
and arrays of one thread. Indices, conditions and arithmetic are pure but for reads. Arithmetic is that of the
elementwise ops (`Compute`), with their meaning, types and spelling. A `checked` read or write may be out of range: the
thread then reports that, reads 0, writes nothing, and continues, so that no other thread waits for it forever.

`where` is never compared and never printed: kernels with equal statements are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

from staged.ir.types import DType, TensorType, i64
from staged.source import Position

INDEX = TensorType(i64, (), weak=True)
"""The type of indices and sizes: they behave as Python's integers."""
AXES = "xyz"
MOST_ELEMENTS = 1 << 40
"""More than any memory holds, so that arithmetic on indices below it does not overflow."""
WARP = 32
"""The threads of a warp, which can read one another's values."""
S = TypeVar("S")


def _where() -> Any:
    return field(default=None, compare=False, repr=False)


# ---- expressions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Const:
    """A number that is known while staging."""

    value: bool | int | float
    type: TensorType


@dataclass(frozen=True, slots=True)
class Local:
    """A variable of the thread."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Argument:
    """A number that the launch passes by value."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of an axis of the arrays that were given; axes of one `number` have one size in every launch."""

    number: int
    type: TensorType = INDEX


@dataclass(frozen=True, slots=True)
class Builtin:
    """The thread's position along an axis (0 is x): 'thread_index', 'block_index', 'block_size', 'grid_size'."""

    name: str
    axis: int
    type: TensorType = INDEX


@dataclass(frozen=True, slots=True)
class Compute:
    """An elementwise op on numbers.

    An `exact` one cannot overflow, divides what is not negative by what is positive, and shifts by fewer bits than
    there are; a `checked` one may stop the program.
    """

    op: str
    operands: tuple[Expression, ...]
    attrs: tuple[tuple[str, Any], ...]
    type: TensorType
    exact: bool = False
    checked: bool = False
    where: Position | None = _where()

    def attributes(self) -> Mapping[str, Any]:
        """The op's attributes by name."""
        return dict(self.attrs)


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an array or of the kernel's memory."""

    array: str
    indices: tuple[Expression, ...]
    type: TensorType
    checked: tuple[bool, ...]
    """By axis, whether the index may be out of range."""
    where: Position | None = _where()


ShuffleKind = Literal["idx", "up", "down", "xor"]


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The value of another lane of the warp ('idx': the lane with that number). All lanes take part."""

    kind: ShuffleKind
    value: Expression
    lane: Expression
    type: TensorType
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class Atomic:
    """An atomic update of an element, 'add', 'min' or 'max'; its value is the old element."""

    op: str
    target: Element
    value: Expression
    type: TensorType
    where: Position | None = _where()


Expression: TypeAlias = Const | Local | Argument | Extent | Builtin | Compute | Element | Shuffle | Atomic

# ---- statements ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """A variable gets a value of its type."""

    target: Local
    value: Expression
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class Store:
    """An element gets a value of its dtype."""

    target: Element
    value: Expression
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class Do:
    """An expression evaluated for its effect: an `Atomic`."""

    value: Expression
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class If:
    """One of two bodies."""

    condition: Expression
    then: tuple[Statement, ...]
    other: tuple[Statement, ...]
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class While:
    """A body as long as a condition holds."""

    condition: Expression
    body: tuple[Statement, ...]
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class For:
    """A body for each number of a range, whose bounds are computed once.

    `owns`: only the loop changes the variable, which is unused after the loop.
    """

    target: Local
    start: Expression
    stop: Expression
    step: Expression
    body: tuple[Statement, ...]
    owns: bool
    goes_down: bool = False
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class Leave:
    """An early end of a loop's iteration, of a loop or of the function."""

    kind: Literal["break", "continue", "return"]
    where: Position | None = _where()


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the block wait for each other; afterwards they see each other's writes."""

    where: Position | None = _where()


Statement: TypeAlias = Assign | Store | Do | If | While | For | Leave | Barrier

# ---- the kernel ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a launch: a number, or an array with the `Extent` number of each axis. A `written` one is a
    result.
    """

    name: str
    dtype: DType
    weak: bool = False
    is_array: bool = False
    extents: tuple[int, ...] = ()
    written: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """An array of the kernel: 'shared' by the threads of a block, or 'local' to a thread. It begins with anything."""

    name: str
    kind: Literal["shared", "local"]
    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, eq=False)
class ThreadKernel:
    """The code of each thread of a launch, in blocks of `block` threads. Kernels with equal printed forms are equal."""

    name: str
    parameters: tuple[Parameter, ...]
    extents: tuple[str, ...]
    """A name for each `Extent`, by number."""
    memories: tuple[Memory, ...]
    body: tuple[Statement, ...]
    block: tuple[int, int, int]
    where: Position | None = _where()

    @cached_property
    def digest(self) -> str:
        """Tells it from every kernel that does something else (0.0 and -0.0 are equal, and print differently)."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:20]

    def __str__(self) -> str:
        return f"{self.name}:{self.digest}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreadKernel) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        x, y, z = self.block
        return x * y * z

    @property
    def written(self) -> tuple[int, ...]:
        """The numbers of the parameters that are results."""
        return tuple(number for number, parameter in enumerate(self.parameters) if parameter.written)

    @property
    def can_fail(self) -> bool:
        """Return whether a thread may find that the program must stop."""
        for statement in walk_statements(self.body):
            for node in nodes_of(statement):
                if isinstance(node, Element) and any(node.checked) or isinstance(node, Compute) and node.checked:
                    return True
        return False

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return sum(m.size * m.dtype.size for m in self.memories if m.kind == "shared")

    def array_of(self, name: str) -> Parameter | Memory:
        """The array of that name."""
        arrays: list[Parameter | Memory] = [*self.parameters, *self.memories]
        return next(each for each in arrays if each.name == name)

    def positions(self) -> list[Position]:
        """The positions of its statements and of operations that may fail, in order, without repeats."""
        found: dict[Position, None] = {}
        for statement in walk_statements(self.body):
            for node in (statement, *nodes_of(statement)):
                where = getattr(node, "where", None)
                if where is not None:
                    found[where] = None
        return list(found)

    def extent_values(self, shapes: Sequence[tuple[S, ...]]) -> list[S]:
        """The size of each `Extent`, from the shapes of the arguments."""
        sizes: dict[int, S] = {}
        for parameter, shape in zip(self.parameters, shapes, strict=True):
            sizes.update(zip(parameter.extents, shape, strict=True))
        return [sizes[number] for number in range(len(self.extents))]


# ---- walking ------------------------------------------------------------------------------------


def walk_statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Every statement, in order, those of inner bodies after the one around them."""
    for statement in body:
        yield statement
        for inner in bodies_of(statement):
            yield from walk_statements(inner)


def bodies_of(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The bodies inside a statement."""
    if isinstance(statement, If):
        return (statement.then, statement.other)
    return (statement.body,) if isinstance(statement, While | For) else ()


def nodes_of(statement: Statement) -> Iterator[Expression]:
    """Every expression of a statement, without those of nested bodies; operands before their users."""
    for name in ("target", "condition", "start", "stop", "step", "value"):
        expression = getattr(statement, name, None)
        if expression is not None:
            yield from walk(expression)


def operands_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that an expression is made of."""
    match expression:
        case Compute(operands=operands) | Element(indices=operands):
            return operands
        case Shuffle(value=value, lane=lane):
            return (value, lane)
        case Atomic(target=target, value=value):
            return (target, value)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all that it is made of, operands first."""
    for operand in operands_of(expression):
        yield from walk(operand)
    yield expression


def mentions(expression: Expression, name: str) -> bool:
    """Return whether an expression reads the variable of that name."""
    return any(isinstance(node, Local) and node.name == name for node in walk(expression))
