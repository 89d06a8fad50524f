"""The epilogues of cuBLAS, cublasLt and cuDNN, recognised in ops after a product.

    activation(alpha * product + beta * addend + bias)

`alpha` and `beta` are numbers that the host knows, `addend` has the product's shape (the result is made in its place),
`bias` has an element for each column of a matrix product or each channel of a convolution. What an op's epilogue block
computes either has this form, or is a kernel of its own after the product.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from staged.ir.declaration import Declaration, prims
from staged.ir.nodes import Block, Op, Value
from staged.ir.types import DType, f32

Activation = Literal["", "gelu"]
"""The activations that libraries compute as a program does. Their relu is not one of them: for NaN it returns 0."""
BIAS_AXES = {"matmul": -1, "conv2d": 1, "conv2d_backward_input": 1, "conv2d_backward_weight": 1}
"""The axis of a contraction's result along which a bias differs, by the name of the contraction."""
MOVES = (prims.BROADCAST_TO, prims.RESHAPE, prims.STOP_GRADIENT)
"""Ops that give the elements of their operand, in other places or more often."""
GELU_SCALE, GELU_CUBE = math.sqrt(2.0 / math.pi), 0.044715


@dataclass(frozen=True, slots=True)
class Scale:
    """A product of factors: `number` times the values of the block's parameters `params`."""

    number: float = 1.0
    params: tuple[int, ...] = ()

    def times(self, other: Scale) -> Scale:
        return Scale(self.number * other.number, (*self.params, *other.params))


@dataclass(frozen=True, slots=True)
class Form:
    """An epilogue that a library takes; `addend` and `bias` are parameters of its block (0 is the product)."""

    alpha: Scale = Scale()
    beta: Scale = Scale(0.0)
    addend: int | None = None
    bias: int | None = None
    activation: Activation = ""

    @property
    def is_linear(self) -> bool:
        """Return whether it is a scaled sum, as every library has it."""
        return self.bias is None and not self.activation


def form_of(contraction: str, body: Block) -> Form | None:
    """The form of an epilogue `body` (parameters: the product, inputs) after a contraction of this name; None if it has
    none.
    """
    if len(body.end.operands) != 1:
        return None
    product = body.params[0]
    if body.end.operands[0].tensor != product.tensor:
        return None
    form = _Matcher(contraction, body).form(body.end.operands[0])
    return (
        form if form is not None and is_taken(contraction, form, product.tensor.dtype, product.tensor.shape) else None
    )


def is_taken(contraction: str, form: Form, dtype: DType, shape: tuple[Any, ...]) -> bool:
    """Return whether a library has this form for this product: cublasLt and cuDNN add biases in f32."""
    if not dtype.is_float or 0 in shape:
        return form == Form()
    if form.is_linear:
        return True
    if dtype is not f32 or form.addend is not None:
        return False
    if contraction == "matmul":
        return len(shape) == 2
    return contraction == "conv2d" and not form.activation


