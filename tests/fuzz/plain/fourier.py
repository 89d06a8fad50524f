"""Readings of `st.fft`, by NumPy's in f64."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz.plain.core import Plain, Precision, complex_of, part_of, plain, together, widest_of


def _transform(name: str) -> Callable[..., Plain]:
    def reading(x: Any, *sizes: Any, **keywords: Any) -> Plain:
        (array,), _ = together(x, floats=True)
        found = getattr(np.fft, name)(widest_of(array), *sizes, **keywords)
        real = part_of(array.dtype)
        return Plain(found.astype(complex_of(real) if found.dtype.kind == "c" else real))

    return reading


_TRANSFORMS = "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn".split()
FOURIER = SimpleNamespace(
    **{name: _transform(name) for name in _TRANSFORMS},
    fftshift=lambda x, axes=None: Plain(np.fft.fftshift(plain(x).a, axes)),
    ifftshift=lambda x, axes=None: Plain(np.fft.ifftshift(plain(x).a, axes)),
    fftfreq=lambda n, d=1.0: Plain(np.fft.fftfreq(n, d).astype(Precision.single)),
    rfftfreq=lambda n, d=1.0: Plain(np.fft.rfftfreq(n, d).astype(Precision.single)),
)
