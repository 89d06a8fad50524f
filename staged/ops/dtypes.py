"""The dtype of operands together: promotion as in the Array API, and Python numbers, which are weak.

Tested by `tests/ops/test_promote.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.errors import DTypeError
from staged.ir.types import COMPLEX_OF, DTYPES, DType, TensorType, f32, f64, i64
from staged.source import here

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_SIGNED = {dtype.size: dtype for dtype in DTYPES.values() if dtype.kind == "i"}


def promote_dtypes(a: DType, b: DType) -> DType:
    """The dtype of two arrays together. Raises DTypeError for u64 beside a signed one: the Array API leaves it open.

    NumPy takes f64, in which neither has all its numbers; torch refuses.
    """
    if a is b:
        return a
    if a.is_complex or b.is_complex:
        # The parts promote: f64 with c64 is c128. Integers have no parts to widen.
        parts = [dtype.part for dtype in (a, b) if dtype.is_inexact]
        return COMPLEX_OF[promote_dtypes(parts[0], parts[-1])]
    if _RANK[a.kind] != _RANK[b.kind]:
        return a if _RANK[a.kind] > _RANK[b.kind] else b
    if a.kind == b.kind:
        return (a if a.size > b.size else b) if a.size != b.size else f32  # neither of f16 and bf16 holds the other
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.size > unsigned.size:
        return signed
    if unsigned.size == 8:
        raise DTypeError(
            f"{unsigned} and {signed} have no common integer dtype",
            where=here(),
            hint=f"cast one of them: `st.astype(x, st.i64)` where the numbers are below 2**63, else "
            f"`st.astype(y, st.{unsigned})` where none is negative",
        )
    return _SIGNED[2 * unsigned.size]


def result_dtype(types: Sequence[TensorType]) -> tuple[DType, bool]:
    """The dtype of operands together, and whether it is still weak (Python numbers alone)."""
    if len(types) == 2:
        one, other = types
        key = one.dtype.name, one.weak, other.dtype.name, other.weak
        found = _PAIRS.get(key)
        if found is None:
            found = _PAIRS[key] = _result_dtype(types)
        return found
    return _result_dtype(types)


_PAIRS: dict[tuple[str, bool, str, bool], tuple[DType, bool]] = {}
"""`result_dtype` of two operands, of which there are some two hundred."""


def _result_dtype(types: Sequence[TensorType]) -> tuple[DType, bool]:
    strong = _promoted(types, False)
    if strong is None:
        weak = _promoted(types, True)
        assert weak is not None, "an op has operands"
        return weak, True
    for type in types:
        other = type.dtype
        if type.weak and _RANK[other.kind] > _RANK[strong.kind]:
            strong = (
                COMPLEX_OF[strong if strong.is_float else f32] if other.is_complex else f32 if other.is_float else i64
            )
    return strong, False


def _promoted(types: Sequence[TensorType], weak: bool) -> DType | None:
    """The dtype of those operands together that are weak, or are not; None where there are none."""
    found = None
    for type in types:
        if type.weak is weak:
            found = type.dtype if found is None or found is type.dtype else promote_dtypes(found, type.dtype)
    return found


def float_dtype(dtype: DType, weak: bool) -> DType:
    """The dtype in which a float function of `dtype` works: itself if it is one or complex, or the default float."""
    if dtype.is_inexact:
        return dtype
    return f64 if weak else f32
