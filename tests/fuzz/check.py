"""The promises that hold for a random program: the same answers everywhere, and the right derivatives.

1. Eager mode, C at -O0 under the address and undefined sanitizers, and C at -O3 with every warning an error agree on values,
   printed text, gradients and forward derivatives: to 1e-9, or 1e-5 where the program rounds to f32, since a last bit that a
   fused multiply-add changes is then one of 24.
2. The gradient along a direction equals the forward derivative, and central differences of the compiled value; where the
   differences of two step sizes disagree the direction crosses a kink or a decision, and they say nothing.
3. For a share of the programs: the forward derivative of the gradient equals the gradient of the forward derivative.
"""

from __future__ import annotations

import enum
import functools
import re
import textwrap
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged.errors import StagedError
from staged.frontend.values.generator import numbers_again
from staged.frontend.values.trees import flatten
from staged.runtime.options import CompileOptions
from staged.testing import captured_prints, compare_trees, load_snippet
from tests.fuzz.generator import Shape

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
SANITIZED = CompileOptions("0", ("address", "undefined"), ("-g0",))
PLAIN = CompileOptions("0", ("undefined",), ("-g0",))
FAST = CompileOptions("3", (), WARNINGS)

_STEP = 2e-5


class Outcome(enum.Enum):
    """The outcome of a check of a program that found nothing wrong."""

    AGREE = "agree"
    """Central differences say the same as the gradient."""
    KINK = "kink"
    """Central differences say nothing here: the direction crosses a kink or a decision."""
    TIE = "tie"
    """The last bit of an argument decides the answer, as in the derivative of `maximum(x, mean(x))`: none can be compared."""
    ROUNDED = "rounded"
    """The program rounds to f32, which differences see as steps: they were not taken."""
    NOT_FINITE = "not-finite"
    """The answer has a NaN or infinity, so that neither derivatives nor what follows from them can be compared."""


class Failure(AssertionError):
    """Something that must hold does not. `key` says what and where, alike for smaller programs with the same fault."""

    def __init__(self, key: str, words: str) -> None:
        super().__init__(words)
        self.key = key


@dataclass(frozen=True)
class Case:
    """A program with the arguments that it is run on; `second` asks for second derivatives too."""

    text: str
    shapes: tuple[Shape, ...]
    seed: int
    n: int = 3
    second: bool = False

    def source(self) -> str:
        """The whole module: the program, and the function whose results are compared."""
        # In the program's own module, so that what is printed reproduces as it stands.
        return f"{self.text}\n\ndef everything({self.parameters}):\n{textwrap.indent(self.derivatives('f'), '    ')}"

    @property
    def parameters(self) -> str:
        """The arguments of `everything`: the arrays, a tangent for each, and `n`."""
        numbers = range(len(self.shapes))
        return ", ".join([*(f"a{number}" for number in numbers), *(f"t{number}" for number in numbers), "n"])

    def derivatives(self, name: str) -> str:
        """Statements that return what the function of this name gives, with its derivatives."""
        arrays = ", ".join(f"a{number}" for number in range(len(self.shapes)))
        tangents = ", ".join(f"t{number}" for number in range(len(self.shapes)))
        every = tuple(range(len(self.shapes)))
        text = f"""
            plain = {name}({arrays}, n)
            value, gradients = st.value_and_grad({name}, argnums={every}, has_aux=True)({arrays}, n)
            forward = st.jvp(lambda {arrays}: {name}({arrays}, n)[0], ({arrays},), ({tangents},))
            """
        if self.second:
            text += f"""
            def slope({arrays}):
                return st.jvp(lambda {arrays}: {name}({arrays}, n)[0], ({arrays},), ({tangents},))[1]

            def gradient({arrays}):
                return st.grad(lambda {arrays}: {name}({arrays}, n)[0], argnums={every})({arrays})

            twice = (
                st.jvp(gradient, ({arrays},), ({tangents},))[1],
                st.grad(slope, argnums={every})({arrays}),
            )
            """
        return textwrap.dedent(text).lstrip("\n") + f"return plain, value, gradients, forward{', twice' if self.second else ''}\n"

    def arguments(self) -> list[np.ndarray[Any, Any]]:
        generator = np.random.default_rng(self.seed)
        return [generator.normal(size=shape) for shape in self.shapes]

    def tangents(self) -> list[np.ndarray[Any, Any]]:
        generator = np.random.default_rng(self.seed + 1)
        return [generator.normal(size=shape) for shape in self.shapes]

    def reproduction(self) -> str:
        """A script that runs the check again."""
        second = ", second=True" if self.second else ""
        return (
            "from tests.fuzz.check import Case, check\n\n"
            f"TEXT = '''\\\n{self.text}'''\n\ncheck(Case(TEXT, {self.shapes!r}, seed={self.seed}, n={self.n}{second}))\n"
        )


