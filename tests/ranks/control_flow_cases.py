"""Derivatives of collectives in loops, branches, functions and transforms. `gradient_cases.py` compares them."""

from __future__ import annotations

from functools import partial
from typing import Any

import staged as st
from tests.ranks.gradient_cases import WEIGHTS, Loss, R, check, total


def loop(x: Any, w: Any) -> Any:
    y = x
    for step in st.range(3):
        y = st.tanh(st.shift_ranks(y) * w) + st.all_reduce(y, "mean") * 0.1 * st.astype(step, st.f64)
    return total(y)


def loop_with_all_collectives(x: Any, w: Any) -> Any:
    y = x
    for _ in st.range(2):
        y = st.all_to_all(y * w)
        y = y + st.reduce_scatter(st.all_gather(y) * w)
        y = y * 0.1 + st.shard(st.broadcast(st.concat([st.tanh(y)] * R), root=R - 1)) * w
    return total(y)


def replicated_while(x: Any, w: Any) -> Any:
    y, size = x, st.all_reduce(st.sum(x * x))
    while size > 0.5:
        y = st.tanh(y * w * 0.5)
        size = st.all_reduce(st.sum(y * y))
    return total(y) + size


def replicated_branch(x: Any, w: Any) -> Any:
    if st.all_reduce(st.sum(x)) > 0:
        y = st.shift_ranks(x) * w
    else:
        y = st.all_reduce(x * w)
    if st.sum(w) > -100.0:
        y = st.tanh(y) + st.shift_ranks(y, 1, wrap=False)
    return total(y)


@st.function
def ring(y: Any, w: Any, n: Any) -> Any:
    if n <= 0:
        return y * w
    return ring(st.tanh(st.shift_ranks(y) * w), w, n - 1) + st.all_reduce(y, "mean")


def vmapped(x: Any, w: Any) -> Any:
    def of_row(row: Any) -> Any:
        return st.all_reduce(row * w) + st.shift_ranks(row) * st.broadcast(row, root=R - 1)

    return total(st.vmap(of_row)(x))


def vmapped_rows(x: Any, w: Any) -> Any:
    def of_column(column: Any) -> Any:
        gathered = st.all_gather(column * column)
        parts = st.reduce_scatter(gathered * column[0])
        return st.all_to_all(column) * parts + st.shard(gathered)[0] * st.exchange_halo(column)[:-2]

    return total(st.vmap(of_column, in_axes=1)(x * w))


def checkpointed(x: Any, w: Any) -> Any:
    def layer(y: Any) -> Any:
        y = st.tanh(y * w + st.all_reduce(y, "mean"))
        return y * st.shift_ranks(y)

    y = st.checkpoint(layer)(x)
    return total(st.checkpoint(layer)(y))


def checkpointed_loop(x: Any, w: Any) -> Any:
    @st.checkpoint
    def layer(y: Any) -> Any:
        return st.tanh(st.exchange_halo(y * w)[1:-1] + st.all_reduce(y, "mean"))

    y = x
    for _ in st.range(3):
        y = layer(y)
    return total(y)


def rolled_layers(x: Any, w: Any) -> Any:
    y = x
    for number in range(8):
        y = st.tanh(st.shift_ranks(y) * w + st.all_reduce(y * WEIGHTS[number], "mean"))
    return total(y)


LOSSES: dict[str, Loss] = {
    "loop": loop,
    "loop_with_all_collectives": loop_with_all_collectives,
    "replicated_while": replicated_while,
    "replicated_branch": replicated_branch,
    "recursion": lambda x, w: total(ring(x, w, st.astype(st.sum(w * 0) + 3, st.i64))),
    "vmap": vmapped,
    "vmap_of_rows": vmapped_rows,
    "checkpoint": checkpointed,
    "checkpoint_in_a_loop": checkpointed_loop,
    "rolled_layers": rolled_layers,
}
globals().update({f"case_{name}": partial(check, loss) for name, loss in LOSSES.items()})
