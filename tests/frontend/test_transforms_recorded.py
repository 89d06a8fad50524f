"""The op that each transform records: operands, attributes and blocks; and code that is refused while recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import GradientError, StagedError
from staged.frontend.trace_function import trace
from staged.ir.nodes import Op, free_values, walk_ops
from staged.ir.verifier import verify

X = np.arange(1.0, 4.0)
W = np.ones((2, 3))
K = np.array([1, 2])


def recorded(f: Callable[..., Any], *args: Any) -> list[Op]:
    """The transforms' ops of a traced function, outermost first."""
    function = trace(f, args).function
    verify(function, "tracing")
    names = ("vjp", "jvp", "vmap", "checkpoint", "custom_vjp")
    found = [op for op in walk_ops(function.block) if op.name in names]
    assert not any(free_values(block) for op in found for block in op.blocks)
    return found


def types(values: Any) -> list[str]:
    return [str(value.type) for value in values]


def test_jvp() -> None:
    def f(x, w):
        return st.jvp(lambda x, s: (w @ x * s, st.argmax(x)), (x, 2.0), (x, None))

    (op,) = recorded(f, X, W)
    assert dict(op.attrs) == {"wrt": (0,), "outputs": 2}
    assert types(op.operands) == ["f64 (3,)", "f64 () weak", "f64 (2, 3)", "f64 (3,)"]
    assert types(op.results) == ["f64 (2,)", "i64 ()", "f64 (2,)"]
    assert op.results[2].hint == "tangent" or op.results[2].hint.startswith("d_")


def test_vjp_records_the_primal_once_and_an_op_per_call_of_the_pullback() -> None:
    def f(x, w):
        (out, total), pull = st.vjp(lambda x: (w @ x, x.sum()), x)
        return out, pull((out, None)), pull((None, total))

    first, second = recorded(f, X, W)
    assert dict(first.attrs) == {"wrt": (0,), "outputs": 2, "of": (0,)}
    assert dict(second.attrs) == {"wrt": (0,), "outputs": 2, "of": (1,)}
    assert [op.name for op in trace(f, (X, W)).function.block.ops].count("sum") == 1


def test_each_call_of_a_pullback_has_a_body_of_its_own() -> None:
    """Bodies of composites too, which a gradient takes along from what it recorded."""

    def f(x, w):
        (out, total), pull = st.vjp(lambda x: (st.relu(w @ x), st.softmax(x).sum()), x)
        return out, pull((out, None)), pull((None, total)), st.grad(lambda x: st.relu(x).sum())(x)

    ops = [op for op in walk_ops(trace(f, (X, W)).function.block) if op.name != "composite" or op.results]
    made = [value for op in ops for value in op.results]
    params = [value for op in ops for block in op.blocks for value in block.params]
    assert len(set(map(id, ops))) == len(ops) and len({*made, *params}) == len(made) + len(params)
    verify(trace(f, (X, W)).function)


def test_vmap() -> None:
    def f(w, x):
        return st.vmap(lambda r, s: (r * x, s, 3), in_axes=(0, None), out_axes=(0, None, 0))(w, x.sum())

    (op,) = recorded(f, W, X)
    assert op.attrs["mapped"] == (True, False, False) and op.attrs["size"] == 2 and op.attrs["outputs"] == 3
    assert op.attrs["whole"] == (1,)
    assert types(op.blocks[0].params) == ["f64 (3,)", "f64 (3,)", "f64 ()"]
    assert types(op.results) == ["f64 (2, 3)", "f64 (2,)", "i64 (2,)"]


def test_checkpoint_passes_variables_on_as_state() -> None:
    w = st.Variable(np.ones(3), name="w")

    def f(x):
        @st.checkpoint
        def inner(x, mode):
            w.value = w + x
            return {"y": w * 2.0, "mode": mode}

        return inner(x, "fast")

    function = trace(f, (X,)).function
    (op,) = (op for op in function.block.ops if op.name == "checkpoint")
    assert types(op.operands) == ["f64 (3,)", "f64 (3,)"] and types(op.results) == ["f64 (3,)", "f64 (3,)"]
    assert [o.name for o in function.block.ops if o.name.startswith("variable")] == ["variable_read", "variable_write"]


