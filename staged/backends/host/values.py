"""Numbers, dimensions and views: ops that are expressions of C, or a local.

Tested by `tests/backends/native/test_golden.py` and `tests/backends/host/test_scalars.py`.
"""

from __future__ import annotations

from staged.backends.host.body import BodyEmitter, placed
from staged.backends.host.messages import emit_failure
from staged.code.expr import Cast, Expr, Index, Infix, Junction, Literal, Name, infix_sum, literal
from staged.code.nest.value import is_zero
from staged.code.operators import ARITHMETIC
from staged.code.scalars import scalar_expression
from staged.code.types import INDEX, constants
from staged.code.writer import c_string
from staged.ir.declaration import prims
from staged.ir.names import OWN, name_of, rank
from staged.ir.nodes import Op, Value
from staged.ir.size_functions import of_user
from staged.ir.sizes import Dim, Extent, smallest
from staged.ir.storage import is_tensor
from staged.ir.types import CPU, row_major


class Values:
    """Emits ops that compute a number, or say where an array is."""

    def __init__(self, body: BodyEmitter) -> None:
        self.body = body

    def emit_constant(self, op: Op) -> None:
        value = op.result
        if is_tensor(value):
            return  # a table of the file, placed by the plan
        self.body.scalars[value] = literal(op.attrs["value"], value.tensor.dtype)

    def emit_scalar(self, op: Op) -> None:
        """A scalar op: a C expression, written in place if it is a cast, a name or is used once, else a local."""
        operands = [self.body.scalar(operand) for operand in op.operands]
        value = op.result
        expression = self.index_arithmetic(op, operands) or scalar_expression(op, operands, self.body)
        has_name = isinstance(expression.operand if isinstance(expression, Cast) else expression, Name)
        if has_name or (not op.effects and self.body.use_count.get(value, 0) == 1 and self.may_wait(op)):
            self.body.scalars[value] = expression
            return
        self.body.where(op.where)
        if value in self.body.joined and not op.effects:
            self.body.scalars[value] = self.body.scalars[self.body.joined[value]]
            self.body.assign(self.body.scalars[value], expression)
            return
        self.body.declare(value, expression, has_effects=bool(op.effects))
        if op.effects:
            self.body.fail_check()

    def index_arithmetic(self, op: Op, operands: list[Expr]) -> Expr | None:
        """`batch * 100` as it stands, where the ranges of loop indices show that nothing can overflow."""
        if op.name not in ARITHMETIC or op.result.tensor.dtype.kind != "i" or self.body.ranges.of(op.result) is None:
            return None
        return Infix(ARITHMETIC[op.name], *operands)

    def may_wait(self, op: Op) -> bool:
        """Return whether the expression can stand where it is used: in the same block, and the user gave it no name of
        its own.

        Carried scalars change only where a block ends (and `pass_on` settles what it reads before it writes), so inside
        a block an expression keeps its meaning. A named value goes into an end (`total += loss`), else it is a local.
        """
        value = op.result
        use = self.body.only_use.get(value)
        if use is None or use[0] is not self.body.home[value]:
            return False
        return rank(value.hint) < OWN or use[1]

    def emit_dim(self, op: Op) -> None:
        """The size of a dimension, checked unless that has been done or its range shows that it fits."""
        dim: Dim = op.attrs["dim"]
        value = op.result
        size = self.body.scalar(op.operands[0])
        if op.effects or not isinstance(size, Name):  # else the parameter of a function
            self.body.where(op.where)
            size = self.body.local(value.hint or dim.name, INDEX, size)
        self.body.scalars[value] = self.body.sizes[dim] = size
        least, most = op.attrs.get("least", 0), op.attrs["most"]
        span = self.body.ranges.of(op.operands[0])
        if not op.effects or span is not None and least <= span[0] and span[1] <= most:
            return
        ends = Infix("<", size, Literal(str(least))), Infix(">", size, Literal(str(most)))
        with self.body.code.branch(Junction("||", ends)):
            message = Literal(c_string(f"dimension `{of_user(dim)}` is %lld, it may be {least} to {most}"))
            emit_failure(self.body, "ST_VALUE_ERROR", op.where, message, Cast("long long", size))

    def emit_view(self, op: Op) -> None:
        value, source = op.result, op.operands[0]
        base = self.body.pointer(source)
        offset = self.view_offset(op, source)
        if offset is None:
            self.body.pointers[value] = base
            return
        if value.tensor.size == 1 and op.device == CPU and self.is_used_once_here(value):
            self.body.pointers[value] = Infix("+", base, offset)
            return
        self.body.where(op.where)
        start = self.body.local(name_of(value), constants(value.tensor.dtype), Infix("+", base, offset))
        self.body.pointers[value] = placed(start, op.device)

    def is_used_once_here(self, value: Value) -> bool:
        """Return whether the only use of a value is in the block that computes it, and is not the block's end."""
        block, is_end = self.body.only_use.get(value, (None, True))
        return self.body.use_count[value] == 1 and not is_end and block is self.body.home.get(value)

    def emit_element(self, op: Op) -> None:
        """An array of one element as the number it holds."""
        self.body.where(op.where)
        place = self.body.pointer(op.operands[0])
        base, offset = (place.left, place.right) if isinstance(place, Infix) else (place, Literal("0"))
        self.body.declare(op.result, Index(base, offset))

    def view_offset(self, op: Op, source: Value) -> Expr | None:
        """Elements from the start of what is viewed, None for the very start."""
        if op.declared in (prims.RESHAPE, prims.STOP_GRADIENT):
            return None
        strides = row_major(*source.tensor.shape)
        if op.declared is prims.SLICE:
            offset: Extent = 0
            for start, stride, extent in zip(op.attrs["start"], strides, source.tensor.shape, strict=True):
                # The start of a slice without elements may lie behind the array.
                offset = offset + (start if isinstance(start, int) else smallest(start, extent)) * stride
            return None if offset == 0 else self.body.extent(offset)
        terms = []
        for start, stride, extent, size in zip(
            op.operands[1:], strides, source.tensor.shape, op.attrs["sizes"], strict=True
        ):
            if size == extent or is_zero(self.body.scalar(start)):
                continue
            term = self.body.scalar(start)
            if stride != 1:
                term = Infix("*", term, self.body.extent(stride))
            if not (isinstance(term, Literal) and term.text == "0"):
                terms.append(term)
        return infix_sum(terms) if terms else None
