"""Generated convolutions against a plain sum in f64: values, exactly one write per element, no access out of bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from staged.backends.cpu.contraction.conv2d import emit_conv2d
from staged.backends.cpu.contraction.conv2d_columns import emit_columns, plan_columns
from staged.backends.cpu.contraction.conv2d_plan import plan_conv2d
from staged.backends.cpu.contraction.convolve import emit_convolved
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, Epilogue
from staged.ir.machine import Machine
from staged.ir.types import f32, f64
from tests.backends.host.contraction_harness import Kernel, at_end_of_page, machines, put_function

TARGETS = [pytest.param(machine, id=machine.name) for machine in machines()]
WIDEST = machines()[-1]


def reference(spec: Conv2dSpec, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product that `spec.kind` names, in f64, tap by tap."""
    (sy, sx), (py, px), (dy, dx) = spec.stride, spec.padding, spec.dilation
    g, c, oc = spec.groups, spec.c // spec.groups, spec.oc // spec.groups
    padded_shape = (spec.n, g, c, spec.h + 2 * py, spec.w + 2 * px)
    a, b = a.astype(np.float64), b.astype(np.float64)

    def window(image: np.ndarray, ky: int, kx: int) -> np.ndarray:
        rows = slice(ky * dy, ky * dy + (spec.out_h - 1) * sy + 1, sy)
        return image[..., rows, kx * dx : kx * dx + (spec.out_w - 1) * sx + 1 : sx]

    if spec.kind == "backward_input":
        d_y, weight = a.reshape(spec.n, g, oc, spec.out_h, spec.out_w), b.reshape(g, oc, c, spec.kh, spec.kw)
        d_x = np.zeros(padded_shape)
        for ky in range(spec.kh):
            for kx in range(spec.kw):
                window(d_x, ky, kx)[...] += np.einsum("ngoyx,goc->ngcyx", d_y, weight[..., ky, kx])
        return d_x[..., py : py + spec.h, px : px + spec.w].reshape(spec.n, spec.c, spec.h, spec.w)
    image = np.zeros(padded_shape)
    image[..., py : py + spec.h, px : px + spec.w] = a.reshape(spec.n, g, c, spec.h, spec.w)
    if spec.kind == "forward":
        weight = b.reshape(g, oc, c, spec.kh, spec.kw)
        y = np.zeros((spec.n, g, oc, spec.out_h, spec.out_w))
        for ky in range(spec.kh):
            for kx in range(spec.kw):
                y += np.einsum("ngcyx,goc->ngoyx", window(image, ky, kx), weight[..., ky, kx])
        return y.reshape(spec.n, spec.oc, spec.out_h, spec.out_w)
    d_y = b.reshape(spec.n, g, oc, spec.out_h, spec.out_w)
    d_weight = np.zeros((g, oc, c, spec.kh, spec.kw))
    for ky in range(spec.kh):
        for kx in range(spec.kw):
            d_weight[..., ky, kx] = np.einsum("ngcyx,ngoyx->goc", window(image, ky, kx), d_y)
    return d_weight.reshape(spec.oc, c, spec.kh, spec.kw)


