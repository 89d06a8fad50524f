"""Functions and recursion as C: what compiles agrees with the interpreter, strictly compiled, and never crashes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.host.export import export_files
from staged.ir.nodes import Effect, Function, VariableRef
from staged.ir.types import TensorType, bool_, f32, f64, i64
from staged.pipeline import build
from staged.runtime.c import load
from staged.runtime.options import CompileOptions
from staged.system import target
from tests.ir_functions import Functions, assemble, define
from tests.ir_interpreter import Interpreter

INT, REAL, FLAG = TensorType(i64), TensorType(f64), TensorType(bool_)
VECTOR, MATRIX, NODES = TensorType(f32, (5,)), TensorType(f32, (5, 5)), TensorType(i64, (7,))
STRICT = CompileOptions(extra=("-Wall", "-Wextra", "-Wconversion", "-Werror"))


@dataclass(frozen=True)
class Case:
    """A program and arguments for it."""

    name: str
    program: Callable[[], Function]
    arguments: tuple[tuple[Any, ...], ...]


def entry(callee: str, types: list[TensorType], results: list[TensorType], **attrs: Any) -> Function:
    """An entry that only calls."""
    if len(types) == 1:
        return define("main", types, lambda p, a: p.call(callee, [a], results, **attrs))
    if len(types) == 2:
        return define("main", types, lambda p, a, b: p.call(callee, [a, b], results, **attrs))
    return define("main", types, lambda p, a, b, c: p.call(callee, [a, b, c], results, **attrs))


def fibonacci() -> Function:
    def fib(p: Functions, n):
        def other():
            (a,), (b,) = p.call("fib", [n - 1], [INT]), p.call("fib", [n - 2], [INT])
            return (a + b,)

        return p.if_(n < 2, lambda: (n,), other)

    return assemble(entry("fib", [INT], [INT]), define("fib", [INT], fib))


def early_return() -> Function:
    def gcd(p: Functions, a, b):
        p.if_(b == 0, lambda: p.give(a), lambda: ())
        return p.call("gcd", [b, a % b], [INT])

    return assemble(entry("gcd", [INT, INT], [INT]), define("gcd", [INT, INT], gcd))


def ackermann() -> Function:
    def ack(p: Functions, m, n):
        def inner():
            (less,) = p.call("ack", [m, n - 1], [INT])
            return p.call("ack", [m - 1, less], [INT])

        def outer():
            return p.if_(n == 0, lambda: p.call("ack", [m - 1, p.constant(1, INT)], [INT]), inner)

        return p.if_(m == 0, lambda: (n + 1,), outer)

    return assemble(entry("ack", [INT, INT], [INT]), define("ack", [INT, INT], ack))


def mutual() -> Function:
    def even(p: Functions, n):
        return p.if_(n == 0, lambda: (p.constant(True, FLAG),), lambda: p.call("odd", [n - 1], [FLAG]))

    def odd(p: Functions, n):
        return p.if_(n == 0, lambda: (p.constant(False, FLAG),), lambda: p.call("even", [n - 1], [FLAG]))

    return assemble(entry("even", [INT], [FLAG]), define("even", [INT], even), define("odd", [INT], odd))


def tree() -> Function:
    """A vector for each node of a tree, from those of its children: arrays as arguments, results and locals."""

    def encode(p: Functions, node, left, right, values, w):
        def inner():
            a, depth_a = p.call("encode", [left[node], left, right, values, w], [VECTOR, INT])
            b, depth_b = p.call("encode", [right[node], left, right, values, w], [VECTOR, INT])
            h = st.tanh(w @ a + b * values[node])
            return h + a, st.maximum(depth_a, depth_b) + 1

        return p.if_(left[node] < 0, lambda: (w[0] * values[node], p.constant(0, INT)), inner)

    def main(p: Functions, left, right, values, w):
        return p.call("encode", [p.constant(0, INT), left, right, values, w], [VECTOR, INT])

    values = TensorType(f32, (7,))
    return assemble(
        define("main", [NODES, NODES, values, MATRIX], main),
        define("encode", [INT, NODES, NODES, values, MATRIX], encode),
    )


def shared_without_recursion() -> Function:
    """Two call sites, one from a loop; the callee calls another, whose buffers lie behind its own."""

    def smooth(p: Functions, x, w):
        return [st.tanh(w @ x) / (1.0 + st.sum(x * x))]

    def cell(p: Functions, x, h, w):
        (a,) = p.call("smooth", [x + h, w], [VECTOR])
        (b,) = p.call("smooth", [w @ a, w], [VECTOR])
        return [a - b, st.sum(b) > 0.0]

    def main(p: Functions, x, w, n):
        h, up = p.call("cell", [x, x, w], [VECTOR, FLAG])

        def body(loop, i, h):
            g, up = p.call("cell", [x, h, w], [VECTOR, FLAG])
            return (st.where(up, g, h + g),)

        (h,) = p.for_(n, [h], body)
        return [h, up]

    return assemble(
        define("main", [VECTOR, MATRIX, INT], main),
        define("cell", [VECTOR, VECTOR, MATRIX], cell),
        define("smooth", [VECTOR, MATRIX], smooth),
    )


def sums_in_place(twice: bool = False) -> Function:
    """Running sums through recursion: pairs of a parameter and a result share the caller's memory."""

    def walk(p: Functions, n, x, total, count):
        def more():
            y = st.sin(x * 1.5)
            t, c = p.call("walk", [n - 1, y, total + y, count + 1], [VECTOR, INT], in_place=((2, 0), (3, 1)))
            if not twice:
                return t + x, c
            t2, c2 = p.call("walk", [n - 2, y, t, c], [VECTOR, INT], in_place=((2, 0), (3, 1)))
            return t2 - t * 0.1, c2  # the first sum is still needed: it has a place of its own

        return p.if_(n < 1, lambda: (total, count), more)

    def main(p: Functions, n, x):
        zero = p.constant(np.zeros(5), TensorType(f32, (5,)))
        t, c = p.call("walk", [n, x, zero, p.constant(0, INT)], [VECTOR, INT], in_place=((2, 0), (3, 1)))
        return [t, c]

    return assemble(define("main", [INT, VECTOR], main), define("walk", [INT, VECTOR, VECTOR, INT], walk))


