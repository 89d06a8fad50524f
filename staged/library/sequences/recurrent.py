"""Recurrent layers over a whole sequence: tanh or relu, LSTM and GRU, one composite per layer and direction.

Layouts are torch's: x (T, N, I), states (N, H), w_ih (G H, I), w_hh (G H, H), biases (G H,), with the gates of an LSTM
in the order input, forget, cell, output and those of a GRU reset, update, new.

The input's contribution to the gates is one product over all steps, and so is each weight's gradient; each iteration of
the loop does one product with the state. Residuals are further results of a composite, dropped if unused. The reverses
are composites too, so that a back end can claim forward and reverse as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staged.ir.types import Shape
from staged.library.elementwise.activations import relu, sigmoid
from staged.library.sequences.lengths import checked_lengths, last, turned, without_padding
from staged.library.sequences.loop import named, row, scan, with_row
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.choice import select
from staged.ops.composite import Composite, composite
from staged.ops.contraction import matrix_product
from staged.ops.elementwise import square, tanh
from staged.ops.joining import concat, split
from staged.ops.primitive import Sample
from staged.ops.promote import as_array, as_float, cast, dtype_error, shape_error
from staged.ops.public import public
from staged.ops.reduction import sum_
from staged.ops.shape import flatten, reshape, slice_axis
from staged.ops.source import zeros, zeros_like


def _sample(gates: int, states: int, **attrs: Any) -> Sample:
    """Operands of a recurrent composite: 3 steps of a batch of 2, with 2 inputs and 2 states."""
    wide = 2 * gates
    return Sample(((3, 2, 2), *[(2, 2)] * states, (wide, 2), (wide, 2), (wide,), (wide,)), attrs)


# ---- what the three share -------------------------------------------------------------------------


def _flat(x: Array) -> Array:
    """(T, N, ...) -> (T N, ...)"""
    return flatten(x, 0, 1)


def _from_input(x: Array, w_ih: Array, bias: Array | None) -> Array:
    """The input's contribution to the gates, for all steps: (T, N, G H)."""
    flat = matrix_product(_flat(x), w_ih, transpose_b=True)
    (pre,) = named(from_input=reshape(flat if bias is None else flat + bias, (*x.shape[:2], w_ih.shape[0])))
    return pre


def _before(ys: Array, h0: Array, reverse: bool) -> Array:
    """The state that each step began with: ys moved on by one step, and h0."""
    first = reshape(h0, (1, *h0.shape))
    steps_ = ys.shape[0]
    if not isinstance(steps_, int):  # the normal form of `N - 1 + 1` rows is `N` if `N - 1` is not the size of a slice
        start = 1 if reverse else 0
        return slice_axis(concat([ys, first] if reverse else [first, ys]), 0, start, start + steps_)
    if reverse:
        return concat([slice_axis(ys, 0, 1, steps_), first])
    return concat([first, slice_axis(ys, 0, 0, steps_ - 1)])


def _of_weights(
    x: Array, before: Array, d_pre: Array, d_hidden: Array, w_ih: Array, biases: Sequence[Array]
) -> list[Array]:
    """The cotangents of x, w_ih, w_hh and the biases, from those of the contributions to the gates."""
    pre, hidden = _flat(d_pre), _flat(d_hidden)
    d_x = reshape(matrix_product(pre, w_ih), x.shape)
    d_w_ih = matrix_product(pre, _flat(x), transpose_a=True)
    d_w_hh = matrix_product(hidden, _flat(before), transpose_a=True)
    d_biases = [sum_(pre, 0), sum_(hidden, 0)] if biases else []
    return [d_x, d_w_ih, d_w_hh, *d_biases]


def _given(ct: Array | None, like: Array) -> Array:
    return zeros_like(like) if ct is None else ct


# ---- LSTM -----------------------------------------------------------------------------------------


