"""The lines of Python that the text cites: exits by their own statements."""

from __future__ import annotations

import re

import numpy as np

import staged as st


@st.function
def search(x, n):
    for i in st.range(n):
        if x[i] > 3.0:
            return i
        if x[i] > 2.0:
            break
        if x[i] > 1.0:
            x = x + 1.0
            continue
        x = x * 2.0
    return -1


@st.function
def factorial(n):
    if n < 2:
        return 1
    return n * factorial(n - 1)


def cited(program) -> list[str]:
    """The lines of this file that stand in the text, in order."""
    return re.findall(r"// test_positions\.py:\d+  (.*)", program.source)


def test_exits_are_cited_where_they_stand() -> None:
    lines = cited(search.stage(np.ones(3), 3))
    exits = [line for line in lines if line.startswith(("return", "break", "continue"))]
    assert exits == ["return i", "break", "continue", "return -1"]
    order = [
        line
        for line in lines[lines.index("for i in st.range(n):") :]
        if line in ("x = x + 1.0", "continue", "x = x * 2.0")
    ]
    assert order == ["x = x + 1.0", "continue", "x = x * 2.0"]
    text = search.stage(np.ones(3), 3).source
    assert re.search(r"// .*  return i\n *\*args->result = i;", text)
    assert re.search(r"// .*  continue\n *continue;", text)


def test_returns_of_two_branches_are_cited_in_them() -> None:
    text = factorial.stage(5).source
    assert re.search(r"// .*  return 1\n *\w+ = 1;", text)
    assert cited(factorial.stage(5)).count("if n < 2:") == 1


def test_equal_numbers_of_two_lines_do_not_lend_the_first_line() -> None:
    @st.function
    def scaled(x, n):
        first = x * 2.5
        total = st.sum(first)
        filled = st.full((4,), 2.5)
        for _ in st.range(n):
            x = st.exp(x) * 2.5 - st.sum(x)
        return first, total, filled, x

    text = scaled.stage(np.ones(3), 3).source
    kernels = {name: above for above, name in re.findall(r"((?://[^\n]*\n)+)static void (\w+)\(", text)}
    assert sum("first = x * 2.5" in above for above in kernels.values()) == 1
    assert not any("first = x * 2.5" in above for above in kernels.values() if "x = st.exp(x)" in above)
    assert sum("filled = st.full((4,), 2.5)" in above for above in kernels.values()) == 1


def test_an_op_that_is_a_kernel_alone_has_its_line() -> None:
    @st.function
    def products(x, w, image):
        return st.grad(lambda image: st.sum(st.conv2d(image, w) ** 2))(image), x @ x.T

    text = products.stage(np.ones((70, 300)), np.ones((8, 4, 3, 3)), np.ones((2, 4, 12, 12))).source
    kernels = re.findall(r"((?://[^\n]*\n)+)static void (\w+)\(", text)
    (above,) = (above for above, name in kernels if name == "d_image")
    assert "test_positions.py" in above
    assert re.search(r"^// \(70, 300\) @ \(300, 70\), f64  test_positions.py:.*\nstatic const st_product_f64 ", text, re.M)
