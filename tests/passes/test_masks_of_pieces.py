"""Masks of joined arrays: the IR before and after, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staged.ir.declaration import prims
from staged.ir.printer import print_function
from staged.ir.types import TensorType, f32
from staged.ir.verifier import verify
from staged.ops.context import bind
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.masks_of_pieces import read_masks_of_pieces
from tests.ir_interpreter import run
from tests.ir_programs import function
from tests.passes.borders import same_bits

X = np.array([[-1.0, 2.0], [-0.0, np.nan]], np.float32)
Y = np.array([[np.inf, -np.inf], [0.0, 1e-45]], np.float32)


def program(between: Any = lambda y: y) -> Any:
    """The concat of two arrays along the columns, and the masks of both."""

    def body(p: Any, x: Any, y: Any) -> Any:
        zero = bind(prims.BROADCAST_TO, [p.constant(0.0, TensorType(f32))], shape=(2, 2), axes=())
        y = y * y
        joined = bind(prims.CONCAT, [x, y], axis=1)
        return joined, bind(prims.LESS_EQUAL, [x, zero]), bind(prims.LESS_EQUAL, [between(y), zero])

    return function(body, TensorType(f32, (2, 2)), TensorType(f32, (2, 2)))


def rewritten(before: Any) -> Any:
    after = read_masks_of_pieces(before)
    verify(after, "read_masks_of_pieces")
    return eliminate_dead_code(after)


def test_a_mask_is_read_from_the_joined_array() -> None:
    before = program()
    after = rewritten(before)
    text = print_function(after)
    assert "slice(t_4) {start=(0, 0), step=(1, 1), stop=(2, 2)}" in text, text
    assert "slice(t_4) {start=(0, 2), step=(1, 1), stop=(2, 4)}" in text, text
    for found, wanted in zip(run(after, X, Y), run(before, X, Y), strict=True):
        assert same_bits(found, wanted)


def test_an_array_that_is_read_for_more_than_its_mask_decides_the_mask() -> None:
    def body(p: Any, x: Any, y: Any) -> Any:
        zero = bind(prims.BROADCAST_TO, [p.constant(0.0, TensorType(f32))], shape=(2, 2), axes=())
        z = x + y
        return bind(prims.CONCAT, [z, y], axis=1), bind(prims.LESS_EQUAL, [z, zero]), z * z

    before = function(body, TensorType(f32, (2, 2)), TensorType(f32, (2, 2)))
    assert print_function(rewritten(before)) == print_function(before)


@pytest.mark.parametrize("compares", [prims.EQUAL, prims.NOT_EQUAL])
def test_other_comparisons_are_no_masks(compares: Any) -> None:
    def body(p: Any, x: Any) -> Any:
        zero = bind(prims.BROADCAST_TO, [p.constant(0.0, TensorType(f32))], shape=(2, 2), axes=())
        return bind(prims.CONCAT, [x, x], axis=1), bind(compares, [x, zero])

    before = function(body, TensorType(f32, (2, 2)))
    assert print_function(rewritten(before)) == print_function(before)