@composite("lstm_backward")
def _lstm_backward(*operands: Array, reverse: bool, biases: int, given: str) -> tuple[Array, ...]:
    """Cotangents of x, h0, c0, the weights and the biases.

    `given` names the present cotangents of results (ys, h, c) and of residuals (the gates and the cells).
    """
    cts = dict(zip(given, operands, strict=False))
    x, h0, c0, w_ih, w_hh, *rest = operands[len(given) :]
    ys, gates, cells = rest[biases:]
    count = x.shape[0]
    before, cells_before = _before(ys, h0, reverse), _before(cells, c0, reverse)

    def step(t: Array, d_h: Array, d_c: Array, d_pre: Array) -> list[Array]:
        i, f, g, o = split(row(gates, t), 4, axis=1)
        if "y" in cts:
            d_h = d_h + row(cts["y"], t)
        if "k" in cts:
            d_c = d_c + row(cts["k"], t)
        squashed = tanh(row(cells, t))
        d_c = d_c + d_h * o * (1.0 - square(squashed))
        d_gates = [d_c * g, d_c * row(cells_before, t), d_c * i, d_h * squashed]
        if "g" in cts:
            d_gates = [a + b for a, b in zip(d_gates, split(row(cts["g"], t), 4, axis=1), strict=True)]
        d_i, d_f, d_g, d_o = d_gates
        d_i, d_f, d_o = d_i * (i * (1.0 - i)), d_f * (f * (1.0 - f)), d_o * (o * (1.0 - o))
        now = concat(named(d_let_in=d_i, d_keep=d_f, d_new=d_g * (1.0 - square(g)), d_let_out=d_o), 1)
        return [matrix_product(now, w_hh), d_c * f, with_row(d_pre, t, now)]

    initial = [_given(cts.get("h"), h0), _given(cts.get("c"), c0), zeros(gates.shape, gates.dtype)]
    d_h0, d_c0, d_pre = scan(count, initial, step, ("d_h", "d_c", "d_gates"), backwards=not reverse)
    d_x, *d_weights = _of_weights(x, before, d_pre, d_pre, w_ih, rest[:biases])
    return d_x, d_h0, d_c0, *d_weights


def _lstm_vjp(cts: Any, results: Any, *operands: Array, reverse: bool) -> list[Array | None]:
    there = {letter: ct for letter, ct in zip("yhcgk", cts, strict=True) if ct is not None}
    ys, _, _, gates, cells = results
    return list(
        _lstm_backward(
            *there.values(),
            *operands,
            ys,
            gates,
            cells,
            reverse=reverse,
            biases=len(operands) - 5,
            given="".join(there),
        )
    )


@composite("lstm", vjp=_lstm_vjp, samples=[_sample(4, 2, reverse=True)])
def _lstm(x: Array, h0: Array, c0: Array, w_ih: Array, w_hh: Array, *biases: Array, reverse: bool) -> tuple[Array, ...]:
    """(ys, last h, last c), then the gates (T, N, 4 H) and the cells (T, N, H) of each step."""
    count = x.shape[0]
    pre = _from_input(x, w_ih, biases[0] + biases[1] if biases else None)

    def step(t: Array, h: Array, c: Array, ys: Array, gates: Array, cells: Array) -> list[Array]:
        i, f, g, o = split(row(pre, t) + matrix_product(h, w_hh, transpose_b=True), 4, axis=1)
        i, f, g, o = named(let_in=sigmoid(i), keep=sigmoid(f), new=tanh(g), let_out=sigmoid(o))
        (c,) = named(c=f * c + i * g)
        (h,) = named(h=o * tanh(c))
        return [h, c, with_row(ys, t, h), with_row(gates, t, concat([i, f, g, o], 1)), with_row(cells, t, c)]

    wide = (*x.shape[:2], h0.shape[1])
    kept = [zeros(wide, x.dtype), zeros(pre.shape, x.dtype), zeros(wide, x.dtype)]
    h, c, ys, gates, cells = scan(count, [h0, c0, *kept], step, ("h", "c", "hs", "gates", "cells"), backwards=reverse)
    return ys, h, c, gates, cells


# ---- GRU ------------------------------------------------------------------------------------------


