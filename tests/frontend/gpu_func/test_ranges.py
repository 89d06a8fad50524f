"""The indices of a kernel that are checked: those that nothing shows to be in range, and no others."""

from __future__ import annotations

import linecache
from typing import Any

import pytest

import staged as st
from staged import cuda
from staged.frontend.gpu_func.ranges import interval
from staged.frontend.gpu_func.source import Source
from staged.frontend.gpu_func.statements import translate
from staged.ir.thread_kernel import Compute, Element, Parameter, ThreadKernel, nodes_of, walk_statements
from staged.ir.types import f32, i32, i64

TYPES = {"x": f32, "y": f32, "n": i64, "k": i32}


def kernel_of(function: Any, block: tuple[int, int, int] = (16, 1, 1)) -> ThreadKernel:
    """The kernel for one-dimensional arrays: `x` and `y` of one size, `n` and `k` of others; `s` is a number."""
    names = Source(function.function).function.__code__.co_varnames[: function.function.__code__.co_argcount]
    sizes = {"x": 0, "y": 0, "n": 1, "k": 2}
    parameters = [
        Parameter(name, TYPES[name], is_array=True, extents=(sizes[name],)) if name in sizes else Parameter(name, i64, True)
        for name in names
    ]
    return translate(Source(function.function), parameters, ["size", "n_size", "k_size"], block)


def checked_lines(function: Any) -> list[str]:
    """The lines of the statements in which something is checked."""
    kernel = kernel_of(function)
    lines = []
    for statement in walk_statements(kernel.body):
        nodes = list(nodes_of(statement))
        if any(isinstance(n, Element) and any(n.checked) or isinstance(n, Compute) and n.checked for n in nodes):
            assert statement.where is not None
            lines.append(statement.where.text)
    return lines


@st.gpu_func
def guarded(x, y):
    i = cuda.global_index.x
    if i < len(x):
        y[i] = x[i]


@st.gpu_func
def returned(x, y):
    i = cuda.global_index.x
    if i >= len(x) or x[i] > 1:
        return
    y[i] = x[i]


@st.gpu_func
def guarded_by_another(x, n):
    i = cuda.global_index.x
    if i < len(x):
        n[i] = 1  # checked


@st.gpu_func
def guarded_by_either(x, n):
    i = cuda.global_index.x
    if i < len(x) or i < len(n):
        x[i] = 1  # checked


@st.gpu_func
def guard_that_fails(x):
    i = cuda.global_index.x
    if i < len(x):
        x[i] = 0
    else:
        x[i] = 1  # checked


@st.gpu_func
def guarded_for_the_next(x):
    i = 2 * cuda.global_index.x
    if i + 1 < len(x):
        x[i] = x[i + 1]


@st.gpu_func
def guarded_for_the_one_before(x, s):
    i = cuda.global_index.x
    if i + s < len(x):
        x[i] = 1  # checked


@st.gpu_func
def from_above_only(x, s):
    if s < len(x):
        x[s] = 1  # checked


@st.gpu_func
def from_both_sides(x, s):
    if 0 <= s < len(x):
        x[s] = 1


@st.gpu_func
def moved_after_the_guard(x):
    i = cuda.global_index.x
    if i < len(x):
        x[i] = 0
        i += 1
        x[i] = 1  # checked


@st.gpu_func
def moved_in_a_branch(x, s):
    i = cuda.global_index.x
    if i >= len(x):
        return
    if s > 3:
        i = i + s
    x[i] = 1  # checked


@st.gpu_func
def moved_in_a_loop(x):
    i = cuda.global_index.x
    if i < len(x):
        for _ in range(2):
            x[i] = 1  # checked
            i += 1


@st.gpu_func
def stepping_while(x):
    i = cuda.global_index.x
    while i < len(x):
        x[i] = 1
        i += cuda.global_size.x


@st.gpu_func
def stepping_down(x):
    i = len(x) - 1
    while i >= 0:
        x[i] = 1  # checked
        i -= 1


