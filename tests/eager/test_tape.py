"""The tape: gradients of whatever Python did, with primitives of its own so that it depends on no declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import EagerArray, EagerContext, eager, eager_call, unwrap, weak_number, wrap
from staged.errors import (
    DTypeError,
    GradientError,
    ProgramIndexError,
    ProgramZeroDivisionError,
    ShapeError,
    StagedValueError,
    StagingError,
)
from staged.ir.nodes import FAIL
from staged.ir.types import TensorType, bool_, f64, i32, i64
from staged.ops import array as array_module
from staged.ops.context import bind, bind_all, is_eager
from staged.ops.primitive import Primitive


def same_type(a: TensorType, *others: TensorType, **attrs: Any) -> TensorType:
    if any(other.shape != a.shape for other in others):
        raise ShapeError(f"shapes differ: {[str(t) for t in (a, *others)]}")
    return TensorType(a.dtype, a.shape)


def declare(name: str, reference: Callable[..., Any], vjp: Any = None, **fields: Any) -> Primitive:
    infer = fields.pop("infer", same_type)
    return Primitive(name=name, kind="elementwise", infer=infer, reference=reference, vjp=vjp, **fields)


def op(primitive: Primitive, *operands: Any) -> Any:
    return bind(primitive, [wrap(operand) for operand in operands])


add_p = declare(
    "add", lambda a, b: np.asarray(a + b), lambda ct, y, a, b: [ct, ct], jvp=lambda tangents, y, o: plus(*tangents)
)
mul_p = declare(
    "multiply",
    lambda a, b: np.asarray(a * b),
    lambda ct, y, a, b: [op(mul_p, ct, b), op(mul_p, ct, a)],
    jvp=lambda tangents, y, o: plus(
        None if tangents[0] is None else op(mul_p, tangents[0], o[1]),
        None if tangents[1] is None else op(mul_p, o[0], tangents[1]),
    ),
)
cos_p = declare("cos", np.cos, lambda ct, y, x: [op(neg_p, op(mul_p, ct, op(sin_p, x)))])
sin_p = declare("sin", np.sin, lambda ct, y, x: [op(mul_p, ct, op(cos_p, x))])
neg_p = declare("negative", np.negative, lambda ct, y, x: [op(neg_p, ct)])
floor_p = declare("mystery", np.floor, why_not_differentiable="nobody knows its slope")
stop_p = declare("stop", lambda x: x, lambda ct, y, x: [None])
both_p = declare(
    "both",
    lambda x: (np.asarray(x * 2.0), np.asarray(x * 3.0)),
    lambda ct, y, x: [
        op(add_p, op(mul_p, ct[0], full(x, 2.0)), op(mul_p, ct[1], full(x, 3.0)))
        if all(part is not None for part in ct)
        else op(mul_p, ct[0] if ct[0] is not None else ct[1], full(x, 2.0 if ct[0] is not None else 3.0))
    ],
    infer=lambda x: (x, x),
)


def plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else op(add_p, a, b)


def full(like: EagerArray, value: float) -> EagerArray:
    return wrap(np.full(like.shape, value))


@pytest.fixture(autouse=True)
def methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators of arrays, on this file's primitives."""
    monkeypatch.setitem(array_module.METHODS, "add", lambda a, b: op(add_p, a, b))
    monkeypatch.setitem(array_module.METHODS, "multiply", lambda a, b: op(mul_p, a, b))


def gradient(f: Callable[..., Any], *at: float) -> list[float]:
    with eager() as context:
        _, pullback = context.vjp(lambda *xs: [f(*xs)], [np.float64(x) for x in at])
        return [float(g) for g in pullback([wrap(np.float64(1.0))])]


