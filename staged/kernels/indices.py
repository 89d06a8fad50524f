"""Indices into arrays: row-major numbers of elements, and what a reshape makes of them.

Tested by `tests/kernels/test_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.ir.loops import Affine, Axis
from staged.kernels.axes import AxisConflict

Indices = tuple[Affine, ...]
"""One expression for each axis of an array."""


def linear(at: Indices, shape: Sequence[int]) -> Affine:
    """Row-major element number."""
    index, stride = Affine(), 1
    for part, extent in zip(reversed(at), reversed(shape), strict=True):
        index, stride = index + part * stride, stride * extent
    return sorted_terms(index)


def sorted_terms(index: Affine) -> Affine:
    """The same index with its largest stride first, so that equal indices compare and print alike."""
    return Affine(tuple(sorted(index.terms, key=lambda t: (-abs(t[1]), t[0].name))), index.offset)


def reshaped(at: Indices, before: Sequence[int], after: Sequence[int]) -> Indices:
    """Indices into a reshaped array: each axis goes to the dimension that its stride falls into."""
    if 0 in after:
        return (Affine(),) * len(after)  # never walked
    if [n for n in before if n != 1] == [n for n in after if n != 1]:
        kept = iter([index for index, n in zip(at, before, strict=True) if n != 1])
        return tuple(next(kept) if n != 1 else Affine() for n in after)
    whole = linear(at, before)
    out: list[Affine] = []
    stride = 1
    terms = list(whole.terms)
    offset = whole.offset
    for extent in reversed(after):
        mine = [(n, s) for n, s in terms if stride <= s < stride * extent]
        for name, step in mine:
            if not isinstance(name, Axis) or step % stride or step * (name.extent - 1) >= stride * extent:
                raise AxisConflict
        terms = [t for t in terms if t not in mine]
        offset, here = divmod(offset, extent)
        out.append(sorted_terms(Affine(tuple((n, s // stride) for n, s in mine), here)))
        stride *= extent
    if terms:
        raise AxisConflict
    return tuple(reversed(out))


def same_index(a: Affine, b: Affine) -> bool:
    return a.offset == b.offset and dict(a.terms) == dict(b.terms)
