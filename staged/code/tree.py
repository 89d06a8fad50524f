"""Statements and functions of C-like code. Expressions are in `expr.py`; a `Variable` there is known by its identity.

A statement may carry a `note`, the comment behind it. Lists of statements are tuples, so that trees can be shared.

Tested by `tests/code/test_printer.py` and `tests/code/test_uses.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from staged.code.expr import Argument, Expr, Name, Variable, call


@dataclass(frozen=True, slots=True, eq=False)
class Declare:
    """`const float x = value;`, or an array of `sizes`; `also` are further variables of the same type,
    in the same statement."""

    variable: Variable
    value: Expr | None = None
    is_const: bool = True
    sizes: tuple[Expr, ...] = ()
    also: tuple[tuple[Variable, Expr], ...] = ()
    note: str = ""
    has_effects: bool = False
    """True if the value is computed even where the variable is unused."""
    is_kept: bool = False
    """True if the variable stays even where it is unused."""
    alignment: int = 0
    """Bytes that its address is a multiple of; 0: those of its type."""


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """`enum { ROWS = 8, COLUMNS = 2 };`, sizes by name."""

    sizes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class DeclareStruct:
    """`const T x = {.a = value, ...};`, a field a line, with a note for each if there are `notes`; if the struct is
    returned, `return (T){.a = value, ...};`.
    """

    variable: Variable
    fields: tuple[tuple[str, Expr], ...]
    notes: tuple[str, ...] = ()
    use: Literal["constant", "variable", "returned"] = "constant"


@dataclass(frozen=True, slots=True, eq=False)
class DeclareTable:
    """`const T x[] = {row, ...};`, a row a line."""

    variable: Variable
    rows: tuple[Expr, ...]
    is_flat: bool = False
    """Several rows are in one line."""
    size: int = 0
    """Of a table that has further rows, which are written later: the number of all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """`target = value;`, or `target op= value;`."""

    target: Expr
    value: Expr
    op: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Do:
    """An expression whose value is not used: a call."""

    expr: Expr
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`for (int64_t i = start; i < stop; i += step)`; with `is_down`, as long as `i > stop`.

    `unroll`: so many iterations are to be written out by the compiler, 1: none; 0 leaves it the choice.
    """

    index: Variable
    start: Expr
    stop: Expr
    body: tuple[Statement, ...]
    step: Expr | None = None
    """None: 1."""
    unroll: int = 0
    is_down: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ForAny:
    """`for (int64_t i = start; condition; onwards)`, where a `For` does not say it."""

    index: Variable
    start: Expr
    condition: Expr
    onwards: Assign | Do
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ForBits:
    """For each bit of `mask` that is set, from the lowest: `rest` holds it and those above."""

    rest: Variable
    mask: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """A loop on a condition; without one, until a jump leaves it."""

    condition: Expr | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """A branch. Where it `aligns`, the arguments of a long call in its condition stand below the first one."""

    condition: Expr
    then: tuple[Statement, ...]
    other: tuple[Statement, ...] = ()
    aligns: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Statements in braces."""

    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    """`return`, `break`, `continue` or `goto label`; `value` is what is returned."""

    word: str
    note: str = ""
    value: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """The place to which `goto name` jumps."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """All threads of a block, or of a warp, wait for one another."""

    is_warp: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Comment:
    """A line for readers."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Blank:
    """An empty line."""


@dataclass(frozen=True, slots=True, eq=False)
class Unused:
    """Says that these are not used, so that compilers need not."""

    names: tuple[Name, ...]
    note: str = ""


Statement = (
    Declare
    | Constants
    | DeclareStruct
    | DeclareTable
    | Assign
    | Do
    | For
    | ForAny
    | ForBits
    | While
    | If
    | Block
    | Jump
    | Label
    | Barrier
    | Comment
    | Blank
    | Unused
)


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """A parameter of a function; `is_alone`: nothing else in the function reaches what it points to (`restrict`)."""

    variable: Variable
    is_alone: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function without a result. One with `threads` is a kernel of a device, in blocks of so many."""

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]
    comments: tuple[str, ...] = ()
    threads: int = 0
    block: tuple[int, int, int] | None = None
    """The sides of its blocks, unless these are rows of threads."""
    is_inline: bool = False
    is_apart: bool = False
    """True if compilers do not inline it: among other variables its indices would not stay in registers."""
    breaks_lines: bool = False
    """True if long statements are broken after commas, as long heads are."""


@dataclass(slots=True)
class CodeBuilder:
    """Collects statements, in blocks inside one another."""

    body: list[Statement] = field(default_factory=list)

    def add(self, statement: Statement) -> None:
        self.body.append(statement)

    def do(self, function: str, *arguments: Argument, note: str = "") -> None:
        """Add the call of a function whose result is not used."""
        self.add(Do(call(function, *arguments), note))

    def comment(self, text: str) -> None:
        """Add a line for readers."""
        self.add(Comment(text))

    @contextmanager
    def nested(self) -> Iterator[list[Statement]]:
        """Inside, statements are added to the list that is yielded."""
        outer, self.body = self.body, []
        try:
            yield self.body
        finally:
            self.body = outer

    @contextmanager
    def branch(self, condition: Expr, aligns: bool = False) -> Iterator[None]:
        """Inside, statements are added to a branch on the condition."""
        with self.nested() as inner:
            yield
        self.add(If(condition, tuple(inner), aligns=aligns))

    @contextmanager
    def block(self) -> Iterator[None]:
        """Inside, statements are added to a block, which has braces if it declares something."""
        with self.nested() as inner:
            yield
        has_names = any(isinstance(each, Declare | DeclareStruct | DeclareTable) for each in inner)
        for each in (Block(tuple(inner)),) if has_names else inner:
            self.add(each)

    @contextmanager
    def loop(
        self, index: Variable, start: Expr, stop: Expr, step: Expr | None = None, unroll: int = 0
    ) -> Iterator[None]:
        """Inside, statements are added to the body of a loop."""
        with self.nested() as inner:
            yield
        self.add(For(index, start, stop, tuple(inner), step, unroll))


def inner_of(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The blocks inside of a statement."""
    match statement:
        case For(body=body) | ForAny(body=body) | ForBits(body=body) | While(body=body) | Block(body=body):
            return (body,)
        case If(_, then, other):
            return then, other
    return ()


def with_inner(statement: Statement, change: Callable[[tuple[Statement, ...]], Iterable[Statement]]) -> Statement:
    """A statement with changed blocks inside. A statement without blocks stays the same."""
    match statement:
        case For() | ForAny() | ForBits() | While() | Block():
            return replace(statement, body=tuple(change(statement.body)))
        case If(_, then, other):
            return replace(statement, then=tuple(change(then)), other=tuple(change(other)))
    return statement


def walk(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, one around others before these."""
    for statement in body:
        yield statement
        for inner in inner_of(statement):
            yield from walk(inner)