def results_change_places() -> Function:
    """Two results in place whose values change places on one path."""

    def swap(p: Functions, n, a, b):
        p.if_(n < 1, lambda: p.give(b, a), lambda: ())
        return p.call("swap", [n - 1, b + 1.0, a], [VECTOR, VECTOR], in_place=((1, 0), (2, 1)))

    def main(p: Functions, n, x):
        return p.call("swap", [n, x, x * 2.0], [VECTOR, VECTOR], in_place=((1, 0), (2, 1)))

    return assemble(define("main", [INT, VECTOR], main), define("swap", [INT, VECTOR, VECTOR], swap))


def variables(outer: bool) -> Callable[[], Function]:
    """Variables that functions read and write while their caller holds what they were."""

    def make() -> Function:
        count = VariableRef("count", INT, outer)
        state = VariableRef("state", VECTOR, outer)

        def read(p, v):
            op = p.builder.op("variable_read", [], [v.type], attrs={"variable": v}, effects=(Effect("read", v),))
            return p.handles(op.results)[0]

        def write(p, v, value):
            effects = (Effect("write", v),)
            p.builder.op("variable_write", p.values([value]), [], attrs={"variable": v}, effects=effects)

        def visit(p: Functions, n, x):
            before = read(p, state)
            write(p, count, read(p, count) + 1)
            write(p, state, before * 0.5 + x)

            def more():
                (deeper,) = p.call("visit", [n - 1, before], [VECTOR])
                return (deeper + before + read(p, state),)

            return p.if_(n < 1, lambda: (x,), more)

        def main(p: Functions, n, x):
            if not outer:
                write(p, count, p.constant(0, INT))
                write(p, state, x * 0.25)
            held = read(p, state)
            (result,) = p.call("visit", [n, held], [VECTOR])
            return [result + held, read(p, count), read(p, state)]

        return assemble(define("main", [INT, VECTOR], main), define("visit", [INT, VECTOR], visit))

    return make


X = np.linspace(-1, 1, 5, dtype=np.float32)
W = np.sin(np.arange(25, dtype=np.float32)).reshape(5, 5)
TREE = (
    np.array([1, 3, -1, -1, 5, -1, -1]),
    np.array([2, 4, -1, -1, 6, -1, -1]),
    np.linspace(0.5, 1.5, 7, dtype=np.float32),
    W,
)

CASES = (
    Case("fibonacci", fibonacci, ((0,), (1,), (12,))),
    Case("early return", early_return, ((54, 24), (7, 0))),
    Case("ackermann", ackermann, ((0, 0), (2, 3))),
    Case("mutual recursion", mutual, ((0,), (7,), (10,))),
    Case("tree", tree, (TREE,)),
    Case("two call sites, no recursion", shared_without_recursion, ((X, W, 0), (X, W, 3))),
    Case("sums in place", sums_in_place, ((0, X), (1, X), (6, X))),
    Case("sums in place, twice", lambda: sums_in_place(twice=True), ((0, X), (6, X))),
    Case("results change places", results_change_places, ((0, X), (1, X), (4, X))),
    Case("variables of the program", variables(outer=False), ((0, X), (3, X))),
)


def compiled(program: Function, machine: str = "native") -> Any:
    return load(build(program, target(machine)).emitted.artifact, STRICT)


def expected(program: Function, *arguments: Any) -> list[Any]:
    # Fresh arrays each time: the interpreter keeps Variables that start as what it is given.
    return Interpreter().run(program, *arguments)


