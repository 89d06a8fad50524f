"""Every rule of `simplify`, at the borders of its condition: same bits before and after, of every number that a dtype has at its ends.

The oracle is the interpreter on the IR as it was, which computes op by op with NumPy and shares no code with the rules; for integers
also Python itself, wrapped to the dtype.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ir.nodes import Function, Op, walk_ops
from staged.ir.types import DType, TensorType, f32, f64, i32, i64, u8, u32
from staged.ir.verifier import verify
from staged.ops import elementwise as e
from staged.ops.array import METHODS
from staged.ops.choice import select
from staged.ops.promote import cast
from staged.ops.shape import pad
from staged.passes import algebra
from staged.passes import simplify as simplify_module
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.simplify import simplify
from tests.ir_interpreter import run
from tests.ir_programs import Program, function
from tests.passes.borders import FLOATS, INTEGERS, borders, combinations, in_dtype, same_bits, spread
from tests.passes.rule_cases import CASES, Case, number, placed

RULES = {
    made.__name__: made
    for made in (algebra.fold_constants, algebra.empty_result, *itertools.chain(*algebra.RULES.values()))
}


# ---- which rules fire ---------------------------------------------------------------------------


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the rules that give something, while the block runs."""
    fired: Counter[str] = Counter()

    def noted(rule: Callable[..., Any]) -> Callable[..., Any]:
        def run(op: Op, emit: Any) -> Any:
            found = rule(op, emit)
            fired[rule.__name__] += found is not None
            return found

        return run

    with pytest.MonkeyPatch.context() as patch:
        for declared, made in list(algebra.RULES.items()):
            patch.setitem(algebra.RULES, declared, [noted(one) for one in made])
        for name in ("fold_constants", "empty_result"):
            patch.setattr(simplify_module, name, noted(getattr(algebra, name)))
        yield fired


def arguments_of(case: Case, dtypes: tuple[DType, ...]) -> tuple[list[TensorType], list[list[Any]]]:
    """The types of a case's parameters, and the arguments to run it on."""
    if case.shapes is None:
        columns = spread(*dtypes)
        return [TensorType(dtype, column.shape) for dtype, column in zip(dtypes, columns, strict=True)], [list(columns)]
    types = [TensorType(dtype, shape) for dtype, shape in zip(dtypes, case.shapes, strict=True)]
    if case.shapes == ((),):
        return types, [[np.array(value, dtypes[0].numpy)] for value in borders(dtypes[0])]
    rows = []
    for roll in range(13):
        rows.append([np.resize(np.roll(np.array(borders(t.dtype), t.dtype.numpy), roll), t.shape) for t in types])
    return types, rows


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule + ("" if case.fires else "-stays"))
def test_a_rule_keeps_every_bit(case: Case) -> None:
    for dtypes in case.dtypes:
        types, rows = arguments_of(case, dtypes)
        before = function(case.body, *types)
        with counted() as fired:
            after = simplify(before)
        verify(after, "simplify")
        assert bool(fired[case.rule]) == case.fires, f"{case.rule} of {dtypes[0]}: fired {dict(fired)}"
        for row in rows:
            for old, new in zip(run(before, *row), run(after, *row), strict=True):
                assert same_bits(old, new), f"{case.rule} of {dtypes[0]} on {row}: {old} became {new}"


def test_every_rule_has_a_case_on_which_it_fires() -> None:
    tested = {case.rule for case in CASES if case.fires}
    assert set(RULES) <= tested, f"rules of algebra.py without a case in CASES: {sorted(set(RULES) - tested)}"
    assert tested <= set(RULES), f"cases for rules that do not exist: {sorted(tested - set(RULES))}"


def test_every_rule_says_when_it_is_exact() -> None:
    for name, made in RULES.items():
        lines = [line.strip() for line in (made.__doc__ or "").splitlines()]
        assert any(line.startswith("Exact: ") for line in lines), f"{name} of algebra.py does not say when it is exact"


# ---- integers, against Python -------------------------------------------------------------------

INTEGER_PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "x + 0": lambda x, y: x + 0,
    "0 - x": lambda x, y: 0 - x,
    "x - 0": lambda x, y: x - 0,
    "x + -y": lambda x, y: x + -y,
    "x - -y": lambda x, y: x - -y,
    "-(x - y)": lambda x, y: -(x - y),
    "-(-x)": lambda x, y: (-x).__neg__(),
    "-x * -y": lambda x, y: -x * -y,
    "-x * 101": lambda x, y: -x * 101,
    "x * 1": lambda x, y: x * 1,
    "x * 0": lambda x, y: x * 0,
    "(x + 100) * 3 - y": lambda x, y: (x + 100) * 3 - y,
    "x // 3": lambda x, y: x // 3,
    "x % 7": lambda x, y: x % 7,
    "x * x - y * y": lambda x, y: x * x - y * y,
    "(x & 3) == 4": lambda x, y: (x & 3) == 4,
    "(x | 3) == 4": lambda x, y: (x | 3) == 4,
    "x == x": lambda x, y: x == x,
    "x < x": lambda x, y: x < x,
}
"""Programs of two integers that Python runs too: what it gives, wrapped at every op, is right."""


