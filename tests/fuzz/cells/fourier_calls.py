"""Calls of `st.fft`."""

from __future__ import annotations

from tests.fuzz.cells.calls import CALLS, Call
from tests.fuzz.cells.draw import Draw


def _norm(d: Draw) -> str:
    return d.keyword("norm", "'backward'", "'ortho'", "'forward'", percent=40)


def _along_one(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(1, 2))
        x = d.new(shape, values="small")
        return f"st.fft.{name}({x}{d.keyword('n', 4, 5, 9)}{d.axis(len(shape), several=False, none=False)}{_norm(d)})"

    return text


def _along_several(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(2, 3))
        x = d.new(shape, values="small")
        sizes = d.keyword("s", (4, 3), (3, 6), percent=40)
        places = d.keyword("axes", (0, 1), (-1, 0)) if sizes or name[-1] == "2" else ""
        if sizes and not places and name[-1] == "n":
            places = ", axes=(0, 1)"
        return f"st.fft.{name}({x}{sizes}{places}{_norm(d)})"

    return text


def _moved(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(1, 2))
        return f"st.fft.{name}({d.new(shape)}{d.axis(len(shape), name='axes')})"

    return text


def _frequencies(name: str) -> Call:
    def text(d: Draw) -> str:
        count = d.pick(4, 5, 1) if d.kind in ("scalar", "one", "odd") else 17
        x = d.new(d.shape(ranks=(0, 1)), values="small")
        return f"({x}, st.fft.{name}({count}{d.keyword('d', 0.5, 2.0)}))[{0 if d.smooth else 1}]"

    return text


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    CALLS[f"fft.{_name}"] = _along_one(_name)
for _name in ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"):
    CALLS[f"fft.{_name}"] = _along_several(_name)
for _name in ("fftshift", "ifftshift"):
    CALLS[f"fft.{_name}"] = _moved(_name)
for _name in ("fftfreq", "rfftfreq"):
    CALLS[f"fft.{_name}"] = _frequencies(_name)
