"""Scenes on arrays of device sizes: rows that a warp shares, products with a bias, attention of halves, calls of cuDNN and cuSOLVER.

Cells are small, so that threads rarely share a row, and libraries have few forms for them. These are for late slices (`late.py`).
"""

from __future__ import annotations

import random
import textwrap
from typing import Any

import numpy as np

from staged.ir.types import bf16
from tests.fuzz.cells.piece import Piece

FLOATS = (np.float32, np.float32, np.float64, np.float16, bf16.numpy)


def long_piece(chance: random.Random) -> Piece:
    """One of the scenes."""
    numbers = np.random.default_rng(chance.randrange(1 << 30))
    dtype = chance.choice(FLOATS)

    def array(*shape: int, dtype: Any = dtype) -> np.ndarray[Any, Any]:
        return numbers.normal(size=shape).astype(dtype)

    rows, columns = chance.choice((1, 3, 8)), chance.choice((128, 256, 300, 512))
    name = chance.choice(
        ("elementwise", "row", "whole", "norm", "linear", "attention", "convolution", "batch_norm", "recurrent", "matrix", "loop")
    )
    wide = "st.astype({}, st.f32)" if dtype in (np.float16, bf16.numpy) else "{}"
    float_type = np.float32 if dtype is not np.float64 else dtype
    arrays: dict[str, np.ndarray[Any, Any]]
    if name == "elementwise":
        arrays = {"x": array(rows, columns), "y": array(columns)}
        text = f"return st.{chance.choice(('tanh', 'relu', 'exp'))}(x * 0.25) + y"
    elif name == "row":
        arrays = {"x": array(rows, columns)}
        text = f"return st.{chance.choice(('softmax', 'cumsum', 'sum', 'max', 'mean'))}(x * 0.5, axis=1)"
    elif name == "whole":
        arrays = {"x": array(rows, columns), "y": array(rows, columns)}
        text = f"return st.{chance.choice(('sum', 'mean'))}(x * y), st.grad(lambda x: st.sum({wide.format('x * y')}))(x)"
    elif name == "norm":
        arrays = {"x": array(rows, columns), "w": array(columns), "b": array(columns)}
        text = f"return st.layer_norm(x, ({columns},), w, b)"
    elif name == "linear":
        inner, outer = chance.choice((3, 16, 20)), chance.choice((8, 10, 48))
        arrays = {"x": array(rows, inner), "w": array(inner, outer), "b": array(outer)}
        text = chance.choice(
            (
                "return x @ w + b",
                "return st.relu(x @ w + b)",
                "return st.gelu(x @ w + b, approximate='tanh')",
                f"return st.grad(lambda w, b: st.sum(st.tanh({wide.format('x @ w + b')})), argnums=(0, 1))(w, b)",
            )
        )
    elif name == "attention":
        half = chance.choice((np.float16, bf16.numpy))
        length, width = chance.choice((5, 16)), chance.choice((8, 32))
        arrays = {each: array(2, 2, length, width, dtype=half) for each in ("q", "k", "v")}
        call = f"st.scaled_dot_product_attention(q, k, v, is_causal={chance.random() < 0.4})"
        text = f"return {call}"
        if chance.random() < 0.5:
            text = f"return st.grad(lambda q, k, v: st.sum(st.astype({call}, st.f32)), argnums=(0, 1, 2))(q, k, v)"
    elif name == "convolution":
        arrays = {each: array(*shape, dtype=float_type) for each, shape in (("x", (2, 3, 9, 9)), ("w", (4, 3, 3, 3)), ("b", (4,)))}
        text = "y = st.conv2d(x, w, b, padding=1)\nreturn st.max_pool2d(st.relu(y), 3)"
        if chance.random() < 0.5:
            text = "return st.grad(lambda x, w, b: st.sum(st.tanh(st.conv2d(x, w, b))), argnums=(0, 1, 2))(x, w, b)"
    elif name == "batch_norm":
        arrays = {each: array(*shape, dtype=float_type) for each, shape in (("x", (4, 3, 5, 5)), ("w", (3,)), ("b", (3,)))}
        text = "return st.batch_norm_training(x, w, b)"
    elif name == "recurrent":
        kind, gates = chance.choice((("gru", 3), ("rnn", 1)))
        shapes = {"x": (3, 2, 4), "h": (2, 5), "w": (gates * 5, 4), "u": (gates * 5, 5), "b": (gates * 5,), "c": (gates * 5,)}
        arrays = {each: array(*shape, dtype=float_type) * float_type(0.5) for each, shape in shapes.items()}
        text = f"return st.{kind}(x, h, w, u, b, c)"
    elif name == "matrix":
        arrays = {"x": array(4, 4, dtype=float_type), "y": array(4, 3, dtype=float_type)}
        text = "a = x @ x.T + 4.0 * st.eye(4, dtype=x.dtype)\nreturn st.linalg.cholesky(a), st.linalg.solve(x + a, y)"
    else:
        arrays = {"x": array(rows, columns), "y": array(columns)}
        text = f"total = y * 0.0\nfor i in st.range({rows}):\n    total = total * 0.5 + x[i] * y\nreturn total"
    whole = f"def piece({', '.join(arrays)}):\n{textwrap.indent(text, '    ')}\n"
    return Piece(whole, arrays, label=f"long {name} {np.dtype(dtype).name}", loose=True)