@pytest.mark.parametrize("machine", ["native", "portable"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiled_programs_agree_with_the_interpreter(case, machine):
    program = case.program()
    native = compiled(program, machine)
    for arguments in case.arguments:
        for have, want in zip(native(*arguments), expected(program, *arguments), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


def test_functions_reach_variables_of_python():
    program = variables(outer=True)()
    count, state = (next(v for v in program.variables if v.name == name) for name in ("count", "state"))
    held = {count: np.asarray(3), state: X * 2}
    want = Interpreter(held).run(program, 2, X)
    place = {"count": np.array(3), "state": X * 2}
    have = compiled(program)(2, X, *(place[v.name] for v in program.variables))
    for one, other in zip(have, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert place["count"] == held[count] == 6
    np.testing.assert_allclose(place["state"], held[state], rtol=1e-6)


# ---- depth ----------------------------------------------------------------------------------------


def chain() -> Function:
    def deep(p: Functions, n, x):
        def more():
            (y,) = p.call("deep", [n - 1, x * 0.5], [VECTOR])
            return (y * 0.5 + x,)

        return p.if_(n < 1, lambda: (x,), more)

    return assemble(entry("deep", [INT, VECTOR], [VECTOR]), define("deep", [INT, VECTOR], deep))


def test_a_chain_of_100_000_calls_works_and_memory_is_kept():
    native = compiled(chain())
    first = native(100_000, X)[0]
    np.testing.assert_allclose(first, X / 0.75, rtol=1e-5)
    np.testing.assert_array_equal(native(100_000, X)[0], first)


def test_recursion_without_end_is_an_error_with_a_way_out_and_the_program_lives_on(monkeypatch):
    monkeypatch.setenv("STAGED_STACK", "16 MiB")
    native = compiled(chain())
    for _ in range(2):
        with pytest.raises(
            RecursionError, match="`deep` recurses deeper than the program's stack of 16777216"
        ) as caught:
            native(1 << 40, X)
        assert isinstance(caught.value, st.ProgramError) and "STAGED_STACK" in str(caught.value)
    np.testing.assert_allclose(native(1000, X)[0], X / 0.75, rtol=1e-5)
    monkeypatch.setenv("STAGED_STACK", "64MiB")
    assert native(50_000, X)[0].shape == (5,)
    monkeypatch.setenv("STAGED_STACK", "much")
    with pytest.raises(st.StagedError, match="not a size: 'much'"):
        native(1, X)


def test_exported_recursion_is_clean_under_the_sanitizers_and_takes_its_stack_from_a_flag(tmp_path):
    for case in CASES[4:6]:
        folder = tmp_path / case.name
        folder.mkdir()
        export(case.program(), folder, case.arguments[-1])
    folder = tmp_path / "chain"
    folder.mkdir()
    assert export(chain(), folder, (20_000, X), "--stack", str(1 << 28)) == 0
    assert "recurses deeper" in run(folder, *flags(chain(), (1 << 40, X), folder)).stderr


def flags(program: Function, arguments: tuple[Any, ...], folder: Path) -> list[str]:
    words = []
    names = [parameter.label for parameter in build(program, target("portable")).emitted.artifact.parameters]
    for name, argument in zip(names, arguments, strict=False):
        if isinstance(argument, np.ndarray):
            np.save(folder / f"{name}.npy", argument)
        words += [f"--{name}", f"{name}.npy" if isinstance(argument, np.ndarray) else str(argument)]
    return words


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["./main_", *words], cwd=folder, capture_output=True, text=True)


def export(program: Function, folder: Path, arguments: tuple[Any, ...], *words: str) -> int:
    """Build with sanitizers and run; nothing may be said. Returns the exit status."""
    artifact = build(program, target("portable")).emitted.artifact
    for name, text in export_files(artifact).items():
        (folder / name).write_text(text)
    strict = "-std=c11 -O1 -g -Wall -Wextra -Wconversion -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
    subprocess.run(["make", "-s", "CC=gcc", f"CFLAGS={strict}"], cwd=folder, check=True)
    result = run(folder, *flags(program, arguments, folder), *words)
    assert result.stderr == ""
    return result.returncode


# ---- the text -------------------------------------------------------------------------------------


def test_one_function_serves_every_call_site_and_the_text_does_not_depend_on_depth():
    source = build(shared_without_recursion(), target("portable")).emitted.artifact.source
    assert source.count("static int smooth(") == 1 and source.count("static int cell(") == 1
    assert source.count("smooth(m, host, ") == 2 and "own_stack" not in source


def test_sums_in_place_are_never_copied():
    source = build(sums_in_place(), target("portable")).emitted.artifact.source
    assert "memcpy" not in source.split("static int walk(")[1].split("// ---- entry")[0]


def test_calls_that_print_and_fail_stop_the_program_at_their_line():
    def check(p: Functions, n):
        p.builder.op(
            "print",
            p.values([n]),
            [],
            attrs={"parts": ("going on",), "end": "\n", "file": "stdout"},
            effects=(Effect("io"),),
        )
        small = p.values([n < 3])[0]
        p.builder.op(
            "assert", [small], [], attrs={"parts": ("too large",), "kind": "assertion"}, effects=(Effect("fail"),)
        )
        return p.call("check", [n + 1], [INT])

    program = assemble(entry("check", [INT], [INT]), define("check", [INT], check))
    with pytest.raises(AssertionError, match="too large"):
        compiled(program)(0)
