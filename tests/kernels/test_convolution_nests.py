"""Convolutions and their gradients as nests, against the references of the ops."""

from __future__ import annotations

import numpy as np
import pytest
from nest_interpreter import run_nest

from staged.ir.convolutions import Convolution, forward_nest, input_gradient_nest, weight_gradient_nest
from staged.ir.rewrites import Keep, Pack, Reorder, rewritten
from staged.ir.types import f64
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