@composite("gru_backward")
def _gru_backward(*operands: Array, reverse: bool, biases: int, given: str) -> tuple[Array, ...]:
    """Cotangents of x, h0, the weights and the biases; `given` names those of the results: ys, h, gates, candidates."""
    cts = dict(zip(given, operands, strict=False))
    x, h0, w_ih, w_hh, *rest = operands[len(given) :]
    ys, gates, candidates = rest[biases:]
    count = x.shape[0]
    before = _before(ys, h0, reverse)

    def step(t: Array, d_h: Array, d_pre: Array, d_hidden: Array) -> list[Array]:
        r, z, n = split(row(gates, t), 3, axis=1)
        if "y" in cts:
            d_h = d_h + row(cts["y"], t)
        d_z, d_n = d_h * (row(before, t) - n), d_h * (1.0 - z)
        more = split(row(cts["g"], t), 3, axis=1) if "g" in cts else []
        if more:
            d_z, d_n = d_z + more[1], d_n + more[2]
        d_n = d_n * (1.0 - square(n))
        d_candidate = d_n * r
        d_r = d_n * row(candidates, t)
        if more:
            d_r = d_r + more[0]
        if "k" in cts:
            d_candidate = d_candidate + row(cts["k"], t)
        d_r, d_z = named(d_reset=d_r * (r * (1.0 - r)), d_update=d_z * (z * (1.0 - z)))
        hidden = concat([d_r, d_z, d_candidate], 1)
        return [
            d_h * z + matrix_product(hidden, w_hh),
            with_row(d_pre, t, concat([d_r, d_z, d_n], 1)),
            with_row(d_hidden, t, hidden),
        ]

    empty = zeros(gates.shape, gates.dtype)
    initial = [_given(cts.get("h"), h0), empty, empty]
    names = ("d_h", "d_gates", "d_hidden")
    d_h0, d_pre, d_hidden = scan(count, initial, step, names, backwards=not reverse)
    d_x, *d_weights = _of_weights(x, before, d_pre, d_hidden, w_ih, rest[:biases])
    return d_x, d_h0, *d_weights


def _gru_vjp(cts: Any, results: Any, *operands: Array, reverse: bool) -> list[Array | None]:
    there = {letter: ct for letter, ct in zip("yhgk", cts, strict=True) if ct is not None}
    ys, _, gates, candidates = results
    return list(
        _gru_backward(
            *there.values(),
            *operands,
            ys,
            gates,
            candidates,
            reverse=reverse,
            biases=len(operands) - 4,
            given="".join(there),
        )
    )


@composite("gru", vjp=_gru_vjp, samples=[_sample(3, 1, reverse=False)])
def _gru(x: Array, h0: Array, w_ih: Array, w_hh: Array, *biases: Array, reverse: bool) -> tuple[Array, ...]:
    """(ys, last h), then the gates (T, N, 3 H), and the state's contribution to the candidates (T, N, H)."""
    count = x.shape[0]
    pre = _from_input(x, w_ih, biases[0] if biases else None)

    def step(t: Array, h: Array, ys: Array, gates: Array, candidates: Array) -> list[Array]:
        hidden = matrix_product(h, w_hh, transpose_b=True)
        if biases:
            hidden = hidden + biases[1]
        (from_r, from_z, from_n), (r, z, candidate) = split(row(pre, t), 3, axis=1), split(hidden, 3, axis=1)
        r, z = named(reset=sigmoid(from_r + r), update=sigmoid(from_z + z))
        (n,) = named(new=tanh(from_n + r * candidate))
        (h,) = named(h=n + z * (h - n))
        kept = with_row(gates, t, concat([r, z, n], 1)), with_row(candidates, t, candidate)
        return [h, with_row(ys, t, h), *kept]

    wide = (*x.shape[:2], h0.shape[1])
    kept = [zeros(wide, x.dtype), zeros(pre.shape, x.dtype), zeros(wide, x.dtype)]
    h, ys, gates, candidates = scan(count, [h0, *kept], step, ("h", "hs", "gates", "candidates"), backwards=reverse)
    return ys, h, gates, candidates


# ---- the plain one --------------------------------------------------------------------------------