@st.gpu_func
def stepping_for(x):
    for i in range(cuda.global_index.x, len(x), cuda.global_size.x):
        x[i] = 1


@st.gpu_func
def counting_down(x):
    for i in range(len(x) - 1, -1, -1):
        x[i] = 1  # checked


@st.gpu_func
def beyond_the_end(x):
    for i in range(len(x) + 1):
        x[i] = 1  # checked


@st.gpu_func
def counter_that_is_changed(x):
    for i in range(len(x)):
        i += 1
        x[i] = 1  # checked


@st.gpu_func
def bound_that_is_changed(x):
    m = len(x)
    for i in range(m):
        m = 2 * m
        if i < m:
            x[i] = 1  # checked


@st.gpu_func
def in_its_block(x):
    tile = cuda.shared((4, 16), st.f32)
    t = cuda.thread_index.x
    tile[t // 4, t] = 1
    tile[t % 4, t ^ 15] = 1
    tile[t // 3, t] = 1  # checked
    x[0] = tile[3, min(t + 5, 15)]  # checked (x may be empty)


@st.gpu_func
def by_halves(x):
    tile = cuda.shared(16, st.f32)
    t = cuda.thread_index.x
    half = 8
    while half > 0:
        if t < half:
            tile[t] += tile[t + half]
        half //= 2
    if t < len(x):
        x[t] = tile[t]


@st.gpu_func
def by_doubles(x):
    tile = cuda.shared(16, st.f32)
    t = cuda.thread_index.x
    step = 1
    while step < 16:
        if t >= step:
            tile[t] += tile[t - step]
        step *= 2
    if t < len(x):
        x[t] = tile[t]


@st.gpu_func
def either_value(x, s):
    i = cuda.thread_index.x if s > 0 else 20
    tile = cuda.shared(16, st.f32)
    tile[i] = 1  # checked
    j = cuda.thread_index.x if s > 0 else 15
    tile[j] = 1
    if s == 2:
        x[0] = tile[0]  # checked (x may be empty)


@st.gpu_func
def small_integers(x, k):
    i = cuda.global_index.x
    if i < len(k):
        p = k[i]
        if 0 <= p and p < len(x):
            x[p] = 1  # checked (compared as i32)


@st.gpu_func
def divisions(n, s):
    i = cuda.global_index.x
    if i < len(n):
        n[i] = s // 3 + s % -2
        n[i] = 7 // s  # checked
        if s > 0:
            n[i] = 7 % s


FUNCTIONS = [value for value in list(globals().values()) if type(value).__name__ == "GpuFunc"]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.name)
def test_what_is_checked(function: Any) -> None:
    source = Source(function.function)
    lines = [linecache.getline(__file__, n).strip() for n in range(source.node.lineno, (source.node.end_lineno or 0) + 1)]
    assert checked_lines(function) == [line for line in lines if "# checked" in line]


@pytest.mark.parametrize(
    ("op", "spans"),
    [
        (op, [a, b])
        for op in "add subtract multiply minimum maximum floor_divide remainder bitwise_and bitwise_or bitwise_xor abs square".split()
        for a in [(0, 5), (-3, 4), (-4, -2), (3, 3)]
        for b in [(1, 3), (2, 2), (-2, 2), (0, 6)]
    ],
)
def test_intervals_hold_every_result(op: str, spans: Any) -> None:
    functions: dict[str, Any] = {
        "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y, "minimum": min,
        "maximum": max, "floor_divide": lambda x, y: x // y, "remainder": lambda x, y: x % y,
        "bitwise_and": lambda x, y: x & y, "bitwise_or": lambda x, y: x | y, "bitwise_xor": lambda x, y: x ^ y,
        "abs": lambda x, y: abs(x), "square": lambda x, y: x * x,
    }  # fmt: skip
    span = interval(op, spans)
    if span is None:
        return
    (a, b), (c, d) = spans
    for x in range(a, b + 1):
        for y in range(c, d + 1):
            assert span[0] <= functions[op](x, y) <= span[1], (op, x, y, span)