def shapes(spec: Conv2dSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    x = (spec.n, spec.c, spec.h, spec.w)
    weight = (spec.oc, spec.c // spec.groups, spec.kh, spec.kw)
    y = (spec.n, spec.oc, spec.out_h, spec.out_w)
    return {"forward": (x, weight), "backward_input": (y, weight), "backward_weight": (x, y)}[spec.kind]


def generate(spec: Conv2dSpec, machine: Machine, form: str) -> ContractionKernel:
    """The kernel as chosen by the generator, or in one of the two forms of the image's gradient."""
    if form == "window":
        return emit_convolved(plan_conv2d(spec, machine))
    if form == "columns":
        plan = plan_columns(spec, machine)
        assert plan is not None
        return emit_columns(plan)
    return emit_conv2d(spec, machine)


def check(
    spec: Conv2dSpec, machine: Machine = WIDEST, epilogue: bool = False, pieces: int = 1, form: str = "chosen"
) -> None:
    rng = np.random.default_rng(spec.n * 1000 + spec.h)
    a, b = (at_end_of_page(rng.standard_normal(shape).astype(spec.dtype.numpy)) for shape in shapes(spec))
    expected = reference(spec, a, b)
    scalar = spec.dtype.c_name
    before = ""
    if epilogue and expected.size:
        spec = replace(spec, epilogue=Epilogue("put", ((f"{scalar} *", "out"), ("int64_t *", "writes"))))
        if spec.kind == "backward_weight":
            before = put_function(spec.dtype, expected[0].size, expected.size)
        else:
            before = put_function(spec.dtype, expected[0, 0].size, expected[0].size)
    result = at_end_of_page(np.full(expected.shape, np.nan, spec.dtype.numpy))
    count = np.zeros(expected.shape, np.int64)
    kernel = Kernel(generate(spec, machine, form), spec.dtype, machine, before)
    kernel.run(a, b, result, out=result, count=count, pieces=pieces, reverse=pieces > 1)
    if epilogue:
        assert (count == 1).all()
        expected = 2 * expected
    terms = spec.multiply_adds / max(1, expected.size)
    tolerance = {f32: 3e-7, f64: 6e-16}[spec.dtype] * max(1.0, terms) ** 0.5 * 20
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


KINDS = ("forward", "backward_input", "backward_weight")
CASES = {
    "mnist_first": Conv2dSpec("conv", 3, 1, 28, 28, 10, 5, 5),
    "mnist_second": Conv2dSpec("conv", 5, 10, 12, 12, 20, 5, 5),
    "padded": Conv2dSpec("conv", 2, 5, 9, 11, 7, 3, 3, padding=(1, 1)),
    "uneven_padding": Conv2dSpec("conv", 2, 3, 6, 7, 4, 3, 2, padding=(0, 1)),
    "wide_padding": Conv2dSpec("conv", 1, 2, 4, 5, 3, 3, 3, padding=(3, 4)),
    "strided": Conv2dSpec("conv", 2, 3, 13, 15, 6, 3, 3, stride=(2, 2), padding=(1, 1)),
    "strided_unevenly": Conv2dSpec("conv", 2, 2, 14, 16, 5, 5, 3, stride=(3, 2), padding=(2, 1)),
    "strided_large": Conv2dSpec("conv", 1, 2, 38, 36, 5, 7, 7, stride=(2, 2), padding=(3, 2)),
    "stride_beyond_window": Conv2dSpec("conv", 2, 2, 11, 12, 3, 2, 1, stride=(3, 3)),
    "dilated": Conv2dSpec("conv", 1, 3, 12, 13, 4, 3, 3, padding=(2, 2), dilation=(2, 2)),
    "dilated_and_strided": Conv2dSpec("conv", 1, 2, 15, 14, 3, 3, 2, stride=(2, 3), padding=(1, 2), dilation=(3, 2)),
    "groups": Conv2dSpec("conv", 2, 6, 7, 8, 9, 3, 3, padding=(1, 1), groups=3),
    "depthwise": Conv2dSpec("conv", 2, 5, 9, 9, 5, 3, 3, padding=(1, 1), groups=5),
    "pointwise": Conv2dSpec("conv", 2, 13, 7, 5, 11, 1, 1),
    "pointwise_large": Conv2dSpec("conv", 2, 9, 18, 16, 11, 1, 1),
    "pointwise_in_blocks": Conv2dSpec("conv", 1, 3, 50, 60, 4, 1, 1),  # more pixels than sums take in at a time
    "pointwise_strided": Conv2dSpec("conv", 2, 7, 9, 8, 5, 1, 1, stride=(2, 2)),
    "pointwise_groups": Conv2dSpec("conv", 2, 6, 5, 5, 4, 1, 1, groups=2),
    "one_pixel": Conv2dSpec("conv", 1, 1, 1, 1, 1, 1, 1),
    "whole_image": Conv2dSpec("conv", 4, 3, 6, 5, 7, 6, 5),
    "tall_kernel": Conv2dSpec("conv", 1, 2, 30, 4, 3, 11, 1, padding=(5, 0)),
    "wide_kernel": Conv2dSpec("conv", 1, 2, 3, 40, 3, 1, 11, padding=(0, 5)),
    "large_image": Conv2dSpec("conv", 1, 2, 67, 71, 3, 3, 3, padding=(1, 1)),
    "f64": Conv2dSpec("conv", 2, 3, 10, 11, 5, 3, 3, padding=(1, 0), dtype=f64),
}


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, kind: str, machine: Machine) -> None:
    check(replace(CASES[case], kind=kind), machine)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_epilogue_receives_every_element_once(case: str, kind: str) -> None:
    check(replace(CASES[case], kind=kind), epilogue=True)


@pytest.mark.parametrize("machine", [TARGETS[0], TARGETS[-1]])
@pytest.mark.parametrize("form", ["window", "columns"])
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("large_image", "wide_kernel")])
def test_both_forms_of_the_gradient_of_the_image(case: str, form: str, machine: Machine) -> None:
    check(replace(CASES[case], kind="backward_input"), machine, form=form)
    check(replace(CASES[case], kind="backward_input"), machine, form=form, epilogue=True)


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_items_in_any_order(machine: Machine, kind: str) -> None:
    """With several cores and small caches the work splits into blocks of rows, samples and channels."""
    small = replace(machine, cores=3, l1=4096, l2=32768)
    for spec in (
        Conv2dSpec("conv", 2, 6, 31, 30, 9, 3, 3, padding=(1, 1)),
        Conv2dSpec("conv", 26, 6, 12, 12, 20, 5, 5),
        Conv2dSpec("conv", 1, 7, 41, 23, 22, 5, 3, stride=(1, 2)),
        Conv2dSpec("conv", 1, 22, 28, 28, 38, 1, 1, stride=(2, 2)),
    ):
        check(replace(spec, kind=kind), small, pieces=7)
        check(replace(spec, kind=kind), small, pieces=4, epilogue=True)


