"""Python's `math` on staged scalars: a table of the functions, and the way out for those that have none here.

Where Python raises a ValueError (`math.sqrt(-1.0)`), a program goes on with NaN or an infinity, as `st.sqrt` does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from staged.errors import StagedValueError, StagingError
from staged.frontend.calls.call import BUILTINS
from staged.frontend.constructs.try_ import is_waited_for
from staged.frontend.trace.context import current_trace
from staged.frontend.trace.handlers import Handlers, Raisers
from staged.ir.declaration import prims
from staged.ir.types import TensorType, f32, i64
from staged.ops.array import METHODS, Array
from staged.ops.choice import stop_gradient, where
from staged.ops.comparisons import clip, equal, logical_and, logical_or
from staged.ops.context import bind
from staged.ops.elementwise import abs_, atan2, ceil, floor, isfinite, isinf, log, log1p, maximum, pow_, sqrt, trunc
from staged.ops.promote import read
from staged.source import here


def _op(name: str) -> Callable[..., Any]:
    return lambda *values: METHODS[name](*values)


def _log(x: Any, *base: Any) -> Any:
    result = log(x)
    return result / log(base[0]) if base else result


_LARGE = 1e9
"""Beyond it, a 1 beside the square of a number is lost in f64 and in f32."""


def _asinh(x: Any) -> Any:
    # On |x|, where nothing cancels; the slope at 0 comes from the side that is chosen there. Squares of large ones
    # overflow.
    size = where(x < 0, -x, x)
    is_large = size > _LARGE
    near, far = where(is_large, 1.0, size), where(is_large, size, 1.0)
    y = log1p(near + near * near / (1.0 + sqrt(near * near + 1.0)))
    y = where(is_large, log(far) + math.log(2.0), y)
    return where(x < 0, -y, where(equal(x, 0), x * 1.0, y))


def _acosh(x: Any) -> Any:
    is_large = x > _LARGE
    above, far = where(is_large, 1.0, x - 1.0), where(is_large, x, 1.0)
    near = log1p(above + sqrt(above * (above + 2.0)))
    return where(is_large, log(far) + math.log(2.0), near)


def _fmod(x: Any, y: Any) -> Any:
    rest = abs_(x) % abs_(y)
    return where(_is_negative(x), -rest, rest)


def _is_negative(x: Any) -> Any:
    """Return whether the sign is a minus, of -0.0 too."""
    return atan2(x * 1.0, -1.0) < 0


def _copysign(x: Any, y: Any) -> Any:
    size = abs_(x * 1.0)
    return where(_is_negative(y), -size, size)


def _hypot(*values: Any) -> Any:
    sizes = [abs_(value * 1.0) for value in values]
    most = functools.reduce(maximum, sizes)
    large, small, by = (1e15, 1e-15, (-70, 100)) if most.dtype == f32 else (1e150, 1e-140, (-600, 600))
    # Squares of very large and small numbers leave the range: then all are scaled by a power of 2, which rounds
    # nothing.
    scale = where(most > large, 2.0 ** by[0], where(most < small, 2.0 ** by[1], 1.0))
    back = where(most > large, 2.0 ** -by[0], where(most < small, 2.0 ** -by[1], 1.0))
    total: Any = 0.0
    for value in values:
        scaled = value * scale
        total = total + scaled * scaled
    at_zero = equal(total, 0.0)
    length = where(at_zero, 0.0, sqrt(where(at_zero, 1.0, total))) * back  # its slope at 0 is 0, not NaN
    is_infinite = functools.reduce(logical_or, map(isinf, sizes))
    return where(is_infinite, math.inf, length)  # even where another one is NaN


def _modf(x: Any) -> Any:
    finite = where(isinf(x), 0.0, x)
    size = where(_is_negative(x), -finite, finite)
    rest = size - trunc(size)
    return where(_is_negative(x), -rest, rest), trunc(x)


def _isclose(a: Any, b: Any, *, rel_tol: Any = 1e-09, abs_tol: Any = 0.0) -> Any:
    larger = maximum(abs_(a), abs_(b))
    near = abs_(a - b) <= maximum(rel_tol * larger, abs_tol)
    finite = logical_and(isfinite(a * 1.0), isfinite(b * 1.0))
    return logical_or(equal(a, b), logical_and(finite, near))


def _fsum(values: Iterable[Any]) -> Any:
    total: Any = 0.0
    lost: Any = 0.0  # what the additions have rounded off, as Neumaier adds it up
    for value in values:
        added = total + value
        is_larger = abs(total) >= abs(value)
        lost = lost + where(is_larger, (total - added) + value, (value - added) + total)
        total = added
    return where(isfinite(total), total + lost, total)


def _ldexp(x: Any, i: Any) -> Any:
    # In steps that are numbers of the dtype: 2.0**i alone may be none where the result is one.
    step = 100 if isinstance(x, Array) and x.dtype == f32 else 1000
    for _ in range(3):
        power = clip(i, -step, step) if isinstance(i, Array) else max(-step, min(step, i))
        x, i = x * (pow_(2.0, power) if isinstance(i, Array) else 2.0**power), i - power
    return x


def integer_of(x: Any) -> Any:
    """A staged Python integer: truncates, as Python does."""
    weak_integer = TensorType(i64, (), True)
    return x if x.type == weak_integer else bind(prims.CAST, [x], dtype=i64, weak=True)


def _to_integer(rounding: Callable[..., Array]) -> Callable[[Any], Any]:
    return lambda x: integer_of(x if x.dtype.is_integer else rounding(x))


_OTHERWISE = ("remainder", "gcd", "lcm", "nextafter")
"""Python's functions that take other arguments than arrays': IEEE's remainder, any number of integers, steps."""