@composite("rnn_backward")
def _rnn_backward(*operands: Array, reverse: bool, biases: int, given: str, nonlinearity: str) -> tuple[Array, ...]:
    """Cotangents of x, h0, the weights and the biases; `given` names those of the results: ys, h."""
    cts = dict(zip(given, operands, strict=False))
    x, h0, w_ih, w_hh, *rest = operands[len(given) :]
    (ys,) = rest[biases:]
    count = x.shape[0]

    def step(t: Array, d_h: Array, d_pre: Array) -> list[Array]:
        if "y" in cts:
            d_h = d_h + row(cts["y"], t)
        h = row(ys, t)
        now = d_h * (1.0 - square(h)) if nonlinearity == "tanh" else select(h > 0, d_h, zeros_like(d_h))
        return [matrix_product(now, w_hh), with_row(d_pre, t, now)]

    initial = [_given(cts.get("h"), h0), zeros(ys.shape, ys.dtype)]
    d_h0, d_pre = scan(count, initial, step, ("d_h", "d_gates"), backwards=not reverse)
    d_x, *d_weights = _of_weights(x, _before(ys, h0, reverse), d_pre, d_pre, w_ih, rest[:biases])
    return d_x, d_h0, *d_weights


def _rnn_vjp(cts: Any, results: Any, *operands: Array, reverse: bool, nonlinearity: str) -> list[Array | None]:
    there = {letter: ct for letter, ct in zip("yh", cts, strict=True) if ct is not None}
    return list(
        _rnn_backward(
            *there.values(),
            *operands,
            results[0],
            reverse=reverse,
            biases=len(operands) - 4,
            given="".join(there),
            nonlinearity=nonlinearity,
        )
    )


@composite("rnn", vjp=_rnn_vjp, samples=[_sample(1, 1, reverse=False, nonlinearity="tanh")])
def _rnn(
    x: Array, h0: Array, w_ih: Array, w_hh: Array, *biases: Array, reverse: bool, nonlinearity: str
) -> tuple[Array, ...]:
    """(ys, last h)."""
    count = x.shape[0]
    pre = _from_input(x, w_ih, biases[0] + biases[1] if biases else None)
    squash = tanh if nonlinearity == "tanh" else relu

    def step(t: Array, h: Array, ys: Array) -> list[Array]:
        (h,) = named(h=squash(row(pre, t) + matrix_product(h, w_hh, transpose_b=True)))
        return [h, with_row(ys, t, h)]

    ys = zeros((*x.shape[:2], h0.shape[1]), x.dtype)
    h, ys = scan(count, [h0, ys], step, ("h", "hs"), backwards=reverse)
    return ys, h


# ---- public ---------------------------------------------------------------------------------------


def _operands(
    name: str, x: Any, states: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, gates: int
) -> list[Array]:
    """x, the states, the weights and the biases as arrays of one dtype; errors where they do not fit together."""
    sequence = as_float(x)
    input_weight, state_weight = as_array(w_ih), as_array(w_hh)
    if sequence.ndim != 3:
        raise shape_error(
            f"{name} needs an input of (T, N, I), got {sequence.type}", sequence, hint="the first axis is the steps"
        )
    count, batch, inputs = sequence.shape
    needs = f"{name} needs at least one step, got {sequence.type}"
    check_sizes(count > 0, needs, sequence, hint="check the number of steps before: `if len(x):`")
    hidden = state_weight.shape[-1] if state_weight.ndim == 2 else 0
    wide = gates * hidden
    parts: list[tuple[str, Array, Shape]] = [
        ("w_ih", input_weight, (wide, inputs)),
        ("w_hh", state_weight, (wide, hidden)),
    ]
    if (b_ih is None) != (b_hh is None):
        given = "b_ih" if b_ih is not None else "b_hh"
        raise shape_error(
            f"{name} takes both biases or none, got `{given}` alone",
            sequence,
            hint=f"give zeros for the other one: `st.zeros_like({given})`",
        )
    if b_ih is not None:
        parts += [("b_ih", as_array(b_ih), (wide,)), ("b_hh", as_array(b_hh), (wide,))]
    first = [as_array(state) if state is not None else zeros((batch, hidden), sequence.dtype) for state in states]
    named = [(letter, state, (batch, hidden)) for letter, state in zip(("h0", "c0"), first, strict=False)]
    for what, array, wanted in (*named, *parts):
        if array.shape != wanted:
            raise shape_error(
                f"{name}: {what} is {wanted} for {count} steps of {batch} x {inputs} and {hidden} states, got "
                f"{array.type}",
                sequence,
                array,
            )
        if not array.dtype.is_float:
            raise dtype_error(f"{name} needs floats, got {array.type} as {what}", array)
    return [sequence, *(cast(array, sequence.dtype) for array in (*first, *(part for _, part, _ in parts)))]


