"""`check_grads`: derivatives against differences and against each other, for users and for tests."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from staged.call.api import StagedFunction, function
from staged.eager_mode.context import eager
from staged.frontend.calls.call import call
from staged.frontend.transforms import grad, jvp
from staged.frontend.values import trees
from staged.frontend.values.generator import numbers_again
from staged.ir.types import f64
from staged.ops.choice import astype
from staged.ops.elementwise import add, multiply
from staged.ops.promote import as_array
from staged.ops.reduction import sum_

MODES = ("fwd", "rev")
_WORDS = {"fwd": "forward mode", "rev": "reverse mode"}
_AGREE = 1e-8
"""Tolerance between forward and reverse mode, which are both exact up to rounding."""

Arrays = list[np.ndarray[Any, Any]]


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 1,
    modes: Sequence[str] = MODES,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    eps: float = 1e-4,
    seed: int = 0,
    in_eager: bool = False,
) -> None:
    """Check the derivatives of `f` at `args` along a random direction, in f64: against differences and each other.

    f takes trees of arrays and numbers and returns a tree of arrays; every f32 or f64 array in `args` is
    differentiated, at f64 (Python numbers are not). The function differentiated is a random combination of the results.
    `modes` holds 'fwd' (`st.jvp`), 'rev' (`st.grad`) or both, which are then also compared with each other. `order` 2
    also checks the derivatives of the directional derivative, and so on. f may be plain or staged; `in_eager` checks
    the derivatives of eager mode instead of the compiled ones. The point should be away from kinks (`abs` at 0), by
    more than `2 * eps`. Random numbers of the default generator are the same in each evaluation.

    Raises: AssertionError if two numbers differ by more than `rtol`, `atol`, with the numbers for each array in `args`;
    ValueError for arguments without a float array and for unknown modes; GradientError if a derivative does not exist.
    Source: Griewank and Walther, Evaluating Derivatives, section 3.1 (a directional derivative against a difference);
    JAX's `test_util.check_grads` for the interface.
    """
    unknown = sorted(set(modes) - set(MODES))
    if unknown or not modes:
        raise ValueError(f"unknown modes {unknown}: there are 'fwd' and 'rev'")
    check = _Check(f, args, seed)
    with eager() if in_eager else contextlib.nullcontext():
        current = check.scalar
        for level in range(1, order + 1):
            direction = check.direction()
            found = {mode: check.derivative(mode, current, direction) for mode in MODES if mode in modes}
            expected = check.difference(current, direction, eps)
            problems = [
                f"{_WORDS[mode]} gives {value!r}, differences give {expected!r}"
                for mode, value in found.items()
                if not np.isclose(value, expected, rtol=rtol, atol=atol)
            ]
            forward, reverse = found.get("fwd"), found.get("rev")
            near = max(_AGREE, rtol * 1e-2)
            if forward is not None and reverse is not None and not np.isclose(forward, reverse, rtol=near, atol=atol):
                problems.append(f"forward mode gives {forward!r}, reverse mode gives {reverse!r}")
            if problems:
                raise AssertionError(
                    f"the derivative of order {level} along a random direction: {problems[0]}\n"
                    + check.report(current, direction, list(found), eps, rtol, atol)
                )
            mode = "rev" if "rev" in modes else "fwd"
            current = check.along(mode, current, direction)


class _Check:
    """One function at one point: its arguments as leaves, and derivatives of scalar functions of them."""

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], seed: int) -> None:
        self.inner = f.__wrapped__ if isinstance(f, StagedFunction) else f
        leaves, self.spec = trees.flatten(tuple(args))
        self.points = [np.asarray(leaf, np.float64) if _is_float_array(leaf) else leaf for leaf in leaves]
        self.chosen = [index for index, leaf in enumerate(leaves) if _is_float_array(leaf)]
        if not self.chosen:
            raise ValueError("check_grads needs at least one float array among `args`")
        self.paths = [f"argument {path.removeprefix('.')}" for path in trees.paths(self.spec, "")]
        self.generator = np.random.default_rng(seed)
        self.weights: dict[int, np.ndarray[Any, Any]] = {}

    def scalar(self, *values: Any) -> Any:
        """A fixed random combination of the float results."""
        total = as_array(0.0, f64)
        leaves, _ = trees.flatten(call(self.inner, *trees.unflatten(self.spec, list(values))))
        for number, leaf in enumerate(leaves):
            array = as_array(leaf)
            if array.dtype.is_float:
                if number not in self.weights:
                    shape = [extent for extent in array.shape if isinstance(extent, int)]
                    self.weights[number] = self.generator.standard_normal(shape)
                weighted = multiply(astype(array, f64), self.weights[number])
                total = add(total, sum_(weighted))
        return total

    def direction(self) -> Arrays:
        """A random direction in the space of the float arrays."""
        return [self.generator.standard_normal(self.points[index].shape) for index in self.chosen]

    def along(self, mode: str, f: Callable[..., Any], direction: Arrays) -> Callable[..., Any]:
        """The derivative of `f` along a fixed direction, as a function of the point."""
        return lambda *values: self.directional(mode, f, direction, values)

    def directional(self, mode: str, f: Callable[..., Any], direction: Sequence[Any], values: Sequence[Any]) -> Any:
        if mode == "fwd":

            def at(*chosen: Any) -> Any:
                moved = list(values)
                for index, value in zip(self.chosen, chosen, strict=True):
                    moved[index] = value
                return f(*moved)

            return jvp(at, tuple(values[index] for index in self.chosen), tuple(direction))[1]
        total = as_array(0.0, f64)
        for gradient, step in zip(grad(f, argnums=self.chosen)(*values), direction, strict=True):
            total = add(total, sum_(multiply(gradient, step)))
        return total

    def derivative(self, mode: str, f: Callable[..., Any], direction: Arrays) -> float:
        """The derivative along `direction` at the point."""

        def run(direction: Any, *values: Any) -> Any:
            return self.directional(mode, f, direction, values)

        with _quiet(), numbers_again():
            return float(function(run)(tuple(direction), *self.points))

    def difference(self, f: Callable[..., Any], direction: Arrays, eps: float) -> float:
        """The same by differences: of fourth order, so that truncation stays below the tolerance."""
        staged = function(lambda *values: f(*values))

        def at(steps: float) -> float:
            moved = list(self.points)
            for index, along in zip(self.chosen, direction, strict=True):
                moved[index] = self.points[index] + steps * eps * along
            with numbers_again():
                return float(staged(*moved))

        with _quiet():
            return (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * eps)

    def report(
        self, f: Callable[..., Any], direction: Arrays, modes: Sequence[str], eps: float, rtol: float, atol: float
    ) -> str:
        """One line per float array among the arguments: its part of each derivative, marked where they differ."""
        lines = []
        for place, index in enumerate(self.chosen):
            alone = [along if number == place else np.zeros_like(along) for number, along in enumerate(direction)]
            expected = self.difference(f, alone, eps)
            found = {mode: self.derivative(mode, f, alone) for mode in modes}
            wrong = not all(np.isclose(value, expected, rtol=rtol, atol=atol) for value in found.values())
            numbers = ", ".join(f"{_WORDS[mode]} {value:.12g}" for mode, value in found.items())
            mark = "   <- differs" if wrong else ""
            lines.append(f"  by {self.paths[index]}: {numbers}, differences {expected:.12g}{mark}")
        return "\n".join(lines)


def _is_float_array(value: Any) -> bool:
    if isinstance(value, bool | int | float | str) or value is None or callable(value):
        return False  # a Python number is an argument like any other, but not differentiated by
    return np.asarray(value).dtype in (np.float32, np.float64)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let nothing that f prints appear."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