class Wrapping:
    """A Python integer that every op wraps to a dtype."""

    def __init__(self, number: int, dtype: DType) -> None:
        self.number, self.dtype = in_dtype(number, dtype), dtype

    def _op(self, meaning: Callable[[int, int], int], other: Any, swap: bool = False) -> Wrapping:
        second = other.number if isinstance(other, Wrapping) else in_dtype(other, self.dtype)
        return Wrapping(meaning(second, self.number) if swap else meaning(self.number, second), self.dtype)

    def __add__(self, other: Any) -> Wrapping:
        return self._op(operator.add, other)

    def __sub__(self, other: Any) -> Wrapping:
        return self._op(operator.sub, other)

    def __rsub__(self, other: Any) -> Wrapping:
        return self._op(operator.sub, other, swap=True)

    def __mul__(self, other: Any) -> Wrapping:
        return self._op(operator.mul, other)

    def __floordiv__(self, other: Any) -> Wrapping:
        return self._op(operator.floordiv, other)

    def __mod__(self, other: Any) -> Wrapping:
        return self._op(operator.mod, other)

    def __and__(self, other: Any) -> Wrapping:
        return self._op(operator.and_, other)

    def __or__(self, other: Any) -> Wrapping:
        return self._op(operator.or_, other)

    def __neg__(self) -> Wrapping:
        return Wrapping(-self.number, self.dtype)

    def __eq__(self, other: object) -> Any:
        return self.number == (other.number if isinstance(other, Wrapping) else in_dtype(other, self.dtype))  # type: ignore[arg-type]

    def __lt__(self, other: Any) -> bool:
        return bool(self.number < other.number)


def in_python(program: Callable[[Any, Any], Any], dtype: DType) -> np.ndarray[Any, Any]:
    """The results of a program for all pairs of border numbers."""
    found = [program(Wrapping(a, dtype), Wrapping(b, dtype)) for a, b in combinations(dtype, dtype)]
    return np.array([one.number if isinstance(one, Wrapping) else one for one in found], object)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around_as_python_says(dtype: DType) -> None:
    arrays = spread(dtype, dtype)
    types = [TensorType(dtype, arrays[0].shape)] * 2
    before = function(lambda p, x, y: tuple(program(x, y) for program in INTEGER_PROGRAMS.values()), *types)
    after = eliminate_dead_code(simplify(before))
    for (name, program), found in zip(INTEGER_PROGRAMS.items(), run(after, *arrays), strict=True):
        assert np.array_equal(found, in_python(program, dtype)), f"{name} of {dtype}"


# ---- compiled -----------------------------------------------------------------------------------

FLOAT_PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "x + 0": lambda x, y: x + 0.0,
    "0 + x": lambda x, y: 0.0 + x,
    "x + -0": lambda x, y: x + -0.0,
    "x - 0": lambda x, y: x - 0.0,
    "x - -0": lambda x, y: x - -0.0,
    "0 - x": lambda x, y: 0.0 - x,
    "-0 - x": lambda x, y: -0.0 - x,
    "x + -y": lambda x, y: x + -y,
    "x - -y": lambda x, y: x - -y,
    "-(x - y)": lambda x, y: -(x - y),
    "-(-x)": lambda x, y: (-x).__neg__(),
    "-x * -y": lambda x, y: -x * -y,
    "-x * 0": lambda x, y: -x * 0.0,
    "x * 1": lambda x, y: x * 1.0,
    "x * -1": lambda x, y: x * -1.0,
    "x * 0": lambda x, y: x * 0.0,
    "x / 4": lambda x, y: x / 4.0,
    "x / 49": lambda x, y: x / 49.0,
    "x / y": lambda x, y: x / y,
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compiled_programs_keep_every_bit() -> None:
    @st.function
    def integers(pairs: Any) -> Any:
        return tuple(tuple(program(x, y) for program in INTEGER_PROGRAMS.values()) for x, y in pairs)

    @st.function
    def floats(pairs: Any) -> Any:
        return tuple(tuple(program(x, y) for program in FLOAT_PROGRAMS.values()) for x, y in pairs)

    for compiled, programs, dtypes in ((integers, INTEGER_PROGRAMS, INTEGERS), (floats, FLOAT_PROGRAMS, FLOATS)):
        pairs = [tuple(spread(dtype, dtype)) for dtype in dtypes]
        found = compiled(pairs)
        with st.eager():
            eager = compiled(pairs)
        for dtype, (x, y), rows, others in zip(dtypes, pairs, found, eager, strict=True):
            for (name, program), row, other in zip(programs.items(), rows, others, strict=True):
                right = program(x, y) if dtype.is_float else in_python(program, dtype).astype(row.dtype)
                assert same_bits(row, right), f"{name} of {dtype}, compiled: {row} is not {right}"
                assert same_bits(other, right), f"{name} of {dtype}, eager: {other} is not {right}"


