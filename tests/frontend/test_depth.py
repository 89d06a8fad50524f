"""Long expressions and chains: as deep as they are long in syntax and IR, and staged all the same."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.base.depth import deep_recursion
from staged.errors import StagingError
from staged.frontend.trace_function import trace
from tests.frontend.harness import interpret

X = np.array([0.5, 1.5, 2.5])
HEADER = "import staged as st\n\n\ndef f(x):\n"


def sum_of(terms: int) -> str:
    return "    return " + " + ".join(f"x[{i % 3}] * {i}.0" for i in range(terms)) + "\n"


def nested_calls(levels: int) -> str:
    return "    return " + "st.sin(" * levels + "x" + ")" * levels + "\n"


def chained_methods(links: int) -> str:
    return "    return x" + ".reshape((3,))" * links + "\n"


def elif_chain(tests: int) -> str:
    branches = "".join(f"    elif x[1] < {i / 100}:\n        y = x * {i}.0\n" for i in range(1, tests))
    return f"    if x[1] < 0.0:\n        y = x\n{branches}    else:\n        y = -x\n    return y\n"


def returns_in_a_row(tests: int) -> str:
    return "".join(f"    if x[1] < {i / 100}:\n        return x * {i}.0\n" for i in range(tests)) + "    return x\n"


def conditional_expressions(tests: int) -> str:
    return "    return " + "".join(f"x * {i}.0 if x[1] < {i / 100} else " for i in range(tests)) + "x\n"


def of_text(body: str, folder: Path) -> Callable[..., Any]:
    file = folder / "program.py"
    file.write_text(HEADER + body)
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = module.f
    return function


@pytest.mark.parametrize(
    "body",
    [
        sum_of(500),
        nested_calls(190),
        chained_methods(1000),
        elif_chain(200),
        returns_in_a_row(200),
        conditional_expressions(180),
    ],
    ids=["sum", "calls", "methods", "elif", "returns", "conditionals"],
)
def test_deep_program_is_traced(body: str, tmp_path: Path) -> None:
    function = of_text(body, tmp_path)
    want = of_text(body, tmp_path)(X) if "st." not in body else None
    got = interpret(trace(function, (X,)))
    with st.eager():
        np.testing.assert_allclose(got, st.function(function)(X))
    if want is not None:
        np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("body", [sum_of(250), elif_chain(20)], ids=["sum", "elif"])
def test_deep_program_is_compiled(body: str, tmp_path: Path) -> None:
    function = st.function(of_text(body, tmp_path))
    with st.eager():
        want = function(X)
    np.testing.assert_allclose(function(X), want)


@pytest.mark.slow
@pytest.mark.parametrize("body", [sum_of(1000), nested_calls(190), elif_chain(200)], ids=["sum", "calls", "elif"])
def test_very_deep_program_is_compiled(body: str, tmp_path: Path) -> None:
    function = of_text(body, tmp_path)
    np.testing.assert_allclose(st.function(function)(X), function(X))


def test_gradient_of_a_long_sum(tmp_path: Path) -> None:
    function = of_text("    return st.grad(lambda x:" + sum_of(250).split("return", 1)[1].rstrip() + ")(x)\n", tmp_path)
    weights = np.zeros(3)
    np.add.at(weights, np.arange(250) % 3, np.arange(250.0))
    np.testing.assert_allclose(st.function(function)(X), weights)


def test_limit_of_recursion_is_put_back() -> None:
    def endless(x):
        return endless(x) + 1.0

    before = sys.getrecursionlimit()
    with pytest.raises(StagingError, match="calls itself without end"):
        trace(endless, (X,))
    assert sys.getrecursionlimit() == before
    inside, leave = threading.Event(), threading.Event()

    def stays() -> None:
        with deep_recursion():
            inside.set()
            leave.wait(60)

    other = threading.Thread(target=stays)
    other.start()
    inside.wait(60)
    with deep_recursion():
        pass
    assert sys.getrecursionlimit() > before, "another thread is still staging"
    leave.set()
    other.join()
    assert sys.getrecursionlimit() == before


def test_a_deep_program_is_staged_a_second_time_from_the_same_text(tmp_path: Path) -> None:
    """Its pieces are nested code objects, equal to those of the first time, which Python takes for ever to compare."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        function = of_text(elif_chain(60), tmp_path / name)
        np.testing.assert_allclose(interpret(trace(function, (X,))), function(X))


ENDLESS = '''
import staged as st


class Endless:
    def __add__(self, other):
        return self + other

    def __getattr__(self, name):
        return getattr(self, name)


def mapped(x):
    return sum(map(mapped, [x]))


def sort_key(x):
    return sorted([x], key=sort_key)[0]


def spread(*args, **kwargs):
    return spread(*args, **kwargs)


for body in (
    lambda x: Endless() + x, lambda x: Endless().name, lambda x: mapped(0), lambda x: sort_key(0), lambda x: spread(0, name=1)
):
    for names in ((), ("nothing",)):
        with st.eager(*names):
            try:
                st.function(body)(1.0)
            except st.StagedError as error:
                print(type(error).__name__)
'''


def test_endless_recursion_through_c_ends_before_the_stack_does(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    done = subprocess.run([sys.executable, str(tmp_path / "endless.py")], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"the process died: {done.returncode}"
    assert done.stdout.split() == ["ProgramRecursionError", "StagingError"] * 5
