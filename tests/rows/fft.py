"""Rows of `st.fft`. The readings are NumPy's, in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw
from tests.fuzz.plain.core import Plain, Precision, complex_of, part_of, plain, together, widest_of
from tests.rows.table import row


def _norm(d: Draw) -> str:
    return d.keyword("norm", "'backward'", "'ortho'", "'forward'", percent=40)


def _along_one(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    x = d.new(shape, values="small")
    return f"st.{d.name}({x}{d.keyword('n', 4, 5, 9)}{d.axis(len(shape), several=False, none=False)}{_norm(d)})"


def _along_several(d: Draw) -> str:
    name = d.name.rpartition(".")[2]
    shape = d.shape(ranks=(2, 3))
    x = d.new(shape, values="small")
    sizes = d.keyword("s", (4, 3), (3, 6), percent=40)
    places = d.keyword("axes", (0, 1), (-1, 0)) if sizes or name[-1] == "2" else ""
    if sizes and not places and name[-1] == "n":
        places = ", axes=(0, 1)"
    return f"st.{d.name}({x}{sizes}{places}{_norm(d)})"


def _moved(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    return f"st.{d.name}({d.new(shape)}{d.axis(len(shape), name='axes')})"


def _frequencies(d: Draw) -> str:
    count = d.pick(4, 5, 1) if d.kind in ("scalar", "one", "odd") else 17
    x = d.new(d.shape(ranks=(0, 1)), values="small")
    return f"({x}, st.{d.name}({count}{d.keyword('d', 0.5, 2.0)}))[{0 if d.smooth else 1}]"


def _numpys(name: str) -> Callable[..., Plain]:
    def reading(x: Any, *sizes: Any, **keywords: Any) -> Plain:
        (array,), _ = together(x, floats=True)
        found = getattr(np.fft, name)(widest_of(array), *sizes, **keywords)
        if not array.size:
            found = np.zeros_like(found)  # NumPy's `irfft` reads the first of no elements
        real = part_of(array.dtype)
        return Plain(found.astype(complex_of(real) if found.dtype.kind == "c" else real))

    return reading


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    row(f"fft.{_name}", _along_one, _numpys(_name))
for _name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"):
    row(f"fft.{_name}", _along_several, _numpys(_name))
row("fft.fftshift", _moved, lambda x, axes=None: Plain(np.fft.fftshift(plain(x).a, axes)))
row("fft.ifftshift", _moved, lambda x, axes=None: Plain(np.fft.ifftshift(plain(x).a, axes)))
row("fft.fftfreq", _frequencies, lambda n, d=1.0: Plain(np.fft.fftfreq(n, d).astype(Precision.single)))
row("fft.rfftfreq", _frequencies, lambda n, d=1.0: Plain(np.fft.rfftfreq(n, d).astype(Precision.single)))
