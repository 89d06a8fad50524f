"""Recurrent layers by cuDNN: eager's values and gradients, which layers are calls, and what these keep."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, nn, optim, with_backend
from staged.frontend.values import trees
from tests.backends.cublas_cudnn.harness import agrees_in_any_order, on_gpu, trains_as_on_the_host

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(11)
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 4, 6


def routines(text: str) -> list[str]:
    """The calls of cuDNN that are written, without those that make or destroy what they need."""
    return re.findall(r"CUDNN_CHECK\(site, cudnn(RNN\w+)\(", text)


def arrays_of(gates: int, states: int, dtype: str, biased: bool = True) -> list[np.ndarray[Any, Any]]:
    """x, the states, the weights and the biases."""
    shapes = [(STEPS, BATCH, INPUTS), *[(BATCH, HIDDEN)] * states, (gates * HIDDEN, INPUTS), (gates * HIDDEN, HIDDEN)]
    shapes += [(gates * HIDDEN,)] * 2 if biased else []
    return [RANDOM.normal(0.0, 0.5, size=shape).astype(dtype) for shape in shapes]


def lstm(reverse: bool) -> Callable[..., Any]:
    return lambda x, h, c, *weights: st.lstm(x, (h, c), *weights, reverse=reverse)


def gru(reverse: bool, lengths: Any = None) -> Callable[..., Any]:
    return lambda x, h, *weights: st.gru(x, h, *weights, reverse=reverse, lengths=lengths)


def rnn(reverse: bool, nonlinearity: str) -> Callable[..., Any]:
    return lambda x, h, *weights: st.rnn(x, h, *weights, reverse=reverse, nonlinearity=nonlinearity)


LAYERS: dict[str, tuple[Callable[..., Any], list[np.ndarray[Any, Any]], float]] = {
    "lstm": (lstm(False), arrays_of(4, 2, "f4"), 1e-5),
    "lstm backwards": (lstm(True), arrays_of(4, 2, "f8", biased=False), 1e-11),
    "gru": (gru(False), arrays_of(3, 1, "f4"), 1e-5),
    "gru backwards": (gru(True), arrays_of(3, 1, "f8"), 1e-11),
    "gru of lengths": (gru(True, [2, STEPS, 1]), arrays_of(3, 1, "f8"), 1e-11),
    "tanh": (rnn(False, "tanh"), arrays_of(1, 1, "f8"), 1e-11),
    "tanh backwards": (rnn(True, "tanh"), arrays_of(1, 1, "f4", biased=False), 1e-5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients_agree_with_eager(name: str, device: Emulator) -> None:
    layer, arrays, tolerance = LAYERS[name]

    def everything(*arrays: Any) -> Any:
        def of_all(*arrays: Any) -> Any:
            results = trees.flatten(layer(*arrays))[0]
            return sum(st.sum(st.sin(result)) * (number + 1.0) for number, result in enumerate(results))

        def of_sequence(*arrays: Any) -> Any:
            return st.mean(layer(*arrays)[0] ** 2)

        def of_last_state(*arrays: Any) -> Any:
            return st.sum(trees.flatten(layer(*arrays))[0][-1])

        # A layer of its own each: no cotangent of the sequence, or of a state, is one of zeros.
        wrt = tuple(range(len(arrays)))
        gradients = [
            st.grad(loss, argnums=wrt)(arrays[0] * scale, *arrays[1:])
            for loss, scale in ((of_all, 1.0), (of_sequence, 0.5), (of_last_state, 2.0))
        ]
        return layer(arrays[0] * 3.0, *arrays[1:]), gradients

    staged = on_gpu(everything)
    agrees_in_any_order(staged, device, tolerance, *arrays)
    text = staged.stage(*arrays).source
    assert (text.count("CUDNN_FWD_MODE_INFERENCE, NULL"), text.count("CUDNN_FWD_MODE_TRAINING, NULL")) == (1, 3)
    assert routines(text).count("RNNBackwardData_v8") == routines(text).count("RNNBackwardWeights_v8") == 3
    assert text.count("// what a call of cuDNN keeps for its reverse") == 3
    assert "gemm" not in text


def test_relu_is_not_cudnns_and_keeps_not_a_number(device: Emulator) -> None:
    x, *rest = arrays_of(1, 1, "f4", biased=False)
    x = x.copy()
    x[1, 0, 0] = np.nan

    def last(*arrays: Any) -> Any:
        return st.grad(lambda x: st.sum(rnn(True, "relu")(x, *arrays[1:])[0][-1:]))(arrays[0]), rnn(True, "relu")(*arrays)

    staged = on_gpu(last)
    agrees_in_any_order(staged, device, 1e-5, x, *rest)
    assert np.isnan(staged(x, *rest)[1][0]).any()
    assert "cudnnRNN" not in staged.stage(x, *rest).source


@pytest.mark.parametrize("uses_cells", [False, True])
def test_an_lstm_of_lengths_is_a_call_unless_its_cells_are_used(uses_cells: bool, device: Emulator) -> None:
    def slopes(x: Any, h: Any, c: Any, *weights: Any) -> Any:
        def loss(x: Any) -> Any:
            ys, (_, last) = st.lstm(x, (h, c), *weights, lengths=[2, STEPS, 1])
            return st.sum(ys**2) + (st.sum(st.sin(last)) if uses_cells else 0.0)

        return st.value_and_grad(loss)(x)

    arrays = arrays_of(4, 2, "f8")
    staged = on_gpu(slopes)
    agrees_in_any_order(staged, device, 1e-11, *arrays)
    assert bool(routines(staged.stage(*arrays).source)) != uses_cells


def test_a_stack_in_both_directions_trains_as_on_the_host(device: Emulator) -> None:
    x, wanted = RANDOM.normal(size=(STEPS, BATCH, INPUTS)), RANDOM.normal(size=(STEPS, BATCH, 2 * HIDDEN))

    def train(backend: Any) -> tuple[Any, Any]:
        @st.function(target="portable")
        def fit(x: Any, wanted: Any) -> Any:
            st.seed(3)
            net = nn.LSTM(INPUTS, HIDDEN, num_layers=2, bidirectional=True, dtype=st.f64)
            adam = optim.Adam(net.parameters(), lr=0.03)
            losses = st.zeros((6,), dtype=st.f64)
            with with_backend(backend, x, wanted):
                for step in st.range(6):
                    loss, grads = st.value_and_grad(lambda: st.mean((net(x)[0] - wanted) ** 2), wrt=net)()
                    adam.step(grads)
                    losses[step] = loss
            return losses, net.state_dict()

        return fit(x, wanted), fit.stage(x, wanted).source

    text, _ = trains_as_on_the_host(train, device, rtol=1e-8, atol=1e-8)
    # Four layers of two shapes, each with its reverse; what describes them is made once, and given back.
    assert routines(text).count("RNNForward") == routines(text).count("RNNBackwardData_v8") == 4
    assert text.count("cudnnSetRNNDescriptor_v8") == 2
    assert len(re.findall(r"gpu->recurrent_weights = ", text)) == 1


def unrolled(layer: Callable[..., Any], states: int) -> Callable[..., Any]:
    """The gradients of a layer that goes on from its last states, in the iterations of two loops."""

    def gradients(x: Any, *rest: Any) -> Any:
        def loss(x: Any, *rest: Any) -> Any:
            now, weights, total = list(rest[:states]), rest[states:], 0.0
            for _ in st.range(2):
                for k in st.range(2):
                    ys, *after = trees.flatten(layer(x * (k + 1.0), *now, *weights))[0]
                    now = list(after)
                    total = total + st.sum(ys * ys)
            return total + sum(st.sum(state) for state in now)

        return st.value_and_grad(loss, argnums=tuple(range(1 + len(rest))))(x, *rest)

    return gradients


@pytest.mark.parametrize(("name", "states"), [("lstm", 2), ("gru backwards", 1), ("tanh", 1)])
def test_a_reverse_in_another_loop_goes_through_the_sequence_once_more(
    name: str, states: int, device: Emulator
) -> None:
    layer, arrays, tolerance = LAYERS[name]
    staged = on_gpu(unrolled(layer, states))
    agrees_in_any_order(staged, device, 50 * tolerance, *arrays)
    text = staged.stage(*arrays).source
    expected = ["RNNForward", "RNNForward", "RNNBackwardData_v8", "RNNBackwardWeights_v8"]
    assert routines(text) == expected
    assert (text.count("CUDNN_FWD_MODE_INFERENCE, NULL"), text.count("CUDNN_FWD_MODE_TRAINING, NULL")) == (1, 1)
    # Nothing of the steps is kept but what the loop hands on or the loss needs.
    assert not re.findall(r"(gates|cells|candidates)_history", text)


def test_second_derivatives_are_kernels(device: Emulator) -> None:
    def curved(x: Any, *rest: Any) -> Any:
        def slope(x: Any) -> Any:
            return st.sum(st.grad(lambda x: st.sum(st.gru(x, *rest)[0] ** 2))(x) ** 2)

        return st.grad(slope)(x)

    arrays = arrays_of(3, 1, "f8")
    staged = on_gpu(curved)
    agrees_in_any_order(staged, device, 1e-10, *arrays)
    assert not routines(staged.stage(*arrays).source)


def test_two_reverses_do_not_share_what_is_kept(device: Emulator) -> None:
    def twice(x: Any, h: Any, *weights: Any) -> Any:
        (ys, last), pull = st.vjp(lambda x: st.rnn(x, h, *weights), x)
        return pull((ys, last)), pull((st.sin(ys), st.cos(last)))

    arrays = arrays_of(1, 1, "f8")
    staged = on_gpu(twice)
    agrees_in_any_order(staged, device, 1e-11, *arrays)
    text = staged.stage(*arrays).source
    assert (
        routines(text).count("RNNBackwardData_v8") == text.count("// what a call of cuDNN keeps for its reverse") == 2
    )


def test_a_layer_in_the_body_of_a_loop_keeps_for_the_reverse_of_the_same_iteration(device: Emulator) -> None:
    def steps(x: Any, h: Any, c: Any, *weights: Any) -> Any:
        first, *rest = weights
        for _ in st.range(3):
            gradient = st.grad(lambda w: st.sum(st.lstm(x, (h, c), w, *rest)[0] ** 2))(first)
            first = first - 0.1 * gradient
        return first

    arrays = arrays_of(4, 2, "f8")
    staged = on_gpu(steps)
    agrees_in_any_order(staged, device, 1e-10, *arrays)
    assert routines(staged.stage(*arrays).source) == ["RNNForward", "RNNBackwardData_v8", "RNNBackwardWeights_v8"]


def test_layers_of_no_sequences_and_on_the_host_are_no_calls() -> None:
    arrays = arrays_of(3, 1, "f4")
    empty = [np.zeros((STEPS, 0, INPUTS), "f4"), np.zeros((0, HIDDEN), "f4"), *arrays[2:]]
    assert "cudnn.h" not in on_gpu(gru(False)).stage(*empty).source

    def beside(x: Any, *rest: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
        return y, st.gru(x, *rest)

    assert "RNN" not in st.function(target="portable")(beside).stage(*arrays).lowered_ir.upper().replace("KERNEL", "")


def test_tf32_is_said_to_the_layer() -> None:
    arrays = arrays_of(3, 1, "f4")
    for options, math in (({}, "CUDNN_FMA_MATH"), ({"tf32": True}, "CUDNN_DEFAULT_MATH")):
        text = on_gpu(gru(False), **options).stage(*arrays).source
        assert re.findall(r"CUDNN_\w+_MATH", text) == [math]
