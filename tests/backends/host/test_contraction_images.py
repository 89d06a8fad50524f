"""Convolutions of images whose number, height or width the program finds: values, one write per element, no access out
of bounds, for sizes up to the bounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from staged.backends.cpu.contraction.conv2d import emit_conv2d
from staged.backends.cpu.contraction.spec import Conv2dSpec, Images
from staged.ir.machine import Machine
from staged.ir.sizes import Dim, Extent, largest
from staged.ir.types import f32, f64
from tests.backends.host.contraction_harness import Kernel, at_end_of_page, machines
from tests.backends.host.test_contraction_conv2d import KINDS, reference, shapes

TARGETS = [pytest.param(machine, id=machine.name) for machine in machines()]
CASES = {
    "mnist": (Conv2dSpec("conv", 7, 10, 12, 12, 20, 5, 5), ((1, 12, 12), (2, 5, 9), (7, 12, 6))),
    "padded": (Conv2dSpec("conv", 3, 5, 40, 50, 7, 3, 3, padding=(1, 1)), ((1, 1, 1), (3, 39, 50), (2, 9, 11))),
    "large": (Conv2dSpec("conv", 1, 2, 90, 90, 3, 3, 3, padding=(1, 1)), ((1, 67, 71), (1, 90, 16), (0, 20, 20))),
    "strided": (
        Conv2dSpec("conv", 2, 3, 40, 40, 9, 3, 3, stride=(2, 2), padding=(1, 1)),
        ((2, 13, 15), (1, 40, 39), (2, 1, 2)),
    ),
    "gaps": (Conv2dSpec("conv", 2, 2, 20, 20, 3, 2, 1, stride=(3, 3)), ((2, 11, 12), (1, 20, 20), (2, 2, 1))),
    "dilated": (
        Conv2dSpec("conv", 2, 6, 20, 20, 9, 3, 2, padding=(1, 2), dilation=(2, 3), groups=3),
        ((2, 9, 8), (1, 20, 20), (1, 4, 5)),
    ),
    "strided_dilated": (
        Conv2dSpec("conv", 2, 4, 30, 30, 6, 3, 3, stride=(3, 2), padding=(2, 1), dilation=(2, 3), groups=2),
        ((2, 11, 13), (1, 30, 29)),
    ),
    "alone": (
        Conv2dSpec("conv", 2, 6, 30, 30, 6, 3, 3, padding=(1, 1), groups=6),
        ((2, 30, 29), (1, 3, 4), (2, 1, 1)),
    ),
    "windows": (
        Conv2dSpec("conv", 2, 9, 40, 40, 8, 5, 3, padding=(2, 1)),
        ((1, 40, 39), (2, 5, 5), (1, 1, 2), (0, 4, 4)),
    ),
    "points": (Conv2dSpec("conv", 2, 9, 60, 60, 11, 1, 1), ((2, 50, 60), (1, 7, 5), (2, 16, 16), (1, 0, 4))),
    "long_sums": (Conv2dSpec("conv", 2, 70, 12, 12, 20, 3, 3, padding=(1, 1)), ((1, 12, 12), (2, 7, 10))),
    "f64": (Conv2dSpec("conv", 2, 5, 30, 30, 7, 3, 3, padding=(1, 1), dtype=f64), ((2, 19, 30), (1, 8, 8))),
}
def _sized(spec: Conv2dSpec, kind: str, has_one_size: bool) -> Conv2dSpec:
    """The specification with images of any number, and of any size unless they have one."""
    b, m, n = Dim("B", spec.n), Dim("M", spec.h), Dim("N", spec.w)

    def out(side: int, extent: Extent) -> Extent:
        reach = spec.dilation[side] * ((spec.kh, spec.kw)[side] - 1) + 1
        return largest((extent + 2 * spec.padding[side] - reach) // spec.stride[side] + 1, 0)

    image: tuple[Extent, Extent] = (spec.h, spec.w) if has_one_size else (m, n)
    images = Images(b, image, (out(0, image[0]), out(1, image[1])), (b, m, n))
    return replace(spec, kind=kind, images=images, sizes=("B", "M", "N"))


def _check(sized: Conv2dSpec, machine: Machine, given: tuple[int, int, int], pieces: int) -> None:
    n, h, w = given
    spec = replace(sized, n=n, h=h, w=w)
    rng = np.random.default_rng(h)
    a, b = (at_end_of_page(rng.standard_normal(shape).astype(spec.dtype.numpy)) for shape in shapes(spec))
    expected = reference(spec, a, b)
    result = at_end_of_page(np.full(expected.shape, np.nan, spec.dtype.numpy))
    kernel = Kernel(emit_conv2d(sized, machine), spec.dtype, machine)
    kernel.run(a, b, result, pieces=pieces, reverse=pieces > 1, sizes={"B": n, "M": h, "N": w})
    terms = spec.multiply_adds / max(1, expected.size)
    tolerance = {f32: 3e-7, f64: 6e-16}[spec.dtype] * max(1.0, terms) ** 0.5 * 20
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_images_of_any_size(case: str, kind: str, machine: Machine) -> None:
    spec, sizes = CASES[case]
    for number, given in enumerate(sizes):
        _check(_sized(spec, kind, False), machine, given, 1 + 2 * (number % 2))


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["mnist", "padded", "strided", "points"])
def test_any_number_of_images(case: str, kind: str, machine: Machine) -> None:
    spec, _ = CASES[case]
    for n in {1, spec.n}:
        _check(_sized(spec, kind, True), machine, (n, spec.h, spec.w), 1 + n % 2)
