"""Work that threads which share an item may do at once, checked on items written by hand."""

from __future__ import annotations

from staged.backends.gpu.mapping import Part
from staged.backends.gpu.teams import is_shareable, may_overwrite
from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    CheckIndex,
    Compute,
    Load,
    Local,
    Loop,
    Reduction,
    Statement,
    Store,
)
from staged.ir.types import f32, i64

ROW, J = Axis("i", 8), Axis("j", 256)
X, Y, Z = ArrayRef("x", f32, 2048, "input"), ArrayRef("y", f32, 2048, "output"), ArrayRef("z", f32, 2048, "output")


def at(axis: Axis) -> Affine:
    return Affine.of(ROW, 256) + Affine.of(axis)


def summed(axis: Axis, source: ArrayRef) -> Loop:
    value, total = Local("value", f32), Reduction(Local("total", f32), prims.SUM)
    return Loop(axis, (Load(value, source, at(axis)), Accumulate(total, value)), (total,))


def written(axis: Axis, source: ArrayRef, target: ArrayRef) -> Loop:
    value = Local("value", f32)
    return Loop(axis, (Load(value, source, at(axis)), Store(target, at(axis), value)))


def part(*body: Statement) -> Part:
    return Part((ROW,), body, ())


def test_a_result_takes_an_operands_place_where_all_threads_are_done_with_it() -> None:
    assert may_overwrite(part(summed(J, X), written(J, X, Y)), X, Y)  # the total waits for all
    assert may_overwrite(part(written(J, X, Y)), X, Y)


def test_a_result_does_not_where_a_thread_may_still_read() -> None:
    # A loop without a total ends for one thread while another is in its middle.
    assert not may_overwrite(part(written(J, X, Z), written(J, X, Y)), X, Y)
    # Loops of other lengths give elements to other threads.
    short = Axis("s", 128)
    assert not may_overwrite(part(summed(J, X), written(short, X, Y)), X, Y)
    # A number that is read before the loops, by each thread when it comes there.
    one = Local("one", f32)
    assert not may_overwrite(part(Load(one, X, Affine.of(ROW)), summed(J, X), written(J, X, Y)), X, Y)


def test_turns_that_read_what_others_write_are_not_shared() -> None:
    assert is_shareable((summed(J, X), written(J, X, Y)))
    assert not is_shareable((written(J, X, Y), written(J, Y, Z)))  # of the results
    row = ArrayRef("row", f32, 256, "scratch")
    value = Local("value", f32)
    shifted = Loop(J, (Load(value, row, Affine.of(J) + 1), Store(row, Affine.of(J), value)))
    assert not is_shareable((shifted,))  # of the workspace, within one loop
    constant = Loop(J, (Load(value, X, at(J)), Store(Y, Affine.of(ROW), value)))
    assert not is_shareable((constant,))  # one element, by every iteration


def test_an_index_is_checked_by_each_thread_where_an_element_stands_for_a_wrong_one() -> None:
    for extent, fits in ((4, True), (0, False)):
        found, given, value = Local("found", i64), Local("given", i64), Local("value", f32)
        total = Reduction(Local("total", f32), prims.SUM)
        places = ArrayRef("places", i64, 256, "input")
        body = (
            Load(given, places, Affine.of(J)),
            CheckIndex(found, given, extent),
            Load(value, X, Affine.of(found)),
            Compute(Local("twice", f32), prims.ADD, (value, value), {}),
            Accumulate(total, value),
        )
        assert is_shareable((Loop(J, body, (total,)),)) is fits
