"""Programs that would be wrong on several ranks: each is an error with two lines, also on one rank.

A case has two lines with comments: `# here` is the place of the error, `# because` is where a value becomes local.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.base import launcher
from staged.errors import ArgumentError, GradientError, RankError, ShapeError

X = np.ones((12, 3))
IDS = np.arange(12)
W = st.Variable(np.ones(3), name="w")
C = st.Variable(0.0, name="c")
NORM = nn.BatchNorm1d(3, dtype=st.f64)
LAYERS = [st.Variable(np.eye(3), name=f"layer{number}") for number in range(6)]


@dataclass(frozen=True)
class Wrong:
    """A program, and the error that it raises."""

    run: Callable[..., Any]
    kind: type[Exception]
    message: str
    hint: str
    options: dict[str, Any]

    def __str__(self) -> str:
        return self.run.__name__


CASES: list[Wrong] = []


def wrong(kind: type[Exception], message: str, hint: str = "", **options: Any) -> Callable[[Any], Any]:
    """Enter a program and its error."""

    def enter(run: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Wrong(run, kind, message, hint, options))
        return run

    return enter


WAIT = "`st.all_reduce` runs under a condition that differs between ranks: some ranks would wait forever"
DRIFT = "a local value is written to the replicated Variable"
LOCAL_LOSS = "which is local, with respect to `w`, which is replicated: each rank would follow its own value"
MEAN = 'return st.all_reduce(loss, "mean")'

# ---- derivatives ----------------------------------------------------------------------------------


@wrong(GradientError, f"the derivative of `total`, {LOCAL_LOSS}", MEAN)
def loss_of_a_shard(x, ids):
    rows = st.shard(x)  # because

    def loss():
        total = st.sum(rows @ W)
        return total

    return st.grad(loss, wrt=W)()  # here


@wrong(GradientError, f"the derivative of `total`, {LOCAL_LOSS}", MEAN, local="x")
def loss_of_a_local_argument(x, ids):  # because
    def loss():
        total = st.sum(x @ W)
        return total

    return st.grad(loss, wrt=W)()  # here


@wrong(GradientError, f"the derivative of a value, {LOCAL_LOSS}", MEAN)
def loss_in_a_loop(x, ids):
    w = W.value
    for _ in st.range(3):
        w = w - st.grad(lambda w: st.sum(st.shard(x) @ w))(w)  # here because
    return w


@wrong(GradientError, "the cotangent of `y` is local, and the value is replicated", "st.all_reduce(cotangent")
def local_cotangent(x, ids):
    def square(w):
        y = w * w
        return y

    row = st.shard(x)[0]  # because
    _, back = st.vjp(square, W.value)
    return back(row)  # here


@st.custom_vjp
def scaled(w, k):
    return w * 2.0


scaled.defvjp(lambda w, k: (w * 2.0, ()), lambda kept, ct: (ct * (1.0 + st.rank()), ct * 0.0))  # because


@wrong(GradientError, "the cotangent of `w` is local, and the value is replicated", "st.all_reduce(cotangent")
def local_cotangent_of_a_custom_vjp(x, ids):
    return st.grad(lambda w: st.sum(scaled(w, w)))(W.value)  # here


# ---- Variables ------------------------------------------------------------------------------------


@wrong(RankError, f"{DRIFT} `c`: its copies would drift apart", "st.Variable(value, local=True)")
def mean_of_a_shard_is_kept(x, ids):
    rows = st.shard(x)  # because
    C.value = st.astype(st.mean(rows), st.f32)  # here


@wrong(RankError, f"{DRIFT} `w`", 'st.all_reduce(x, "mean")', local=("x",))
def update_by_a_local_gradient(x, ids):  # because
    W.value = W.value - 0.1 * x[0]  # here


@wrong(RankError, "the replicated Variable `c` is written under a condition that differs between ranks")
def count_on_some_ranks(x, ids):
    if st.rank() == 0:  # because
        C.value = C.value + 1.0  # here


@wrong(RankError, f"{DRIFT} `c`")
def sum_by_a_variable_of_the_program(x, ids):
    total = st.Variable(0.0)
    for step in st.range(3):
        if st.rank() > step:  # because
            total.value = total.value + 1.0
    C.value = total.value  # here


@wrong(RankError, f"{DRIFT} `layer")
def equal_layers(x, ids):
    for layer in LAYERS:
        layer.value = layer.value * st.sum(st.shard(x))  # here because


@wrong(RankError, f"{DRIFT} `c`")
def sum_over_a_local_size(x, ids):
    n = st.dim("n", st.rank() + 1, max=6)  # because
    C.value = st.astype(st.sum(st.ones(n)), st.f32)  # here


@wrong(RankError, f"{DRIFT} `c`")
def value_of_python(x, ids):
    rate = st.callback(lambda: np.float32(0.1), result=C)  # because
    C.value = rate * st.astype(st.ranks(), st.f32)  # here


@wrong(RankError, "random numbers are drawn under a condition", "draw the numbers on all ranks, before the condition")
def random_numbers_on_some_ranks(x, ids):
    if st.rank() == 0:  # because
        x = x + st.random.normal(x.shape)  # here
    return x


# ---- collectives ----------------------------------------------------------------------------------


@wrong(RankError, WAIT, 'st.all_reduce(x, "max")')
def collective_in_a_branch(x, ids):
    if st.rank() == 0:  # because
        x = st.all_reduce(x)  # here
    return x


@wrong(RankError, WAIT)
def collective_in_a_conditional_expression(x, ids):
    return st.all_reduce(x) if st.sum(st.shard(x)) > 0 else x  # here because


@wrong(RankError, WAIT)
def collective_after_and(x, ids):
    if st.rank() == 0 and st.all_reduce(x)[0, 0] > 0:  # here because
        return x
    return x * 2.0


@wrong(RankError, WAIT)
def collective_in_a_match(x, ids):
    match st.rank():  # because
        case 0:
            return st.all_reduce(x)  # here
    return x


@wrong(RankError, "runs under a condition that differs between ranks: some ranks would wait forever")
def loop_until_a_local_gap_is_small(x, ids):
    rows = st.shard(x)  # because
    gap = st.max(abs(rows))
    while gap > 0.1:
        rows = 0.5 * st.exchange_halo(rows)[1:-1]  # here
        gap = st.max(abs(rows))
    return rows


@wrong(RankError, WAIT)
def loop_until_a_time(x, ids):
    begun = time.time()
    while time.time() - begun < 1:  # because
        x = st.all_reduce(x)  # here
    return x


@wrong(RankError, "`st.all_reduce` runs under a trip count that differs between ranks")
def local_trip_count(x, ids):
    for _ in range(st.rank()):  # because
        x = st.all_reduce(x)  # here
    return x


@wrong(RankError, WAIT)
def local_break(x, ids):
    for step in st.range(4):
        x = st.all_reduce(x)  # here
        if st.rank() > step:  # because
            break
    return x


@wrong(RankError, WAIT)
def local_break_of_the_outer_loop(x, ids):
    for _ in st.range(4):
        for step in st.range(3):
            x = st.all_reduce(x)  # here
            if st.rank() > step:  # because
                break
        else:
            break
    return x


@wrong(RankError, WAIT)
def local_return_in_two_loops(x, ids):
    for _ in st.range(4):
        for step in st.range(3):
            x = st.all_reduce(x)  # here
            if st.rank() > step:  # because
                return x * 2.0
    return x


@wrong(RankError, WAIT)
def local_continue(x, ids):
    for step in st.range(4):
        if st.rank() > step:  # because
            continue
        x = st.all_reduce(x)  # here
    return x


@wrong(RankError, WAIT)
def local_return(x, ids):
    if x[st.rank(), 0] > 0:  # because
        return x
    return st.all_reduce(x)  # here


@wrong(RankError, WAIT)
def local_return_in_a_loop(x, ids):
    for _ in st.range(4):
        x = st.all_reduce(x)  # here
        if x[0, 0] > st.rank():  # because
            return x
    return x


@st.function
def halved(x, n):
    if n <= 0:
        return x
    return halved(st.all_reduce(x), n - 1)  # here


@wrong(RankError, WAIT)
def recursion_of_local_depth(x, ids):
    return halved(x, st.rank())  # because


@wrong(RankError, "`st.all_reduce` runs under a size of `vmap` that differs between ranks")
def vmap_of_a_local_size(x, ids):
    n = st.dim("n", st.rank() + 1, max=6)  # because
    return st.sum(st.vmap(lambda row: st.all_reduce(st.sum(row)))(x[:n]))  # here


@wrong(RankError, "`st.shard` runs under a condition that differs between ranks")
def shard_in_a_branch(x, ids):
    y = 0.0
    if st.rank() == 0:  # because
        y = st.sum(st.shard(x))  # here
    return st.all_reduce(y)


@wrong(ShapeError, "`st.all_reduce` needs equal sizes on all ranks, and the size `n` is local", "pad the array")
def message_of_a_local_size(x, ids):
    n = st.dim("n", st.rank() + 1, max=6)  # because
    return st.sum(st.all_reduce(x[:n]))  # here


@wrong(ShapeError, "needs equal sizes on all ranks, and the size `N` is local", local=("x",), dims={"x": ("N <= 20", 3)})
def message_of_the_size_of_a_local_argument(x, ids):  # because
    return st.sum(st.shift_ranks(x))  # here


@wrong(RankError, "`st.shard` needs a replicated array, and `rows` is local", "remove the `st.shard`")
def shard_of_a_shard(x, ids):
    rows = st.shard(x)  # because
    return st.shard(rows)  # here


@wrong(RankError, "`st.shard` needs a replicated array", local=("x",))
def shard_of_a_local_argument(x, ids):  # because
    return st.shard(x)  # here


# ---- data, files and optimisers --------------------------------------------------------------------


@wrong(GradientError, f"the derivative of a value, {LOCAL_LOSS}", MEAN)
def value_and_gradient_of_a_batch(x, ids):
    total = 0.0
    for rows in st.batches(st.shard(x), size=4, shuffle=True):  # because
        total += st.value_and_grad(lambda w: st.mean(rows @ w))(W.value)[0]  # here  # noqa: B023
    return total


@wrong(RankError, f"{DRIFT} `w`", local="x")
def step_of_an_optimizer(x, ids):  # because
    optim.SGD([W], lr=0.1).step([st.sum(x, axis=0)])  # here


@wrong(RankError, f"{DRIFT} `c`")
def last_value_of_a_local_loop(x, ids):
    total = 0.0
    while total < st.rank():  # because
        total += 1.0
    C.value = total  # here


@wrong(RankError, "`st.shift_ranks` runs under")
def message_of_some_batches(x, ids):
    for rows in st.batches(st.shard(x), size=6):  # because
        if rows[0, 0] > 0:
            x = x + st.sum(st.shift_ranks(rows))  # here
    return x


@wrong(RankError, "random numbers of shape (12, 3) are drawn for local values", "`shard=0`", local="x")
def equal_noise(x, ids):  # because
    return x + st.random.normal(x.shape)  # here


@wrong(RankError, "batch norm of a local array has the statistics of the rows of one rank", "`nn.SyncBatchNorm`", local="x")
def norm_of_the_rows_of_a_rank(x, ids):  # because
    return NORM(x)  # here


@wrong(RankError, "a file of local values needs the number of the rank", "st.rank()", local="x")
def one_file_of_all_ranks(x, ids):  # because
    st.save("rows.safetensors", {"x": x})  # here


# ---- the tests ------------------------------------------------------------------------------------


def line_of(case: Wrong, comment: str) -> tuple[str, int] | None:
    """The line of a comment in a case, or in the function before it."""
    text, first = inspect.getsourcelines(case.run)
    for number, line in enumerate(text, first):
        if re.search(rf"#.*\b{comment}\b", line):
            return line.partition("#")[0].strip(), number
    return None


@pytest.fixture(params=[1, 2], ids=["one rank", "two ranks"])
def ranks(request, monkeypatch):
    """Stage for this number of ranks; no rank is started."""
    monkeypatch.setattr("staged.ops.ranks.this_job", lambda: launcher.Job(0, request.param))
    monkeypatch.setattr("staged.system.this_job", lambda: launcher.Job(0, request.param))
    return request.param


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_program_is_an_error_with_both_lines(case: Wrong, ranks: int) -> None:
    with pytest.raises(case.kind) as caught:
        _ = st.function(**case.options)(case.run).stage(X, IDS).source
    error: Any = caught.value
    assert case.message in error.message
    assert error.hint and case.hint in error.hint
    if (here := line_of(case, "here")) is not None:
        assert error.where.line == here[1], error
    assert len(error.details) == 1 and "is local: " in error.details[0]
    if (because := line_of(case, "because")) is not None:
        place = error.details[0].rpartition(f"test_wrong_programs.py:{because[1]}: ")
        assert place[1] and place[2].partition("#")[0].strip() == because[0], error.details[0]


def test_there_are_enough_wrong_programs() -> None:
    assert len(CASES) >= 40


def test_right_programs_are_no_errors(ranks: int) -> None:
    @st.function
    def skips_after_the_message(x):
        for step in st.range(4):
            x = st.all_reduce(x)
            if st.rank() > step:
                continue
            x = x * 2.0
        return st.all_reduce(x)

    @st.function
    def some_rank_fails(x):
        if st.rank() > 5:
            raise ValueError("too many ranks")
        return st.all_reduce(x)

    @st.function
    def reduced_condition(x):
        rows = st.shard(x)
        while st.all_reduce(st.max(rows), "max") > 0.5:
            rows = rows * 0.5
        W.value = st.all_reduce(st.sum(rows, axis=0))
        return rows

    @st.function
    def own_rows_have_a_derivative(x):
        return st.grad(lambda rows: st.sum(st.tanh(rows)))(st.shard(x))

    for function in (skips_after_the_message, some_rank_fails, reduced_condition, own_rows_have_a_derivative):
        assert function.stage(X).source


@pytest.mark.parametrize("size", [5, 7])
def test_ranks_that_do_not_divide_a_size_are_an_error(size: int) -> None:
    @st.function(ranks=2)
    def rows(x):
        return st.shard(x)

    with pytest.raises(ShapeError, match=f"needs a size that 2 ranks divide, got {size}") as caught:
        rows.stage(np.ones(size))
    assert "pad the axis" in str(caught.value)


def test_local_names_arguments() -> None:
    with pytest.raises(ArgumentError, match="`local` names `labels`, which is not a parameter of `step`") as caught:

        @st.function(local=("images", "labels"))
        def step(images):
            return images

    assert "its parameters are `images`" in str(caught.value) and caught.value.where is not None
    with pytest.raises(ArgumentError, match="`n` of `step` is static and cannot be local"):

        @st.function(local="n", static="n")
        def step(n):
            return n
