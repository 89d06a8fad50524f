"""Arguments and results: what is staged, what is static, trees, closures; one text for one program."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import staged as st
from staged.errors import DTypeError, StagedError
from staged.frontend.calls.arguments import flatten_arguments
from staged.frontend.trace_function import trace
from staged.ir.types import TensorType, f32, f64, i64
from tests.frontend.harness import agree, ir

X = np.arange(3, dtype=np.float32)


@dataclasses.dataclass
class Config:
    """Static: it holds no array."""

    size: int
    name: str = "a"


@dataclasses.dataclass
class State:
    """A tree: it holds an array."""

    x: object
    steps: int


def test_arrays_and_numbers_are_staged_the_rest_is_static() -> None:
    def f(x, lr, n, flag, name, config, state, k=4, *, none=None):
        assert name == "adam"
        assert flag is True
        assert none is None
        return x.reshape((config.size, 1)) * lr + n + state.x + state.steps + k

    args = (X, 0.5, 2, True, "adam", Config(3), State(X, 3))
    arguments = flatten_arguments(f, args, {})
    assert [(a.path, a.type) for a in arguments.staged] == [
        ("x", TensorType(f32, (3,))),
        ("lr", TensorType(f64, (), True)),
        ("n", TensorType(i64, (), True)),
        ("state.x", TensorType(f32, (3,))),
        ("state.steps", TensorType(i64, (), True)),
    ]
    agree(f, *args)


def test_parts_of_arguments_have_an_access_path_and_a_kind() -> None:
    def f(a, *rest, k=1, **more):
        return a

    args, kwargs = (State({"w": [X, 2]}, Config(3)), 1.5), {"k": (np.int32(1), True), "e": {}}
    parts = flatten_arguments(f, args, kwargs, static=("rest",)).parts()
    assert [f"{''.join(access)}: {part.kind.word}" for access, part in parts] == [
        "args[0]: node", "args[0].x: node", "args[0].x['w']: node", "args[0].x['w'][0]: array", "args[0].x['w'][1]: number",
        "args[0].steps: static", "args[1]: named", "kwargs['k']: node", "kwargs['k'][0]: scalar", "kwargs['k'][1]: static",
        "kwargs['e']: node",
    ]  # fmt: skip


def test_static_argument() -> None:
    def f(x, size):
        return x.reshape((size, 1))

    agree_static = trace(f, (X, 3), static=("size",))
    assert agree_static.function.param_paths == ("x",)
    with pytest.raises(StagedError, match="make the argument static"):
        ir(f, X, 3)


def test_variadic_and_keyword_arguments() -> None:
    def f(a, *rest, b=1.0, **more):
        return a + rest[0] * rest[1] + b + more["c"]

    assert trace(f, (X, X, X), {"c": 2.0}).function.param_paths == ("a", "rest.0", "rest.1", "c")
    agree(f, X, X, X, c=2.0)
    agree(f, X, X, X, c=2.0, b=3.0)


def test_unsupported_dtype_shows_the_cast() -> None:
    def f(x):
        return x

    with pytest.raises(DTypeError, match="`x` has dtype (float128|longdouble)") as caught:
        ir(f, X.astype(np.longdouble))
    assert ".astype(np.float64)" in caught.value.hint


def test_closed_over_array_is_one_hidden_input_by_reference() -> None:
    table = np.arange(100, dtype=np.float32)
    small = np.arange(3, dtype=np.float32)

    def f(x):
        return x + small + st.sum(table) + st.max(table) + small

    traced = trace(f, (X,))
    assert [id(array) for array in traced.hidden] == [id(small), id(table)]
    agree(f, X)


def test_results_keep_their_tree() -> None:
    def f(x):
        return {"b": [x, 1, None], "a": (x * 2.0, "text")}, Config(2)

    traced = trace(f, (X,))
    assert traced.function.result_paths == ("result.0.a.0", "result.0.b.0")
    assert traced.rebuild([5.0, 6.0]) == ({"b": [6.0, 1, None], "a": (5.0, "text")}, Config(2))


def test_function_without_result() -> None:
    def f(x):
        print(x)

    assert trace(f, (X,)).rebuild([]) is None


def test_callable_objects_and_partials() -> None:
    class Model:
        def __call__(self, x, k):
            if x.sum() > k:
                return x * 2.0
            return x

    def f(x, k):
        return x * k

    assert trace(Model(), (X, 2)).function.param_paths == ("x", "k")
    assert "if(" in ir(Model().__call__, X, 2)
    assert "multiply" in ir(functools.partial(f, k=3), X)


def test_positions_are_the_users() -> None:
    def f(x, n):
        y = x * 2.0
        if n > 3:
            y = y + 1.0
        return y

    function = trace(f, (X, 3)).function
    multiply = next(op for op in function.block.ops if op.name == "multiply")
    assert multiply.where.text == "y = x * 2.0"
    assert multiply.where.function == "f"
    assert multiply.where.column == 12
    branch = next(op for op in function.block.ops if op.name == "if")
    assert branch.where.text == "if n > 3:"


PROGRAM = """
import numpy as np
import staged as st
from staged.frontend.trace_function import trace
from staged.ir.printer import print_function

def f(x, n):
    state = {name: x * k for k, name in enumerate(("b", "a", "c"))}
    for i in st.range(n):
        if x.sum() > i:
            state = {**state, "a": state["b"] + i}
            x = x + 1.0
        total = state["c"]
    return state

print(print_function(trace(f, (np.ones(3, np.float32), 3)).function))
"""


def test_same_text_in_every_process(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    texts = set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, str(file)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(st.__file__).parent.parent)},
        )
        texts.add(done.stdout)
    assert len(texts) == 1


def test_one_static_name_may_stand_alone() -> None:
    def f(x, size):
        return x.reshape((size, 1))

    assert st.function(static="size")(f)(X, 3).shape == (3, 1)
    with pytest.raises(StagedError, match="`static` names `sise`, which is not a parameter of `f`"):
        st.function(f, static="sise")(X, 3)


def test_static_name_that_is_no_parameter_is_refused() -> None:
    def f(x, size):
        return x

    with pytest.raises(StagedError, match="`static` names `sise`, which is not a parameter of `f`"):
        trace(f, (X, 3), static=("sise",))
