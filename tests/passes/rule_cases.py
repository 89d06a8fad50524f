"""For every rule of `simplify`: programs on which it fires, and programs at its border, on which it must not."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.ir.numbers import limits, wrapped
from staged.ir.types import DType, TensorType, bool_, f32, f64, i8, i16, i32, i64, u8, u16, u32
from staged.ops import comparisons as c
from staged.ops import elementwise as e
from staged.ops.array import METHODS
from staged.ops.choice import select
from staged.ops.context import bind, bind_all
from staged.ops.primitive import PRIMITIVES
from staged.ops.promote import cast
from tests.ir_programs import Program
from tests.passes.borders import FLOATS, INTEGERS

NUMBERS = (*INTEGERS, *FLOATS)
IMAGES, OVERLAPPING = ((1, 2, 6, 6), (1, 2, 3, 3)), ((1, 2, 6, 6), (1, 2, 5, 5))
DROPPED = tuple((dtype, dtype, bool_) for dtype in FLOATS)


@dataclass(frozen=True)
class Case:
    """A program on which a rule fires, or (`fires=False`) must not, with the dtypes to try it on.

    `body` takes the program and handles. Without `shapes` its parameters are arrays of all combinations of border numbers, with
    shape `()` each combination is tried alone; an array of another shape is filled with border numbers.
    """

    rule: str
    body: Callable[..., Any]
    dtypes: tuple[tuple[DType, ...], ...]
    shapes: tuple[tuple[int, ...], ...] | None = None
    fires: bool = True


def each(*dtypes: DType, count: int = 1) -> tuple[tuple[DType, ...], ...]:
    """The same dtype for `count` parameters."""
    return tuple((dtype,) * count for dtype in dtypes)


def op(name: str, *operands: Any, **attrs: Any) -> Any:
    """One primitive."""
    return bind(PRIMITIVES[name], list(operands), **attrs)


def number(p: Program, value: Any, like: Any) -> Any:
    """A constant in the dtype and shape of another value; integers wrap around."""
    if like.dtype.is_integer and isinstance(value, int):
        value = wrapped(value, like.dtype)
    made = p.constant(value, TensorType(like.dtype))
    return METHODS["broadcast_to"](made, like.shape) if like.shape else made


def index(p: Program, value: int) -> Any:
    return p.constant(value, TensorType(i64))


def loop_total(p: Program, turns: int, term: Callable[[Any], Any], start: int = 0) -> Any:
    """The sum of `term(i)` for `i` in a range: an index whose range is known."""
    return p.for_(turns, [p.constant(0)], lambda loop, i, total: (total + term(i),), start=start)


def beside(p: Program, x: Any, y: Any, value: float) -> tuple[Any, Any]:
    """Two arrays of equal length, each padded with `value` where the other one is."""
    count = x.shape[0]
    return op("pad", x, low=(0,), high=(count,), value=value), op("pad", y, low=(count,), high=(0,), value=value)


def placed(p: Program, u: Any, value: float, where: int = 1, size: int = 40) -> Any:
    """A vector of `value` in which `u` is written."""
    whole = METHODS["broadcast_to"](p.constant(value, TensorType(u.dtype)), (size,))
    return op("dynamic_update", whole, u, index(p, where))


def scattered(p: Program, u: Any, value: float) -> Any:
    """A vector of `value` with `u` added to one of its elements, nine times; nothing is left to check."""
    whole = METHODS["broadcast_to"](p.constant(value, TensorType(u.dtype)), (4,))
    indices = METHODS["broadcast_to"](index(p, 1), u.shape)
    return p.op("scatter_add", [whole, indices, u], [whole.type], attrs={"axis": 0})[0]


def raw(p: Program, value: float, dtype: DType) -> Any:
    """A constant as a pass may write it, whose number has more digits than its dtype."""
    return p.op("constant", [], [TensorType(dtype)], attrs={"value": value})[0]


def through_fit(p: Program, x: Any, number: Callable[[Any], Any]) -> Any:
    """x plus numbers of nine iterations, which adopt its dtype."""
    return tuple(p.for_(9, [x], lambda loop, i, a: (a + op("fit", number(i), dtype=x.dtype),)))


def beside_counter(p: Program, x: Any, start: int) -> Any:
    """Numbers that say how each element compares with the counter of five iterations, in i64 where x are integers."""

    def compared(loop: Any, i: Any, total: Any) -> Any:
        wide = cast(x, i64) if x.dtype.is_integer else x
        found = [f(wide, i) for f in (c.equal, c.not_equal, c.less, c.less_equal, c.greater, c.greater_equal)]
        found += [f(i, wide) for f in (c.equal, c.less)]
        return (sum((cast(each, i32) * 2**n for n, each in enumerate(found)), total * 3),)

    total = METHODS["broadcast_to"](p.constant(0, TensorType(i32)), x.shape)
    return tuple(p.for_(start + 5, [total], compared, start=start))


_NARROW = tuple(dtype for dtype in INTEGERS if dtype.size < 8)

CASES = [
    Case("number_known_to_fit", lambda p, x: through_fit(p, x, lambda i: i), each(*_NARROW), ((),)),
    Case("number_known_to_fit", lambda p, x: through_fit(p, x, lambda i: i * 14 + 1), each(i8, u8), ((),)),
    Case("number_known_to_fit", lambda p, x: through_fit(p, x, lambda i: i % 128), each(*_NARROW), ((),)),
    Case("number_known_to_fit", lambda p, x: through_fit(p, x, lambda i: i >> 1), each(*_NARROW), ((),), fires=False),
    Case("compare_as_stored", lambda p, x: beside_counter(p, x, 100), each(*_NARROW), ((13,),)),
    Case("compare_as_stored", lambda p, x: beside_counter(p, x, 250), each(u8, i16, u32), ((13,),)),
    Case("compare_as_stored", lambda p, x: beside_counter(p, x, 254), each(u8, i8), ((13,),), fires=False),
    Case("compare_as_stored", lambda p, x: beside_counter(p, x, -1), each(u8, u16, u32), ((13,),), fires=False),
    Case("compare_as_stored", lambda p, x: beside_counter(p, x, 1), each(i64, f32, f64), ((13,),), fires=False),
    Case("fold_constants", lambda p, x: (x + (number(p, 200, x) + number(p, 100, x)),), each(*NUMBERS)),
    Case(
        "fold_constants", lambda p, x: (x * (number(p, 3, x) - number(p, 7, x)), x * -number(p, 1, x)), each(*NUMBERS)
    ),
    Case(
        "fold_constants",
        lambda p, x: (number(p, 0.1, x) * number(p, 3, x), number(p, 0.0, x) * number(p, -1.0, x)),
        each(*FLOATS),
    ),
    Case("fold_constants", lambda p, x: (cast(number(p, 0.1, x), f64) + 1.0,), each(*FLOATS)),
    Case("fold_constants", lambda p, x: (x + number(p, 1, x) / number(p, 0, x),), each(*FLOATS), fires=False),
    Case("fold_constants", lambda p, x: (number(p, 2, x) // number(p, -1, x),), each(i32, i64), fires=False),
    Case("fold_constants", lambda p, x: (x + cast(raw(p, 0.1, f32), f64), x + raw(p, 0.1, f64)), each(f64), ((),)),
    Case("empty_result", lambda p, x: (e.exp(x), x + x), each(*FLOATS), ((0, 3),)),
    Case("empty_result", lambda p, x: (e.exp(x),), each(*FLOATS), ((1, 3),), fires=False),
    Case("empty_result", lambda p, x, n: (op("take", x, n, axis=0), n // n), ((f32, i64),), ((3,), (0,))),
    Case("empty_result", lambda p, x, n: (op("take", x, n * 0, axis=0),), ((f32, i64),), ((3, 0), (2,)), fires=False),
    Case(
        "reduction_of_nothing",
        lambda p, x: (op("sum", x, axes=(1,)), op("prod", x, axes=(1,))),
        each(*NUMBERS),
        ((2, 0),),
    ),
    Case(
        "reduction_of_nothing", lambda p, x: (op("any", x, axes=(1,)), op("all", x, axes=(1,))), each(bool_), ((2, 0),)
    ),
    Case("reduction_of_one", lambda p, x: (op("sum", x, axes=(1,)),), each(*NUMBERS), ((13, 1),)),
    Case(
        "reduction_of_one",
        lambda p, x: tuple(op(name, x, axes=(1,)) for name in ("prod", "max", "min")),
        each(*NUMBERS),
        ((13, 1),),
    ),
    Case("reduction_of_one", lambda p, x: (op("any", x, axes=(1,)), op("all", x, axes=(1,))), each(bool_), ((4, 1),)),
    Case("product_of_nothing", lambda p, x, y: (METHODS["matmul"](x, y),), each(*FLOATS, count=2), ((2, 0), (0, 3))),
    Case(
        "start_of_whole_axis",
        lambda p, x: tuple(p.for_(1, [x], lambda loop, i, a: (op("dynamic_slice", a, i_64(i), sizes=(13,)),))),
        each(*NUMBERS),
        ((13,),),
    ),
    Case(
        "position_of_one", lambda p, x: (op("argmax", x, axis=1), op("argmin", x, axis=1)), each(*NUMBERS), ((13, 1),)
    ),
    Case("add_zero", lambda p, x: (x + number(p, 0, x), number(p, 0, x) + x), each(*INTEGERS)),
    Case("add_zero", lambda p, x: (x + number(p, -0.0, x), number(p, -0.0, x) + x), each(*FLOATS)),
    Case("add_zero", lambda p, x: (x + number(p, 0.0, x), number(p, 0.0, x) + x), each(*FLOATS), fires=False),
    Case("add_negative", lambda p, x, y: (x + -y, -x + y, -x + -y), each(*NUMBERS, count=2)),
    Case("add_side_by_side", lambda p, x, y: (operator.add(*beside(p, x, y, 0)),), each(*INTEGERS, count=2)),
    Case("add_side_by_side", lambda p, x, y: (operator.add(*beside(p, x, y, -0.0)),), each(*FLOATS, count=2)),
    Case(
        "add_side_by_side", lambda p, x, y: (operator.add(*beside(p, x, y, 0.0)),), each(*FLOATS, count=2), fires=False
    ),
    Case(
        "add_into_place",
        lambda p, x, u: (x + placed(p, u, 0), placed(p, u, 0) + x),
        each(*INTEGERS, count=2),
        ((40,), (4,)),
    ),
    Case("add_into_place", lambda p, x, u: (x + placed(p, u, -0.0),), each(*FLOATS, count=2), ((40,), (4,))),
    Case(
        "add_into_place", lambda p, x, u: (x + placed(p, u, 0.0),), each(*FLOATS, count=2), ((40,), (4,)), fires=False
    ),
    Case(
        "add_into_slice",
        lambda p, x, u: (x + op("pad", u, low=(3,), high=(33,), value=0),),
        each(*INTEGERS, count=2),
        ((40,), (4,)),
    ),
    Case(
        "add_into_slice",
        lambda p, x, u: (x + op("pad", u, low=(3,), high=(33,), value=-0.0),),
        each(*FLOATS, count=2),
        ((40,), (4,)),
    ),
    Case(
        "add_into_slice",
        lambda p, x, u: (x + op("pad", u, low=(3,), high=(33,), value=0.0),),
        each(*FLOATS, count=2),
        ((40,), (4,)),
        fires=False,
    ),
    Case("add_into_scattered", lambda p, x, u: (x + scattered(p, u, 0),), each(u8, i32, i64, count=2), ((4,), (9,))),
    Case(
        "add_into_scattered",
        lambda p, x, u: (x + scattered(p, u, -0.0),),
        each(*FLOATS, count=2),
        ((4,), (9,)),
        fires=False,
    ),
    Case("accumulate_is_add", lambda p, x, y: (e.accumulate(x, y),), each(*FLOATS, count=2)),
    Case("subtract_zero", lambda p, x, y: (x - number(p, 0, x), number(p, 0, x) - x, x - -y), each(*INTEGERS, count=2)),
    Case(
        "subtract_zero", lambda p, x, y: (x - number(p, 0.0, x), number(p, -0.0, x) - x, x - -y), each(*FLOATS, count=2)
    ),
    Case("subtract_zero", lambda p, x: (x - number(p, -0.0, x), number(p, 0.0, x) - x), each(*FLOATS), fires=False),
    Case("multiply_by_one", lambda p, x: (x * number(p, 1, x), number(p, 1, x) * x), each(*NUMBERS)),
    Case("multiply_by_one", lambda p, x: (x * number(p, -1, x),), each(i32, i64, *FLOATS)),
    Case("multiply_by_one", lambda p, x: (x * number(p, 0, x),), each(*INTEGERS)),
    Case("multiply_by_one", lambda p, x: (x * number(p, 0, x), x * number(p, -0.0, x)), each(*FLOATS), fires=False),
    Case("multiply_negatives", lambda p, x, y: (-x * -y,), each(*NUMBERS, count=2)),
    Case(
        "multiply_negatives",
        lambda p, x: (-x * number(p, 200, x), number(p, 3, x) * -x, -x * number(p, 0, x)),
        each(*NUMBERS),
    ),
    Case("multiply_negatives", lambda p, x: (-x * number(p, np.iinfo(x.dtype.numpy).min, x),), each(i32, i64)),
    Case(
        "divide_by_number",
        lambda p, x: tuple(x / number(p, n, x) for n in (1.0, 2.0, -0.25, 2.0**99, 2.0**-98)),
        each(*FLOATS),
    ),
    Case(
        "divide_by_number",
        lambda p, x: tuple(x / number(p, n, x) for n in (3.0, 49.0, -1.5, 0.0, -0.0, np.inf, 2.0**-130)),
        each(*FLOATS),
        fires=False,
    ),
    Case("negative_of_negative", lambda p, x: (e.negative(e.negative(x)),), each(*NUMBERS)),
    Case("negative_of_negative", lambda p, x, y: (-(x - y),), each(*INTEGERS, count=2)),
    Case("negative_of_negative", lambda p, x, y: (-(x - y),), each(*FLOATS, count=2), fires=False),
    Case("extremum_of_same", lambda p, x: (e.maximum(x, x), e.minimum(x, x)), each(*NUMBERS)),
    Case(
        "extremum_of_same",
        lambda p, x: tuple(
            loop_total(p, 3, lambda i, f=f, n=n, flip=flip: f(*((i, n) if flip else (n, i))))[0]
            for f in (e.minimum, e.maximum)
            for n in (-4, 0, 2, 5)
            for flip in (False, True)
        ),
        each(i64),
    ),
    Case("extremum_of_same", lambda p, x: (e.minimum(x, number(p, 5, x)),), each(*INTEGERS), ((),), fires=False),
    Case(
        "extremum_of_same",
        lambda p, x: tuple(
            loop_total(
                p, 4, lambda i, d=d, n=n: cast(e.maximum((cast(i, d) - 2) * n, p.constant(1, TensorType(d))), i64, True)
            )[0]
            for d, n in ((u8, 1), (u32, 1), (i32, 2**30), (u8, 100))
        ),
        each(i64),
        fires=False,
    ),
    Case("division_that_cannot_fail", lambda p, x: (x // number(p, 3, x), x % number(p, 7, x)), each(*INTEGERS)),
    Case("division_that_cannot_fail", lambda p, x: (x // number(p, -1, x), x % number(p, -1, x)), each(i32, i64)),
    Case(
        "select_known",
        lambda p, x, y: (select(number_true(p, x), x, y), select(x > y, x, x)),
        each(*NUMBERS, count=2),
    ),
    Case("select_known", lambda p, x, y: (select(~(x > y), x, y),), each(*NUMBERS, count=2)),
    Case(
        "logic_with_known",
        lambda p, x, y: (
            x & number(p, True, x),
            x | number(p, True, x),
            x & number(p, False, x),
            number(p, False, x) | x,
            x & x,
            x | x,
        ),
        each(bool_, count=2),
    ),
    Case(
        "compare_with_itself", lambda p, x: tuple(METHODS[name](x, x) for name in COMPARISONS), each(*INTEGERS, bool_)
    ),
    Case(
        "compare_with_itself",
        lambda p, x: tuple(METHODS[name](x, x) for name in COMPARISONS),
        each(*FLOATS),
        fires=False,
    ),
    Case(
        "compare_with_limit",
        lambda p, x: tuple(
            METHODS[name](*pair)
            for name in COMPARISONS
            for beyond in (limits(x.dtype)[0] - 1, limits(x.dtype)[1] + 1)
            for pair in ((cast(x, i64), number(p, beyond, cast(x, i64))), (number(p, beyond, cast(x, i64)), cast(x, i64)))
        ),
        each(u8, i32, u32, bool_),
    ),
    Case("compare_with_limit", lambda p, x: (cast(x, i32) < number(p, 0, cast(x, i32)),), each(u32, i64), fires=False),
    Case(
        "compare_with_limit",
        lambda p, x: (
            x < number(p, limits(x.dtype)[0], x),
            x >= number(p, limits(x.dtype)[0], x),
            x > number(p, limits(x.dtype)[1], x),
            x <= number(p, limits(x.dtype)[1], x),
            number(p, limits(x.dtype)[0], x) > x,
            number(p, limits(x.dtype)[0], x) <= x,
            number(p, limits(x.dtype)[1], x) < x,
            number(p, limits(x.dtype)[1], x) >= x,
        ),
        each(*INTEGERS),
    ),
    Case(
        "compare_with_limit",
        lambda p, x: (
            x <= number(p, limits(x.dtype)[0], x),
            x > number(p, limits(x.dtype)[0], x),
            x < number(p, limits(x.dtype)[1], x),
            number(p, limits(x.dtype)[0], x) < x,
            number(p, limits(x.dtype)[1], x) <= x,
        ),
        each(*INTEGERS),
        fires=False,
    ),
    Case(
        "compare_with_limit",
        lambda p, x: (x < number(p, 0.0, x), x >= number(p, -math.inf, x)),
        each(*FLOATS),
        fires=False,
    ),
    Case(
        "divide_by_a_positive_number",
        lambda p, x, y: (x // METHODS["maximum"](y, number(p, 1, y)), x % METHODS["maximum"](y, number(p, 1, y))),
        each(i64, i8, u8, count=2),
        ((), ()),
    ),
    Case(
        "compare_masked",
        lambda p, x: tuple(
            METHODS[name](masked, number(p, 4, x))
            for name in ("equal", "not_equal")
            for masked in (x & number(p, 3, x), number(p, 3, x) | x)
        ),
        each(*INTEGERS),
    ),
    Case("compare_masked", lambda p, x: (METHODS["equal"](x | number(p, -2, x), number(p, 1, x)),), each(i32, i64)),
    Case(
        "compare_masked",
        lambda p, x: (
            METHODS["equal"](x & number(p, 3, x), number(p, 2, x)),
            METHODS["equal"](x & number(p, 3, x), number(p, 3, x)),
            METHODS["equal"](x | number(p, 1, x), number(p, 3, x)),
        ),
        each(*INTEGERS),
        fires=False,
    ),
    Case(
        "compare_masked",
        lambda p, x: (METHODS["equal"](cast(x | number(p, 6, x), i64), number(p, 3, cast(x, i64))),),
        each(u8, i32, u32),
    ),
    Case(
        "bits_with_nothing",
        lambda p, x: (
            x | number(p, 0, x),
            number(p, 0, x) | x,
            x ^ number(p, 0, x),
            number(p, 0, x) ^ x,
            x << number(p, 0, x),
            x >> number(p, 0, x),
        ),
        each(*INTEGERS),
    ),
    Case(
        "bits_with_nothing",
        lambda p, x: (x | number(p, 1, x), x ^ number(p, 1, x), x & number(p, 0, x), number(p, 0, x) << (x & 7)),
        each(*INTEGERS),
        fires=False,
    ),
    Case("not_of_not", lambda p, x: (c.logical_not(c.logical_not(x)),), each(bool_)),
    Case("cast_of_cast", lambda p, x: every_cast(x), each(u8, i32, u32, f32, bool_)),
    Case("cast_of_cast", lambda p, x: every_cast(x), each(i64, f64), fires=False),
    Case("cast_of_cast", lambda p, x: (cast(cast(x, f64), f32), cast(cast(x, f64), i64)), each(i64), fires=False),
    Case("cast_of_cast", lambda p, x: (cast(cast(x, f64), u8), cast(cast(x, f64), u32)), each(i32), fires=False),
    Case(
        "cast_of_cast", lambda p, x: (cast(number(p, np.inf, x), f32), cast(number(p, np.nan, x), f64)), each(*FLOATS)
    ),
    Case(
        "broadcast_of_broadcast",
        lambda p, x: (op("broadcast_to", x, shape=(3, 4), axes=(0, 1)),),
        each(*NUMBERS),
        ((3, 4),),
    ),
    Case(
        "broadcast_of_broadcast",
        lambda p, x: (
            op("broadcast_to", op("broadcast_to", x, shape=(2, 3), axes=(1,)), shape=(4, 2, 3), axes=(1, 2)),
        ),
        each(*NUMBERS),
        ((3,),),
    ),
    Case(
        "broadcast_of_broadcast",
        lambda p, x: (op("broadcast_to", op("reshape", x, shape=(1, 3, 1)), shape=(4, 1, 3, 1), axes=(1, 2, 3)),),
        each(*NUMBERS),
        ((3,),),
    ),
    Case(
        "reshape_of_reshape",
        lambda p, x: (op("reshape", op("reshape", x, shape=(6,)), shape=(3, 2)),),
        each(*NUMBERS),
        ((2, 3),),
    ),
    Case(
        "reshape_of_reshape",
        lambda p, x: (op("reshape", number(p, -0.0, x), shape=(6,)) + op("reshape", x, shape=(6,)),),
        each(*FLOATS),
        ((2, 3),),
    ),
    Case("permute_of_permute", lambda p, x: (op("permute", x, axes=(1, 0)),), each(*NUMBERS), ((3, 3),), fires=False),
    Case(
        "permute_of_permute",
        lambda p, x: tuple(
            op("permute", op("permute", x, axes=a), axes=b)
            for a in itertools.permutations(range(3))
            for b in itertools.permutations(range(3))
        ),
        each(*NUMBERS),
        ((2, 3, 4),),
    ),
    Case(
        "permute_of_permute",
        lambda p, x: tuple(op("permute", x, axes=a) for a in itertools.permutations(range(3))),
        each(f64),
        ((1, 3, 4),),
    ),
    Case("slice_of_all", lambda p, x: (op("slice", x, start=(0,), stop=(13,), step=(1,)),), each(*NUMBERS), ((13,),)),
    Case(
        "slice_of_all",
        lambda p, x: (op("slice", x, start=(12,), stop=(-1,), step=(-1,)),),
        each(*NUMBERS),
        ((13,),),
        fires=False,
    ),
    Case("pad_by_nothing", lambda p, x: (op("pad", x, low=(0,), high=(0,), value=1),), each(*NUMBERS), ((13,),)),
    Case(
        "pad_of_one_element",
        lambda p, x: tuple(op("pad", x, low=(a,), high=(b,), value=3) for a, b in ((2, 0), (0, 1), (3, 4))),
        each(*NUMBERS),
        ((1,),),
    ),
    Case(
        "pad_of_one_element",
        lambda p, x: (op("pad", x, low=(1, 0), high=(0, 2), value=-0.0),),
        each(*FLOATS),
        ((1, 1),),
    ),
    Case("concat_of_one", lambda p, x: (op("concat", x, axis=0),), each(*NUMBERS), ((5,),)),
    Case(
        "concat_of_concats",
        lambda p, x, y: (op("concat", op("concat", x, y, axis=0), x, axis=0),),
        each(*NUMBERS, count=2),
        ((2, 3), (4, 3)),
    ),
    Case(
        "concat_of_concats",
        lambda p, x, y: (op("concat", op("concat", x, y, axis=0), op("concat", x, y, axis=0), axis=1),),
        each(*NUMBERS, count=2),
        ((2, 3), (4, 3)),
        fires=False,
    ),
    Case(
        "fold_transpose_into_matmul",
        lambda p, x, y: (METHODS["matmul"](op("permute", x, axes=(1, 0)), op("permute", y, axes=(1, 0))),),
        each(i32, i64, count=2),
        ((3, 2), (4, 3)),
    ),
    Case(
        "fold_transpose_into_matmul",
        lambda p, x, y: (METHODS["matmul"](op("permute", x, axes=(0, 2, 1)), y),),
        each(i32, i64, count=2),
        ((2, 3, 2), (2, 3, 4)),
    ),
    Case(
        "fold_transpose_into_matmul",
        lambda p, x, y: (METHODS["matmul"](cast(op("permute", x, axes=(1, 0)), i64), y),),
        ((i32, i64),),
        ((3, 2), (3, 4)),
    ),
    Case(
        "reduction_of_one",
        lambda p, x: tuple(op(name, x, axes=()) for name in ("sum", "prod", "max", "min")),
        each(*NUMBERS),
    ),
    Case("reduction_of_one", lambda p, x: tuple(op(name, x, axes=()) for name in ("any", "all")), each(bool_)),
    Case(
        "sum_of_broadcast",
        lambda p, x: (op("sum", op("broadcast_to", x, shape=(300, x.shape[0]), axes=(1,)), axes=(0,)),),
        each(*INTEGERS),
    ),
    Case(
        "sum_of_broadcast",
        lambda p, x: (op("sum", op("broadcast_to", x, shape=(2, x.shape[0]), axes=(1,)), axes=(0,)),),
        each(*FLOATS),
    ),
    Case(
        "extreme_of_broadcast",
        lambda p, x: tuple(
            op(name, op("broadcast_to", x, shape=(3, x.shape[0], 2), axes=(1,)), axes=axes)
            for name in ("max", "min")
            for axes in ((0,), (2,), (0, 2), (0, 1))
        ),
        each(*NUMBERS),
    ),
    Case(
        "extreme_of_broadcast",
        lambda p, x: tuple(op(name, op("broadcast_to", x, shape=(3, x.shape[0]), axes=(1,)), axes=(0,)) for name in ("any", "all")),
        each(bool_),
    ),
    Case(
        "place_in_broadcast",
        lambda p, x: tuple(
            op(name, op("broadcast_to", x, shape=(3, x.shape[0]), axes=(1,)), axis=0) for name in ("argmax", "argmin")
        ),
        each(*NUMBERS),
    ),
    Case(
        "index_known_to_fit",
        lambda p, x: tuple(p.for_(6, [x[0]], lambda loop, i, a: (a + x[i] * x[i + 1] * x[7 - i],), start=1)),
        each(*NUMBERS),
        ((8,),),
    ),
    Case(
        "index_known_to_fit",
        lambda p, x: tuple(p.for_(4, [x[0]], lambda loop, i, a: (a + x[(i * 2**62) // 2**60],))),
        each(*NUMBERS),
        ((16,),),
        fires=False,
    ),
    Case(
        "index_known_to_fit",
        lambda p, x: tuple(p.for_(4, [x[0]], lambda loop, i, a: (a + x[i - 1],))),
        each(*NUMBERS),
        ((4,),),
        fires=False,
    ),
    Case(
        "read_what_was_written",
        lambda p, x, u: (op("dynamic_slice", op("dynamic_update", x, u, x_start(p)), x_start(p), sizes=(4,)),),
        each(*NUMBERS, count=2),
        ((13,), (4,)),
    ),
    Case(
        "read_what_was_written",
        lambda p, x, u: (op("dynamic_slice", op("dynamic_update", x, u, index(p, 3)), index(p, 4), sizes=(4,)),),
        each(*NUMBERS, count=2),
        ((13,), (4,)),
        fires=False,
    ),
    Case(
        "mask_of_pooled",
        lambda p, y, d: (masked(p, y, unpooled(y, d)),),
        each(*FLOATS, count=2),
        IMAGES,
    ),
    Case(
        "mask_of_pooled",
        lambda p, y, d: (masked(p, y, unpooled(y, d, 1), "less", 0.5),),
        each(*FLOATS, count=2),
        OVERLAPPING,
    ),
    Case(
        "mask_of_pooled",
        lambda p, y, d: (masked(p, y + y, unpooled(y, d)),),
        each(*FLOATS, count=2),
        IMAGES,
        fires=False,
    ),
    Case(
        "mask_of_pooled",
        lambda p, y, d: (masked(p, y, unpooled(y, d), zero=-0.0),),
        each(*FLOATS, count=2),
        IMAGES,
        fires=False,
    ),
    Case(
        "mask_of_dropped_out",
        lambda p, y, d, keep: dropped_out(p, y, d, keep, 1.0 + 1e-6),
        DROPPED,
    ),
    Case(
        "mask_of_dropped_out",
        lambda p, y, d, keep: dropped_out(p, y, d, keep, 0.5),
        DROPPED,
        fires=False,
    ),
    Case(
        "mask_of_dropped_out",
        lambda p, y, d, keep: dropped_out(p, y, d, keep, 2.0, dropped=False),
        DROPPED,
        fires=False,
    ),
    Case(
        "mask_of_dropped_out",
        lambda p, y, d, keep: dropped_out(p, y, d, keep, 2.0, bound=1.0),
        DROPPED,
        fires=False,
    ),
    Case("forget_stop_gradient", lambda p, x: (METHODS["stop_gradient"](x), op("quantized_layer", x)), each(*FLOATS)),
]
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def unpooled(y: Any, d: Any, stride: int = 2) -> Any:
    """The cotangent of an array whose windows of 2 x 2 are pooled."""
    sizes = {"kernel": (2, 2), "stride": (stride, stride), "padding": (0, 0), "dilation": (1, 1)}
    return op("max_pool2d_backward", d, bind_all(PRIMITIVES["max_pool2d"], [y], **sizes)[1], input_shape=y.shape, **sizes)


def masked(
    p: Program, y: Any, gradient: Any, compares: str = "less_equal", bound: float = 0.0, zero: float = 0.0
) -> Any:
    """The gradient of a relu whose result is `y`."""
    return select(op(compares, y, number(p, bound, y)), number(p, zero, y), gradient)


def dropped_out(
    p: Program, y: Any, d: Any, keep: Any, factor: float, bound: float = 0.0, dropped: bool = True
) -> tuple[Any, ...]:
    """The gradient of the relu before a dropout, and the result of the dropout if it is there."""
    zero, factors = number(p, 0.0, y), number(p, factor, y)
    results = (select(keep, y * factors, zero),) if dropped else ()
    return *results, masked(p, y, select(keep, d, zero) * factors, bound=bound)


def every_cast(x: Any) -> Any:
    """`x` in every dtype, by way of every dtype."""
    return tuple(cast(cast(x, wide), target) for wide in (*NUMBERS, bool_) for target in (*NUMBERS, bool_))


def i_64(i: Any) -> Any:
    return cast(i, i64)


def x_start(p: Program) -> Any:
    return index(p, 3)


def number_true(p: Program, like: Any) -> Any:
    return METHODS["broadcast_to"](p.constant(True, TensorType(bool_)), like.shape)