STAGED: dict[str, Callable[..., Any]] = {
    **{name: _op(name) for name in dir(math) if name in METHODS and name not in _OTHERWISE},
    "log": _log,
    "exp2": lambda x: pow_(2.0, x),
    "fabs": lambda x: abs_(x * 1.0),
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": lambda x: 0.5 * (log1p(x) - log1p(-x)),
    "degrees": lambda x: x * (180.0 / math.pi),
    "radians": lambda x: x * (math.pi / 180.0),
    "floor": _to_integer(floor),
    "ceil": _to_integer(ceil),
    "trunc": _to_integer(trunc),
    "fmod": _fmod,
    "copysign": _copysign,
    "ldexp": _ldexp,
    "modf": _modf,
    "hypot": _hypot,
    "dist": lambda p, q: _hypot(*(a - b for a, b in zip(p, q, strict=True))),
    "prod": lambda values, *, start=1: functools.reduce(lambda a, b: a * b, values, start),
    "fsum": _fsum,
    "isclose": _isclose,
}
"""The staged meaning of each function."""

_LOOP = "write a loop in the staged function"
_OUTSIDE = "compute it in Python and pass the result as an argument"
REFUSED: dict[str, str] = {
    "comb": f"{_LOOP}, or {_OUTSIDE}",
    "factorial": f"{_LOOP}: `for i in range(n): product *= i + 1`",
    "frexp": "use `math.log2(x)`",
    "gamma": _OUTSIDE,
    "gcd": "use `st.gcd(a, b)`",
    "isqrt": "use `int(math.sqrt(n))`",
    "lcm": "use `st.lcm(a, b)`",
    "nextafter": _OUTSIDE,
    "perm": f"{_LOOP}, or {_OUTSIDE}",
    "remainder": "write `x - y * round(x / y)`",
    "sumprod": "write `sum(a * b for a, b in zip(p, q))`, or `st.dot(p, q)` for arrays",
    "ulp": _OUTSIDE,
    "fma": "write `x * y + z`",
}
"""Functions that staged values cannot go through, with the way out."""


def _scalars(name: str, values: Iterable[Any]) -> bool:
    """Return whether some of the arguments, or of the elements of lists and tuples among them, are staged scalars."""
    found = False
    for value in values:
        if isinstance(value, list | tuple):
            found = _scalars(name, value) or found
        elif isinstance(value, Array):
            found = True
            if value.shape and name not in ("prod", "fsum", "dist"):
                raise StagedValueError(
                    f"`math.{name}` needs numbers, got {value.type}",
                    where=here(),
                    hint="the functions of `staged` take arrays: `st.exp(x)`, `st.floor(x)`, ...",
                )
    return found


def _read(value: Any) -> Any:
    value = read(value)
    return list(value) if hasattr(type(value), "__next__") else value


_DOMAIN, _OVERFLOW = (ValueError,), (OverflowError,)
_RAISES: dict[str, tuple[type[Exception], ...]] = {
    **dict.fromkeys("sqrt log log2 log10 log1p asin acos acosh atanh sin cos tan fmod modf lgamma".split(), _DOMAIN),
    **dict.fromkeys("exp exp2 expm1 cosh sinh ldexp fsum".split(), _OVERFLOW),
    **dict.fromkeys("pow floor ceil trunc".split(), (ValueError, OverflowError)),
}
"""Exceptions of Python for some numbers, for which a program continues with an infinity or NaN."""


def note_raiser(
    errors: tuple[type[Exception], ...], what: str, plain: Callable[..., Any], values: Iterable[Any]
) -> None:
    """Note for the `try`s around that Python may raise here, and the program does not; eager mode raises as Python
    does.
    """
    trace = current_trace()
    if trace is not None:
        if errors and trace.of(Handlers).depth:
            trace.put(Raisers((*trace.of(Raisers).calls, (errors, what, here()))))
    elif errors and is_waited_for(errors):
        plain(*map(_in_python, values))


def _in_python(value: Any) -> Any:
    """The numbers of eager mode as Python's, and no derivative of them."""
    if isinstance(value, list | tuple):
        return [_in_python(item) for item in value]
    return np.asarray(stop_gradient(value)).item() if isinstance(value, Array) else value


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


BUILTINS.update({getattr(math, name): _handler(name) for name in sorted({*STAGED, *REFUSED}) if hasattr(math, name)})
