"""Recurrent layers and cells with torch's parameters: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, ..."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import check_dtype, check_option, check_probability, check_sizes, uniform
from staged.packing import PackedSequence


class _Recurrent(Module):
    """Base of the layers: a stack of `num_layers`, each over a whole sequence, in one direction or both.

    Shapes: x (T, N, input_size), or (N, T, input_size) with `batch_first`, or (T, input_size) without a batch; states
    (num_layers * directions, N, hidden_size), without N where x has none; y as x, with directions * hidden_size at the
    end. Weights start from U(-1/sqrt(hidden_size), 1/sqrt(hidden_size)). `dropout` applies to the outputs of every
    layer but the last.

    Sequences of different lengths are padded to T, with `lengths` (N,) from 1 to T, or packed. y is then 0 beyond a
    length, or packed too. Last states are those at each sequence's last step. The reverse direction begins there.
    """

    gates = 1
    weight_ih_l0: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = st.f32,
    ) -> None:
        name = type(self).__name__
        check_sizes(name, 0, input_size=input_size)
        check_sizes(name, hidden_size=hidden_size, num_layers=num_layers)
        check_probability(name, dropout)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.directions = ("", "_reverse") if bidirectional else ("",)
        wide = self.gates * hidden_size
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else hidden_size * len(self.directions)
            for direction in self.directions:
                shapes: dict[str, tuple[int, ...]] = {}
                shapes |= {"weight_ih": (wide, inputs), "weight_hh": (wide, hidden_size)}
                if bias:
                    shapes |= {"bias_ih": (wide,), "bias_hh": (wide,)}
                for name, shape in shapes.items():
                    setattr(self, f"{name}_l{layer}{direction}", uniform(shape, hidden_size, dtype))

    def extra_repr(self) -> str:
        """The sizes, and each option that differs from its default, as `repr` shows them."""
        options = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        given = [f"{name}={getattr(self, name)}" for name, usual in options.items() if getattr(self, name) != usual]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *given])

    def arguments_of(self, layer: int, direction: str) -> dict[str, Any]:
        """The present weights and biases of one layer, and its direction, by the names that the functions have."""
        names = {"w_ih": "weight_ih", "w_hh": "weight_hh"}
        if self.bias:
            names |= {"b_ih": "bias_ih", "b_hh": "bias_hh"}
        parameters = {short: getattr(self, f"{name}_l{layer}{direction}").value for short, name in names.items()}
        return {**parameters, "reverse": direction != ""}

    def run_layer(self, x: Any, state: list[Any], arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
        """One layer in one direction: the states of all steps, and the last of each kind of state."""
        raise TypeError(f"{type(self).__name__} has no run_layer()")

    def run(self, x: Any, states: list[Any], lengths: Any) -> tuple[Any, list[Any]]:
        """All layers: y, and each kind of state (layers * directions, N, H) after the last step."""
        name = type(self).__name__
        is_packed = isinstance(x, PackedSequence)
        if is_packed:
            if lengths is not None:
                raise st.ArgumentError(
                    f"{name}: a packed sequence has its own lengths",
                    where=st.here(),
                    hint="leave `lengths` out, or give the padded array: `packed.padded`",
                )
            x, lengths = x.padded, x.lengths
        check_dtype(name, x, self.weight_ih_l0)
        if len(x.shape) not in (2, 3) or x.shape[-1] != self.input_size:
            raise st.ShapeError(
                f"{name} takes (T, N, {self.input_size}) or (T, {self.input_size}), its input is {x.shape}",
                where=st.here(),
                hint="with `batch_first=True` it takes (N, T, features)",
            )
        batched = len(x.shape) == 3
        if not batched:
            x = st.expand_dims(x, 1)
            states = [None if state is None else st.expand_dims(state, 1) for state in states]
        elif self.batch_first and not is_packed:
            x = st.swapaxes(x, 0, 1)
        wanted = (self.num_layers * len(self.directions), x.shape[1], self.hidden_size)
        for state in states:
            if state is not None and tuple(state.shape) != wanted:
                raise st.ShapeError(f"{name} takes states {wanted}, got {tuple(state.shape)}", where=st.here())
        last: list[list[Any]] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = st.dropout(x, self.dropout)
            ys = []
            for direction in self.directions:
                given = [None if state is None else state[len(last)] for state in states]
                y, after = self.run_layer(x, given, {**self.arguments_of(layer, direction), "lengths": lengths})
                ys.append(y)
                last.append(after)
            x = ys[0] if len(ys) == 1 else st.concat(ys, axis=2)
        ends = [st.stack(list(kind)) for kind in zip(*last, strict=True)]
        if is_packed:
            return PackedSequence(x, lengths), ends
        if not batched:
            return st.squeeze(x, 1), [st.squeeze(end, 1) for end in ends]
        return (st.swapaxes(x, 0, 1) if self.batch_first else x), ends


class _OneState(_Recurrent):
    """A recurrent layer whose state is one array."""

    def forward(self, x: Any, hx: Any = None, *, lengths: Any = None) -> Any:
        """(y, h): the last layer's states at all steps, and every layer's after the last; `hx` is the first, by default
        0.
        """
        y, (h,) = self.run(x, [hx], lengths)
        return y, h


class RNN(_OneState):
    """h = tanh(x w_ih^T + b_ih + h w_hh^T + b_hh) over a sequence, or relu. Source: Elman, 1990."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = st.f32,
    ) -> None:
        check_option("RNN", "nonlinearity", nonlinearity, ("tanh", "relu"))
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype=dtype)

    def run_layer(self, x: Any, state: list[Any], arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
        """One layer in one direction."""
        y, h = st.rnn(x, state[0], **arguments, nonlinearity=self.nonlinearity)
        return y, [h]


class GRU(_OneState):
    """Gated recurrent units over a sequence. Source: Cho et al., 2014."""

    gates = 3

    def run_layer(self, x: Any, state: list[Any], arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
        """One layer in one direction."""
        y, h = st.gru(x, state[0], **arguments)
        return y, [h]


class LSTM(_Recurrent):
    """Long short-term memory over a sequence. Source: Hochreiter and Schmidhuber, 1997; Gers et al., 2000."""

    gates = 4

    def run_layer(self, x: Any, state: list[Any], arguments: dict[str, Any]) -> tuple[Any, list[Any]]:
        """One layer in one direction."""
        y, after = st.lstm(x, None if state[0] is None else (state[0], state[1]), **arguments)
        return y, list(after)

    def forward(self, x: Any, hx: Any = None, *, lengths: Any = None) -> Any:
        """(y, (h, c)): the last layer's h at all steps, and every layer's state after the last; `hx` is the first (h,
        c).
        """
        y, (h, c) = self.run(x, [None, None] if hx is None else [hx[0], hx[1]], lengths)
        return y, (h, c)


# ---- one step -------------------------------------------------------------------------------------


class _Cell(Module):
    """One step of a layer: x (N, input_size) or (input_size,), states (N, hidden_size) or (hidden_size,)."""

    gates = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: Any = st.f32) -> None:
        check_sizes(type(self).__name__, 0, input_size=input_size)
        check_sizes(type(self).__name__, hidden_size=hidden_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        wide = self.gates * hidden_size
        self.weight_ih = uniform((wide, input_size), hidden_size, dtype)
        self.weight_hh = uniform((wide, hidden_size), hidden_size, dtype)
        self.bias_ih = uniform((wide,), hidden_size, dtype) if bias else None
        self.bias_hh = uniform((wide,), hidden_size, dtype) if bias else None

    def extra_repr(self) -> str:
        """The sizes, and each option that differs from its default, as `repr` shows them."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias_ih is not None else ", bias=False")

    def one_step(self, x: Any, states: list[Any], function: Any, **options: Any) -> list[Any]:
        """The states after one step, by the function of the whole layer on a sequence of one."""
        name = type(self).__name__
        check_dtype(name, x, self.weight_ih)
        if len(x.shape) not in (1, 2) or x.shape[-1] != self.input_size:
            raise st.ShapeError(
                f"{name} takes (N, {self.input_size}) or ({self.input_size},), its input is {x.shape}", where=st.here()
            )
        batched = len(x.shape) == 2
        given = [None if state is None else state if batched else st.expand_dims(state, 0) for state in states]
        state = given[0] if len(given) == 1 else None if given[0] is None else tuple(given)
        sequence = st.expand_dims(x, 0) if batched else st.reshape(x, (1, 1, -1))
        biases = [bias.value for bias in (self.bias_ih, self.bias_hh) if bias is not None]
        _, after = function(sequence, state, self.weight_ih.value, self.weight_hh.value, *biases, **options)
        ends = after if isinstance(after, tuple) else (after,)
        return [end if batched else st.squeeze(end, 0) for end in ends]


class RNNCell(_Cell):
    """One step of `RNN`."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", *, dtype: Any = st.f32
    ) -> None:
        check_option("RNNCell", "nonlinearity", nonlinearity, ("tanh", "relu"))
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, dtype=dtype)

    def forward(self, x: Any, hx: Any = None) -> Any:
        """The next h."""
        (h,) = self.one_step(x, [hx], st.rnn, nonlinearity=self.nonlinearity)
        return h


class GRUCell(_Cell):
    """One step of `GRU`."""

    gates = 3

    def forward(self, x: Any, hx: Any = None) -> Any:
        """The next h."""
        (h,) = self.one_step(x, [hx], st.gru)
        return h


class LSTMCell(_Cell):
    """One step of `LSTM`."""

    gates = 4

    def forward(self, x: Any, hx: Any = None) -> Any:
        """The next (h, c)."""
        h, c = self.one_step(x, [None, None] if hx is None else [hx[0], hx[1]], st.lstm)
        return h, c
