"""`check_grads`: right derivatives pass, wrong ones are caught in each mode and named by the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ops.context import bind
from staged.ops.primitive import Primitive
from staged.testing import captured_prints, check_grads

X = np.array([0.5, -1.0, 2.0])


def polynomial(x: Any, y: Any = 1.0) -> Any:
    return st.sum(x * x * x) + y * x[0], x * 2.0


def test_trees_of_arguments_and_numbers_that_are_not_differentiated() -> None:
    def f(params, n, mode):
        total = 0.0
        for i in st.range(n):
            total += st.sum(st.sin(params["w"] * i) + params["b"])
        return {"total": total, "n": n} if mode == "sum" else total

    check_grads(f, ({"w": X, "b": X.astype(np.float32)}, 3, "sum"))


@pytest.mark.parametrize("in_eager", [True, False])
@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev")])
def test_both_modes_and_second_order(in_eager: bool, modes: tuple[str, ...]) -> None:
    check_grads(polynomial, (X, 2.0), order=2, modes=modes, in_eager=in_eager)


def test_inside_an_eager_block() -> None:
    with st.eager():
        check_grads(st.function(polynomial), (X,), order=3)


def test_report_names_the_argument_and_the_numbers() -> None:
    def wrong(a, params):
        return st.sum(a * a) + st.sum(st.stop_gradient(params["w"]) * params["w"])

    with pytest.raises(AssertionError) as caught:
        check_grads(wrong, (X, {"w": X}), in_eager=True)
    first, second, third = str(caught.value).splitlines()
    assert first.startswith("the derivative of order 1 along a random direction: forward mode gives")
    assert second.startswith("  by argument 0: ") and "differs" not in second
    assert third.startswith("  by argument 1.w: forward mode ") and third.endswith("<- differs")
    assert "reverse mode" in third and "differences" in third


def test_modes_that_differ_from_each_other_within_the_tolerance_of_differences() -> None:
    skewed = Primitive(
        name="skewed",
        kind="elementwise",
        infer=lambda x: x,
        reference=lambda x: x * 1.0,
        vjp=lambda ct, y, x: [ct],
        jvp=lambda tangents, y, operands: tangents[0] * (1.0 + 1e-4),
    )

    def f(x):
        return bind(skewed, [x])

    check_grads(f, (X,), modes=("fwd",), rtol=1e-3, in_eager=True)
    check_grads(f, (X,), modes=("rev",), rtol=1e-3, in_eager=True)
    with pytest.raises(AssertionError, match=r"forward mode gives .*, reverse mode gives"):
        check_grads(f, (X,), rtol=1e-3, in_eager=True)


def test_derivatives_that_do_not_exist_raise() -> None:
    @st.custom_vjp
    def f(x):
        return st.sum(x * x)

    f.defvjp(lambda x: (st.sum(x * x), x), lambda x, ct: (2.0 * x * ct,))
    check_grads(f, (X,), modes=("rev",), order=2, in_eager=True)
    with pytest.raises(st.GradientError, match="forward mode through `f`"):
        check_grads(f, (X,), modes=("fwd",), in_eager=True)


def test_prints_of_the_function_do_not_appear() -> None:
    def f(x):
        print("secret", x)
        return st.sum(x * x)

    with captured_prints() as captured:
        check_grads(f, (X,), modes=("rev",))
        check_grads(f, (X,), in_eager=True)
    assert captured.text == ""


def test_what_it_cannot_check_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one float array"):
        check_grads(polynomial, (np.array([1, 2]),))
    with pytest.raises(ValueError, match="unknown modes"):
        check_grads(polynomial, (X,), modes=("forward",))


@pytest.mark.parametrize("in_eager", [True, False])
def test_what_a_function_draws_is_the_same_at_every_point(in_eager) -> None:
    def f(x):
        return x * x * st.random.uniform((3,), dtype=st.f64)

    st.seed(4)
    check_grads(f, (np.arange(1.0, 4.0),), in_eager=in_eager)
    assert int(st.random.default_generator().counter) == 0  # it is put back