def test_gradient_through_python_control_flow() -> None:
    def power(x: Any, n: int) -> Any:
        result, k = x, 1
        while k < n:
            result = result * x
            k += 1
        return result if x > 0 else op(neg_p, result)

    assert gradient(lambda x: power(x, 5), 1.5) == [pytest.approx(5 * 1.5**4)]
    assert gradient(lambda x: power(x, 3), -2.0) == [pytest.approx(-12.0)]


def test_shared_operand_adds_both_cotangents_and_unused_one_is_zero() -> None:
    assert gradient(lambda x, y: x * x + x, 3.0, 7.0) == [7.0, 0.0]


def test_output_that_is_the_primal_itself() -> None:
    assert gradient(lambda x: x, 3.0) == [1.0]


def test_constant_output_has_zero_gradient() -> None:
    assert gradient(lambda x: np.float64(2.0), 3.0) == [0.0]


def test_second_and_third_derivatives_nest() -> None:
    def derivative(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def df(x: Any) -> Any:
            _, pullback = EagerContext().vjp(lambda x: [f(x)], [x])
            return pullback([wrap(np.float64(1.0))])[0]

        return df

    with eager():
        sin = lambda x: op(sin_p, x)  # noqa: E731
        assert float(derivative(derivative(sin))(np.float64(0.3))) == pytest.approx(-np.sin(0.3))
        assert float(derivative(derivative(derivative(sin)))(np.float64(0.3))) == pytest.approx(-np.cos(0.3))


def test_perturbations_are_not_confused() -> None:
    """d/dx [x * d/dy (x + y)] = 1, and not 2 (Siskind and Pearlmutter)."""

    def inner(x: Any) -> Any:
        _, pullback = EagerContext().vjp(lambda y: [x + y], [np.float64(1.0)])
        return pullback([wrap(np.float64(1.0))])[0]

    assert gradient(lambda x: x * inner(x), 1.0) == [1.0]


def test_op_with_several_results_gets_all_its_cotangents() -> None:
    def f(x: Any) -> Any:
        a, b = bind_all(both_p, [x])
        return a * b

    assert gradient(f, 2.0) == [24.0]  # 6 x**2
    assert gradient(lambda x: bind_all(both_p, [x])[1], 2.0) == [3.0]


def test_op_without_derivative_names_itself_and_the_line() -> None:
    with pytest.raises(GradientError, match="`mystery` has no derivative: nobody knows its slope") as caught:
        gradient(lambda x: op(floor_p, x), 1.5)
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert gradient(lambda x: op(stop_p, op(floor_p, x)) * x, 1.5) == [1.0]


def test_pullback_runs_twice_and_after_the_block() -> None:
    with eager() as context:
        _, pullback = context.vjp(lambda x: [x * x], [np.float64(3.0)])
    assert [float(pullback([wrap(np.float64(ct))])[0]) for ct in (1.0, 10.0)] == [6.0, 60.0]


def test_overflow_wraps_silently() -> None:
    with eager(), np.errstate(all="raise"):
        big = wrap(np.array([2**31 - 1], np.int32))
        assert (big + wrap(np.array([1], np.int32))).tolist() == [-(2**31)]


@pytest.mark.parametrize(
    ("error", "becomes"), [(IndexError, ProgramIndexError), (ZeroDivisionError, ProgramZeroDivisionError)]
)
def test_errors_of_a_running_program_name_the_line(error: type[Exception], becomes: type[Exception]) -> None:
    def fails(x: Any) -> Any:
        raise error("so it goes")

    with eager(), pytest.raises(becomes, match="so it goes") as caught:
        op(declare("take", fails, effects=FAIL), 1.0)
    assert caught.value.where is not None and caught.value.where.file == __file__  # type: ignore[attr-defined]


def test_type_error_names_the_position_and_the_operands() -> None:
    with eager(), pytest.raises(ShapeError, match="shapes differ") as caught:
        wrap(np.zeros(3)) + wrap(np.zeros(4))
    assert caught.value.where is not None and caught.value.where.file == __file__
    assert "operand 1: f64 (4,)" in str(caught.value)


def test_a_reference_that_breaks_its_type_rule_is_caught() -> None:
    with eager(), pytest.raises(AssertionError, match="gave float32"):
        op(declare("wrong", lambda x: x.astype(np.float32)), np.zeros(3))


def test_numbers_are_weak_and_come_back_as_numbers() -> None:
    assert str(weak_number(3).type) == "i64 () weak" and str(wrap(2.5).type) == "f64 () weak"
    assert wrap(True).dtype is bool_ and wrap(np.float64(1)).type.weak is False
    assert unwrap(wrap(3)) == 3 and isinstance(unwrap(wrap(3)), int)
    result = unwrap(wrap(np.arange(3, dtype=np.int32)))
    assert isinstance(result, np.ndarray) and result.dtype == np.int32 and result.flags.writeable
    with pytest.raises(StagedValueError, match="does not fit 64 bits"):
        weak_number(2**63)
    with pytest.raises(DTypeError, match="longdouble|float128"):
        wrap(np.zeros(3, np.longdouble))


def test_arrays_are_values() -> None:
    source = np.zeros(3)
    array = wrap(source)
    source[0] = 1.0
    assert array.tolist() == [0.0, 0.0, 0.0]
    array.numpy()[0] = 1.0
    np.asarray(array)[0] = 1.0
    assert array.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(StagingError, match="arrays are values"):
        array[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(array, copy=False)[0] = 1.0


def test_python_conversions() -> None:
    assert [10, 20, 30][wrap(np.int32(1))] == 20 and int(wrap(2.7)) == 2 and float(wrap(2)) == 2.0
    assert bool(wrap(np.array([True]))) and wrap(np.array([2.5])).item() == 2.5
    with pytest.raises(StagedValueError, match="an index must be an integer"):
        [1, 2][wrap(1.0)]
    with pytest.raises(StagedValueError, match=r"bool\(\) needs one element, got f64 \(2,\)"):
        bool(wrap(np.zeros(2)))


def test_prints_through_the_formatter() -> None:
    x = EagerArray(np.float32(0.1), TensorType(dtype=f64, shape=()))
    assert f"{wrap(np.float32(0.1))}" == "0.1" and str(x) == "0.1"
    assert f"{wrap(np.float64(1) / 3):.3f}" == "0.333"
    with pytest.raises(StagingError, match="does not fit a float") as caught:
        f"{wrap(1.5):d}"
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_named_functions_alone() -> None:
    assert not is_eager("step")
    with eager("step"):
        assert is_eager("step") and not is_eager("train") and not is_eager()
    with eager():
        assert is_eager("step") and is_eager()


def test_the_random_counter_goes_on_and_inner_calls_share_the_generator_of_the_outermost() -> None:
    def draw(context: EagerContext) -> int:
        return int(context.next_random()[2])

    with eager():
        own = st.random.Generator(5)
        for first in (0, 3):
            with eager_call(own) as context:
                assert [int(part) for part in context.next_random()] == [5, 0, first]
                with eager_call() as inner:
                    assert [draw(context), draw(inner)] == [first + 1, first + 2]
    assert str(context.next_random()[2].type) == str(TensorType(i64))


def test_integer_primals_have_no_gradient() -> None:
    with eager() as context:
        _, pullback = context.vjp(lambda n, x: [x * x], [np.int32(3), np.float64(2.0)])
        d_n, d_x = pullback([wrap(np.float64(1.0))])
    assert (d_n.dtype, int(d_n), float(d_x)) == (i32, 0, 4.0)


# ---- forward mode, and steps with a reverse of their own ------------------------------------------


def slope(f: Callable[[Any], Any], at: Any, along: float = 1.0) -> Any:
    _, (tangent,) = EagerContext().jvp(lambda x: [f(x)], [at], [wrap(np.float64(along))])
    return tangent


def test_tangents_along_python_control_flow() -> None:
    def power(x: Any) -> Any:
        result = x
        for _ in range(3):
            result = op(mul_p, result, x)
        return result

    with eager():
        assert float(slope(power, np.float64(1.5), 2.0)) == pytest.approx(2.0 * 4 * 1.5**3)
        assert float(slope(lambda x: np.float64(2.0), np.float64(1.0))) == 0.0


def test_forward_and_reverse_nest_without_confusion() -> None:
    def inner_fwd(x: Any) -> Any:
        return slope(lambda y: op(mul_p, x, op(mul_p, y, y)), x)  # d/dy x y^2 = 2 x^2 at y = x

    def inner_rev(x: Any) -> Any:
        _, pullback = EagerContext().vjp(lambda y: [op(mul_p, x, op(mul_p, y, y))], [x])
        return pullback([wrap(np.float64(1.0))])[0]

    with eager():
        for inner in (inner_fwd, inner_rev):
            assert float(slope(inner, np.float64(3.0))) == pytest.approx(12.0)
            _, pullback = EagerContext().vjp(lambda x, inner=inner: [inner(x)], [np.float64(3.0)])
            assert float(pullback([wrap(np.float64(1.0))])[0]) == pytest.approx(12.0)


def test_a_level_that_has_ended_sees_nothing_more() -> None:
    with eager() as context:
        kept: list[Any] = []
        (_,), (tangent,) = context.jvp(
            lambda x: [kept.append(x) or op(mul_p, x, x)], [np.float64(3.0)], [wrap(np.float64(1.0))]
        )
        assert float(tangent) == 6.0
        assert float(slope(lambda y: op(mul_p, y, kept[0]), np.float64(2.0))) == 3.0


def test_op_without_a_forward_rule_names_itself() -> None:
    with eager(), pytest.raises(GradientError, match="`mystery` has no derivative: nobody knows its slope"):
        slope(lambda x: op(floor_p, x), np.float64(1.5))


def custom(x: Any, scale: float = 10.0) -> Any:
    """x * x, whose reverse is made `scale` times larger."""
    return EagerContext().custom_vjp(
        "custom",
        lambda given: [op(mul_p, given[0], given[0])],
        lambda given: ([op(mul_p, given[0], given[0])], given[0]),
        lambda kept, cts: [op(mul_p, op(mul_p, cts[0], kept), wrap(np.float64(2.0 * scale)))],
        [x],
    )[0]


def test_custom_reverse_and_the_derivative_of_it() -> None:
    assert gradient(custom, 3.0) == [60.0]
    with eager():

        def first(x: Any) -> Any:
            _, pullback = EagerContext().vjp(lambda y: [custom(y)], [x])
            return pullback([wrap(np.float64(1.0))])[0]

        # 20 x, whose derivative is that of the reverse's own code, in both modes.
        assert float(slope(first, np.float64(3.0))) == 20.0
        _, pullback = EagerContext().vjp(lambda x: [first(x)], [np.float64(3.0)])
        assert float(pullback([wrap(np.float64(1.0))])[0]) == 20.0
        assert float(custom(np.float64(3.0))) == 9.0


def test_custom_reverse_refuses_forward_mode_and_what_it_closes_over() -> None:
    with eager():
        with pytest.raises(GradientError, match="forward mode through `custom`"):
            slope(custom, np.float64(3.0))

        def closing(x: Any) -> Any:
            return EagerContext().custom_vjp(
                "closing",
                lambda given: [op(mul_p, given[0], x)],
                lambda given: ([op(mul_p, given[0], x)], None),
                lambda kept, cts: [None],
                [op(mul_p, x, x)],
            )[0]

        with pytest.raises(
            GradientError, match="`closing`, a `custom_vjp`, reads a value that is being differentiated"
        ):
            EagerContext().vjp(lambda x: [closing(x)], [np.float64(3.0)])
