"""Masks of joined arrays are read from the array that they are joined to."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.sizes import Extent
from staged.ir.users import users_of
from staged.passes.algebra import number_of


def read_masks_of_pieces(function: Function) -> Function:
    """z = concat(y, ...); y <= 0  ->  z[:n] <= 0, if only masks and the concat read y

    Why: the next layer keeps z for its gradient; the mask in the gradient of `y = relu(x)` would keep y, too.
    Leaves: the first comparison, for `eliminate_dead_code`.
    """
    if not any(op.declared is prims.CONCAT for op in walk_ops(function.block)):
        return function
    return function.with_block(_Reader(function).block(function.block))


class _Reader(Copier):
    def __init__(self, function: Function) -> None:
        super().__init__(Builder())
        self.users = users_of(function.block)
        self.joined: dict[Value, tuple[Op, Extent]] = {}
        """The operands of concats in this block and those around it: the concat, and the offset of the operand."""

    def contents(self, block: Block) -> None:
        around, self.joined = self.joined, dict(self.joined)
        super().contents(block)
        self.joined = around

    def op(self, op: Op) -> None:
        if _is_mask(op) and op.operands[0] in self.joined:
            again = op.replace(operands=[self.piece(op, *self.joined[op.operands[0]]), self.value(op.operands[1])])
            self.define(op.results, self.builder.append(again).results)
            return
        super().op(op)
        begin: Extent = 0
        for operand in op.operands if op.declared is prims.CONCAT else ():
            users = self.users[operand]
            if len(users) > 1 and all(user is op or user is not None and _is_mask(user) for user in users):
                self.joined.setdefault(operand, (op, begin))
            begin = begin + operand.tensor.shape[op.attrs["axis"]]

    def piece(self, mask: Op, concat: Op, begin: Extent) -> Value:
        """The operand of a concat that begins there, as a slice of the result."""
        (y, _), axis = mask.operands, concat.attrs["axis"]
        start: list[Extent] = [0] * y.tensor.ndim
        stop = list(y.tensor.shape)
        start[axis], stop[axis] = begin, begin + stop[axis]
        attrs = {"start": tuple(start), "stop": tuple(stop), "step": (1,) * y.tensor.ndim}
        whole = self.value(concat.result)
        made = self.builder.op(prims.SLICE, [whole], [y.type], attrs=attrs, device=mask.device, where=mask.where)
        return made.result


def _is_mask(op: Op) -> bool:
    """Return whether an op compares the elements of an array with a number."""
    compares = op.declared in (prims.LESS, prims.LESS_EQUAL, prims.GREATER, prims.GREATER_EQUAL)
    return compares and bool(op.result.tensor.shape) and number_of(op.operands[1]) is not None