@pytest.mark.parametrize("kind", ["forward", "backward_input"])
def test_no_samples_give_no_result(kind: str) -> None:
    check(Conv2dSpec("conv", 0, 2, 5, 5, 3, 3, 3, kind=kind))
    check(Conv2dSpec("conv", 0, 2, 5, 5, 3, 3, 3, kind=kind), epilogue=True)


def test_not_a_number_in_one_sample_stays_there() -> None:
    """Lanes that belong to no pixel read other rows; what lies there must not reach a result."""
    spec = Conv2dSpec("conv", 2, 1, 5, 5, 2, 3, 3, kind="backward_weight")
    x = np.ones((2, 1, 5, 5), np.float32)
    d_y = np.zeros((2, 2, 3, 3), np.float32)
    x[0, 0, 4, 4] = np.inf  # met by the last tap alone, for the last pixel
    d_y[0, 0, 0, 0] = 1
    result = np.empty((2, 1, 3, 3), np.float32)
    Kernel(emit_conv2d(spec, WIDEST), f32, WIDEST).run(x, d_y, result)
    expected = np.ones((3, 3))
    expected[2, 2] = np.nan  # 0 * inf, as the formula says
    np.testing.assert_array_equal(result[0, 0], expected)


@pytest.mark.parametrize("machine", TARGETS)
def test_infinity_times_padding_is_not_a_number(machine: Machine) -> None:
    """Also if the first taps of a row only read padding: the width of tiles has no effect."""
    for case in ("padded", "wide_padding", "dilated", "tall_kernel", "large_image"):
        spec = CASES[case]
        x, weight = (np.ones(shape, np.float32) for shape in shapes(spec))
        weight[:, 0, 0, 0] = np.inf
        result = np.empty((spec.n, spec.oc, spec.out_h, spec.out_w), np.float32)
        Kernel(emit_conv2d(spec, machine), f32, machine).run(x, weight, result)
        with np.errstate(invalid="ignore"):
            expected = reference(spec, x, weight)
        assert np.isnan(expected).any() and np.isinf(expected).any()
        np.testing.assert_array_equal(result, expected, err_msg=case)


@pytest.mark.parametrize(("channels", "is_constant"), [(10, True), (64, False)])
def test_a_gradient_that_uses_each_pixel_rarely_has_constant_sizes(channels: int, is_constant: bool) -> None:
    code = emit_conv2d(Conv2dSpec("conv", 2, 3, 12, 12, channels, 5, 5, kind="backward_weight"), WIDEST).code
    assert ("Setting(" not in repr(code)) is is_constant
