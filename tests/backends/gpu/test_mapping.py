"""The loops that become threads, checked on nests written by hand: every element is written by one item, in the nest's order."""

from __future__ import annotations

import itertools

import pytest

from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.gpu.geometry import Team
from staged.backends.gpu.mapping import Part, map_nest
from staged.backends.gpu.schedule import schedule_part
from staged.ir.declaration import prims
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    CheckIndex,
    Compute,
    Constant,
    Copy,
    Load,
    Local,
    Loop,
    Nest,
    Reduction,
    Store,
    Tile,
    walk,
)
from staged.ir.types import f32, i64


def array(name: str, size: int, role: str = "input", dtype: object = f32) -> ArrayRef:
    return ArrayRef(name, dtype, size, role)


def nest(*body: object, scratch: tuple[ArrayRef, ...] = (), items: int = 1, inputs: tuple[object, ...] = ()) -> Nest:
    outputs = tuple(dict.fromkeys(s.array for s in walk(body) if isinstance(s, Store) and s.array.role == "output"))
    return Nest("test", inputs, outputs, scratch, body, items)


def names(part: Part) -> tuple[str, ...]:
    return tuple(axis.name for axis in part.axes)


def moved(source: ArrayRef, at: Affine, target: ArrayRef, to: Affine) -> list[object]:
    value = Local("value", f32)
    return [Load(value, source, at), Store(target, to, value)]


def test_every_loop_of_an_elementwise_nest_is_threads() -> None:
    i, j = Axis("i", 5), Axis("j", 7)
    at = Affine.of(i, 7) + Affine.of(j)
    (part,) = map_nest(nest(Loop(i, (Loop(j, tuple(moved(array("x", 35), at, array("y", 35, "output"), at))),)))).parts
    assert (names(part), part.items) == (("i", "j"), 35)


def test_pieces_of_a_concatenation_are_parts_of_one_launch() -> None:
    i, j, k = Axis("i", 5), Axis("j", 3), Axis("k", 4)
    y = array("y", 35, "output")
    first = Loop(j, tuple(moved(array("a", 15), Affine.of(i, 3) + Affine.of(j), y, Affine.of(i, 7) + Affine.of(j))))
    second = Loop(
        k, tuple(moved(array("b", 20), Affine.of(i, 4) + Affine.of(k), y, Affine.of(i, 7) + Affine.of(k) + 3))
    )
    parts = map_nest(nest(Loop(i, (first, second)), items=5)).parts
    assert [(names(part), part.items) for part in parts] == [(("i", "j"), 15), (("i", "k"), 20)]


def test_pieces_that_overlap_keep_their_order() -> None:
    i, j, k = Axis("i", 5), Axis("j", 3), Axis("k", 4)
    y = array("y", 35, "output")
    first = Loop(j, tuple(moved(array("a", 15), Affine.of(j), y, Affine.of(i, 7) + Affine.of(j))))
    second = Loop(k, tuple(moved(array("b", 20), Affine.of(k), y, Affine.of(i, 7) + Affine.of(k) + 2)))
    (part,) = map_nest(nest(Loop(i, (first, second)), items=5)).parts
    assert names(part) == ("i",)


def test_turns_that_reach_the_same_elements_are_not_threads() -> None:
    i, j = Axis("i", 5), Axis("j", 3)
    y = array("y", 20, "output")
    overlapping = Affine.of(i, 2) + Affine.of(j)  # windows of 3 at steps of 2
    (part,) = map_nest(nest(Loop(i, (Loop(j, tuple(moved(array("x", 3), Affine.of(j), y, overlapping))),)))).parts
    reached = [overlapping.evaluate({i: a, j: b}) for a, b in itertools.product(range(5), range(3))]
    assert len(set(reached)) < 15 and names(part) == ()


def test_rows_that_a_scatter_writes_stay_in_order_and_its_columns_are_threads() -> None:
    j, k = Axis("j", 20), Axis("k", 4)
    out, base, rows, indices = array("y", 40, "output"), array("x", 40), array("rows", 80), array("k", 20, dtype=i64)
    index, checked = Local("index", i64), Local("checked", i64)
    before, update, after = Local("before", f32), Local("update", f32), Local("after", f32)
    target = Affine.of(checked, 4) + Affine.of(k)
    add = Compute(after, prims.ADD, (before, update), {})
    inner = Loop(
        k,
        (Load(update, rows, Affine.of(j, 4) + Affine.of(k)), Load(before, out, target), add, Store(out, target, after)),
    )
    loop = Loop(j, (Load(index, indices, Affine.of(j)), CheckIndex(checked, index, 10), inner))
    spread = map_nest(nest(Copy(out, base), loop))
    (part,) = spread.parts
    assert [copy.source for copy in spread.copies] == [base]
    assert names(part) == ("k",) and isinstance(part.body[0], Loop) and part.body[0].axis is j


