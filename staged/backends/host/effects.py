"""Prints, files, progress bars, clocks and assertions of a program.

Tested by `tests/backends/native/test_golden.py` and `tests/formatting/test_statements.py`.
"""

from __future__ import annotations

from staged.backends.host.body import BodyEmitter
from staged.backends.host.custom import call_checked
from staged.backends.host.messages import (
    address,
    emit_failure,
    emit_file_open,
    emit_file_print,
    emit_print,
    message_arguments,
    message_of,
)
from staged.backends.host.progress import emit_progress
from staged.backends.host.ranks import on_its_ranks
from staged.backends.host.saved import emit_save
from staged.base.artifact import ErrorKind, FailureKind
from staged.code.expr import Call, Expr, Infix, Items, Literal, Name, Prefix, Variable, call, literal
from staged.code.operators import COMPARISONS, OPPOSITES
from staged.code.support.clock import CLOCK_NAMES
from staged.code.tree import Assign, CodeBuilder, Declare
from staged.code.types import INDEX, word
from staged.ir.names import name_of
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ops.custom import CFunction


class Effects:
    """Emits the ops that show or check something."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body

    def emit_print(self, op: Op) -> None:
        self.body.where(op.where)
        to_file = op.attrs.get("file") == "file"
        with on_its_ranks(self.body, op, prints=not to_file):
            if to_file:
                self.body.need(*emit_file_print(self.body.code, op, self.body, self.body.site_of(op.where)))
            else:
                self.body.need(*emit_print(self.body.code, op, self.body))

    def emit_file_open(self, op: Op) -> None:
        self.body.where(op.where)
        if op.attrs.get("by") == "first":
            # The other ranks have no file, and run no statement that uses it.
            file = self.body.changing(name_of(op.result), INDEX, Literal("0"))
            with on_its_ranks(self.body, op):
                opened = self.open_file(op, "opened")
                self.body.code.add(Assign(file, opened))
        else:
            file = self.open_file(op, name_of(op.result))
        self.body.fail_check()
        self.body.scalars[op.result] = file

    def open_file(self, op: Op, hint: str) -> Name:
        name = self.body.name(hint)
        self.body.need(*emit_file_open(self.body.code, op, self.body, self.body.site_of(op.where), name))
        return Name(name)

    def emit_file_close(self, op: Op) -> None:
        self.body.where(op.where)
        self.body.need("files")
        place = self.body.site_of(op.where), self.body.scalar(op.operands[0])
        with on_its_ranks(self.body, op):
            self.body.leave_if(Prefix("!", call("st_file_close", "host", *place)))

    def emit_save(self, op: Op) -> None:
        self.body.where(op.where)
        with on_its_ranks(self.body, op):
            self.body.need(*emit_save(self.body.code, op, self.body, self.body.site_of(op.where), self.body.name))

    def emit_callback(self, op: Op) -> None:
        """A call of Python's function: the addresses of its arguments and of its results."""
        self.body.where(op.where)
        self.body.need("callback")
        places = self.places(op)
        code = self.body.code
        with code.block():
            given = [address(code, operand, self.body) for operand in op.operands]
            arguments, results = (
                table(code, name, type, items)
                for name, type, items in (("arguments", "const void *const", given), ("results", "void *const", places))
            )
            self.body.try_(
                call("st_callback", "host", self.body.site_of(op.where), op.attrs["number"], arguments, results)
            )

    def emit_custom_op(self, op: Op) -> None:
        """A call of the user's C function: addresses with the size of each axis, numbers, the addresses of results."""
        self.body.where(op.where)
        function: CFunction = op.attrs["function"]
        given: list[Expr] = []
        for operand in op.operands:
            given += [self.body.operand(operand), *map(self.body.extent, operand.tensor.shape)]
        call_checked(self.body, function.name, call(function.name, *given, *self.places(op)), op.where)

    def places(self, op: Op) -> list[Expr]:
        """The addresses of an op's results; numbers get places here."""
        found: list[Expr] = []
        for result in op.results:
            if is_tensor(result):
                found.append(self.body.pointer(result))
            else:
                zero = literal(0, result.tensor.dtype)
                name = self.body.scalars[result] = self.body.changing(name_of(result), self.body.c_type(result), zero)
                found.append(Prefix("&", name))
        return found

    def emit_progress(self, op: Op) -> None:
        self.body.where(op.where)
        self.body.need(*emit_progress(self.body.code, op, self.body))

    def emit_clock(self, op: Op) -> None:
        """`time.perf_counter()` and the like: read here, once, whatever the expression around it."""
        self.body.need("clocks")
        self.body.where(op.where)
        read = "st_seconds" if op.result.tensor.dtype.is_float else "st_nanoseconds"
        self.body.declare(op.result, Call(read, (Name(CLOCK_NAMES[op.attrs["clock"]]),)))

    def emit_assert(self, op: Op) -> None:
        self.body.where(op.where)
        with self.body.code.branch(self.negated(op.operands[0])):
            kind = op.attrs.get("kind", "assertion")
            message = self.message(op, op.operands[1:], "assertion failed" if kind == "assertion" else "")
            emit_failure(self.body, error_name(kind), op.where, *message)

    def negated(self, condition: Value) -> Expr:
        """The negation of a condition. `!(a < b)` is not `a >= b`, since one may be NaN, unless they are integers."""
        expression, test = self.body.scalar(condition), condition.producer
        if (
            isinstance(expression, Infix)
            and expression.op in OPPOSITES
            and test is not None
            and test.name in COMPARISONS
        ):
            if not test.operands[0].tensor.dtype.is_float or expression.op in ("==", "!="):
                return Infix(OPPOSITES[expression.op], expression.left, expression.right)
        return Prefix("!", expression)

    def emit_raise(self, op: Op) -> None:
        self.body.where(op.where)
        with self.body.code.block():
            message = self.message(op, op.operands, "")
            self.body.need("fail")
            self.body.code.do("st_fail", "host", error_name(op.attrs["kind"]), self.body.site_of(op.where), *message)

    def message(self, op: Op, values: tuple[Value, ...], what: str) -> tuple[Expr, ...]:
        """The arguments of `st_fail` for `what`, then the user's message (whose operand numbers count from the first
        of `values`).
        """
        parts = op.attrs.get("parts", ())
        if what:
            parts = (f"{what}: ", *parts) if parts else (what,)
        made = message_of(parts, values, self.body, takes_floats=False)
        self.body.need(*made.needs, *(() if made.format else ("put_format",)))
        return message_arguments(self.body.code, made)


def error_name(kind: FailureKind) -> str:
    """The name that C has for a kind of error."""
    return f"ST_{ErrorKind[f'{kind.upper()}_ERROR'].name}"


def table(code: CodeBuilder, name: str, type: str, items: list[Expr]) -> Expr:
    """An array of addresses, declared here; NULL for none."""
    if not items:
        return Name("NULL")
    variable = Variable(name, word(type))
    code.add(Declare(variable, Items(tuple(items)), is_const=False, sizes=(Literal(""),)))
    return variable