def test_custom_vjp_has_three_blocks() -> None:
    @st.custom_vjp
    def f(x, k, w):
        return w @ x, k

    f.defvjp(lambda x, k, w: ((w @ x, k), (x, w)), lambda kept, ct: (ct[0] @ kept[1], None, None))

    def program(x, k, w):
        return f(x, k, w)

    (op,) = recorded(program, X, K, W)
    assert op.attrs["outputs"] == 2 and op.attrs["wrt"] == (0, 2)
    primal, forward, backward = op.blocks
    assert types(primal.params) == types(forward.params) == ["f64 (3,)", "i64 (2,)", "f64 (2, 3)"]
    assert types(primal.end.operands) == ["f64 (2,)", "i64 (2,)"]
    assert types(forward.end.operands) == ["f64 (2,)", "i64 (2,)", "f64 (3,)", "f64 (2, 3)"]
    # residuals, then a cotangent for the float output alone
    assert types(backward.params) == ["f64 (3,)", "f64 (2, 3)", "f64 (2,)"]
    assert types(backward.end.operands) == ["f64 (3,)", "f64 (2, 3)"]


def test_jacobians_are_one_mapped_derivative() -> None:
    outer, inner = recorded(lambda x, w: st.jacfwd(lambda x: w @ x)(x), X, W)
    assert (outer.name, inner.name, outer.attrs["size"]) == ("vmap", "jvp", 3)
    outer, inner = recorded(lambda x, w: st.jacrev(lambda x: w @ x)(x), X, W)
    assert (outer.name, inner.name, outer.attrs["size"]) == ("vmap", "vjp", 2)
    assert [op.name for op in recorded(lambda x: st.jacrev(lambda x: x.sum())(x), X)] == ["vjp"]


# ---- refused --------------------------------------------------------------------------------------


@st.custom_vjp
def no_halves(x):
    return x


def custom(forward: Any, backward: Any) -> Any:
    made = st.custom_vjp(lambda x: x.sum())
    made.defvjp(forward, backward)
    return made


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "vjp by an integer": (lambda x: st.vjp(lambda k: k * 1.0, st.astype(x, st.i32)), "it is not a float"),
    "vjp by a string": (lambda x: st.vjp(lambda k, s: k * 1.0, x, "fast"), "argument 1, a str, does not exist"),
    "vjp by nothing": (lambda x: st.vjp(lambda: x), "is by nothing"),
    "cotangent's tree": (lambda x: st.vjp(lambda x: (x, x), x)[1](x), "must have the structure"),
    "cotangent's shape": (lambda x: st.vjp(lambda x: x * 2.0, x)[1](x[:2]), r"the cotangent of .* is f64 \(2,\) for"),
    "cotangent's dtype": (lambda x: st.vjp(lambda x: x, x)[1](st.astype(x, st.f32)), r"is f32 \(3,\) for f64 \(3,\)"),
    "aux": (lambda x: st.vjp(lambda x: x, x, has_aux=True), "returns a pair"),
    "primals": (lambda x: st.jvp(lambda x: x, x, x), "takes its primals as a tuple"),
    "tangents": (lambda x: st.jvp(lambda x: x, (x,), x), "takes its tangents as a tuple"),
    "tangent's tree": (lambda x: st.jvp(lambda x: x, (x,), ((x, x),)), "must have the structure"),
    "tangent's shape": (lambda x: st.jvp(lambda x: x, (x,), (x[:2],)), r"the tangent of .* is f64 \(2,\) for"),
    "Jacobian by an integer": (lambda x: st.jacfwd(lambda k: k * 1.0)(st.astype(x, st.i32)), "it is not a float"),
    "Jacobian's number": (lambda x: st.jacrev(lambda x: x, argnums=2)(x), "the Jacobian is by number 2"),
    "no halves": (lambda x: no_halves(x), "is a `custom_vjp` without derivative"),
    "forward": (lambda x: custom(lambda x: x.sum(), lambda r, ct: (ct,))(x), "returns a pair"),
    "forward's result": (lambda x: custom(lambda x: (x, x), lambda r, ct: (ct,))(x), "gives another result"),
    "backward's count": (
        lambda x: custom(lambda x: (x.sum(), x), lambda r, ct: r)(x), "returns a tuple of 1 cotangents, got a",
    ),
    "backward's tree": (
        lambda x: custom(lambda x: (x.sum(), x), lambda r, ct: ((r, r),))(x), "another structure than argument 0",
    ),
    "backward's type": (
        lambda x: custom(lambda x: (x.sum(), x), lambda r, ct: (ct,))(x), r"gives f64 \(\) as the cotangent of f64 \(3,\)",
    ),
}  # fmt: skip

