"""Long reductions in two steps: what is exact stays so at the lengths where the cut begins and where there is none."""

from __future__ import annotations

import numpy as np

import staged as st
from staged.kernels.split import LONG

EVEN, ODD, PRIME = 1 << 17, (1 << 17) + 1, 131_101  # ODD is 3 * 43,691, PRIME has no divisor: no piece


def long_reductions(n, q):
    small, flat = n[:EVEN], st.astype(n[:EVEN], st.i32)
    table = st.reshape(small, (2, 256, 256))
    return (
        st.sum(n),
        st.sum(small),
        st.sum(n[:ODD]),
        st.sum(n[: EVEN - 1]),
        st.prod(n * 2 + 1),
        st.prod(small * 2 + 1),
        st.sum(flat * 2_000_000_000, dtype=st.i32),
        st.sum(table),
        st.sum(table, axis=(0, 2)),
        st.max(small),
        st.all(small < 4),
        st.any(small == 77),
        st.max(q),
        st.min(q[:EVEN]),
        st.max(st.where(st.isnan(q), 0.0, q)),
        st.any(st.isnan(q)),
        st.any(st.isnan(q[78:])),
        st.argmax(q),
        st.max(st.full((EVEN,), -0.0)),
    )


def test_integers_extremes_and_bools_are_exact_at_every_length():
    assert EVEN == LONG
    random = np.random.default_rng(2)
    n = random.integers(-3, 4, PRIME)
    q = random.standard_normal(PRIME).astype(np.float32)
    q[77], q[ODD] = np.nan, np.inf
    small, table = n[:EVEN], n[:EVEN].reshape(2, 256, 256)
    right = (
        n.sum(), small.sum(), n[:ODD].sum(), n[: EVEN - 1].sum(), (n * 2 + 1).prod(), (small * 2 + 1).prod(),
        (small.astype(np.int32) * np.int32(2_000_000_000)).sum(dtype=np.int32), table.sum(), table.sum((0, 2)), 3, True, False,
        np.nan, np.nan, np.inf, True, False, 77, -0.0,
    )  # fmt: skip
    for number, (got, wanted) in enumerate(zip(st.function(long_reductions)(n, q), right, strict=True)):
        np.testing.assert_array_equal(got, wanted, err_msg=str(number))
    assert np.signbit(got)
