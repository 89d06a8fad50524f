# ruff: noqa: B007  (programs of users name their loop variables)
"""`for`: unrolled, over staged ranges, arrays and batches; `break`, `continue`, early returns."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.errors import (
    CarriedValueError,
    ShapeError,
    StagedValueError,
    StaticStateError,
    UnboundNameError,
)
from staged.frontend.trace_function import trace
from tests.frontend.harness import agree, ir, ops

X = np.arange(3, dtype=np.float32)
M = np.arange(12, dtype=np.float32).reshape(6, 2)


def test_static_range_unrolls() -> None:
    def f(x):
        for i in range(3):
            x = x + i
        return x

    assert ops(ir(f, X)).count("add") == 3
    agree(f, X)


def test_staged_range_is_one_loop_whatever_its_bound() -> None:
    def f(x, n):
        for i in st.range(n):
            x = x * 2.0 + i
        return x

    def g(x):
        for i in st.range(5):
            x = x * 2.0 + i
        return x

    assert ops(ir(f, X, 4)).count("for") == 1
    assert ops(ir(g, X)).count("for") == 1
    agree(f, X, 4)
    agree(f, X, 0)
    agree(g, X)


def test_range_with_a_staged_bound_is_a_staged_loop() -> None:
    def f(n):
        total = 0
        for i in range(n):
            total += i
        return total

    assert "for" in ops(ir(f, 4))
    agree(f, 5)


def test_start_and_step() -> None:
    def f(n):
        total = 0
        for i in st.range(2, n, 3):
            total += i
        for i in st.range(n, 0, -2):
            total = total * 3 + i
        return total

    for n in (0, 1, 2, 3, 9, 12):
        agree(f, n)


def test_static_total_is_lifted_to_a_carried_value() -> None:
    def f(x, n):
        total = 0.0
        for i in st.range(n):
            total += (x * i).sum()
        return total

    text = ir(f, X, 4)
    assert "total: f32 () = for(" in text
    agree(f, X, 4)


def test_loop_invariant_names_are_not_carried() -> None:
    def f(x, w, n):
        scale = 2.0
        for i in st.range(n):
            x = x * w * scale
        return x

    line = next(line for line in ir(f, X, X, 4).splitlines() if " = for(" in line)
    assert line.count("f32") == 1


def test_counter_that_does_not_change_stays_static() -> None:
    def f(x, n, verbose):
        shown = 3
        for i in st.range(n):
            if verbose:
                shown += 1
            x = x + 1.0
        return x.reshape((shown, 1))

    agree(f, X, 2, False)


def test_break_is_structure() -> None:
    def f(x, n):
        for i in st.range(n):
            if i == 3:
                break
            x = x + i
        return x

    assert "break @i(" in ir(f, X, 9)
    agree(f, X, 9)
    agree(f, X, 2)


def test_continue_is_structure() -> None:
    def f(x, n):
        for i in st.range(n):
            if i % 2 == 0:
                continue
            x = x + i
        return x

    assert "continue @i(" in ir(f, X, 9)
    agree(f, X, 9)


def test_break_and_continue_in_a_static_loop_with_staged_conditions() -> None:
    def f(x, n):
        for k in range(4):
            if n == k:
                break
            if n == k + 10:
                continue
            x = x + k
        return x

    for n in (0, 2, 11, 99):
        agree(f, X, n)


def test_return_out_of_a_staged_loop() -> None:
    def f(x, n):
        for i in st.range(n):
            if i == 2:
                return x + 100.0
            x = x * 2.0
        return x

    assert "return(" in ir(f, X, 9).split("yield")[0]
    agree(f, X, 9)
    agree(f, X, 1)


def test_return_out_of_a_loop_in_a_helper_is_a_scope() -> None:
    def helper(x, n):
        for i in st.range(n):
            if i == 2:
                return x + 100.0
            x = x * 2.0
        return x

    def f(x, n):
        return helper(x, n) * 3.0

    assert ops(ir(f, X, 9)).count("scope") == 1
    agree(f, X, 9)
    agree(f, X, 1)


def test_nested_loops_carry_through_both() -> None:
    def f(x, n):
        total = 0.0
        for i in st.range(n):
            for j in st.range(i):
                total += j
                x = x + total
            total = total - 1
        return x, total

    agree(f, X, 4)


def test_name_bound_only_in_the_loop_is_an_error_where_it_is_read() -> None:
    def f(x, n):
        for i in st.range(n):
            y = x + i
        return y

    with pytest.raises(UnboundNameError, match="`y` is bound only inside the loop at line"):
        ir(f, X, 3)


def test_carried_value_that_changes_shape_is_an_error_with_both_types() -> None:
    def f(x, n):
        for i in st.range(n):
            x = st.sum(x)
        return x

    with pytest.raises(CarriedValueError, match=r"`x` is f32 \(3,\) before the loop and f32 \(\) after") as caught:
        ir(f, X, 3)
    assert caught.value.where.text == "x = st.sum(x)"


def test_carried_value_that_changes_dtype_is_an_error() -> None:
    def f(x, n):
        for i in st.range(n):
            x = st.astype(x, st.f64)
        return x

    with pytest.raises(CarriedValueError, match="f32 .* f64 .* the dtype differs"):
        ir(f, X, 3)


def test_name_that_is_bound_anew_in_each_iteration_may_change_its_shape() -> None:
    def f(x, n):
        h = x.sum()
        for i in st.range(n):
            h = x * 2.0
            h = h.sum()
            x = x + h
        for i in st.range(n):
            h = x + 1.0
            x = h
        return x

    agree(f, X, 2)


def test_passed_number_adopts_the_dtype_it_meets() -> None:
    def f(x, lr, n):
        for i in st.range(n):
            lr = lr * x.sum()
        return lr

    assert "lr_2: f32 () = for(" in ir(f, X, 0.5, 2)
    agree(f, X, 0.5, 2)


def test_rows_of_an_array() -> None:
    def f(m):
        total = m[0] * 0.0
        for row in m:
            total = total + row
        return total

    assert ops(ir(f, M)).count("for") == 1
    agree(f, M)


def test_enumerate_zip_reversed() -> None:
    def f(m, n):
        total = m[0] * 0.0
        for i, row in enumerate(m):
            total = total + row * i
        for i, (a, b) in enumerate(zip(m, m, strict=True)):
            total = total + a * b + i
        for i in reversed(st.range(n)):
            total = total * 2.0 + i
        return total

    agree(f, M, 3)


def test_batches_are_slices() -> None:
    def f(m, y):
        total = 0.0
        for xs, ys in st.batches(m, y, size=2):
            total = total + (xs.sum(axis=1) * ys).sum()
        return total

    assert ops(ir(f, M, M[:, 0])).count("dynamic_slice") == 2
    agree(f, M, M[:, 0])


def test_batches_drop_the_rest_with_a_note_or_run_it_last() -> None:
    def f(m, drop):
        total = 0.0
        for xs in st.batches(m, size=4, drop_last=drop):
            total += xs.sum()
        return total

    assert trace(f, (M, True)).notes == ("batches of 4 drop the last 2 of 6 rows (drop_last=True)",)
    agree(f, M, True)
    agree(f, M, False)


def test_shuffled_batches_see_every_row_once() -> None:
    def f(m):
        total = 0.0
        count = 0
        for xs in st.batches(m, size=2, shuffle=True):
            total += xs.sum()
            count += 1
        return total, count

    text = ir(f, M)
    assert ops(text).count("permutation") == 1
    agree(f, M)


def test_batches_of_different_lengths_are_refused() -> None:
    def f(a, b):
        for x, y in st.batches(a, b, size=2):
            a = a + x.sum() + y.sum()
        return a

    with pytest.raises(ShapeError, match=r"equal first dimensions, got \(6, 2\), \(3,\)"):
        ir(f, M, X)


def test_staged_batch_size_is_refused() -> None:
    def f(m, size):
        total = 0.0
        for x in st.batches(m, size=size):
            total += x.sum()
        return total

    with pytest.raises(StagedValueError, match="the batch size must be static"):
        ir(f, M, 2)


def test_list_append_in_a_staged_loop_names_the_list() -> None:
    def f(x, n):
        losses = []
        for i in st.range(n):
            losses.append(x)
        return x

    with pytest.raises(
        StaticStateError, match="the list `losses` changes its length inside the loop at line"
    ) as caught:
        ir(f, X, 3)
    assert caught.value.where.text == "losses.append(x)"


def test_list_made_in_the_loop_may_grow() -> None:
    def f(x, n):
        for i in st.range(n):
            parts = []
            for k in range(3):
                parts.append(x * k)
            x = parts[0] + parts[1] + parts[2]
        return x

    agree(f, X, 2)


def test_attribute_set_in_a_staged_loop_is_refused() -> None:
    class Model:
        mode = "train"

    def f(x, n):
        model = Model()
        for i in st.range(n):
            model.mode = "eval"
            x = x + 1.0
        return x

    with pytest.raises(
        CarriedValueError, match="`model.mode` is the value 'train' before the loop and the value 'eval'"
    ):
        ir(f, X, 3)


def test_attribute_set_and_set_back_is_fine() -> None:
    class Model:
        training = True

    def f(x, n):
        model = Model()
        for i in st.range(n):
            model.training = False
            x = x + 1.0
            model.training = True
        return x

    # `training` is bound on the class: setting it back leaves an attribute of the object with the same value.
    model_text = ir(f, X, 3)
    assert "for" in ops(model_text)


def test_else_on_a_static_loop() -> None:
    def f(x, k):
        for i in range(3):
            if i == k:
                break
        else:
            x = x * 2.0
        return x

    from tests.frontend.harness import interpret

    for k, factor in ((1, 1.0), (7, 2.0)):
        np.testing.assert_allclose(interpret(trace(f, (X, k), static=("k",))), X * factor)


def test_long_unrolling_warns_and_names_the_way_out() -> None:
    def f(x):
        for i in range(300):
            x = x + i
        return x

    with pytest.warns(UserWarning, match="is unrolled, more than 100 times; `st.range"):
        ir(f, X)


def test_longer_unrolling_is_an_error(monkeypatch) -> None:
    def f(x):
        for i in range(10**9):
            x = x + i
        return x

    monkeypatch.setenv("STAGED_UNROLL", "200")
    with pytest.raises(st.StagingError, match="is unrolled more than 200 times") as caught:
        ir(f, X)
    assert "for i in range(10**9):" in str(caught.value) and "`st.range(...)`" in caught.value.hint


def test_trip_count_does_not_change_the_ir() -> None:
    def program(count):
        def f(x):
            for i in st.range(count):
                for j in st.range(count):
                    x = x + j
            return x

        return ir(f, X)

    assert program(10).replace("10", "N") == program(100_000).replace("100000", "N")