LATE = {"backward's count", "backward's tree", "backward's type"}
"""The values that eager mode finds when it goes back."""


# One of a custom_vjp's function and its forward half runs in eager mode, which has nothing to compare.
CASES = [
    (name, is_eager) for name in REFUSED for is_eager in (False, True) if (name, is_eager) != ("forward's result", True)
]


@pytest.mark.parametrize(("name", "is_eager"), CASES)
def test_refused(name: str, is_eager: bool) -> None:
    f, message = REFUSED[name]
    with pytest.raises(GradientError, match=message) as caught:
        if not is_eager:
            trace(f, (X,))
        elif name in LATE or name.startswith("forward"):
            st.grad(lambda x: st.sum(f(x)))(X)
        else:
            f(st.asarray(X))
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_custom_vjp_writes_no_variable() -> None:
    count = st.Variable(0, name="count")

    @st.custom_vjp
    def f(x):
        count.value = count + 1
        return x

    f.defvjp(lambda x: (x, None), lambda kept, ct: (ct,))
    with pytest.raises(st.StagingError, match="`count` is written inside `f`, a `custom_vjp`"):
        trace(lambda x: f(x), (X,))
    with st.eager(), pytest.raises(st.StagingError, match="`count` is written inside `f`, a `custom_vjp`"):
        f(X)


@pytest.mark.parametrize("is_eager", [False, True])
def test_custom_vjp_reads_what_is_differentiated_as_arguments_only(is_eager: bool) -> None:
    def program(x):
        def loss(x):
            @st.custom_vjp
            def f(y):
                return st.sum(x * y)

            f.defvjp(lambda y: (st.sum(x * y), None), lambda kept, ct: (ct * x,))
            return f(x * 2.0)

        return st.grad(loss)(x)

    with pytest.raises(GradientError, match="is not among its arguments") as caught:
        if is_eager:
            with st.eager():
                st.function(program)(X)
        else:
            st.function(program).stage(X).source  # noqa: B018
    assert caught.value.hint is not None and "argument" in caught.value.hint


@pytest.mark.parametrize("is_eager", [False, True])
def test_forward_mode_through_a_custom_vjp(is_eager: bool) -> None:
    f = custom(lambda x: (x.sum(), x), lambda r, ct: (ct * r,))
    program = st.function(lambda x: st.jvp(f, (x,), (x,)))
    with pytest.raises(GradientError, match="forward mode through"):
        if is_eager:
            with st.eager():
                program(X)
        else:
            program.stage(X).source  # noqa: B018


def test_a_clock_cannot_be_run_again_by_a_pullback() -> None:
    import time

    def program(x):
        def f(x):
            return x * time.perf_counter()

        out, pull = st.vjp(f, x)
        return pull(out)

    with pytest.raises(StagedError, match="gives another value each time") as caught:
        trace(program, (X,))
    assert caught.value.where is not None