def ops_of(made: Function) -> list[str]:
    return [op.name for op in walk_ops(eliminate_dead_code(made).block)]


def test_sums_of_cotangents_take_zeros_for_nothing() -> None:
    def body(p: Program, x: Any, u: Any) -> Any:
        zeros = number(p, 0.0, x)
        return e.accumulate(x, zeros), e.accumulate(x, placed(p, u, 0.0)), e.accumulate(x, pad(u, [(3, 33)]))

    after = simplify(function(body, TensorType(f64, (40,)), TensorType(f64, (4,))))
    assert (
        "accumulate" not in ops_of(after) and ops_of(after).count("dynamic_update") == 2 and "pad" not in ops_of(after)
    )


def test_a_check_that_fails_is_the_programs_to_show() -> None:
    @st.function
    def read(x: Any, c: float) -> Any:
        k = st.asarray(7)
        y = 0.0
        if c > 0.0:
            y = x[k]
        return y

    assert read(np.arange(3.0), 0.0) == 0.0
    with pytest.raises(IndexError, match="index 7 is out of range"):
        read(np.arange(3.0), 1.0)


# ---- random programs ----------------------------------------------------------------------------


def random_program(seed: int) -> tuple[Callable[..., Any], list[TensorType]]:
    """A straight program of scalars of all dtypes in a loop whose counter has a known range, with numbers that rules look for."""
    draw = random.Random(seed)
    dtypes = [draw.choice((u8, i32, u32, i64, f32, f64)) for _ in range(2)]
    start, stop = draw.choice(((0, 3), (-2, 2), (5, 6), (0, 0), (2**62, 2**62 + 2)))

    def term(p: Program, given: list[Any], counter: Any) -> Any:
        values = [*given, counter, cast(counter, draw.choice((u8, i32, u32)))]
        for _ in range(draw.randint(2, 9)):
            x = draw.choice(values)
            if draw.random() < 0.4:
                numbers = [n for n in borders(x.dtype) if not (isinstance(n, float) and not np.isfinite(n))]
                y = p.constant(draw.choice(numbers), TensorType(x.dtype))
            else:
                y = draw.choice(values)
                y = y if y.dtype is x.dtype else cast(y, x.dtype)
            x = cast(x, x.dtype, False)
            y = cast(y, x.dtype, False)
            names = ["add", "subtract", "multiply", "negative", "maximum", "minimum", "select", "cast"]
            names += ["divide"] if x.dtype.is_float else ["bitwise_and", "bitwise_or", "floor", "remainder"]
            name = draw.choice(names)
            if name == "negative":
                made = e.negative(x)
            elif name == "cast":
                made = cast(x, draw.choice((u8, i32, u32, i64, f32, f64)))
            elif name == "select":
                made = select(METHODS[draw.choice(("less", "equal", "greater_equal"))](x, y), x, y)
            elif name in ("floor", "remainder"):
                divisor = p.constant(draw.choice((1, 2, 3, 7)), TensorType(x.dtype))
                made = x // divisor if name == "floor" else x % divisor
            else:
                made = METHODS[name](*((x, y) if draw.random() < 0.5 else (y, x)))
            values.append(made)
        return values[-1]

    def body(p: Program, x: Any, y: Any) -> Any:
        state = draw.getstate()

        def turn(loop: Any, i: Any, *_: Any) -> Any:
            draw.setstate(state)
            return tuple(cast(term(p, [x, y], i), dtype) for dtype in (i64, f64))

        return p.for_(stop, [p.constant(0, TensorType(i64)), p.constant(0.0, TensorType(f64))], turn, start=start)

    return body, [TensorType(dtype) for dtype in dtypes]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_programs_keep_every_bit() -> None:
    for seed in range(250):
        body, types = random_program(seed)
        before = function(body, *types)
        after = eliminate_dead_code(simplify(before))
        draw = random.Random(seed)
        for _ in range(4):
            row = [np.array(draw.choice(borders(type.dtype)), type.dtype.numpy) for type in types]
            for old, new in zip(run(before, *row), run(after, *row), strict=True):
                assert same_bits(old, new), f"program {seed} on {row}: {old} became {new}"
