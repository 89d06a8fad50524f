"""What must hold for a random program: the same answers everywhere, and the right derivatives.

1. Eager mode, C at -O0 under the address and undefined sanitizers, and C at -O3 agree on values, printed text, gradients and
   forward derivatives.
2. The gradient along a direction equals the forward derivative, and central differences of the compiled value; where the
   differences of two step sizes disagree the direction crosses a kink or a decision, and they say nothing.
"""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import staged as st
from staged.runtime.compiler import CompileOptions
from staged.testing import captured_prints, compare_trees, load_snippet
from tests.fuzz.generator import Shape

SANITIZED = CompileOptions("0", ("address", "undefined"))
PLAIN = CompileOptions("0", ("undefined",))
FAST = CompileOptions("3")

_STEP = 2e-5


class Differences(enum.Enum):
    """What central differences said."""

    AGREE = "agree"
    KINK = "kink"


@dataclass(frozen=True)
class Case:
    """A program with the arguments that it is run on."""

    text: str
    shapes: tuple[Shape, ...]
    seed: int
    n: int = 3

    def source(self) -> str:
        """The whole module: the program, and the functions that are compared."""
        arrays = ", ".join(f"a{number}" for number in range(len(self.shapes)))
        tangents = ", ".join(f"t{number}" for number in range(len(self.shapes)))
        every = tuple(range(len(self.shapes)))
        # In the program's own module, so that what is printed reproduces as it stands.
        return (
            self.text
            + textwrap.dedent(f"""

            def everything({arrays}, {tangents}, n):
                plain = f({arrays}, n)
                value, gradients = st.value_and_grad(f, argnums={every}, has_aux=True)({arrays}, n)
                forward = st.jvp(lambda {arrays}: f({arrays}, n)[0], ({arrays},), ({tangents},))
                return plain, value, gradients, forward
            """)
        )

    def arguments(self) -> list[np.ndarray[Any, Any]]:
        generator = np.random.default_rng(self.seed)
        return [generator.normal(size=shape) for shape in self.shapes]

    def tangents(self) -> list[np.ndarray[Any, Any]]:
        generator = np.random.default_rng(self.seed + 1)
        return [generator.normal(size=shape) for shape in self.shapes]

    def reproduction(self) -> str:
        """A script that runs the check again."""
        return (
            "import staged as st\nfrom tests.fuzz.check import Case, check\n\n"
            f"TEXT = '''\\\n{self.text}'''\n\ncheck(Case(TEXT, {self.shapes!r}, seed={self.seed}, n={self.n}))\n"
        )


def check(case: Case, levels: Sequence[CompileOptions] = (PLAIN, FAST)) -> Differences:
    """Raise AssertionError (or what staging, compiling or running raised) unless all that must hold holds."""
    module = load_snippet(case.source(), "fuzz")
    arrays, tangents = case.arguments(), case.tangents()
    with np.errstate(all="ignore"):
        # One program for all of it: compiling is what takes the time.
        (plain, value, gradients, forward), program = everywhere(
            module.everything, [*arrays, *tangents, case.n], levels
        )
    compare_trees(value, plain, 1e-9, 1e-9, "the differentiated program's value differs from the program's")
    assert np.isclose(forward[0], plain[0], rtol=1e-9, atol=1e-9), "forward mode's value differs from the program's"
    reverse = sum(float(np.sum(g * t)) for g, t in zip(gradients, tangents, strict=True))
    assert np.isclose(reverse, forward[1], rtol=1e-8, atol=1e-8), (
        f"reverse mode gives {reverse!r} along the direction, forward mode {float(forward[1])!r}"
    )

    def at(step: float) -> float:
        moved = [array + step * tangent for array, tangent in zip(arrays, tangents, strict=True)]
        with captured_prints():
            return float(program(*moved, *tangents, case.n)[0][0])

    return differences(at, reverse)


def everywhere(function: Callable[..., Any], arguments: list[Any], levels: Sequence[CompileOptions]) -> tuple[Any, Any]:
    """The eager answer, once every compiled one agrees with it; and the last program."""
    staged = st.function(function)
    with st.eager(), captured_prints() as printed:
        expected = staged(*arguments)
    for options in levels:
        staged.options = replace(
            staged.options, optimise=options.optimise, sanitize=options.sanitize  # type: ignore[arg-type]
        )
        program = staged.stage(*arguments)
        program.compile()
        with captured_prints() as compiled:
            found = program(*arguments)
        where = f"`{function.__name__}` at {' '.join(options.flags())} and in eager mode differ"
        compare_trees(found, expected, 1e-9, 1e-9, where)
        assert compiled.text == printed.text, f"{where} in what they print:\n{compiled.text}\ninstead of\n{printed.text}"
    return expected, program


def differences(at: Callable[[float], float], found: float) -> Differences:
    """Compare a directional derivative with central differences of the value `at(step)`, at two sizes of step."""
    wide = (at(_STEP) - at(-_STEP)) / (2 * _STEP)
    narrow = (at(_STEP / 4) - at(-_STEP / 4)) / (_STEP / 2)
    margin = 1e-5 * (1.0 + abs(wide))
    if abs(wide - narrow) > margin:
        return Differences.KINK
    assert abs(found - narrow) <= 10 * margin, f"the derivative along the direction is {found!r}, differences give {narrow!r}"
    return Differences.AGREE
