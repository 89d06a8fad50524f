"""Numbers, dimensions and views: ops that are expressions of C, or a local.

Tested by `tests/backends/native/test_golden.py` and `tests/backends/host/test_scalars.py`.
"""

from __future__ import annotations

from staged.backends.host.body import BodyEmitter, placed
from staged.code.expr import Cast, Expr, Index, Infix, Junction, Literal, Name, infix_sum, literal, scaled
from staged.code.nest.value import is_zero
from staged.code.operators import ARITHMETIC
from staged.code.scalars import scalar_expression
from staged.code.types import INDEX, constants
from staged.code.writer import c_string
from staged.ir.declaration import prims
from staged.ir.names import OWN, name_of, rank
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.ir.types import Dim, Shape, bound


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
        """A scalar op: a C expression, written in place if it is a cast or is used once, else a local."""
        operands = [self.body.scalar(operand) for operand in op.operands]
        value = op.result
        expression = self.index_arithmetic(op, operands) or scalar_expression(op, operands, self.body)
        is_cast = isinstance(expression, Cast) and isinstance(expression.operand, Name)
        if is_cast or (not op.effects and self.body.use_count.get(value, 0) == 1 and self.may_wait(op)):
            self.body.scalars[value] = expression
            return
        self.body.where(op.where)
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
        """The size of a dimension, checked unless that has been done: what its arrays have room for is known."""
        dim: Dim = op.attrs["dim"]
        value = op.result
        self.body.where(op.where)
        size = self.body.local(value.hint or dim.name, INDEX, self.body.scalar(op.operands[0]))
        self.body.scalars[value] = self.body.sizes[dim] = size
        if not op.effects:
            return
        self.body.need("fail")
        most = op.attrs["most"]
        ends = Infix("<", size, Literal("0")), Infix(">", size, Literal(str(most)))
        with self.body.code.branch(Junction("||", ends)):
            message = Literal(c_string(f"dimension `{dim.name}` is %lld, it may be 0 to {most}"))
            site = self.body.site_of(op.where)
            self.body.code.do("st_fail", "host", "ST_VALUE_ERROR", site, message, Cast("long long", size))
            self.body.leave_with_error()

    def emit_view(self, op: Op) -> None:
        value, source = op.result, op.operands[0]
        base = self.body.pointer(source)
        offset = self.view_offset(op, source)
        if offset is None:
            self.body.pointers[value] = base
            return
        self.body.where(op.where)
        start = self.body.local(name_of(value), constants(value.tensor.dtype), Infix("+", base, offset))
        self.body.pointers[value] = placed(start, op.device)

    def emit_element(self, op: Op) -> None:
        """An array of one element as the number it holds."""
        self.body.where(op.where)
        self.body.declare(op.result, Index(self.body.pointer(op.operands[0]), Literal("0")))

    def view_offset(self, op: Op, source: Value) -> Expr | None:
        """Elements from the start of what is viewed, None for the very start."""
        if op.declared in (prims.RESHAPE, prims.STOP_GRADIENT):
            return None
        strides = _strides(source.tensor.shape)
        if op.declared is prims.SLICE:
            offset = sum(start * stride for start, stride in zip(op.attrs["start"], strides, strict=True))
            return Literal(str(offset)) if offset else None
        terms = []
        for start, stride, extent, size in zip(
            op.operands[1:], strides, source.tensor.shape, op.attrs["sizes"], strict=True
        ):
            if size == extent or is_zero(self.body.scalar(start)):
                continue
            term = scaled(self.body.scalar(start), stride)
            if term is not None and not (isinstance(term, Literal) and term.text == "0"):
                terms.append(term)
        return infix_sum(terms) if terms else None


def _strides(shape: Shape) -> list[int]:
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(stride)
        stride *= bound(extent)
    return strides[::-1]
