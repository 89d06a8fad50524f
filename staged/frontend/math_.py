"""Python's `math` on staged scalars: a table of the functions, and the way out for those that have none here.

Where Python raises a ValueError (`math.sqrt(-1.0)`), a program goes on with NaN or an infinity, as `st.sqrt` does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

from staged.errors import StagedValueError, StagingError
from staged.frontend.tracing import current_trace
from staged.frontend.try_ import is_waited_for
from staged.ir.types import TensorType, i64
from staged.ops.array import METHODS, Array
from staged.ops.context import bind
from staged.ops.primitive import PRIMITIVES
from staged.source import here

_SAME_NAME = (
    "sqrt exp expm1 log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh erf erfc isnan isinf isfinite atan2 pow"
).split()
"""Functions that are ops of the same name."""


def _where(condition: Any, a: Any, b: Any) -> Any:
    return METHODS["where"](condition, a, b)


def _op(name: str) -> Callable[..., Any]:
    return lambda *values: METHODS[name](*values)


def _log(x: Any, *base: Any) -> Any:
    result = METHODS["log"](x)
    return result / METHODS["log"](base[0]) if base else result


def _asinh(x: Any) -> Any:
    # On |x|, where nothing cancels; the slope at 0 comes from the side that is chosen there.
    size = _where(x < 0, -x, x)
    y = METHODS["log1p"](size + size * size / (1.0 + METHODS["sqrt"](size * size + 1.0)))
    return _where(x < 0, -y, y)


def _acosh(x: Any) -> Any:
    above = x - 1.0
    return METHODS["log1p"](above + METHODS["sqrt"](above * (above + 2.0)))


def _atanh(x: Any) -> Any:
    return 0.5 * (METHODS["log1p"](x) - METHODS["log1p"](-x))


def _cbrt(x: Any) -> Any:
    return METHODS["sign"](x) * METHODS["pow"](METHODS["abs"](x), 1.0 / 3.0)


def _fmod(x: Any, y: Any) -> Any:
    rest = METHODS["abs"](x) % METHODS["abs"](y)
    return _where(x < 0, -rest, rest)


def _copysign(x: Any, y: Any) -> Any:
    size = METHODS["abs"](x * 1.0)
    is_negative = _where(METHODS["equal"](y, 0), METHODS["divide"](1.0, y), y * 1.0) < 0  # -0.0 too
    return _where(is_negative, -size, size)


def _hypot(*values: Any) -> Any:
    total: Any = 0.0
    for value in values:
        total = total + value * value
    at_zero = METHODS["equal"](total, 0.0)
    return _where(at_zero, 0.0, METHODS["sqrt"](_where(at_zero, 1.0, total)))  # its slope at 0 is 0, not NaN


def _dist(p: Iterable[Any], q: Iterable[Any]) -> Any:
    return _hypot(*(a - b for a, b in zip(p, q, strict=True)))


def _modf(x: Any) -> Any:
    whole = METHODS["trunc"](x)
    return x - whole, whole


def _isclose(a: Any, b: Any, *, rel_tol: Any = 1e-09, abs_tol: Any = 0.0) -> Any:
    larger = METHODS["maximum"](METHODS["abs"](a), METHODS["abs"](b))
    near = METHODS["abs"](a - b) <= METHODS["maximum"](rel_tol * larger, abs_tol)
    finite = METHODS["logical_and"](METHODS["isfinite"](a * 1.0), METHODS["isfinite"](b * 1.0))
    return METHODS["logical_or"](METHODS["equal"](a, b), METHODS["logical_and"](finite, near))


def _prod(values: Iterable[Any], *, start: Any = 1) -> Any:
    return functools.reduce(lambda a, b: a * b, values, start)


def _fsum(values: Iterable[Any]) -> Any:
    return functools.reduce(lambda a, b: a + b, values, 0.0)


def integer_of(x: Any) -> Any:
    """A staged Python integer: truncates, as Python does."""
    weak_integer = TensorType(i64, (), True)
    return x if x.type == weak_integer else bind(PRIMITIVES["cast"], [x], dtype=i64, weak=True)


def _to_integer(rounding: str) -> Callable[[Any], Any]:
    return lambda x: integer_of(x if x.dtype.is_integer else METHODS[rounding](x))


STAGED: dict[str, Callable[..., Any]] = {
    **{name: _op(name) for name in _SAME_NAME},
    "log": _log,
    "exp2": lambda x: METHODS["pow"](2.0, x),
    "fabs": lambda x: METHODS["abs"](x * 1.0),
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "cbrt": _cbrt,
    "degrees": lambda x: x * (180.0 / math.pi),
    "radians": lambda x: x * (math.pi / 180.0),
    "floor": _to_integer("floor"),
    "ceil": _to_integer("ceil"),
    "trunc": _to_integer("trunc"),
    "fmod": _fmod,
    "copysign": _copysign,
    "ldexp": lambda x, i: x * METHODS["pow"](2.0, i),
    "modf": _modf,
    "hypot": _hypot,
    "dist": _dist,
    "prod": _prod,
    "fsum": _fsum,
    "isclose": _isclose,
}
"""What each function does where an argument is staged."""

_LOOP = "write a loop in the staged function"
_OUTSIDE = "compute it in Python and pass the result as an argument"
REFUSED: dict[str, str] = {
    "comb": f"{_LOOP}, or {_OUTSIDE}",
    "factorial": f"{_LOOP}: `for i in range(n): product *= i + 1`",
    "frexp": "use `math.log2(x)`",
    "gamma": _OUTSIDE,
    "gcd": f"{_LOOP}: `while b: a, b = b, a % b`",
    "isqrt": "use `int(math.sqrt(n))`",
    "lcm": f"{_LOOP} for the greatest common divisor: `while b: a, b = b, a % b`",
    "lgamma": _OUTSIDE,
    "nextafter": _OUTSIDE,
    "perm": f"{_LOOP}, or {_OUTSIDE}",
    "remainder": "write `x - y * round(x / y)`",
    "sumprod": "write `sum(a * b for a, b in zip(p, q))`, or `st.dot(p, q)` for arrays",
    "ulp": _OUTSIDE,
    "fma": "write `x * y + z`",
}
"""Functions that staged values cannot go through, with the way out."""


def _scalars(name: str, values: Iterable[Any]) -> bool:
    """Whether some of the arguments, or of the elements of lists and tuples among them, are staged scalars."""
    found = False
    for value in values:
        if isinstance(value, list | tuple):
            found = _scalars(name, value) or found
        elif isinstance(value, Array):
            found = True
            if value.shape and name not in ("prod", "fsum", "dist"):
                raise StagedValueError(
                    f"`math.{name}` takes numbers, got {value.type}",
                    where=here(),
                    hint="the functions of `staged` take arrays: `st.exp(x)`, `st.floor(x)`, ...",
                )
    return found


def _read(value: Any) -> Any:
    reader = getattr(value, "__staged_read__", None)
    if reader is not None:
        return reader()
    return list(value) if hasattr(value, "__next__") else value


_DOMAIN, _OVERFLOW = (ValueError,), (OverflowError,)
_RAISES: dict[str, tuple[type[Exception], ...]] = {
    **dict.fromkeys("sqrt log log2 log10 log1p asin acos acosh atanh sin cos tan fmod modf".split(), _DOMAIN),
    **dict.fromkeys("exp exp2 expm1 cosh sinh ldexp fsum".split(), _OVERFLOW),
    **dict.fromkeys("pow floor ceil trunc".split(), (ValueError, OverflowError)),
}
"""What Python raises for some numbers, where a program goes on with an infinity or NaN."""


def note_raiser(errors: tuple[type[Exception], ...], what: str, plain: Callable[..., Any], values: Iterable[Any]) -> None:
    """Note for the `try`s around that Python may raise here, and the program does not; eager mode raises as Python does."""
    trace = current_trace()
    if trace is not None:
        if errors and trace.try_depth:
            trace.raisers.append((errors, what, here()))
    elif errors and is_waited_for():
        plain(*(value.item() if isinstance(value, Array) else value for value in values))


def _handler(name: str) -> Callable[..., Any]:
    plain = getattr(math, name)
    staged = STAGED.get(name)

    def handler(*values: Any, **options: Any) -> Any:
        values = tuple(map(_read, values))
        options = {key: _read(option) for key, option in options.items()}
        if not _scalars(name, (*values, *options.values())):
            return plain(*values, **options)
        note_raiser(_RAISES.get(name, ()), f"`math.{name}`", plain, values)
        if staged is None:
            raise StagingError(f"`math.{name}` of a staged value cannot be staged", where=here(), hint=REFUSED[name])
        return staged(*values, **options)

    return handler


def handlers() -> dict[Any, Callable[..., Any]]:
    """What a call of each function of `math` does while tracing."""
    return {getattr(math, name): _handler(name) for name in sorted({*STAGED, *REFUSED}) if hasattr(math, name)}
