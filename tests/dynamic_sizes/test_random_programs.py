"""Random programs over sizes: the values, and gradients, of eager mode. `--full` has 300 programs instead of 30."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramError, ShapeError

AXES: dict[str, tuple[int | str, ...]] = {
    "x": ("N <= 40", "M <= 40"),
    "y": ("N",),
    "z": ("M", 3),
    "w": ("M", "N"),
    "t": ("N", 2, "M"),
}
SIZES = ((7, 9), (1, 2), (8, 8), (9, 16), (16, 7), (40, 17), (17, 40), (2, 1), (0, 3), (4, 0), (0, 0))
TEXTS = """
st.sin({a}) * {a}
st.exp({a} * 0.1) - 1.0
st.where({a} > 0, {a}, {a} * 0.25)
{a} * min(n, m) + n // 3
{a} * 0.5 + st.tanh(st.sum({a} * 0.1, axis={k}, keepdims=True))
st.sum({a}, axis={k})
st.logsumexp({a}, axis={k}, keepdims=True)
st.softmax({a}, axis={k})
st.cumsum({a}, axis={k})
st.sort({a}, axis={k})
st.normalize({a}, axis={k})
st.roll({a}, 2, axis={k})
st.reshape({a}, (-1,))
st.swapaxes({a}, 0, -1)
st.concat([{a} * 2.0, {a}], axis={k})
st.stack([{a}, {a} * 2.0], axis={k})
st.pad({a}, 2)
st.take({a}, {a}.shape[{k}] - 1 - st.arange({a}.shape[{k}]), axis={k})
{a} * (st.arange({a}.shape[-1]) + m)
st.tensordot({a}, {a}, axes=([{k}], [{k}])) * 0.1
{a}[1:]
{a}[..., :-1]
{a}[::2]
{a}[..., ::-1]
{a}[-2:]
{a}[n // 2 :]
{a}[..., m // 2 :]
{a}[2:-2]
st.tensor_split({a}, 3, axis={k})[1]
st.sum({a}[1:] * {a}[: max({a}.shape[0] - 1, 0)], axis=0) if {a}.shape[0] > 0 else {a}[0] * 1.0
st.astype(st.astype({a} * 10.0, st.i64) // 3 + n * m - {a}.shape[{k}], st.f64) * 0.1
st.astype(st.astype({a}, st.f32) * 0.5, st.f64)
st.reshape({a}, ({a}.shape[0], -1)) * (n + 2 * m)
st.repeat({a}, 2, axis={k})[1:-1]
st.argsort({a}, axis={k}) * 0.5 + {a}
st.jvp(lambda v: st.sin(v) * st.sum(v, axis={k}, keepdims=True), ({a},), ({a} * 0.5,))[1]
st.grad(lambda v: st.sum(st.tanh(v) * st.sum(v * v, axis={k}, keepdims=True)))({a})
st.checkpoint(lambda v: st.sin(v) + st.cumsum(v, axis={k}))({a})
st.vmap(lambda row: row[::-1] * st.sum(row))(st.stack([{a}, {a}], axis=1))
{a}[n // 2 - 1 :]
{a}[m - n :]
{a}[: min({a}.shape[0], m)]
{a}[n // 3 : n // 3 + 2]
{a} - {a}[:1]
{a}[-1 - n // 4 :: -1]
st.reshape({a}, (-1,))[: {a}.size // 2]
{a}[None] * st.ones((n // 3, *([1] * {a}.ndim)), dtype=st.f64)
st.concat([{a}, st.ones((n // 2, *{a}.shape[1:]), dtype=st.f64)], axis=0)
st.concat([{a}[..., ::2], {a}[..., 1::2]], axis=-1)
st.where(st.arange({a}.shape[-1]) < m // 2, {a}, st.sum({a}, axis=-1, keepdims=True))
st.pad({a}, [(n % 3, max(n - {a}.shape[0], 0))] + [(0, m // 4)] * ({a}.ndim - 1))
st.tile({a}, [2] + [1] * ({a}.ndim - 1))[:n]
st.reshape(st.stack([{a}, -{a}], axis=-1), (*{a}.shape[:-1], -1))
st.index_add(st.zeros((n // 2 + 1, *{a}.shape[1:]), dtype=st.f64), 0, st.arange({a}.shape[0]) * 3 % (n // 2 + 1), {a})
st.set_item(st.zeros(({a}.shape[0] + 2, *{a}.shape[1:]), dtype=st.f64), slice(1, {a}.shape[0] + 1), {a})
st.topk(st.concat([{a}, {a} * 0.5, st.ones((2, *{a}.shape[1:]), dtype=st.f64)], axis=0), 2, axis=0)[0]
st.repeat({a}, n % 3 + 1, axis={k})
st.roll({a}, n // 2, axis={k}) - st.roll({a}, -m, axis={k})
st.layer_norm({a}, {a}.shape[-1:])
st.conv1d(st.reshape({a}, (1, 1, -1)), st.ones((1, 1, 3), dtype=st.f64), padding=1)[0]
""".strip().splitlines()
LOOPS = (
    "{v} = {a} * 1.0\n    for i in st.range(n // 2):\n        {v} = {v} * 0.9 + i",
    "{v} = st.zeros({a}.shape[1:], dtype=st.f64)\n    for row in {a}:\n        {v} = {v} * 0.5 + st.sin(row)",
    "{v} = st.tanh({a}) * 4.0\n    while st.sum({v} * {v}) > n + m + 1:\n        {v} = {v} * 0.5",
    "{v} = st.zeros({a}.shape, dtype=st.f64)\n    for i in st.range({a}.shape[0]):\n        if i % 2 == 0:\n"
    "            {v} = st.set_item({v}, i, {a}[i] * 2.0)\n        else:\n"
    "            {v} = st.set_item({v}, i, {v}[i - 1] + {a}[i])",
    "{v} = {a} * 1.0\n    i = 0\n    while i < m:\n        {v} = st.sin({v}) + i * 0.1\n        if st.sum({v}) > 3.0:\n"
    "            break\n        i += 2",
    "{v} = st.zeros({a}.shape[1:], dtype=st.f64)\n    for i, (p, q) in enumerate(zip({a}[1:], {a}[:-1])):\n"
    "        {v} = {v} * 0.7 + p * q + i",
    "if n > m // 2:\n        {v} = {a} * 2.0\n    else:\n        {v} = {a} - 1.0",
)


def source(seed: int, rank: Callable[[str], int | None]) -> tuple[str, list[str]]:
    """A program of 2 to 5 random operations, of which `rank` tells the number of axes of a result, or None if it has none."""
    draw = random.Random(seed)
    names = ["x", draw.choice("yzwt")]
    ranks = {name: len(AXES[name]) for name in names}
    text = f"def program({', '.join(names)}):\n    n, m = x.shape\n"
    count = draw.randint(2, 5)
    while len(ranks) < len(names) + count:
        operand = draw.choice([name for name in ranks if ranks[name]][-3:])
        value = f"v{len(ranks)}"
        wanted = draw.choice(LOOPS) if draw.random() < 0.2 else "{v} = " + draw.choice(TEXTS)
        line = "    " + wanted.format(a=operand, v=value, k=draw.randrange(ranks[operand])) + "\n"
        found = rank(f"{text}{line}    return {value}\n")
        if found is not None and found <= 3:
            text += line
            ranks[value] = found
    results = [name for name in ranks if name.startswith("v")][-3:]
    return f"{text}    return {', '.join(results)},\n", names


def made(text: str) -> Any:
    """The function of a text, with lines that staging can read."""
    file = f"<random {abs(hash(text))}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    space: dict[str, Any] = {"st": st}
    exec(compile(text, file, "exec"), space)
    return space["program"]


def arguments(names: list[str], n: int, m: int) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(n + m)
    sizes = {"N": n, "M": m, "N <= 40": n, "M <= 40": m}
    return [draw.uniform(-2, 2, [sizes[axis] if isinstance(axis, str) else axis for axis in AXES[name]]) for name in names]


def rank_of(text: str) -> int | None:
    names = text[text.index("(") + 1 : text.index(")")].split(", ")
    try:
        with np.errstate(all="ignore"):
            found = made(text)(*map(st.asarray, arguments(names, 7, 9)))
    except ShapeError:
        return None
    return int(found.ndim) if found.size < 10_000 else None


def with_gradient(function: Any, places: tuple[int, ...]) -> Any:
    def loss(*args: Any) -> Any:
        return sum([st.sum(st.tanh(each)) for each in function(*args)])

    return lambda *args: st.grad(loss, argnums=places)(*args)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(30))
def test_values_are_those_of_eager_mode(seed: int, full: bool) -> None:
    for each in range(seed, 300 if full else seed + 1, 30):
        text, names = source(each, rank_of)
        function = made(text)
        axes: dict[str, Any] = {name: AXES[name] for name in names}
        if each % 3 == 0:
            function = with_gradient(function, tuple(range(len(names))))
            axes = {f"args.{place}": each for place, each in enumerate(axes.values())}
        program = st.function(dims=axes, target="native" if each % 2 else "portable")(function)
        for n, m in SIZES:
            given = arguments(names, n, m)
            try:
                right = function(*map(st.asarray, given))
            except (ShapeError, ProgramError):
                continue  # what has no value of no elements
            for one, other in zip(program(*given), right, strict=True):
                assert np.shape(one) == np.shape(other), (text, n, m)
                np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10, err_msg=f"{text}{n, m}")
