"""Sixteen bytes at once: a thread that takes neighbouring elements reads and writes them together.

    const st_f32x4 x_4 = *(const st_f32x4 *)(x + j);
    st_f32x4 y_4;
    for (int u = 0; u < 4; ++u) {
        y_4.at[u] = x_4.at[u] * 2.0f;
    }
    *(st_f32x4 *)(y + j) = y_4;

Only where sizes and addresses prove that every such piece starts at a multiple of its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staged.backends.gpu.dialect import DEVICE_PREFIX
from staged.backends.gpu.mapping import Part
from staged.code.support.library import Snippet
from staged.ir.loops import Accumulate, ArrayRef, Axis, Compute, Load, PositionOf, Statement, Store
from staged.ir.machine import Gpu
from staged.ir.sizes import exact_quotient
from staged.ir.types import STORED_DTYPES, DType

Access = Load | Store


def pack_name(dtype: DType, width: int) -> str:
    """The type of `width` neighbouring elements, without `st_`."""
    return f"{dtype}x{width}"


_PACKS = {pack_name(dtype, width): (dtype, width) for dtype in STORED_DTYPES for width in (2, 4, 8, 16)}


def pack_type(name: str) -> Snippet | None:
    """The declaration of such a type; None if `name` is none."""
    if name not in _PACKS:
        return None
    dtype, width = _PACKS[name]
    text = (
        f"// {width} neighbours, read and written at once.\n"
        f"struct alignas({width * dtype.size}) {DEVICE_PREFIX}{name} {{\n    {dtype.c_name} at[{width}];\n}};\n"
    )
    return Snippet(name, text)


def packed(part: Part, alignment: Mapping[ArrayRef, int], gpu: Gpu) -> tuple[int, frozenset[Access]]:
    """(elements that a thread takes at once, the accesses that are packs); 1 where it does not pay or is not proven.

    `alignment`: bytes that the address of each array is a multiple of.

    Exact: each access of a pack starts at a multiple of its size: strides, offset and address are; the last pack is
    whole.
    """
    none = 1, frozenset[Access]()
    if part.items < gpu.busy_items or part.scratch or not part.axes:
        return none
    if not all(isinstance(s, Load | Store | Compute | PositionOf) for s in part.body):
        return none
    axis = part.axes[-1]
    accesses = [s for s in part.body if isinstance(s, Load | Store) and s.index.stride(axis) == 1]
    if not any(isinstance(s, Store) for s in accesses):
        return none
    width = max(1, gpu.access_bytes // max(s.array.dtype.size for s in accesses))
    if exact_quotient(axis.size, width) is None or part.items == width:  # a single thread does not have a number
        return none
    fitting = frozenset(s for s in accesses if _is_pack(s, axis, width, alignment))
    return (width, fitting) if any(isinstance(s, Store) for s in fitting) else none


def packed_loop(
    body: Sequence[Statement], axis: Axis, threads: int, alignment: Mapping[ArrayRef, int], gpu: Gpu
) -> tuple[int, frozenset[Access]]:
    """The same for the iterations of a loop over `axis` that `threads` threads share.

    Exact: as in `packed`; which thread adds which elements follows from the width, which sizes and the memory plan's
    addresses decide, so that it is the same in every run.
    """
    none = 1, frozenset[Access]()
    if not all(isinstance(s, Load | Store | Compute | PositionOf | Accumulate) for s in body):
        return none
    accesses = [
        s for s in body if isinstance(s, Load | Store) and s.index.stride(axis) == 1 and s.array.role != "scratch"
    ]
    if not accesses:
        return none
    width = max(1, gpu.access_bytes // max(s.array.dtype.size for s in accesses))
    if exact_quotient(axis.size, width) is None or axis.extent < width * threads:
        return none
    fitting = frozenset(s for s in accesses if _is_pack(s, axis, width, alignment))
    return (width, fitting) if fitting else none


def _is_pack(s: Access, axis: Axis, width: int, alignment: Mapping[ArrayRef, int]) -> bool:
    if isinstance(s, Load) and s.guards:
        return False
    steps = [stride for name, stride in s.index.terms if name is not axis]
    whole = all(isinstance(name, Axis) for name, _ in s.index.terms)
    fits = all(exact_quotient(step, width) is not None for step in (*steps, s.index.offset))
    return whole and fits and alignment.get(s.array, 1) % (width * s.array.dtype.size) == 0
