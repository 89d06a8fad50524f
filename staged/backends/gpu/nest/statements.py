"""Statements of a loop nest as one thread runs them: arithmetic, checks, indices of items.

Tested by `tests/backends/cublas_cudnn/test_kernels.py` and `tests/backends/cublas_cudnn/test_all_ops.py`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.failures import RECORD, failure_of
from staged.code.expr import Call, Cast, Expr, Index, Infix, Junction, Literal, Name, Prefix, Variable
from staged.code.nest.lowering import ZERO, Lowering
from staged.code.nest.statements import Statements
from staged.code.nest.value import Value
from staged.code.scalars import is_checked
from staged.code.tree import Assign, Declare, Do, If, Jump
from staged.code.types import INDEX, CType, Space, pointer, word
from staged.ir.declaration import prims
from staged.ir.loops import Axis, CheckIndex, Compute, Constant, PositionOf, Statement, Store
from staged.ir.sizes import product
from staged.ir.types import DType, i64

FAILED = Variable(RECORD, pointer(word("st_device_failure"), Space.GLOBAL))


class DeviceStatements:
    """Lowers what differs on a device from statements on single numbers elsewhere. `in_team`:
    others wait for this thread."""

    def __init__(self, low: Lowering, dialect: GpuDialect, in_team: bool) -> None:
        self.low = low
        self.dialect = dialect
        self.scalars = Statements(low, FAILED, may_fail, dialect.spell)
        self.in_team = in_team
        low.statements |= {CheckIndex: self.check_index, PositionOf: self.position, Store: self.store}

    def check_index(self, s: CheckIndex) -> None:
        low = self.low
        low.need("fail")
        given, extent, site = low.operand(s.index).expr, self.scalars.extent(s), Literal(str(low.site(s.where)))
        index = low.variable("index", INDEX)
        low.code.add(Declare(index, given, is_const=False))
        if s.meaning == "index":
            low.code.add(If(Infix("<", index, ZERO), (Assign(index, extent, "+"),)))
        outside = Junction("||", (Infix("<", index, ZERO), Infix(">=", index, extent)))
        fail = Do(Call("st_fail", (FAILED, Name(failure_of(s.meaning)), site, given, extent)))
        # Others of a team wait for this thread, and what is made here may say to a library how much there is.
        goes_on = s.extent != 0 or self.in_team
        low.code.add(If(outside, (fail, Assign(index, ZERO) if goes_on else Jump("return"))))
        low.values[s.target] = Value(index, i64)

    def position(self, s: PositionOf) -> None:
        if s.target.dtype is not i64 or self.low.index_type == INDEX:
            self.scalars.position(s)
        else:  # a number of the program, which may grow: what is computed with it is not an index
            self.low.bind_scalar(s.target, Cast(i64.c_name, self.low.index(s.index)))

    def store(self, s: Store) -> None:
        if not s.atomic:
            self.scalars.store(s)
            return
        place = Index(self.low.arrays[s.array], self.low.index(s.index))
        self.low.code.add(Do(Call(self.dialect.atomics["add"], (Prefix("&", place), self.low.operand(s.value).expr))))


def may_fail(s: Statement) -> bool:
    """Return whether a statement may stop the program; a division by a number that is not 0 cannot."""
    if not isinstance(s, Compute):
        return isinstance(s, CheckIndex)
    if not is_checked(s.op, s.target.dtype):
        return False
    if s.op is prims.FIT:
        return True
    right = s.operands[1]
    if s.op is prims.POW:
        return not isinstance(right, Constant) or right.value < 0
    assert s.op in (prims.FLOOR_DIVIDE, prims.REMAINDER), f"{s.op.name} is checked"
    return not isinstance(right, Constant) or right.value == 0


def number_axes(low: Lowering, axes: Sequence[Axis], item: Variable, used: Container[Axis] | None = None) -> None:
    """The loop variables of an item: quotients and remainders where several loops became one; `used`:
    the ones needed."""
    if len(axes) == 1:
        low.axes[axes[0]] = item
        return
    for number, axis in enumerate(axes):
        if used is not None and axis not in used:
            low.axes[axis] = ZERO
            continue
        stride = combinations(low, axes[number + 1 :])
        index = item if stride == Literal("1") else Infix("/", item, stride)
        if number > 0:
            index = Infix("%", index, combinations(low, (axis,)))
        low.axes[axis] = low.constant(axis.name, low.index_type, index)


def combinations(low: Lowering, axes: Sequence[Axis]) -> Expr:
    """The number of combinations of iterations of these axes."""
    return low.size(product(axis.size for axis in axes))


def wide(low: Lowering, number: Expr) -> Expr:
    """An unsigned number of the device's as an index."""
    return Cast(INDEX.text, number) if low.index_type == INDEX else number


def array_of(dtype: DType, space: Space = Space.PRIVATE) -> CType:
    """The type of the elements of an array that is declared in a memory."""
    return CType(dtype.c_name, dtype, space=space)