class _Matcher:
    def __init__(self, contraction: str, body: Block) -> None:
        self.body = body
        self.product = body.params[0]
        self.numbers = {param: number for number, param in enumerate(body.params)}
        shape = self.product.tensor.shape
        self.bias_axis = range(len(shape))[BIAS_AXES[contraction]]

    def form(self, value: Value) -> Form | None:
        """The form of what `value` computes from the product."""
        if value is self.product:
            return Form()
        op = value.producer
        if op is None or value.tensor != self.product.tensor:
            return None
        match op:
            case Op(prims.ADD):
                return next((f for x, y in _orders(op) if (f := self.sum(x, y)) is not None), None)
            case Op(prims.SUBTRACT, (x, y)):
                return self.difference(x, y)
            case Op(prims.MULTIPLY):
                return next((f for x, y in _orders(op) if (f := self.multiple(x, y)) is not None), self.gelu(value))
            case Op(prims.NEGATIVE, (x,)):
                return self.scaled(self.form(x), Scale(-1.0))
        return None

    def sum(self, x: Value, y: Value) -> Form | None:
        form = self.form(x)
        if form is None or form.activation:
            return None
        bias = self.row(y)
        if bias is not None and form.bias is None:
            return replace(form, bias=bias)
        return self.added(form, y, 1.0)

    def difference(self, x: Value, y: Value) -> Form | None:
        form = self.form(x)
        if form is not None:
            return self.added(form, y, -1.0)
        form = self.scaled(self.form(y), Scale(-1.0))
        return None if form is None else self.added(form, x, 1.0)

    def added(self, form: Form, value: Value, sign: float) -> Form | None:
        array = self.array(value)
        if array is None or form.addend is not None or form.activation:
            return None
        param, scale = array
        return replace(form, addend=param, beta=Scale(sign).times(scale))

    def multiple(self, x: Value, y: Value) -> Form | None:
        scale = self.number(y)
        return None if scale is None else self.scaled(self.form(x), scale)

    def scaled(self, form: Form | None, scale: Scale) -> Form | None:
        if form is None or not form.is_linear:
            return None
        beta = form.beta.times(scale) if form.addend is not None else form.beta
        return replace(form, alpha=form.alpha.times(scale), beta=beta)

    def activated(self, value: Value, activation: Activation) -> Form | None:
        form = self.form(value)
        return None if form is None or form.activation else replace(form, activation=activation)

    # ---- what it is made with ----

    def source(self, value: Value) -> Value:
        """The value that `value` repeats."""
        return value.behind(*MOVES)

    def number(self, value: Value) -> Scale | None:
        """A number that the host knows, as a factor."""
        source = self.source(value)
        if source.tensor.dtype is not self.product.tensor.dtype:
            return None
        constant = number_everywhere(source)
        if constant is not None:
            # A library does not read what it multiplies by 0, and 0 times NaN is NaN.
            return Scale(constant) if constant else None
        is_param = source.producer is None and source is not self.product and not source.tensor.shape
        return Scale(1.0, (self.numbers[source],)) if is_param else None

    def array(self, value: Value) -> tuple[int, Scale] | None:
        """An input with the product's shape, possibly scaled."""
        if value.producer is None:
            fits = value is not self.product and value.tensor == self.product.tensor
            return (self.numbers[value], Scale()) if fits else None
        if value.producer.declared is prims.MULTIPLY:
            for x, y in _orders(value.producer):
                array, scale = self.array(x), self.number(y)
                if array is not None and scale is not None:
                    return array[0], array[1].times(scale)
        return None

    def row(self, value: Value) -> int | None:
        """An input with one element per column (or channel), repeated along the other axes."""
        axis, extent = self.bias_axis, self.product.tensor.shape[self.bias_axis]
        op = value.producer
        while op is not None and op.declared in MOVES:
            (source,) = op.operands
            shape = source.tensor.shape
            if op.declared is prims.BROADCAST_TO:
                # Where the axis of the bias came from: the source has it, everything else is one long.
                axes = tuple(op.attrs["axes"])
                if axis not in axes:
                    return None
                axis = axes.index(axis)
            elif source.tensor.size != extent or op.results[0].tensor.size != extent:
                return None
            else:
                axis = next((n for n, size in enumerate(shape) if size == extent), 0)
            if source.tensor.size != extent or shape[axis] != extent:
                return None
            value, op = source, source.producer
        is_input = value.producer is None and value is not self.product
        return self.numbers[value] if is_input and value.tensor.size == extent and extent != 1 else None

    def gelu(self, value: Value) -> Form | None:
        """The tanh formula, which is what cublasLt computes: 0.5 x (1 + tanh(s (x + c x^3)))."""
        for x in _inputs_of_tanh(value):
            if _same(value, _gelu(x)):
                return self.activated(x, "gelu")
        return None


def _orders(op: Op) -> tuple[tuple[Value, Value], ...]:
    x, y = op.operands
    return (x, y), (y, x)


def number_everywhere(value: Value, moves: Collection[Declaration] = MOVES) -> float | None:
    """The number that `value` is everywhere, seen through ops that move or repeat elements."""
    made = value.behind(*moves).made_by(prims.CONSTANT)
    number = None if made is None else made.attrs["value"]
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None


# ---- the tanh formula, up to the order of operands -----------------------------------------------

Pattern = float | Value | tuple[Any, ...]
"""A number, a certain value, or (declaration of an op, patterns of its operands)."""


def _gelu(x: Value) -> Pattern:
    cube = (prims.MULTIPLY, x, (prims.SQUARE, x))
    tanh = (prims.TANH, (prims.MULTIPLY, GELU_SCALE, (prims.ADD, x, (prims.MULTIPLY, GELU_CUBE, cube))))
    return (prims.MULTIPLY, (prims.MULTIPLY, 0.5, x), (prims.ADD, tanh, 1.0))


def _inputs_of_tanh(value: Value) -> Iterator[Value]:
    """Candidates for the x of `0.5 * x * (tanh(...) + 1)`."""
    if value.producer is not None:
        for factor in value.producer.operands:
            if product := factor.made_by(prims.MULTIPLY):
                yield from product.operands


def _same(value: Value, pattern: Pattern) -> bool:
    if isinstance(pattern, Value):
        return value is pattern
    if isinstance(pattern, float):
        number = number_everywhere(value)
        return number is not None and math.isclose(number, pattern, rel_tol=1e-6)
    declared, *operands = pattern
    op = value.made_by(declared)
    if op is None:
        return False
    orders = [op.operands, op.operands[::-1]] if declared in (prims.ADD, prims.MULTIPLY) else [op.operands]
    return any(all(map(_same, order, operands)) for order in orders)
