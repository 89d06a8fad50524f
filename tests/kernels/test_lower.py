"""The operands that a result may overwrite, on statements written by hand."""

from __future__ import annotations

from staged.ir.loops import Affine, ArrayRef, Axis, Bound, Constant, Load, Local, Loop, Statement, Store
from staged.ir.types import f32, i32
from staged.kernels.lower import find_in_place

J = Axis("j", 8)
HERE = Affine.of(J)
X, Y = ArrayRef("x", f32, 8, "input"), ArrayRef("y", f32, 8, "output")
VALUE = Local("value", f32)


def pairs(*body: Statement, source: ArrayRef = X) -> list[tuple[int, int]]:
    return list(find_in_place(body, [Y], [source]))


def test_an_element_is_read_where_it_is_written_and_before() -> None:
    read, written = Load(VALUE, X, HERE), Store(Y, HERE, VALUE)
    assert pairs(Loop(J, (read, written))) == [(0, 0)]
    assert pairs(Loop(J, (read,)), Loop(J, (written,))) == [(0, 0)]
    # A later pass reads it again.
    assert pairs(Loop(J, (read, written)), Loop(J, (Load(Local("again", f32), X, HERE),))) == []
    for elsewhere in (HERE + 1, HERE * -1 + 7, Affine(), HERE * 2):
        assert pairs(Loop(J, (Load(VALUE, X, elsewhere), written))) == []
        assert pairs(Loop(J, (read, Load(Local("other", f32), X, elsewhere), written))) == []


def test_guards_other_sizes_dtypes_and_second_stores_keep_them_apart() -> None:
    read, written = Load(VALUE, X, HERE), Store(Y, HERE, VALUE)
    guarded = Load(VALUE, X, HERE, (Bound(HERE, 4),), Constant(0.0, f32))
    assert pairs(Loop(J, (guarded, written))) == []
    assert pairs(Loop(J, (read, written, Store(Y, HERE, VALUE)))) == []
    for other in (ArrayRef("x", f32, 9, "input"), ArrayRef("x", i32, 8, "input")):
        assert pairs(Loop(J, (Load(VALUE, other, HERE), written)), source=other) == []
