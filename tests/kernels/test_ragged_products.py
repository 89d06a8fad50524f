"""Products of sizes that fill no tile, with infinity and NaN at their edges: each stays in its own row and column, whatever the
operands' transposes and whatever is done to the finished elements. Numbers are small and whole, so that sums are exact."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

SIZES = ((37, 19, 23), (1, 1, 1), (5, 0, 3), (17, 33, 1), (1, 40, 50), (65, 130, 9))


def operands(dtype):
    random = np.random.default_rng(1)
    found = []
    for m, k, n in SIZES:
        a, b = random.integers(-3, 4, (m, k)).astype(dtype), random.integers(-3, 4, (k, n)).astype(dtype)
        if k and dtype is not np.int32:
            b[k - 1, n - 1] = np.inf
            a[m - 1, 0] = np.nan
            a[0, :] = 0
        found.append((a, b))
    return found


@st.function
def products(pairs):
    found = []
    for a, b in pairs:
        p = a @ b
        found += [
            p,
            (b.T @ a.T).T,
            p + a @ b,
            st.maximum(p, 0),
            p + p[0],
            st.flip(p, axis=0) - p,
            st.expand_dims(a, 0) @ b,
            a[a.shape[0] - 1] @ b,
            a @ b[:, b.shape[1] - 1],
            a[0:1] @ b * 2 + 1,
        ]
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32], ids=["f32", "f64", "i32"])
def test_what_is_no_number_stays_in_its_row_and_column(dtype):
    found = iter(products(operands(dtype)))
    with np.errstate(invalid="ignore"):
        for a, b in operands(dtype):
            p = a @ b
            right = (p, p, p + p, np.maximum(p, 0), p + p[0], p[::-1] - p, p[None], p[-1], p[:, -1], p[0:1] * 2 + 1)
            for number, wanted in enumerate(right):
                got = next(found)
                assert got.dtype == wanted.dtype
                np.testing.assert_array_equal(got, wanted, err_msg=f"{a.shape} @ {b.shape}, {number}")


CONVOLUTIONS = (
    # images, weights, stride, padding, dilation, groups
    ((2, 3, 7, 6), (4, 3, 3, 3), 1, 1, 1, 1),
    ((2, 4, 9, 8), (4, 2, 3, 2), 2, 2, 1, 2),
    ((1, 2, 9, 9), (2, 2, 3, 3), 1, 2, 2, 1),
    ((2, 16, 6, 6), (16, 1, 3, 3), 1, 1, 1, 16),
)


def convolution(x, w, stride, padding, dilation, groups):
    """Window by window, zeros around the images: 0 times infinity is NaN there too."""
    (n, _, height, width), (filters, channels, rows, columns) = x.shape, w.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    out_rows = (height + 2 * padding - dilation * (rows - 1) - 1) // stride + 1
    out_columns = (width + 2 * padding - dilation * (columns - 1) - 1) // stride + 1
    found = np.zeros((n, filters, out_rows, out_columns), x.dtype)
    for image, q, i, j in np.ndindex(found.shape):
        first, y, z = q // (filters // groups) * channels, i * stride, j * stride
        down, right = (
            slice(y, y + dilation * (rows - 1) + 1, dilation),
            slice(z, z + dilation * (columns - 1) + 1, dilation),
        )
        found[image, q, i, j] = (x[image, first : first + channels, down, right] * w[q]).sum()
    return found


def test_what_is_no_number_stays_in_its_windows_and_filters():
    random = np.random.default_rng(2)
    cases = []
    for images, weights, *_ in CONVOLUTIONS:
        for special in range(2):
            x, w = random.integers(-2, 3, images).astype(np.float32), random.integers(-2, 3, weights).astype(np.float32)
            if special:
                x[0, 0, 0, 0], x[0, -1, -1, -1] = np.nan, np.inf
            else:
                w[0, 0, 0, 0] = np.inf
            cases.append((x, w))
    arguments = [arguments for _, _, *arguments in CONVOLUTIONS for _ in range(2)]

    @st.function
    def run(cases):
        found = []
        for (x, w), (stride, padding, dilation, groups) in zip(cases, arguments, strict=True):
            y = st.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)
            found += [y, st.relu(y) * 2.0]
        return found

    found = iter(run(cases))
    with np.errstate(invalid="ignore"):
        for (x, w), given in zip(cases, arguments, strict=True):
            y = convolution(x, w, *given)
            for wanted in (y, np.maximum(y, 0) * 2):
                np.testing.assert_array_equal(next(found), wanted, err_msg=f"{x.shape}, {w.shape}, {given}")