def _run(
    composed: Composite, operands: list[Array], lengths: Any, in_steps: tuple[int, ...], **attrs: Any
) -> tuple[Array, ...]:
    """(ys, the last states) of a layer. Results number `in_steps` of `composed` are its states after each step.

    With `lengths` each sequence begins at its first step: one that goes backwards is turned around before and after. So
    the steps beyond a length come after all others, and nothing depends on them.
    """
    if lengths is None:
        return composed(*operands, **attrs)[: 1 + len(in_steps)]
    x, *rest = operands
    numbers = checked_lengths(composed.name, lengths, x)
    reverse = attrs.pop("reverse")
    x = without_padding(x, numbers)
    results = composed(turned(x, numbers) if reverse else x, *rest, reverse=False, **attrs)
    ys = turned(results[0], numbers) if reverse else results[0]
    return without_padding(ys, numbers), *(last(results[number], numbers) for number in in_steps)


@public("lstm")
def lstm(
    x: Any,
    state: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    reverse: bool = False,
    lengths: Any = None,
) -> tuple[Array, tuple[Array, Array]]:
    """One layer of a long short-term memory over a sequence: (ys, (h, c)), with the state after the last step.

    Shapes: x (T, N, I); state a pair of (N, H), or None for zeros; w_ih (4 H, I); w_hh (4 H, H); biases (4 H,); ys
    (T, N, H). The gates are in torch's order: input, forget, cell, output. With `reverse` the last element comes first;
    ys stays in the order of x. `lengths` (N,), from 1 to T, are the numbers of steps of padded sequences. ys is 0
    beyond them, the states are those after each sequence's last step, and `reverse` begins there. Source:
    Hochreiter and Schmidhuber, 1997, with the forget gate of Gers, Schmidhuber and Cummins, 2000.
    """
    h0, c0 = (None, None) if state is None else state
    operands = _operands("lstm", x, (h0, c0), w_ih, w_hh, b_ih, b_hh, 4)
    ys, h, c = _run(_lstm, operands, lengths, (0, 4), reverse=reverse)
    return ys, (h, c)


@public("gru")
def gru(
    x: Any,
    state: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    reverse: bool = False,
    lengths: Any = None,
) -> tuple[Array, Array]:
    """One layer of gated recurrent units over a sequence: (ys, h), with the state after the last step.

    Shapes: x (T, N, I); state (N, H), or None for zeros; w_ih (3 H, I); w_hh (3 H, H); biases (3 H,); ys (T, N, H). The
    gates are in torch's order: reset, update, new; the reset gate scales the state's contribution, its bias included.
    `lengths` as in `lstm`. Source: Cho et al., 2014.
    """
    ys, h = _run(_gru, _operands("gru", x, (state,), w_ih, w_hh, b_ih, b_hh, 3), lengths, (0,), reverse=reverse)
    return ys, h


@public("rnn")
def rnn(
    x: Any,
    state: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    nonlinearity: str = "tanh",
    reverse: bool = False,
    lengths: Any = None,
) -> tuple[Array, Array]:
    """One recurrent layer over a sequence: (ys, h) where h = tanh(x w_ih^T + b_ih + h w_hh^T + b_hh), or with relu.

    Shapes: x (T, N, I); state (N, H), or None for zeros; w_ih (H, I); w_hh (H, H); biases (H,); ys (T, N, H).
    `lengths` as in `lstm`. Source: Elman, Finding structure in time, 1990.
    """
    if nonlinearity not in ("tanh", "relu"):
        raise shape_error(f'rnn: nonlinearity is "tanh" or "relu", got {nonlinearity!r}')
    operands = _operands("rnn", x, (state,), w_ih, w_hh, b_ih, b_hh, 1)
    ys, h = _run(_rnn, operands, lengths, (0,), reverse=reverse, nonlinearity=nonlinearity)
    return ys, h