def check(case: Case, levels: Sequence[CompileOptions] = (PLAIN, FAST)) -> Outcome:
    """Raise Failure unless all that must hold holds."""
    module = load_snippet(case.source(), "fuzz")
    arrays, tangents = case.arguments(), case.tangents()
    given = [*arrays, *tangents, case.n]
    staged = st.function(module.everything)
    with np.errstate(all="ignore"):
        with st.eager(), captured_prints() as printed, numbers_again():
            expected = _at("eager mode", lambda: staged(*given))
        if not all(np.all(np.isfinite(leaf)) for leaf in flatten(expected)[0]):
            return Outcome.NOT_FINITE
        single = "st.f32" in case.text  # what is rounded has steps: no differences, and derivatives in two orders differ
        try:
            program = compiled_alike(staged, given, levels, expected, printed.text, 1e-5 if single else 1e-9)
        except Failure:
            if is_tie(staged, given, expected):
                return Outcome.TIE
            raise
        guarded_alike(staged, program, given)
        plain, value, gradients, forward, *twice = expected
        close("the value that is differentiated in reverse mode and the program's", value, plain, 1e-9)
        close("the value that is differentiated in forward mode and the program's", forward[0], plain[0], 1e-9)
        reverse = sum(float(np.sum(g * t)) for g, t in zip(gradients, tangents, strict=True))
        close("reverse and forward mode along the direction", reverse, float(forward[1]), 1e-4 if single else 1e-8)
        if twice:
            first, second = twice[0]
            close("forward over reverse and reverse over forward mode", first, second, 1e-4 if single else 1e-7)

        if single:
            return Outcome.ROUNDED

        def at(step: float) -> float:
            moved = [array + step * tangent for array, tangent in zip(arrays, tangents, strict=True)]
            with captured_prints(), numbers_again():
                return float(program(*moved, *tangents, case.n)[0][0])

        return differences(at, reverse)


def compiled_alike(
    staged: st.StagedFunction,
    given: list[Any],
    levels: Sequence[CompileOptions],
    expected: Any,
    printed: str,
    tolerance: float = 1e-9,
) -> st.Program:
    """Compile at every level and compare with the eager answer; gives the last program."""
    traced = _at("staging", lambda: staged._trace(tuple(given), {})[1])  # once: only the flags differ between levels
    for options in levels:
        where = f"-O{options.optimise}"
        staged.options = options
        program = staged._program(traced)
        _at(f"C at {where}", program.compile)
        with captured_prints() as compiled, numbers_again():
            found = _at(f"running at {where}", functools.partial(program, *given))
        close(f"eager mode and C at {where}", found, expected, tolerance)
        if compiled.text != printed:
            words = f"eager mode and C at {where} differ in what they print"
            raise Failure(words, f"{words}:\n{compiled.text}\ninstead of\n{printed}")
    return program


def guarded_alike(staged: st.StagedFunction, program: st.Program, given: list[Any]) -> None:
    """A call after the first one takes other data, without a trace, and gives the program's own bits."""
    changed = [x * 0.75 + 0.01 if isinstance(x, np.ndarray) else x for x in given]

    def outcome(call: Callable[..., Any]) -> tuple[Any, str]:
        with captured_prints() as printed, numbers_again():
            try:
                found = call(*changed)
            except (st.ProgramError, AssertionError) as error:
                return str(error), printed.text
        return [np.asarray(leaf).tobytes() for leaf in flatten(found)[0]], printed.text

    with captured_prints(), numbers_again():
        _at("a call", lambda: staged(*given))
    traces = sum(use.traces for use in staged.programs)
    if outcome(staged) != outcome(program):
        raise Failure("a guarded call and its program differ", "a guarded call with other data and its program differ")
    if sum(use.traces for use in staged.programs) != traces or staged.why_traced():
        raise Failure("a call was traced again", f"a call with other data was traced: {staged.why_traced()}")


def is_tie(staged: st.StagedFunction, given: list[Any], expected: Any, printed: str | None = None, size: float = 1e-14) -> bool:
    """Whether eager mode's own answer jumps, or its prints change, where the last bits of the arguments do."""
    generator = np.random.default_rng(0)
    for _ in range(12):
        nudged = [x * (1.0 + size * generator.normal(size=x.shape)) if isinstance(x, np.ndarray) else x for x in given]
        with st.eager(), captured_prints() as text, numbers_again():
            found = staged(*nudged)
        if printed is not None and text.text != printed:
            return True
        tolerance = max(1e-6, 100 * size)
        try:
            compare_trees(found, expected, tolerance, tolerance)
        except AssertionError:
            return True
    return False


def differences(at: Callable[[float], float], found: float) -> Outcome:
    """Compare a directional derivative with central differences of the value `at(step)`, at two sizes of step."""
    wide = (at(_STEP) - at(-_STEP)) / (2 * _STEP)
    narrow = (at(_STEP / 4) - at(-_STEP / 4)) / (_STEP / 2)
    margin = 1e-5 * (1.0 + abs(wide))
    if not abs(wide - narrow) <= margin:
        return Outcome.KINK
    if abs(found - narrow) > 10 * margin:
        words = "the derivative along the direction and differences differ"
        raise Failure(words, f"{words}: {found!r} and {narrow!r}")
    return Outcome.AGREE


def _at(stage: str, action: Callable[[], Any]) -> Any:
    """The result of `action`; an error that it raises becomes a Failure at this stage."""
    try:
        return action()
    except Exception as error:
        raise failing_at(stage, error) from error


def failing_at(stage: str, error: Exception) -> Failure:
    """The failure of a stage that raised `error`."""
    message = error.message if isinstance(error, StagedError) else str(error).strip()
    first = (message.splitlines() or [""])[0]
    # Names, numbers and types are of this program; its smaller ones say the rest alike.
    alike = re.sub(r"`[^`]*`|'[^']*'|[\w.]*\d[\w.]*|\([\d, ]*\)", "#", first)
    if not isinstance(error, StagedError) and (frames := traceback.extract_tb(error.__traceback__)):
        alike += f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
    return Failure(f"{stage}: {type(error).__name__}: {alike}", f"{stage}: {type(error).__name__}: {error}")


def close(what: str, left: Any, right: Any, tolerance: float) -> None:
    """Raises Failure unless two trees agree."""
    try:
        compare_trees(left, right, tolerance, tolerance, f"{what} differ")
    except AssertionError as error:
        words = str(error).strip()
        found = re.search(rf"{re.escape(what)} differ( at [\w.]+)?", words)
        raise Failure(found.group() if found else what, words) from error
