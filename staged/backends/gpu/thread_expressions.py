"""Expressions of a kernel of the user's: numbers, elements whose indices are checked, shuffles, atomic operations.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from staged.backends.gpu.dialect import LAUNCH_WORDS, GpuDialect
from staged.backends.gpu.failures import RECORD
from staged.backends.gpu.nest.statements import FAILED
from staged.code.expr import (
    Call,
    Cast,
    Expr,
    Index,
    Infix,
    Literal,
    Prefix,
    Variable,
    literal,
)
from staged.code.kernel_text import Site
from staged.code.scalars import narrow
from staged.code.types import CType, scalar
from staged.code.writer import Names
from staged.errors import UnsupportedError
from staged.ir.thread_kernel import (
    AXES,
    Argument,
    Atomic,
    Builtin,
    Compute,
    Const,
    Element,
    Expression,
    Extent,
    Local,
    Memory,
    Shuffle,
    ThreadKernel,
)

_SYMBOLS = {
    "add": "+", "subtract": "-", "multiply": "*", "floor_divide": "/", "remainder": "%",
    "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
}  # fmt: skip
"""Operators of C that are exact on integers in range, where the bounds of an expression are known."""


class ThreadExpressions:
    """The code of one thread, with the variables for the kernel's arrays, numbers and locals."""

    def __init__(self, kernel: ThreadKernel, dialect: GpuDialect, site: Site) -> None:
        self.kernel = kernel
        self.dialect = dialect
        self.site = site
        self.names = Names()
        self.names.used |= dialect.reserved | dialect.reserved_by_calls | LAUNCH_WORDS | {RECORD}
        self.snippets: set[str] = set()
        self.arrays: dict[str, Variable] = {}
        self.arguments: dict[str, Variable] = {}
        self.extents: list[Variable] = []
        self.locals: dict[str, Variable] = {}
        self.changing: tuple[Element, Expr] | None = None
        """The element that is being changed, and its text."""

    def need(self, *snippets: str) -> None:
        """Ask for support snippets by name."""
        self.snippets.update(snippets)

    def variable(self, hint: str, type: CType) -> Variable:
        """A variable with a name of its own."""
        return Variable(self.names.fresh(hint), type)

    def local(self, local: Local) -> Variable:
        """The variable for a local of the user's."""
        if local.name not in self.locals:
            self.locals[local.name] = self.variable(local.name, scalar(local.type.dtype))
        return self.locals[local.name]

    def expr(self, e: Expression) -> Expr:
        match e:
            case Const():
                return literal(e.value, e.type.dtype)
            case Local():
                return self.local(e)
            case Argument():
                return self.arguments[e.name]
            case Extent():
                return self.extents[e.number]
            case Builtin():
                return Cast("int64_t", self.dialect.places[e.name, AXES[e.axis]])
            case Compute():
                return self.compute(e)
            case Element():
                return self.element(e)
            case Shuffle():
                if e.kind not in self.dialect.shuffles:
                    words = f"the back end '{self.dialect.back_end}' cannot write a shuffle: its devices have no warps"
                    raise UnsupportedError(words, where=e.where)
                lane = self.expr(e.lane)
                c_type = "int" if (e.kind == "idx" or e.kind == "xor") else "unsigned int"
                given = lane if isinstance(lane, Literal) else Cast(c_type, lane)
                return Call(self.dialect.shuffles[e.kind], (*self.dialect.all_lanes, self.expr(e.value), given))
            case Atomic():
                return self.atomic(e)

    def compute(self, e: Compute) -> Expr:
        operands = [self.expr(operand) for operand in e.operands]
        dtype = e.type.dtype
        if e.exact and e.op in _SYMBOLS:
            return narrow(self.arithmetic(_SYMBOLS[e.op], operands[0], operands[1]), dtype)
        if e.exact and e.op == "negative":
            return narrow(Prefix("-", operands[0]), dtype)
        if e.checked:
            self.need(f"checked_{e.op}_{dtype}")
            site = Literal(str(self.site(e.where)))
            return Call(f"st_checked_{e.op}_{dtype}", (FAILED, site, *operands))
        dtypes = [operand.type.dtype for operand in e.operands]
        return self.dialect.spell(e.op, dtypes, dtype, operands, e.attributes(), self.need)

    def element(self, e: Element) -> Expr:
        if self.changing is not None and self.changing[0] == e:
            return self.changing[1]
        if not any(e.checked):
            return Index(self.arrays[e.array], self.place(e))
        self.need(f"thread_read_{e.type.dtype}")
        return Call(f"st_thread_read_{e.type.dtype}", (self.arrays[e.array], self.place(e)))

    def atomic(self, e: Atomic) -> Expr:
        array, dtype = self.arrays[e.target.array], e.type.dtype
        value = self.expr(e.value)
        if any(e.target.checked) or dtype.name == "i64" or e.op not in self.dialect.atomics:
            self.need(f"thread_atomic_{e.op}_{dtype}")
            return Call(f"st_thread_atomic_{e.op}_{dtype}", (array, self.place(e.target), value))
        return Call(self.dialect.atomics[e.op], (Prefix("&", Index(array, self.place(e.target))), value))

    def place(self, e: Element) -> Expr:
        """The place of an element in its array, row by row; where an index is checked, -1 if there is none."""
        array = self.kernel.array_of(e.array)
        extents: list[Expr]
        if isinstance(array, Memory):
            extents = [Literal(str(extent)) for extent in array.shape]
        else:
            extents = [self.extents[number] for number in array.extents]
        place: Expr | None = None
        checked = False
        for index, extent, is_checked in zip(e.indices, extents, e.checked, strict=True):
            given = self.expr(index)
            if is_checked:
                self.need("thread_index")
                given = Call("st_thread_index", (FAILED, Literal(str(self.site(e.where))), given, extent))
            checked = checked or is_checked
            if place is None:
                place = given
            elif checked:
                self.need("thread_place")
                place = Call("st_thread_place", (place, given, extent))
            else:
                place = self.arithmetic("+", self.arithmetic("*", place, extent), given)
        assert place is not None, "an array has an axis"
        return place

    def converted_anyway(self, e: Expr) -> Expr:
        """A thread's place without the cast that C makes by itself, where an expression is one."""
        is_place = isinstance(e, Cast) and e.operand in self.dialect.places.values()
        return e.operand if isinstance(e, Cast) and is_place else e

    def arithmetic(self, op: str, left: Expr, right: Expr) -> Expr:
        """`left op right` on int64_t; of two sides C converts the second by itself,
        where the first is no plain number."""
        if op in "+-*" and not isinstance(left, Literal):
            right = self.converted_anyway(right)
        return Infix(op, left, right)
