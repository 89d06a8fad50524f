"""The items of a nest: the iterations of its outermost loops, which threads may share.

Tested by `tests/kernels/test_rewrites.py`.
"""

from __future__ import annotations

from dataclasses import replace

from staged.ir.dependences import Body, are_independent
from staged.ir.loops import Affine, Axis, Loop, Nest, Statement
from staged.ir.named_loops import with_axis, with_body


def without_single_iterations(nest: Nest) -> Nest:
    """The nest without loops of one iteration: what is inside of them is in their place.

    Of several outermost loops all are kept: their iterations are the nest's items.
    """

    def flat(body: Body) -> Body:
        out: list[Statement] = []
        for s in body:
            s = with_body(s, flat)
            if isinstance(s, Loop) and s.axis.size == 1 and not s.reductions:
                out += with_axis(s.body, s.axis, Affine())
            else:
                out.append(s)
        return tuple(out)

    body = flat(nest.body) if len(nest.body) == 1 else tuple(with_body(s, flat) for s in nest.body)
    return with_items(replace(nest, body=body), nest)


def with_items(nest: Nest, before: Nest) -> Nest:
    """A nest that was made of the one `before`. Its items are the iterations of its outermost loops, one loop after the
    other, each over an axis of its own.
    """
    body: list[Statement] = []
    known: set[Axis] = set()
    for s in nest.body:
        if isinstance(s, Loop) and s.axis in known:
            axis = replace(s.axis)
            s = Loop(axis, with_axis(s.body, s.axis, Affine.of(axis)), s.reductions)
        if isinstance(s, Loop):
            known.add(s.axis)
        body.append(s)
    outermost, others = ([s for s in each if isinstance(s, Loop)] for each in (body, before.body))
    is_one_piece = before.items == 1 and sum(loop.axis.extent for loop in others) > 1
    apart = not is_one_piece and len(outermost) == len(body) and are_independent(outermost)
    return replace(nest, body=tuple(body), items=sum(loop.axis.extent for loop in outermost) if apart else 1)