def test_totals_of_columns_become_reductions_that_a_block_shares() -> None:
    i, j = Axis("i", 600), Axis("j", 50)
    x, y, total = array("x", 30000), array("y", 50, "output"), array("total", 50, "scratch")
    before, value, after, result = (Local(name, f32) for name in ("before", "value", "after", "result"))
    at = Affine.of(j)
    body = (
        Loop(j, (Store(total, at, Constant(0.0, f32)),)),
        Loop(i, (Loop(j, (Load(value, x, Affine.of(i, 50) + at), Load(before, total, at),
                          Compute(after, prims.ADD, (before, value), {}), Store(total, at, after))),)),
        Loop(j, (Load(result, total, at), Store(y, at, result))),
    )  # fmt: skip
    (part,) = map_nest(nest(Tile(j, 2048, body), scratch=(total,), items=50)).parts
    assert names(part) == ("j",) and part.scratch == ()
    (loop,) = [s for s in part.body if isinstance(s, Loop)]
    assert [reduction.op for reduction in loop.reductions] == [prims.SUM]
    team = Team.of(schedule_part(part, {}, CUDA_GPU)[1])
    assert team is not None and (team.kind, team.items) == ("column", 32)


def test_a_loop_that_a_total_runs_through_is_not_threads() -> None:
    i, j = Axis("i", 5), Axis("j", 7)
    x, y = array("x", 35), array("y", 35, "output")
    total, value, again, less = (Local(name, f32) for name in ("total", "value", "again", "less"))
    at = Affine.of(i, 7) + Affine.of(j)
    reduction = Reduction(total, prims.SUM)
    first = Loop(j, (Load(value, x, at), Accumulate(reduction, value)), (reduction,))
    second = Loop(j, (Load(again, x, at), Compute(less, prims.SUBTRACT, (again, total), {}), Store(y, at, less)))
    (part,) = map_nest(nest(Loop(i, (first, second)), items=5)).parts
    assert names(part) == ("i",) and [s.axis for s in part.body if isinstance(s, Loop)] == [j, j]


def test_rows_that_nothing_reads_are_not_kept() -> None:
    i, j = Axis("i", 5), Axis("j", 7)
    kept, unread = array("kept", 7, "scratch"), array("unread", 7, "scratch")
    value, again = Local("value", f32), Local("again", f32)
    at = Affine.of(i, 7) + Affine.of(j)
    total = Reduction(Local("total", f32), prims.SUM)
    first = Loop(
        j, (Load(value, array("x", 35), at), Store(kept, Affine.of(j), value), Accumulate(total, value)), (total,)
    )
    lost = Loop(j, (Store(unread, Affine.of(j), total.target),))
    last = Loop(j, (Load(again, kept, Affine.of(j)), Store(array("y", 35, "output"), at, again)))
    (part,) = map_nest(nest(Loop(i, (first, lost, last)), scratch=(kept, unread), items=5)).parts
    assert [each.name for each in part.scratch] == ["kept"]
    assert len([s for s in part.body if isinstance(s, Loop)]) == 2


@pytest.mark.parametrize(
    ("rows", "length", "kind"),
    [(9, 10, None), (9, 100, "warp"), (500, 1000, "warp"), (9, 1000, "block"), (500, 2000, "block")],
)
def test_the_length_of_rows_says_who_shares_them(rows: int, length: int, kind: str | None) -> None:
    i, j = Axis("i", rows), Axis("j", length)
    total, value = Reduction(Local("total", f32), prims.SUM), Local("value", f32)
    inner = Loop(
        j,
        (Load(value, array("x", rows * length), Affine.of(i, length) + Affine.of(j)), Accumulate(total, value)),
        (total,),
    )
    store = Store(array("y", rows, "output"), Affine.of(i), total.target)
    (part,) = map_nest(nest(Loop(i, (inner, store)), items=rows)).parts
    team = Team.of(schedule_part(part, {}, CUDA_GPU)[1])
    assert (team.kind if team is not None else None) == kind
    if team is not None:
        assert team.block % 32 == 0 and team.block <= 1024 and team.blocks(rows) * team.items >= rows
