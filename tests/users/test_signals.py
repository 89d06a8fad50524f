"""Fourier transforms: by hand against the library's, a low pass, a spectral loss, a spectrogram."""

import numpy as np
from scipy import signal

import staged as st

T = np.arange(256) / 256.0
CLEAN = np.sin(2 * np.pi * 5 * T) + 0.5 * np.cos(2 * np.pi * 12 * T)
NOISY = CLEAN + 0.3 * np.random.default_rng(0).normal(size=256)


@st.function
def transformed(x):
    """Stockham's algorithm for a power of two, in loops."""
    half, stride = len(x) // 2, 1
    a = x.astype(st.c128)
    while half >= 1:
        b = a
        for p in st.range(half):
            turn = st.exp(-1j * np.pi * p / half)
            for q in st.range(stride):
                u, v = a[q + stride * p], a[q + stride * (p + half)]
                b[q + stride * 2 * p] = u + v
                b[q + stride * (2 * p + 1)] = (u - v) * turn
        a, half, stride = b, half // 2, stride * 2
    return a, st.fft.fft(x)


def test_a_transform_by_hand():
    by_hand, library = transformed(NOISY)
    np.testing.assert_allclose(by_hand, np.fft.fft(NOISY), atol=1e-12)
    np.testing.assert_allclose(library, np.fft.fft(NOISY), atol=1e-12)


@st.function
def low_pass(x, cutoff):
    spectrum = st.fft.rfft(x)
    kept = st.fft.rfftfreq(len(x), d=1 / len(x), dtype=x.dtype) <= cutoff
    return st.fft.irfft(st.where(kept, spectrum, 0.0), n=len(x))


def test_a_low_pass():
    np.testing.assert_allclose(low_pass(CLEAN, 8), np.sin(2 * np.pi * 5 * T), atol=1e-12)


def spectral_loss(rows, targets):
    spectrum = st.vmap(st.fft.rfft)(rows)
    return st.mean((st.abs(spectrum) - targets) ** 2)


def test_the_gradient_of_a_spectral_loss():
    rng = np.random.default_rng(1)
    rows, targets = rng.normal(size=(3, 16)), rng.random((3, 9))
    value, slope = st.function(st.value_and_grad(spectral_loss))(rows, targets)

    def plain(rows):
        return np.mean((abs(np.fft.rfft(rows)) - targets) ** 2)

    np.testing.assert_allclose(value, plain(rows), rtol=1e-12)
    for i, j in ((0, 0), (1, 7), (2, 15)):
        h = np.zeros_like(rows)
        h[i, j] = 1e-6
        np.testing.assert_allclose(slope[i, j], (plain(rows + h) - plain(rows - h)) / 2e-6, rtol=1e-6, atol=1e-9)


@st.function
def spectrogram(x, width=32, hop=16):
    starts = st.arange(0, len(x) - width + 1, hop)
    frames = x[starts[:, None] + st.arange(width)]
    window = 0.5 - 0.5 * st.cos(2 * st.pi * st.arange(width, dtype=x.dtype) / width)
    return st.abs(st.fft.rfft(frames * window)) ** 2


def test_a_spectrogram():
    window = signal.get_window("hann", 32)
    frames = signal.ShortTimeFFT(window, 16, 1.0, mfft=32)
    expected = abs(np.fft.rfft(np.lib.stride_tricks.sliding_window_view(NOISY, 32)[::16] * window)) ** 2
    assert frames.f_pts == expected.shape[1]
    np.testing.assert_allclose(spectrogram(NOISY), expected, rtol=1e-9, atol=1e-12)


@st.function
def convolved(a, b):
    n = len(a) + len(b) - 1
    return st.fft.irfft(st.fft.rfft(a, n) * st.fft.rfft(b, n), n)


def test_a_convolution_by_transforms():
    a, b = NOISY[:50], CLEAN[:21]
    np.testing.assert_allclose(convolved(a, b), np.convolve(a, b), atol=1e-12)
