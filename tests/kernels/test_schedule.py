"""Schedules: every index exactly once, in any number of pieces; which loops run over vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from harness import Program, check, fused, interpret, kernels, record, tensor

from staged.ir.machine import PORTABLE, X86_64_V3, X86_64_V4
from staged.kernels.fuse import fuse
from staged.ops import elementwise as E
from staged.ops import reduction as R
from staged.ops import shape as S

MACHINES = [PORTABLE, X86_64_V3.with_cores(2), X86_64_V4.with_cores(2)]


def schedule_of(f, *types, machine=MACHINES[-1]):
    (kernel,) = kernels(fused(f, *types, machine=machine))
    return kernel.attrs["schedule"], kernel.attrs["nest"]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_index_exactly_once_for_random_shapes(machine):
    """In place, an index visited twice is changed twice; one left out keeps its old value. A thousand nests in all."""
    rng = np.random.default_rng(0)
    cases = []
    for number in range(340):
        rank = int(rng.integers(1, 5))
        shape = tuple(
            int(n) for n in rng.integers(0 if number % 20 == 0 else 1, {1: 300, 2: 70, 3: 20, 4: 9}[rank], rank)
        )
        order = tuple(int(n) for n in rng.permutation(rank))
        axis = int(rng.integers(0, rank))
        kind = number % 4

        def f(x, y, kind=kind, order=order, axis=axis):
            if kind == 0:
                return x + y
            if kind == 1:
                return S.permute_dims(x, order) + 1
            if kind == 2:
                return x + 1, R.sum_(x * y, axis=axis)
            return x + S.broadcast_to(R.max_(y, axis=axis, keepdims=True), y.shape)

        if 0 in shape and kind == 3:
            continue
        types = [tensor("i32", *shape), tensor("i32", *shape)]
        cases.append((record(f, *types), [rng.integers(-50, 50, shape) for _ in types]))
    programs = Program.many([fuse(function, machine) for function, _ in cases], machine, ["-O0"])
    for (function, arguments), program in zip(cases, programs, strict=True):
        expected = interpret(function, arguments)
        for pieces, in_place in ((1, False), (3, True), (7, False)):
            program.pieces, program.in_place = pieces, in_place
            for got, want in zip(program(*arguments), expected, strict=True):
                np.testing.assert_array_equal(got, want)


def test_lanes_follow_the_machine_and_the_widest_item():
    assert schedule_of(lambda x: x + 1.0, tensor("f32", 100))[0].lanes == 16
    assert schedule_of(lambda x: x + 1.0, tensor("f32", 100), machine=PORTABLE)[0].lanes == 4
    assert schedule_of(lambda x: x + 1.0, tensor("f64", 100))[0].lanes == 8


def test_short_rows_get_narrower_vectors():
    assert schedule_of(lambda x: R.sum_(x, axis=1), tensor("f32", 100, 12))[0].lanes == 4


def test_small_work_stays_on_one_thread_and_large_work_does_not():
    small, _ = schedule_of(lambda x: x + 1.0, tensor("f32", 1000))
    large, nest = schedule_of(lambda x: E.exp(x), tensor("f32", 1 << 20))
    assert small.chunk == 0
    assert 0 < large.chunk < nest.items
    assert schedule_of(lambda x: E.exp(x), tensor("f32", 1 << 20), machine=X86_64_V4)[0].chunk == 0


def test_pieces_of_a_loop_over_vectors_are_whole_vectors():
    """So that an item is in a vector, or behind the last one, for any number of threads: the bits are the same."""
    for columns in (130, 700):
        for cores in (2, 7):
            machine = X86_64_V4.with_cores(cores)
            made, nest = schedule_of(lambda x: R.var(x, axis=0), tensor("f32", 5000, columns), machine=machine)
            assert made.chunk > 0 and made.lanes > 1
            assert made.chunk % made.lanes == 0, (columns, cores)
    rows, _ = schedule_of(lambda x: R.sum_(E.exp(x), axis=1), tensor("f32", 20, 100_000))
    assert rows.chunk == 1, "rows are any number: in each the vectors are the same"


def test_a_schedule_reads_as_its_directives():
    rows, _ = schedule_of(lambda x: R.sum_(E.exp(x), axis=1), tensor("f32", 4096, 1024))
    assert re.fullmatch(
        r"vectorise j: 16 lanes\nunroll: 4\nbind i: cores, \d+ side by side, \d+ turns at a time", str(rows)
    ), str(rows)
    assert str(schedule_of(lambda x: x + 1.0, tensor("f32", 3))[0]) == ""


def test_transposes_run_in_tiles():
    check(lambda x: S.permute_dims(x, (1, 0)) + 1.0, tensor("f32", 300, 170), count=1)
    text = check(lambda x: S.permute_dims(x, (1, 0)) + 1.0, tensor("f32", 300, 170)).kernels[0].text
    assert "first" in text


def test_sums_do_not_depend_on_the_pieces():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 1000)).astype(np.float32)
    program = check(lambda x: (R.sum_(x, axis=1), R.sum_(x, axis=0)), tensor("f32", 64, 1000), arguments=[x], rtol=1e-4)
    results = []
    for pieces in (1, 2, 5):
        program.pieces = pieces
        results.append([result.tobytes() for result in program(x)])
    assert results[0] == results[1] == results[2]
