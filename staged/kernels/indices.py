"""Indices into arrays: row-major numbers of elements, and what a reshape makes of them.

Tested by `tests/kernels/test_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.ir.loops import Affine, Axis, Local
from staged.ir.sizes import Extent, at_bounds, bounds_of, exact_quotient
from staged.kernels.axes import AxisConflict

Indices = tuple[Affine, ...]
"""One expression for each axis of an array."""


def linear(at: Indices, shape: Sequence[Extent]) -> Affine:
    """Row-major element number."""
    index = Affine()
    stride: Extent = 1
    for part, extent in zip(reversed(at), reversed(shape), strict=True):
        index, stride = index + part * stride, stride * extent
    return sorted_terms(index)


def sorted_terms(index: Affine) -> Affine:
    """The same index with its largest stride first, so that equal indices compare and print alike."""
    return Affine(tuple(sorted(index.terms, key=lambda t: (-abs(at_bounds(t[1])), t[0].name))), index.offset)


def reshaped(at: Indices, before: Sequence[Extent], after: Sequence[Extent]) -> Indices:
    """Indices into a reshaped array: each axis goes to the dimension that its stride falls into."""
    if 0 in after:
        return (Affine(),) * len(after)  # never walked
    if [n for n in before if n != 1] == [n for n in after if n != 1]:
        kept = iter([index for index, n in zip(at, before, strict=True) if n != 1])
        return tuple(next(kept) if n != 1 else Affine() for n in after)
    whole = linear(at, before)
    out: list[Affine] = []
    stride: Extent = 1
    terms = list(whole.terms)
    offset = whole.offset
    for extent in reversed(after):
        mine = [(name, step) for name, step in terms if _is_within(name, step, stride * extent)]
        steps = [exact_quotient(step, stride) for _, step in mine]
        terms = [term for term in terms if term not in mine]
        if offset == 0 or (bounds_of(offset)[0] >= 0 and bounds_of(extent - offset)[0] > 0):
            here, offset = offset, 0
        elif isinstance(offset, int) and isinstance(extent, int):
            offset, here = divmod(offset, extent)
        else:
            raise AxisConflict
        inside = tuple((name, step) for (name, _), step in zip(mine, steps, strict=True) if step is not None)
        if len(inside) < len(mine):
            raise AxisConflict
        out.append(sorted_terms(Affine(inside, here)))
        stride = stride * extent
    if terms:
        raise AxisConflict
    return tuple(reversed(out))


def _is_within(name: Axis | Local, step: Extent, whole: Extent) -> bool:
    """Return whether steps of this size along a whole axis stay below `whole`. Raises: AxisConflict if only some do."""
    if isinstance(step, int) and isinstance(whole, int) and not 0 < step < whole:
        return False
    is_inside = isinstance(name, Axis) and bounds_of(whole - step * (name.size - 1))[0] > 0
    if not is_inside and isinstance(step, int) and isinstance(whole, int):
        raise AxisConflict
    return is_inside


def same_index(a: Affine, b: Affine) -> bool:
    return a.offset == b.offset and dict(a.terms) == dict(b.terms)
