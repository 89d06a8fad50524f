"""Relations of sizes that an op needs: one program for the sizes that have them, an error with the line for others."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramValueError, ShapeError, UnboundNameError
from staged.frontend.values import trees

TWO = {"x": ("N <= 40", 3), "y": ("M <= 40", 3)}


def total(x, y):
    return x + y


def product(x, y):
    return x @ y.T @ y + x


def joined(x, y):
    return st.concat([x, y], axis=1)


def nested(x, y):
    return st.sum(st.where(x > y, x, 2.0 * y), axis=1)


def cut(x, y):
    return x[: y.shape[0]] * y


def longer_by_one(x, y):
    return x[1:] - y


def in_one_axis(x, y):
    return st.reshape(x, y.shape)


def in_a_branch(x, y):
    if st.sum(x) > 0.0:
        x = x + y
    return x


def in_a_loop(x, y):
    for _ in st.range(3):
        x = x + y
    return x


def in_a_loss(x, y):
    return st.grad(lambda x: st.mse_loss(x, y))(x)


def if_equal(x, y):
    if x.shape[0] == y.shape[0]:
        return x + y
    return x * 2.0


def compare(function: Any, axes: Any, *sizes: tuple[int, ...], programs: int = 1) -> None:
    dynamic = st.function(dims=axes)(function)
    for number, given in enumerate(sizes):
        draw = np.random.default_rng(number)
        named = dict(zip("NM", given, strict=False))
        arrays = [
            draw.uniform(-2, 2, [named[axis[0]] if isinstance(axis, str) else axis for axis in shape])
            for shape in axes.values()
        ]
        results = dynamic(*arrays), st.function(function)(*arrays)
        for one, other in zip(*(trees.flatten(each)[0] for each in results), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    assert len(dynamic.programs) == programs, [use.arguments for use in dynamic.programs]


@pytest.mark.parametrize("function", [total, product, joined, nested, in_a_branch, in_a_loop, in_a_loss])
def test_one_program_serves_all_equal_sizes(function: Any) -> None:
    compare(function, TWO, (4, 4), (1, 1), (9, 9), (40, 40), *([] if function is in_a_loss else [(0, 0)]))


def test_relations_of_expressions() -> None:
    compare(longer_by_one, TWO, (5, 4), (2, 1), (1, 0), (9, 8))
    compare(in_one_axis, {"x": ("N <= 40",), "y": ("M <= 40", 2)}, (8, 4), (2, 1), (40, 20))
    compare(lambda x: st.sum(x.reshape(4, -1), axis=0), {"x": ("N <= 40",)}, (8,), (40,), (4,))
    compare(lambda x: x + st.ones(5), {"x": ("N <= 40",)}, (5,), (5,))


def test_slices_of_one_element_broadcast() -> None:
    compare(lambda x: x - x[:1] - x[-1:], {"x": ("N <= 40", 3)}, (7,), (0,), (1,), (40,), (2,), programs=2)
    compare(lambda x: x * x[x.shape[0] // 2 :][:1], {"x": ("N <= 40",)}, (7,), (3,), (8,), (2,), programs=2)


def test_products_of_sizes_are_positive() -> None:
    def centred(x):
        if x.size == 0:
            return st.zeros(2, dtype=st.f64)
        return st.reshape(x, (-1,)) - st.reshape(x, (-1,))[:1]

    compare(centred, {"x": ("N <= 40", "M <= 40")}, (7, 2), (1, 1), (0, 3), (3, 40), (3, 0), programs=3)


def test_a_branch_for_equal_sizes_has_programs_of_its_own() -> None:
    compare(if_equal, TWO, (4, 4), (7, 7), (5, 3), (9, 1), (2, 6), (3, 4), programs=3)


def unless_shorter(x, y):
    if x.shape[0] >= y.shape[0]:
        return cut(x, y)
    return x - 1.0


def test_branches_of_sizes_are_told_apart_if_they_need_relations() -> None:
    compare(unless_shorter, TWO, (5, 3), (9, 9), (7, 0), (3, 5), (0, 4), programs=2)


def bound_in_a_loop(x, y):
    for i in range(x.shape[0] - 2):
        last = x[i] * y[:, 0]
    return last


def test_a_name_that_a_loop_binds_needs_an_iteration() -> None:
    """Fewer rows are the UnboundNameError of the program for these sizes."""
    compare(bound_in_a_loop, {"x": ("N <= 40",), "y": ("M <= 40", 2)}, (5, 3), (3, 7), (9, 0))
    program = st.function(dims={"x": "N <= 40", "y": ("M <= 40", 2)})(bound_in_a_loop)
    for rows in (5, 2):
        with contextlib.nullcontext() if rows > 2 else pytest.raises(UnboundNameError, match="`last` is"):
            program(np.ones(rows), np.ones((3, 2)))


def test_a_size_has_the_attributes_of_an_int() -> None:
    program = st.function(dims={"x": "N <= 40"})(lambda x: x * len((x.shape[0] + 1).shape))
    with pytest.raises(AttributeError, match="'int' object has no attribute 'shape'"):
        program(np.ones(3))


def test_slices_that_count_from_the_end_by_a_size() -> None:
    compare(lambda x, y: (x[-y.shape[0] :], x[: -y.shape[0]]), TWO, (5, 3), (9, 10), (2, 2), (6, 0), programs=2)


def up_to_three_less(x):
    n = x.shape[0]
    return x[: n - 3] * 2.0, x[n - 3 :: -2] * 2.0


def beyond_three_less(x):
    n = x.shape[0]
    return x[n - 3 :] * 2.0, x[: n - 3 : -1] * 2.0


def up_to_three_less_than_half(x):
    return x[: x.shape[0] // 2 - 3] * 2.0


@pytest.mark.parametrize("function", [up_to_three_less, beyond_three_less, up_to_three_less_than_half])
def test_slices_whose_bound_is_negative_for_small_sizes(function: Any) -> None:
    compare(function, {"x": ("N <= 40",)}, (9,), (2,), (3,), (1,), (0,), (6,), (40,), programs=2)


def test_slices_up_to_a_difference_of_sizes() -> None:
    sizes = (6, 4), (4, 6), (3, 1), (1, 1), (0, 1), (2, 40)
    compare(lambda x, y: x[: x.shape[0] - y.shape[0]] * 2.0, TWO, *sizes, programs=2)
    compare(lambda x: x[3:] - x[: x.shape[0] - 3], {"x": ("N <= 40",)}, (6,), (4,), (3,))


def first_half(x, y):
    half = y.shape[0] // 2
    return y[:half] + y[half:], x * 2.0


def test_names_of_fresh_dimensions_are_free() -> None:
    axes = {"x": ("N_by_2 <= 9",), "y": ("N <= 40",)}
    program = st.function(dims=axes)(first_half)
    for rows, others in ((8, 7), (10, 1), (40, 0)):
        made = program(np.ones(others), np.ones(rows))
        assert [len(each) for each in made] == [rows // 2, others]
    assert len(program.programs) == 1


def scaled(x, y):
    return x * y[:, None]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((5, 3), (5,)), ["`N` is 5 (axis 0 of `x`), it may be 0 to 4", '"N <= 5"']),
        (((2, 3), (3,)), ["axis 0 of `y` has 3 elements", "`N` is 2"]),
        (((2, 4), (2,)), ["axis 1 of `x` has 4 elements, 3 are declared"]),
        (((2,), (2,)), ["`x` must have 2 axes"]),
    ],
)
def test_arguments_that_do_not_fit_their_declaration(shapes: Any, words: list[str]) -> None:
    program = st.function(dims={"x": ("N <= 4", 3), "y": ("N",)})(scaled)
    for run in (program, program.stage):
        with pytest.raises(ShapeError) as caught:
            run(*map(np.ones, shapes))
        assert all(word in str(caught.value) for word in (*words, "in scaled"))


def test_declarations_are_checked() -> None:
    for dims, words in (
        ({"x": ("N +",)}, "'N +' is not the size of an axis"),
        ({"x": (2.5,)}, "the size of an axis must be an int, None or a string, got 2.5"),
        ({"z": ("N",)}, "`dims` names `z`, which is not a parameter of `scaled`"),
    ):
        with pytest.raises(st.StagedError, match=re.escape(words)) as caught:
            st.function(dims=dims)(scaled)
        assert "in scaled" in str(caught.value)


def test_a_staged_program_shows_the_sizes_of_a_call_that_does_not_fit() -> None:
    program = st.function(dims=TWO)(total).stage(np.ones((4, 3)), np.ones((4, 3)))
    with pytest.raises(st.StagedError, match=r"(?s)staged as f64 \(M, 3\), got f64 \(4, 3\).*M is 2: axis 0 of `y`.*in total"):
        program(np.ones((4, 3)), np.ones((2, 3)))
    program = st.function(dims={"x": ("N <= 9",)})(up_to_three_less).stage(np.ones(5))
    with pytest.raises(st.StagedError, match=r"(?s)`N` is 2, it may be 3 to 9.*N is 2: axis 0 of `x` .*in up_to_three_less"):
        program(np.ones(2))


def halves_and_rest(x, y):
    n = x.shape[0] // 2
    return st.split(y, 2), st.topk(x[:n] + x[n:], 3)[0], y[: y.shape[0] - 3]


def test_messages_have_the_dimensions_of_the_user() -> None:
    program = st.function(dims={"x": ("N <= 40",), "y": ("M <= 40",)})(halves_and_rest)
    program(np.ones(8), np.ones(4))
    (use,) = program.programs
    assert use.arguments == "x: f64 (2 * (N // 2),), N // 2 <= 20, y: f64 (3 <= M <= 40,)"
    for sizes, message in (((8, 5), "split: M elements do not make 2 equal parts; M is 5"),
                           ((4, 4), "no 3 elements along axis 0 of f64 ((N // 2),); N // 2 is 2")):  # fmt: skip
        with pytest.raises(ProgramValueError, match=re.escape(message)):
            program(*map(np.ones, sizes))


def three_chunks(x):
    return x.chunk(3)


def test_chunks_of_all_sizes_that_have_as_many() -> None:
    compare(three_chunks, {"x": ("N <= 40", 2)}, (9,), (3,), (30,), (5,), (8,), (7,), programs=3)


def pairs(x):
    return x.split(2)


def rows(x):
    return st.unstack(x)


def doubled_rows(x):
    return [row * 2.0 for row in x]


@pytest.mark.parametrize(
    ("function", "message", "remedy"),
    [
        (three_chunks, "the number of parts of axis 0 of f64 (N, 2) depends on its size, N", "st.tensor_split(x"),
        (pairs, "split(2): the number of parts of axis 0 of f64 (N, 2) depends on its size, N", "st.tensor_split(x"),
        (rows, "unstack: the size of axis 0 of f64 (N, 2) must be fixed while staging, got N", "for part in x"),
        (doubled_rows, "the number of rows of f64 (N, 2) must be fixed while staging, got N", "for row in x"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_number_of_parts_that_depends_on_a_size(function: Any, message: str, remedy: str) -> None:
    with pytest.raises(ShapeError) as caught:
        st.function(dims={"x": ("N <= 40", 2)})(function)(np.ones((4, 2)))
    text = str(caught.value)
    assert message in text and remedy in text and f"in {function.__name__}" in text
    assert "N is 4: axis 0 of `x`" in text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (total, "add: shapes (N, 3) and (M, 3) do not broadcast: axis -2 has extents N and M"),
        (joined, "concat"),
        (in_a_branch, "do not broadcast"),
        (longer_by_one, "do not broadcast"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
@pytest.mark.parametrize("before", [True, False], ids=["after a call with the relation", "at the first call"])
def test_other_sizes_are_an_error_with_the_line_and_both_values(function: Any, message: str, before: bool) -> None:
    program = st.function(dims=TWO)(function)
    if before:
        program(np.ones((4, 3)), np.ones((3 if function is longer_by_one else 4, 3)))
    with pytest.raises(ShapeError) as caught:
        program(np.ones((6, 3)), np.ones((1, 3)))
    text = str(caught.value)
    assert message in text and f"in {function.__name__}" in text
    assert "N is 6: axis 0 of `x`" in text and "M is 1: axis 0 of `y`" in text
    assert "test_relations.py, line" in text.split("N is 6")[1].split("\n")[0]
