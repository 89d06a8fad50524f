"""`try`: what Python would raise and the program does not is refused where a handler waits; refusals are not swallowed."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError, StaticStateError
from staged.frontend.trace_function import trace
from tests.frontend.harness import interpret


def reciprocal(x):
    try:
        return 1.0 / x
    except ZeroDivisionError:
        return 0.0


def power(x):
    try:
        y = x**-1.5
    except ArithmeticError:
        y = 0.0
    return y


def logarithm(x):
    try:
        y = math.log(x)
    except ValueError:
        y = 0.0
    return y


def exponential(x):
    try:
        y = math.exp(x)
    except OverflowError:
        y = 0.0
    return y


def truncated(x):
    try:
        y = int(x)
    except (ValueError, OverflowError):
        y = 0
    return y


def in_a_helper(x):
    def root(v):
        return math.sqrt(v)

    try:
        y = root(x) if x > -100.0 else 0.0
    except Exception:
        y = 9.0
    return y


def any_handler(x):
    try:
        y = x % (x * 2.0)
    except:  # noqa: E722
        y = 9.0
    return y


WAITED_FOR = [
    (reciprocal, 0.0, "`/` goes on with an infinity or NaN where Python raises a ZeroDivisionError"),
    (power, 0.0, "`**` goes on with an infinity or NaN where Python raises an OverflowError"),
    (logarithm, -1.0, "`math.log` goes on with an infinity or NaN where Python raises a ValueError"),
    (exponential, 1e4, "`math.exp` goes on with an infinity or NaN where Python raises an OverflowError"),
    (truncated, math.inf, "`int` goes on with an infinity or NaN where Python raises a ValueError"),
    (in_a_helper, -1.0, "`math.sqrt` goes on with an infinity or NaN where Python raises a ValueError"),
    (any_handler, 0.0, "`%` goes on with an infinity or NaN where Python raises a ZeroDivisionError"),
]


@pytest.mark.parametrize(("program", "x", "message"), WAITED_FOR)
def test_what_a_handler_waits_for_is_refused(program, x, message) -> None:
    with pytest.raises(StagingError) as caught:
        trace(program, (x,))
    assert message in caught.value.message
    assert "ask before" in (caught.value.hint or "")


def scaled(x):
    try:
        y = math.ldexp(1.0, int(x)) + math.fsum([x, 1.0])
    except OverflowError:
        y = 9.0
    return y


@pytest.mark.parametrize(("program", "x"), [*((p, x) for p, x, _ in WAITED_FOR), (power, 1e-300), (scaled, 3.0), (scaled, 1e4)])
def test_eager_mode_raises_as_python_does(program, x) -> None:
    with st.eager():
        assert st.function(program)(x) == program(x)


def slopes_at_zero(x):
    try:
        y = st.grad(st.sqrt)(x), st.jvp(st.sqrt, (x,), (1.0,))[1], math.copysign(2.0, x)
    except ArithmeticError:
        y = 9.0, 9.0, 9.0
    return y


def handler_of_another_error(x):
    try:
        y = math.log(x - 1.0), 1.0 / x, math.isnan(x**-1.0)
    except KeyError:
        y = 9.0, 9.0, False
    return y


@pytest.mark.parametrize("program", [slopes_at_zero, handler_of_another_error])
def test_both_modes_go_on_where_no_handler_waits(program) -> None:
    """No handler names the error; or it comes from a rule of a derivative, which the user did not write."""
    got = st.function(program)(0.0)
    with st.eager():
        np.testing.assert_array_equal(st.function(program)(0.0), got)


def test_eager_derivative_passes_what_is_asked_of_a_number() -> None:
    with st.eager():
        assert st.function(lambda x: st.grad(in_a_helper)(x))(4.0) == 0.25


def test_refusal_is_not_swallowed_in_eager_mode_either() -> None:
    def program(x):
        try:
            y = np.linalg.eigvals(x)
        except Exception:
            y = -1.0
        return y

    for run in (lambda: trace(program, (np.ones(2),)), lambda: st.function(program)(np.ones(2))):
        with st.eager(), pytest.raises(StagingError, match="not available on arrays"):
            run()


def met_by_an_array(x):
    try:
        y = np.ones(3, np.uint8) + x
    except OverflowError:
        y = np.zeros(3, np.uint8)
    return y


def test_a_number_that_may_not_fit_is_refused_where_a_handler_waits() -> None:
    with pytest.raises(StagingError, match="may stop the program with an OverflowError") as caught:
        trace(met_by_an_array, (3,))
    assert "ask before" in (caught.value.hint or "")
    for x in (3, 300):
        with st.eager():
            np.testing.assert_array_equal(st.function(met_by_an_array)(x), met_by_an_array(x))


def divided_by_a_number(x):
    try:
        y = x / 2.0 + x**2.0 % 3.0
    except ZeroDivisionError:
        y = 0.0
    return y


def other_handler(x):
    try:
        y = math.log(x) / x
    except KeyError:
        y = 0.0
    return y


def arrays_of_numpy(x):
    try:
        y = st.sum(np.ones(3) / (np.zeros(3) + x))
    except ZeroDivisionError:
        y = 0.0
    return y


@pytest.mark.parametrize("program", [divided_by_a_number, other_handler, arrays_of_numpy])
def test_what_raises_nothing_or_is_not_waited_for_is_staged(program) -> None:
    np.testing.assert_allclose(interpret(trace(program, (4.0,))), program(4.0))


def test_refusal_is_not_taken_by_a_handler_of_everything() -> None:
    def program(x):
        out = [1]
        try:
            for _ in st.range(3):
                out.append(x)
        except Exception:
            return 7.0
        return x

    with pytest.raises(StaticStateError, match="`out` changes its length"):
        trace(program, (1.0,))


@pytest.mark.parametrize("x", [1.0, -1.0])
def test_return_through_a_handler_of_everything(x) -> None:
    def program(x):
        y = 0.0
        try:
            if x > 0.0:
                return x
            y = x * 2.0
        except:  # noqa: E722
            y = 5.0
        return y

    assert interpret(trace(program, (x,))) == program(x)


def test_handler_that_names_an_error_of_staging_gets_it() -> None:
    def program(x):
        try:
            y = st.zeros((2,)) + st.zeros((3,))
        except ValueError:
            y = st.zeros((1,)) + x
        return y

    assert interpret(trace(program, (1.0,))) == 1.0


def _raised(x):
    try:
        raise ValueError("a", "b")
    except ValueError as error:
        return x * len(error.args), len(str(error)), type(error).__name__ == "ValueError"


def _raised_in_a_handler(x):
    try:
        try:
            raise KeyError("abc")
        except KeyError as error:
            raise IndexError("de") from error
    except (IndexError, TypeError) as error:
        return x * len(str(error)), type(error.__cause__).__name__ == "KeyError"


def _asserted(x):
    try:
        try:
            assert len(x) > 5, "few"
        except ValueError:
            return x, 0
    except Exception as error:
        return x * len(str(error)), len(error.args)


@pytest.mark.parametrize(
    ("program", "wanted"), [(_raised, [2, 10, 1]), (_raised_in_a_handler, [2, 1]), (_asserted, [3, 1])]
)
@pytest.mark.parametrize("is_eager", [False, True])
def test_handlers_get_what_was_raised(program, wanted, is_eager) -> None:
    with st.eager() if is_eager else nullcontext():
        found = st.function(program)(np.ones(1))
    assert [int(np.sum(each)) for each in found] == wanted
