"""Rules of `simplify` for masks of gradients, which then read fewer arrays of the forward pass; see `algebra.py`.

The gradient of `y = relu(x)` is `where(y <= 0, 0, d_y)`. If `y` is pooled or dropped out next, the result of that layer
is kept for the backward pass anyway, and decides the same.

Tested by `tests/passes/test_rules.py`.
"""

from __future__ import annotations

import math

from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.passes.algebra import Emitter, number_of, rule


@rule(prims.SELECT)
def mask_of_pooled(op: Op, emit: Emitter) -> Value | None:
    """select(y <= 0, 0, pool_backward(d))  ->  pool_backward(select(pool(y) <= 0, 0, d)), of the maxima of y

    Why: y has several times as many elements as its maxima, and nothing else of the backward pass reads y.
    Exact: each element of d goes to the element of y that is the maximum. All others are the 0.0 that sums begin with,
    masked or not.
    """
    compared = _compared(op)
    backward = op.operands[2].made_by(prims.MAX_POOL2D_BACKWARD)
    pool = None if backward is None else backward.operands[1].made_by(prims.MAX_POOL2D)
    if compared is None or backward is None or pool is None or pool.operands[0] is not compared.operands[0]:
        return None
    d, places = backward.operands
    masked = _masked(compared, pool.results[0], d, emit)
    return emit.emit(prims.MAX_POOL2D_BACKWARD, [masked, places], **backward.attrs)


@rule(prims.SELECT)
def mask_of_dropped_out(op: Op, emit: Emitter) -> Value | None:
    """select(y <= 0, 0, s * select(keep, d, 0))  ->  select(z <= 0, 0, ...), where z = select(keep, s * y, 0) is there

    Why: the next layer keeps z for its gradient, and nothing else of the backward pass reads y.
    Exact: for a factor of at least 1, with which no product is rounded to 0. Of what is not kept the gradient is 0.0
    either way.
    """
    compared, scaled = _compared(op), op.operands[2].made_by(prims.MULTIPLY)
    dropped = None if scaled is None else scaled.operands[0].made_by(prims.SELECT)
    if compared is None or scaled is None or dropped is None or not _is_zero(dropped.operands[2]):
        return None
    y, bound = compared.operands
    keep, factor = dropped.operands[0], scaled.operands[1]
    number = number_of(factor)
    if number is None or not 1 <= number < math.inf or number_of(bound) != 0:
        return None
    product = emit.existing(prims.MULTIPLY, [y, factor])
    z = None if product is None else emit.existing(prims.SELECT, [keep, product, dropped.operands[2]])
    return None if z is None else _masked(compared, z, op.operands[2], emit)


def _compared(op: Op) -> Op | None:
    """The comparison with a number, whose result is the mask of `select(y <= 0, 0.0, gradient)`."""
    mask, zero, _ = op.operands
    compared = mask.made_by(prims.LESS, prims.LESS_EQUAL, prims.GREATER, prims.GREATER_EQUAL)
    return compared if compared is not None and _is_zero(zero) and number_of(compared.operands[1]) is not None else None


def _is_zero(value: Value) -> bool:
    number = number_of(value)
    return isinstance(number, float) and number == 0.0 and math.copysign(1.0, number) > 0


def _masked(compared: Op, y: Value, gradient: Value, emit: Emitter) -> Value:
    """The gradient, but 0 where `y` compares so."""
    number = number_of(compared.operands[1])
    assert number is not None
    mask = emit.emit(compared.declared, [y, emit.full(y.tensor, number)])
    return emit.emit(prims.SELECT, [mask, emit.full(gradient.tensor, 0.0), gradient])
