"""Convolutions and their gradients as nests, against the references of the ops."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Program, fused, sample, tensor
from nest_interpreter import run_nest

from staged.ir.convolutions import Convolution, forward_nest, input_gradient_nest, weight_gradient_nest
from staged.ir.machine import X86_64_V3, X86_64_V4
from staged.ir.named_loops import IllegalSchedule
from staged.ir.rewrites import Fuse, Reorder, rewritten
from staged.ir.storage_rewrites import Keep, Pack
from staged.ir.types import f64
from staged.library.pooling import convolution as V
from staged.ops import comparisons
from staged.ops import elementwise as E
from staged.ops import shape as S
from staged.ops.primitive import PRIMITIVES

SIZES = {
    "plain": Convolution(2, 3, 4, (6, 5), (3, 2)),
    "padded": Convolution(1, 2, 3, (5, 5), (3, 3), padding=(1, 1)),
    "strides": Convolution(1, 2, 2, (7, 6), (3, 3), stride=(2, 3), padding=(1, 0)),
    "strides longer than the taps": Convolution(1, 2, 2, (8, 9), (2, 1), stride=(3, 2)),
    "dilated": Convolution(1, 2, 2, (8, 9), (3, 2), dilation=(2, 3), padding=(2, 1)),
    "dilated strides": Convolution(1, 1, 2, (9, 8), (3, 3), stride=(2, 4), dilation=(3, 2), padding=(2, 2)),
    "groups": Convolution(2, 4, 6, (4, 4), (3, 3), padding=(1, 1), groups=2),
    "depthwise": Convolution(1, 4, 4, (5, 4), (2, 2), stride=(2, 2), groups=4),
    "points": Convolution(2, 3, 5, (3, 4), (1, 1)),
}


def operands(conv: Convolution) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    x, weight, d_y = (rng.standard_normal(shape) for shape in (conv.x_shape, conv.weight_shape, conv.y_shape))
    return x, weight, d_y


def reference(name: str, conv: Convolution, *arrays: np.ndarray, **more: tuple[int, ...]) -> np.ndarray:
    attrs = {"stride": conv.stride, "padding": conv.padding, "dilation": conv.dilation, "groups": conv.groups}
    return np.asarray(PRIMITIVES[name].reference(*arrays, **attrs, **more))


@pytest.mark.parametrize("name", SIZES)
def test_each_element_is_the_sum_that_the_op_says_and_written_once(name: str) -> None:
    conv = SIZES[name]
    x, weight, d_y = operands(conv)
    for nest, given, expected in (
        (forward_nest(conv, f64), (x, weight), reference("conv2d", conv, x, weight)),
        (
            input_gradient_nest(conv, f64),
            (d_y, weight),
            reference("conv2d_backward_input", conv, d_y, weight, input_shape=conv.x_shape),
        ),
        (
            weight_gradient_nest(conv, f64),
            (x, d_y),
            reference("conv2d_backward_weight", conv, x, d_y, weight_shape=conv.weight_shape),
        ),
    ):
        (found,) = run_nest(nest, given)
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


def test_schedules_rewrite_convolutions_too() -> None:
    """Outputs side by side, totals of a tile of them, and the image copied with its border."""
    conv = SIZES["padded"]
    x, weight, _ = operands(conv)
    nest = forward_nest(conv, f64)
    ways = (Reorder(("i", "j", "o")), Keep("channel", ("j", "o")), Pack("weight", "n", ("group", "o", "channel", "p", "q")))
    made = rewritten(nest, ways)
    (found,), (expected,) = run_nest(made, (x, weight)), run_nest(nest, (x, weight))
    assert found.tobytes() == expected.tobytes()
    bordered = rewritten(nest, (Pack("x", "o", ("channel", "i", "p", "j", "q")),))
    (found,) = run_nest(bordered, (x, weight))
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["plain", "padded", "strides", "dilated", "groups", "points"])
def test_windows_share_an_axis_of_their_copy(name: str) -> None:
    """The places where a window has its taps: with steps, where the convolution has strides or is dilated."""
    conv = SIZES[name]
    x, weight, _ = operands(conv)
    nest = forward_nest(conv, f64)
    (expected,) = run_nest(nest, (x, weight))
    for axes in (("channel", "i+p", "q", "j"), ("channel", "q", "i+p", "j"), ("channel", "p+i", "j+q")):
        (found,) = run_nest(rewritten(nest, (Pack("x", "o", axes),)), (x, weight))
        assert found.tobytes() == expected.tobytes(), axes


@pytest.mark.parametrize("name", ["plain", "padded", "dilated", "groups", "points"])
def test_a_window_that_goes_back_has_its_axis_too(name: str) -> None:
    conv = SIZES[name]
    _, weight, d_y = operands(conv)
    nest = input_gradient_nest(conv, f64)
    (expected,) = run_nest(nest, (d_y, weight))
    for axes in (("o", "i+p", "q", "j"), ("o", "q", "i+p", "j"), ("o", "p+i", "j+q")):
        (found,) = run_nest(rewritten(nest, (Pack("d_y", "channel", axes),)), (d_y, weight))
        assert found.tobytes() == expected.tobytes(), axes


def test_pixels_of_a_copy_without_gaps_are_one_loop() -> None:
    conv = SIZES["padded"]
    x, weight, _ = operands(conv)
    nest = forward_nest(conv, f64)
    made = rewritten(nest, (Pack("x", "o", ("channel", "q", "i+p", "j")), Fuse("i", "j", "pixel"), Reorder(("pixel", "o"))))
    (found,), (expected,) = run_nest(made, (x, weight)), run_nest(nest, (x, weight))
    assert found.tobytes() == expected.tobytes()
    with pytest.raises(IllegalSchedule, match="i is 5 apart, j 1"):
        rewritten(forward_nest(SIZES["plain"], f64), (Fuse("i", "j", "pixel"),))


def layer(**options: object):
    def f(x, w, b):
        return E.maximum(V.conv2d(x, w, **options) + S.reshape(b, (1, -1, 1, 1)), 0.0)

    return f


def gradient(**options: object):
    """Of the image: a transposed convolution is that."""

    def f(d_y, w, b):
        return E.maximum(V.conv_transpose2d(d_y, w, **options) + S.reshape(b, (1, -1, 1, 1)), 0.0)

    return f


def two_results(x, w, y):
    z = V.conv2d(x, w) * 0.5 - y
    return z, comparisons.greater(z, 0.0)


TILED = {
    "channels of one": (layer(), ("f32", 3, 1, 9, 9), ("f32", 10, 1, 3, 3), ("f32", 10)),
    "a panel": (layer(), ("f32", 2, 3, 6, 6), ("f32", 5, 3, 3, 3), ("f32", 5)),
    "pixels left over": (layer(), ("f32", 2, 5, 9, 8), ("f32", 13, 5, 2, 3), ("f32", 13)),
    "padded": (layer(padding=1), ("f32", 2, 4, 8, 7), ("f32", 9, 4, 3, 3), ("f32", 9)),
    "padded by more than the taps": (layer(padding=3), ("f32", 2, 2, 3, 5), ("f32", 5, 2, 3, 2), ("f32", 5)),
    "padded columns": (layer(padding=(0, 2)), ("f32", 2, 2, 7, 5), ("f32", 5, 2, 2, 5), ("f32", 5)),
    "dilated": (layer(dilation=(2, 3), padding=2), ("f32", 2, 3, 9, 9), ("f32", 6, 3, 3, 3), ("f32", 6)),
    "points": (layer(), ("f32", 2, 6, 5, 7), ("f32", 8, 6, 1, 1), ("f32", 8)),
    "a line": (layer(), ("f32", 2, 6, 1, 40), ("f32", 7, 6, 1, 5), ("f32", 7)),
    "short rows": (layer(), ("f32", 2, 3, 20, 3), ("f32", 7, 3, 3, 3), ("f32", 7)),
    "chains": (layer(), ("f32", 2, 50, 6, 7), ("f32", 12, 50, 3, 3), ("f32", 12)),
    "chains of a channel each": (layer(padding=2), ("f32", 1, 3, 20, 20), ("f32", 6, 3, 20, 20), ("f32", 6)),
    "f64": (layer(padding=1), ("f64", 2, 4, 8, 7), ("f64", 9, 4, 3, 3), ("f64", 9)),
    "alone": (lambda x, w: V.conv2d(x, w), ("f32", 2, 3, 8, 9), ("f32", 5, 3, 2, 2)),
    "functions": (lambda x, w: E.tanh(V.conv2d(x, w)), ("f32", 2, 3, 6, 9), ("f32", 5, 3, 3, 2)),
    "two results": (two_results, ("f32", 2, 3, 6, 9), ("f32", 5, 3, 3, 2), ("f32", 2, 5, 4, 8)),
    "in place": (lambda x, w, y: V.conv2d(x, w) * y + y, ("f32", 2, 3, 6, 9), ("f32", 5, 3, 3, 2), ("f32", 2, 5, 4, 8)),
    "gradient": (gradient(padding=1), ("f32", 2, 5, 8, 7), ("f32", 5, 9, 3, 3), ("f32", 9)),
    "gradient, taps of two sizes": (gradient(padding=(2, 1)), ("f32", 2, 5, 9, 8), ("f32", 5, 13, 5, 3), ("f32", 13)),
    "gradient, dilated": (gradient(padding=(2, 4), dilation=(1, 2)), ("f32", 2, 3, 9, 9), ("f32", 3, 8, 5, 5), ("f32", 8)),
    "gradient, more padding": (gradient(padding=2), ("f32", 2, 3, 12, 11), ("f32", 3, 9, 3, 3), ("f32", 9)),
    "gradient, a line": (gradient(padding=(0, 1)), ("f32", 2, 6, 1, 90), ("f32", 6, 10, 1, 5), ("f32", 10)),
    "gradient, points": (gradient(), ("f32", 2, 6, 5, 7), ("f32", 6, 8, 1, 1), ("f32", 8)),
    "gradient, chains": (gradient(padding=1), ("f32", 4, 50, 8, 8), ("f32", 50, 26, 3, 3), ("f32", 26)),
    "gradient of f64": (gradient(padding=1), ("f64", 2, 4, 8, 7), ("f64", 4, 9, 3, 3), ("f64", 9)),
    "gradient alone": (lambda d_y, w: V.conv_transpose2d(d_y, w, padding=1), ("f32", 2, 3, 8, 9), ("f32", 3, 11, 3, 3)),
    "gradient, functions": (
        lambda d_y, w: E.tanh(V.conv_transpose2d(d_y, w, padding=1)), ("f32", 2, 3, 6, 9), ("f32", 3, 14, 3, 3)
    ),
    "groups": (layer(padding=1, groups=2), ("f32", 3, 6, 7, 8), ("f32", 12, 3, 3, 3), ("f32", 12)),
    "groups, chains": (layer(groups=3), ("f32", 9, 150, 5, 8), ("f32", 15, 50, 3, 3), ("f32", 15)),
    "groups, gradient": (gradient(padding=1, groups=2), ("f32", 3, 6, 8, 8), ("f32", 6, 9, 3, 3), ("f32", 18)),
    "blocks of rows of groups": (layer(padding=1, groups=2), ("f32", 9, 128, 28, 32), ("f32", 12, 64, 3, 3), ("f32", 12)),
    "groups of an image shared by threads": (layer(padding=1, groups=2), ("f32", 1, 32, 32, 32), ("f32", 32, 16, 3, 3), ("f32", 32)),
    "blocks of rows": (layer(padding=1), ("f32", 9, 64, 28, 32), ("f32", 6, 64, 3, 3), ("f32", 6)),
    "blocks of rows of f64": (layer(), ("f64", 9, 32, 22, 34), ("f64", 5, 32, 3, 3), ("f64", 5)),
    "an image shared by threads": (layer(padding=2), ("f32", 1, 16, 32, 32), ("f32", 16, 16, 5, 5), ("f32", 16)),
    "images shared by threads": (layer(padding=1), ("f32", 3, 16, 28, 30), ("f32", 16, 16, 3, 3), ("f32", 16)),
    "gradient of an image, shared by threads": (
        gradient(padding=1), ("f32", 1, 16, 28, 32), ("f32", 16, 16, 3, 3), ("f32", 16)
    ),
    "shared by threads": (layer(), ("f32", 9, 8, 12, 12), ("f32", 16, 8, 3, 3), ("f32", 16)),
}


@pytest.mark.parametrize("name", TILED)
def test_tiles_of_all_machines_give_the_same_bits(name: str) -> None:
    f, *types = TILED[name]
    found = []
    for machine in (X86_64_V4.with_cores(2), X86_64_V3):
        given = [sample(each, np.random.default_rng(3)) for each in (tensor(*type) for type in types)]
        (program,) = Program.many([fused(f, *(tensor(*type) for type in types), machine=machine)], machine)
        for pieces, in_place in ((1, False), (3, False), (1, True)):
            program.pieces, program.in_place = pieces, in_place
            found.append([result.tobytes() for result in program(*given)])
        assert "st_next_convolved_" in program.kernels[0].text
    assert all(each == found[0] for each in found)
