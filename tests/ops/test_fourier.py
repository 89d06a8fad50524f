"""`st.fft` against NumPy's, of lengths of every kind: eagerly, in programs, mapped, with gradients; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.library.fft.fourier import _plan
from tests.errors.said import refuses
from tests.torch_reference import reference

RNG = np.random.default_rng(3)
LENGTHS = (1, 2, 3, 4, 5, 8, 12, 31, 64, 67, 96, 127, 134, 257, 1000)
"""One product, several, a chirp, a chirp within steps; even and odd."""


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def close(found, expected, tolerance=1e-12):
    found = np.asarray(found)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("n", LENGTHS)
def test_eager_transforms_agree_with_numpy(n):
    z = draw(3, n)
    x, half = z.real.copy(), draw(3, n // 2 + 1)
    for norm in (None, "ortho", "forward"):
        for name, given in (("fft", z), ("ifft", z), ("fft", x), ("rfft", x), ("ihfft", x)):
            close(getattr(st.fft, name)(given, norm=norm), getattr(np.fft, name)(given, norm=norm))
        for name in ("irfft", "hfft"):
            close(getattr(st.fft, name)(half, n, norm=norm), getattr(np.fft, name)(half, n, norm=norm))
    close(st.fft.fft(z, n + 3, axis=0), np.fft.fft(z, n + 3, axis=0))
    close(st.fft.rfft(x, max(1, n - 3)), np.fft.rfft(x, max(1, n - 3)))
    for name in ("fftshift", "ifftshift"):
        close(getattr(st.fft, name)(z), getattr(np.fft, name)(z))
        close(getattr(st.fft, name)(z, axes=1), getattr(np.fft, name)(z, axes=1))
    for name in ("fftfreq", "rfftfreq"):
        close(getattr(st.fft, name)(n, 0.5, dtype=st.f64), getattr(np.fft, name)(n, 0.5))


def test_transforms_over_several_axes_agree_with_numpy():
    z = draw(4, 6, 5)
    for name in ("fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn"):
        close(getattr(st.fft, name)(z), getattr(np.fft, name)(z))
    for name in ("rfft2", "rfftn"):
        close(getattr(st.fft, name)(z.real), getattr(np.fft, name)(z.real))
    close(st.fft.rfftn(z.real, s=(3, 8), axes=(2, 0)), np.fft.rfftn(z.real, s=(3, 8), axes=(2, 0)))
    close(st.fft.irfftn(z, s=(3, 7), axes=(2, 0)), np.fft.irfftn(z, s=(3, 7), axes=(2, 0)))


@st.function
def transforms(z):
    x = z.real
    return st.fft.fft(z), st.fft.ifft(z, axis=0), st.fft.rfft(x), st.fft.irfft(z), st.vmap(st.fft.fft)(z)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.complex64, 1e-6), (np.complex128, 1e-14)])
def test_programs_agree_with_numpy(dtype, tolerance):
    for n in (16, 67, 1000):
        z = draw(3, n).astype(dtype)
        expected = (
            np.fft.fft(z),
            np.fft.ifft(z, axis=0),
            np.fft.rfft(z.real),
            np.fft.irfft(z),
            np.fft.fft(z),
        )
        for found, wanted in zip(transforms(z), expected, strict=True):
            close(found, wanted, tolerance)


def pieces(fft, z, axes):
    """Transforms of which a loss is made."""
    x = z.real
    return [
        fft.fft(z), fft.ifft(z), fft.rfft(x), fft.irfft(z), fft.irfft(z, 2 * z.shape[-1] - 1), fft.hfft(z), fft.ihfft(x),
        fft.fftn(z, **{axes: (0, 1)}), fft.irfftn(z, **{axes: (0, 1)}),
    ]  # fmt: skip


SPECTRUM = draw(4, 6)  # drawn here, so that the recorded results are of the same numbers in any order of tests


def test_gradients_agree_with_torchs():
    z = SPECTRUM

    @st.function
    def run(z):
        def loss(z):
            total = 0.0
            for piece in pieces(st.fft, z, "axes"):
                n = np.arange(piece.size, dtype=np.float64).reshape(piece.shape)
                total = total + st.sum(piece.real * np.cos(n))
                if piece.dtype.is_complex:
                    total = total + st.sum(piece.imag * np.cos(n + 1.0))
            return total

        return st.grad(loss)(z)

    def theirs(torch, z):
        z = torch.tensor(z, requires_grad=True)
        total = 0.0
        for piece in pieces(torch.fft, z, "dim"):
            n = torch.arange(piece.numel(), dtype=torch.float64).reshape(piece.shape)
            total = total + (piece.real * torch.cos(n)).sum()
            if piece.is_complex():
                total = total + (piece.imag * torch.cos(n + 1.0)).sum()
        (found,) = torch.autograd.grad(total, [z])
        return torch.view_as_real(found)

    expected = reference(theirs, z)
    expected = expected[..., 0] + 1j * expected[..., 1]
    np.testing.assert_allclose(run(z), expected, rtol=1e-11, atol=1e-12)
    with st.eager():
        np.testing.assert_allclose(run(z), expected, rtol=1e-11, atol=1e-12)


def test_long_transforms_are_a_few_products():
    for n in (64, 1024, 65536, 3 * 5 * 7 * 11):
        assert np.prod(_plan(n)) == n and max(_plan(n)) <= 64
    # For one target: the width of vectors decides how long a product is.
    several = st.function(lambda z: transforms(z), target="x86-64-v4").stage(draw(1, 1024).astype(np.complex64))
    assert several.source.count("\n") < 4000
    alone = st.function(lambda z: st.fft.fft(z), target="x86-64-v4").stage(draw(1024).astype(np.complex64))
    assert alone.source.count("\n") < 600


def test_wrong_arguments_are_refused_with_the_line():
    z = draw(4)
    for call, match in (
        (lambda: st.fft.fft(z, 0), "length of at least 1"),
        (lambda: st.fft.fft(z, norm="other"), "norm is one of"),
        (lambda: st.fft.fft(z, axis=1), "axis 1 does not exist"),
        (lambda: st.fft.rfft(z), "not defined for complex"),
        (lambda: st.fft.fftn(draw(2, 2), s=(2,), axes=(0, 1)), "a length for each axis"),
        (lambda: st.fft.fftn(draw(2, 2), axes=(0, 0)), "named twice"),
    ):
        with refuses(st.StagedError, match) as error:
            call()
        assert "test_fourier.py" in str(error.value)
