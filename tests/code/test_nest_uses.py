"""A value of memory is written where it is used if nothing changes memory before."""

from __future__ import annotations

from staged.code.nest.uses import count_uses, loads_before_changes, stored_once
from staged.ir.declaration import prims
from staged.ir.loops import Affine, ArrayRef, Axis, CheckIndex, Compute, Load, Local, Loop, Statement, Store
from staged.ir.types import f32, i64

ALONG = Axis("i", 8)
AT = Affine.of(ALONG)
X, Y, Z = (ArrayRef(name, f32, 8, role) for name, role in (("x", "input"), ("y", "output"), ("z", "output")))
A, B, C = (Local(name, f32) for name in "abc")


def early(*body: Statement) -> set[Local]:
    return loads_before_changes(body, count_uses(body))


def test_the_store_of_a_value_is_a_use_before_it():
    assert early(Load(A, X, AT), Store(Y, AT, A)) == {A}


def test_a_store_between_load_and_use_may_change_the_element():
    assert early(Load(A, X, AT), Load(B, X, AT), Store(Y, AT, A), Store(Z, AT, B)) == {A}


def test_the_use_of_a_value_is_that_of_the_expression_around():
    sum_ = Compute(C, prims.ADD, (A, B), {})
    assert early(Load(A, X, AT), Load(B, X, AT), sum_, Store(Y, AT, C)) == {A, B}
    assert early(Load(A, X, AT), Load(B, X, AT), sum_, Store(Y, AT, B), Store(Z, AT, C)) == set()


def test_a_loop_may_change_elements():
    loop = Loop(Axis("j", 8), (Store(Y, AT, B),))
    assert early(Load(B, X, AT), Load(A, X, AT), loop, Store(Z, AT, A)) == {B}
    assert early(Load(B, X, AT), loop, Load(A, X, AT), Store(Z, AT, A)) == {A, B}


def test_a_value_that_is_only_stored_needs_no_name():
    body = (Load(A, X, AT), Compute(B, prims.EXP, (A,), {}), Store(Y, AT, B), Store(Z, AT, A))
    assert stored_once(body, count_uses(body)) == {B}


def test_a_checked_index_is_a_use():
    index, place = Local("index", i64), Local("place", i64)
    check = CheckIndex(place, index, 8)
    assert early(Load(index, X, AT), check, Store(Y, Affine.of(place), A)) == {index}
    assert early(Load(index, X, AT), Store(Y, AT, A), check) == set()
