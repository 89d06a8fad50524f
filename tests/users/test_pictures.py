"""Images and other grids against SciPy and NumPy: filters, histograms, sorting, life, Mandelbrot's set."""

import numpy as np
from scipy import ndimage, signal

import staged as st

IMAGE = np.random.default_rng(0).integers(0, 256, (12, 17), dtype=np.uint8)


@st.function
def filters(image):
    x = image.astype(st.f64)
    line = st.exp(-0.5 * (st.arange(-3, 4, dtype=st.f64) / 0.8) ** 2)
    line = line / line.sum()
    edge = st.pad(x, 3, mode="symmetric")
    blurred = st.conv2d(edge[None, None], st.outer(line, line)[None, None])[0, 0]
    kernel = np.array([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
    around = st.pad(x, 1, mode="symmetric")[None, None]
    sobel = st.hypot(st.conv2d(around, kernel[None, None]), st.conv2d(around, kernel.T[None, None]))[0, 0]
    windows = st.unfold(around, 3).reshape(9, *image.shape)
    return blurred, sobel, st.median(windows, axis=0)


def test_filters_are_scipys():
    x = IMAGE.astype(float)
    blurred, sobel, median = filters(IMAGE)
    np.testing.assert_allclose(blurred, ndimage.gaussian_filter(x, 0.8, radius=3), rtol=1e-12)
    np.testing.assert_allclose(sobel, np.hypot(ndimage.sobel(x, 1), ndimage.sobel(x, 0)), rtol=1e-12)
    np.testing.assert_array_equal(median, ndimage.median_filter(IMAGE, 3))


@st.function
def bilateral(image, radius, space, tone):
    h, w = image.shape
    out = st.zeros_like(image)
    for i in st.range(h):
        for j in st.range(w):
            total, norm = 0.0, 0.0
            for y in st.range(max(i - radius, 0), min(i + radius + 1, h)):
                for x in st.range(max(j - radius, 0), min(j + radius + 1, w)):
                    near = st.exp(
                        -((y - i) ** 2 + (x - j) ** 2) / (2 * space**2)
                        - (image[y, x] - image[i, j]) ** 2 / (2 * tone**2)
                    )
                    total += near * image[y, x]
                    norm += near
            out[i, j] = total / norm
    return out


def test_a_bilateral_filter():
    x = IMAGE / 255.0
    expected = np.zeros_like(x)
    rows, columns = np.indices(x.shape)
    for i, j in np.ndindex(*x.shape):
        near = np.exp(-((rows - i) ** 2 + (columns - j) ** 2) / (2 * 1.5**2) - (x - x[i, j]) ** 2 / (2 * 0.2**2))
        near *= (abs(rows - i) <= 2) & (abs(columns - j) <= 2)
        expected[i, j] = (near * x).sum() / near.sum()
    np.testing.assert_allclose(bilateral(x, 2, 1.5, 0.2), expected, rtol=1e-12)


@st.function
def equalised(image):
    counts = st.bincount(image.flatten(), length=256)
    cdf = st.cumsum(counts)
    first = cdf[st.argmax(counts > 0)]
    table = st.round((cdf - first) * 255.0 / (image.size - first))
    return st.clip(table, 0, 255).astype(st.u8)[image]


def test_equalisation():
    dark = (IMAGE // 4 + 10).astype(np.uint8)
    cdf = np.bincount(dark.ravel(), minlength=256).cumsum()
    first = cdf[dark.min()]
    expected = np.round((cdf - first) * 255.0 / (dark.size - first)).clip(0, 255).astype(np.uint8)[dark]
    np.testing.assert_array_equal(equalised(dark), expected)


@st.function
def sorted_by_merging(a):
    width = 1
    while width < len(a):
        b = a
        for low in st.range(0, len(a), 2 * width):
            middle, high = min(low + width, len(a)), min(low + 2 * width, len(a))
            i, j = low, middle
            for k in st.range(low, high):
                if i < middle and (j >= high or a[i] <= a[j]):
                    b[k], i = a[i], i + 1
                else:
                    b[k], j = a[j], j + 1
        a, width = b, 2 * width
    return a


@st.function
def summary(a):
    values, counts = st.unique(a, return_counts=True, size=12, fill_value=-1)
    return st.sort(a), values, counts, st.histogram(a, bins=5)[0]


def test_sorting_and_counting_are_numpys():
    a = np.random.default_rng(1).integers(0, 10, 37)
    np.testing.assert_array_equal(sorted_by_merging(a), np.sort(a))
    ordered, values, counts, bins = summary(a)
    np.testing.assert_array_equal(ordered, np.sort(a))
    distinct, numbers = np.unique(a, return_counts=True)
    np.testing.assert_array_equal(values, np.pad(distinct, (0, 12 - len(distinct)), constant_values=-1))
    np.testing.assert_array_equal(counts[: len(distinct)], numbers)
    np.testing.assert_array_equal(bins, np.histogram(a, bins=5)[0])


@st.function
def life(board, turns):
    for _ in st.range(turns):
        around = sum(st.roll(board, (i, j), axis=(0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - board
        board = ((around == 3) | ((board == 1) & (around == 2))).astype(board.dtype)
    return board


def test_life():
    board = np.random.default_rng(2).integers(0, 2, (9, 11), dtype=np.uint8)
    expected = board
    for _ in range(5):
        around = signal.convolve2d(expected, np.ones((3, 3), int), mode="same", boundary="wrap") - expected
        expected = ((around == 3) | ((expected == 1) & (around == 2))).astype(np.uint8)
    found = life(board, 5)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)


@st.function
def mandelbrot(width, height, most=50):
    counts = st.zeros((24, 32), dtype=st.i32)
    for row in st.range(height):
        for column in st.range(width):
            c = st.complex(-2.0 + 3.0 * column / width, -1.2 + 2.4 * row / height)
            z, n = 0j, 0
            while n < most and abs(z) <= 2.0:
                z = z * z + c
                n += 1
            counts[row, column] = n
    return counts


def test_mandelbrots_set():
    c = (-2.0 + 3.0 * np.arange(32) / 32) + 1j * (-1.2 + 2.4 * np.arange(24) / 24)[:, None]
    z, expected = np.zeros_like(c), np.zeros(c.shape, int)
    for _ in range(50):
        inside = abs(z) <= 2.0
        expected += inside
        z = np.where(inside, z * z + c, z)
    np.testing.assert_array_equal(mandelbrot(32, 24), expected)
