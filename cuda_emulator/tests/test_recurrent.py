"""Recurrent layers and the CTC loss of cuDNN on the emulated device against PyTorch, which has cuDNN's conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cuda_library import Array, Buffer
from cudnn_library import Cudnn, data_type

pytestmark = pytest.mark.live  # it takes PyTorch's own layers apart
torch: Any = None
RANDOM = np.random.default_rng(7)


@pytest.fixture(autouse=True, scope="module")
def _pytorch(library: Any) -> None:
    globals()["torch"] = library("torch")


# ---- recurrent layers ----

SEQ, PACKED, BATCH = (
    f"CUDNN_RNN_DATA_LAYOUT_{name}" for name in ("SEQ_MAJOR_UNPACKED", "SEQ_MAJOR_PACKED", "BATCH_MAJOR_UNPACKED")
)
GATES = {"RNN_RELU": 1, "RNN_TANH": 1, "LSTM": 4, "GRU": 3}


@dataclass(frozen=True)
class Case:
    """A recurrent layer: torch's name of its cell, layers, directions, lengths of sequences, layout of the data."""

    mode: str
    layers: int = 1
    directions: int = 1
    lengths: tuple[int, ...] = (4, 4, 4)
    layout: str = SEQ
    bias: bool = True
    input: int = 3
    hidden: int = 2

    def reference(self) -> Any:
        """The same layer of PyTorch in f64, with random weights."""
        kind = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}.get(self.mode, torch.nn.RNN)
        more = {"nonlinearity": self.mode[4:].lower()} if self.mode.startswith("RNN") else {}
        return kind(
            self.input, self.hidden, self.layers, bias=self.bias, bidirectional=self.directions == 2, dtype=torch.float64,
            **more,
        )  # fmt: skip

    def arranged(self, padded: Array) -> Array:
        """Data (steps, batch, vector) as the layout has them."""
        if self.layout == BATCH:
            return np.ascontiguousarray(padded.swapaxes(0, 1))
        if self.layout == PACKED:
            steps = range(max(self.lengths))
            return np.concatenate([padded[t, : sum(length > t for length in self.lengths)] for t in steps])
        return padded


class Layer:
    """A recurrent layer of cuDNN with the weights of one of PyTorch."""

    def __init__(self, cudnn: Cudnn, case: Case, reference: Any) -> None:
        self.cudnn, self.case, self.reference = cudnn, case, reference
        dropout = cudnn.descriptor("Dropout")
        cudnn.do("cudnnSetDropoutDescriptor", dropout, cudnn.handle, 0.0, None, 0, 0)
        self.rnn, type = cudnn.descriptor("RNN"), data_type(np.float64)
        cudnn.do(
            "cudnnSetRNNDescriptor_v8", self.rnn, "CUDNN_RNN_ALGO_STANDARD", f"CUDNN_{case.mode}",
            "CUDNN_RNN_DOUBLE_BIAS" if case.bias else "CUDNN_RNN_NO_BIAS",
            "CUDNN_BIDIRECTIONAL" if case.directions == 2 else "CUDNN_UNIDIRECTIONAL", "CUDNN_LINEAR_INPUT", type, type,
            "CUDNN_FMA_MATH", case.input, case.hidden, case.hidden, case.layers, dropout, 1,
        )  # fmt: skip
        self.x_desc, self.y_desc = self._data(case.input), self._data(case.hidden * case.directions)
        self.size = int(cudnn.asked("cudnnGetRNNWeightSpaceSize", "size_t", cudnn.handle, self.rnn))
        work, reserve = cudnn.ffi.new("size_t *"), cudnn.ffi.new("size_t *")
        cudnn.do(
            "cudnnGetRNNTempSpaceSizes", cudnn.handle, self.rnn, "CUDNN_FWD_MODE_TRAINING", self.x_desc, work, reserve
        )
        self.work, self.reserve = cudnn.workspace(work[0]), cudnn.workspace(reserve[0])
        self.weights = cudnn.put(self.packed(lambda parameter: parameter.detach().numpy()))

    def _data(self, vector: int) -> Any:
        described, lengths = self.cudnn.descriptor("RNNData"), self.case.lengths
        self.cudnn.do(
            "cudnnSetRNNDataDescriptor", described, data_type(np.float64), self.case.layout, max(lengths), len(lengths),
            vector, lengths, self.cudnn.scalar(0.0, np.float64),
        )  # fmt: skip
        return described

    def packed(self, of: Any) -> Array:
        """The result of `of` for each of PyTorch's parameters, where cuDNN has it in its weights."""
        space, base, hidden = np.zeros(self.size // 8), 4096, self.case.hidden
        matrix, bias = self.cudnn.ffi.new("void **"), self.cudnn.ffi.new("void **")
        descs = self.cudnn.descriptor("Tensor"), self.cudnn.descriptor("Tensor")
        gates = GATES[self.case.mode]
        for pseudo in range(self.case.layers * self.case.directions):
            layer, reverse = divmod(pseudo, self.case.directions)
            for linear in range(2 * gates):
                self.cudnn.do(
                    "cudnnGetRNNWeightParams", self.cudnn.handle, self.rnn, pseudo, self.size,
                    self.cudnn.ffi.cast("void *", base), linear, descs[0], matrix, descs[1], bias,
                )  # fmt: skip
                side, gate = ("ih", "hh")[linear // gates], linear % gates
                name = f"{side}_l{layer}{'_reverse' * reverse}"
                for kind, address in (("weight", matrix[0]), ("bias", bias[0])):
                    if kind == "bias" and not self.case.bias:
                        assert address == self.cudnn.ffi.NULL
                        continue
                    value = of(getattr(self.reference, f"{kind}_{name}"))[gate * hidden : (gate + 1) * hidden].ravel()
                    start = (int(self.cudnn.ffi.cast("intptr_t", address)) - base) // 8
                    space[start : start + value.size] = value
        return space


def _sequences(case: Case, vector: int) -> Array:
    """Random data with zeros behind the end of each sequence."""
    data = RANDOM.standard_normal((max(case.lengths), len(case.lengths), vector))
    for b, length in enumerate(case.lengths):
        data[length:, b] = 0.0
    return data


CASES = [
    *(pytest.param(Case(mode), id=mode) for mode in GATES),
    *(pytest.param(Case(mode, layers=2, directions=2), id=f"{mode}, two layers, both ways") for mode in GATES),
    pytest.param(Case("LSTM", bias=False, layout=BATCH), id="batch first, no bias"),
    pytest.param(Case("LSTM", 2, 2, (4, 3, 1)), id="LSTM, padded"),
    pytest.param(Case("GRU", 2, 2, (4, 3, 1), PACKED), id="GRU, packed"),
    pytest.param(Case("GRU", 1, 2, (2, 4, 3), BATCH), id="GRU, batch first, any order"),
]


@pytest.mark.parametrize("case", CASES)
def test_a_recurrent_layer(cudnn: Cudnn, case: Case) -> None:
    torch.manual_seed(0)
    layer = Layer(cudnn, case, case.reference())
    x, dy = _sequences(case, case.input), _sequences(case, case.hidden * case.directions)
    states = (case.layers * case.directions, len(case.lengths), case.hidden)
    hx, cx, dhy, dcy = (RANDOM.standard_normal(states) for _ in range(4))
    wanted = _torch(layer.reference, case, x, (hx, cx), dy, (dhy, dcy))

    def empty(like: Array) -> Buffer:
        return cudnn.put(np.full_like(like, np.nan))

    on_x, y, hy, cy = cudnn.put(case.arranged(x)), empty(case.arranged(dy)), empty(hx), empty(cx)
    state, weights = cudnn.tensor(hx), (layer.size, layer.weights)
    on_hx, on_cx = cudnn.put(hx), cudnn.put(cx)
    memory = (layer.work[1], layer.work[0], layer.reserve[1], layer.reserve[0])
    cudnn.do(
        "cudnnRNNForward", cudnn.handle, layer.rnn, "CUDNN_FWD_MODE_TRAINING", None, layer.x_desc, on_x, layer.y_desc, y,
        state, on_hx, hy, state, on_cx, cy, *weights, *memory,
    )  # fmt: skip
    dx, dhx, dcx = empty(case.arranged(x)), empty(hx), empty(cx)
    cudnn.do(
        "cudnnRNNBackwardData_v8", cudnn.handle, layer.rnn, None, layer.y_desc, y, cudnn.put(case.arranged(dy)),
        layer.x_desc, dx, state, on_hx, cudnn.put(dhy), dhx, state, on_cx, cudnn.put(dcy), dcx, *weights, *memory,
    )  # fmt: skip
    start = np.ones(layer.size // 8)
    d_weights = cudnn.put(start)  # gradients add to what is there
    cudnn.do(
        "cudnnRNNBackwardWeights_v8", cudnn.handle, layer.rnn, "CUDNN_WGRAD_MODE_ADD", None, layer.x_desc, on_x, state,
        on_hx, layer.y_desc, y, layer.size, d_weights, *memory,
    )  # fmt: skip
    got = {
        "y": y.read(), "hy": hy.read(), "dx": dx.read(), "dhx": dhx.read(), "weights": d_weights.read() - start,
    }  # fmt: skip
    if case.mode == "LSTM":
        got |= {"cy": cy.read(), "dcx": dcx.read()}
    wanted["weights"] = layer.packed(lambda parameter: parameter.grad.numpy())
    for name, value in got.items():
        expected = case.arranged(wanted[name]) if name in ("y", "dx") else wanted[name]
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9, err_msg=name)


def _torch(
    reference: Any, case: Case, x: Array, states: tuple[Array, Array], dy: Array, d_states: tuple[Array, Array]
) -> dict[str, Array]:
    """Values and gradients of PyTorch's layer."""
    on_x = torch.tensor(x, requires_grad=True)
    on_h, on_c = (torch.tensor(state, requires_grad=True) for state in states)
    packed = torch.nn.utils.rnn.pack_padded_sequence(on_x, torch.tensor(case.lengths), enforce_sorted=False)
    is_lstm = case.mode == "LSTM"
    packed_y, last = reference(packed, (on_h, on_c) if is_lstm else on_h)
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(packed_y)
    h, c = last if is_lstm else (last, None)
    total = (y * torch.tensor(dy)).sum() + (h * torch.tensor(d_states[0])).sum()
    if is_lstm:
        total = total + (c * torch.tensor(d_states[1])).sum()
    total.backward()
    got = {"y": y, "hy": h, "dx": on_x.grad, "dhx": on_h.grad}
    if is_lstm:
        got |= {"cy": c, "dcx": on_c.grad}
    return {name: value.detach().numpy() for name, value in got.items()}


def test_inference_needs_no_reserve_and_null_states_are_zero(cudnn: Cudnn) -> None:
    case = Case("LSTM", layers=2)
    layer, x = Layer(cudnn, case, case.reference()), _sequences(case, case.input)
    y = cudnn.put(np.full((4, 3, 2), np.nan))
    state = cudnn.tensor(np.zeros((2, 3, 2)))
    cudnn.do(
        "cudnnRNNForward", cudnn.handle, layer.rnn, "CUDNN_FWD_MODE_INFERENCE", None, layer.x_desc, cudnn.put(x),
        layer.y_desc, y, state, None, None, state, None, None, layer.size, layer.weights, layer.work[1], layer.work[0], 0,
        None,
    )  # fmt: skip
    np.testing.assert_allclose(y.read(), layer.reference(torch.tensor(x))[0].detach().numpy(), rtol=1e-9)


def test_a_reserve_that_is_too_small_and_states_of_another_shape_are_refused(cudnn: Cudnn) -> None:
    case = Case("GRU")
    layer, x, y = Layer(cudnn, case, case.reference()), _sequences(case, 3), cudnn.put(np.zeros((4, 3, 2)))
    data = (layer.x_desc, cudnn.put(x), layer.y_desc, y)
    how = ("cudnnRNNForward", cudnn.handle, layer.rnn, "CUDNN_FWD_MODE_TRAINING", None, *data)
    weights = (layer.size, layer.weights, layer.work[1], layer.work[0])
    state, other = cudnn.tensor(np.zeros((1, 3, 2))), cudnn.tensor(np.zeros((2, 3, 2)))
    full = layer.reserve[1], layer.reserve[0]
    words = "h's descriptor is not packed (pseudo-layers, batch, hidden) = (1, 3, 2)"
    cudnn.refused(words, *how, other, None, None, other, None, None, *weights, *full)
    words = "the reserve space has 8 bytes and needs"
    cudnn.refused(words, *how, state, None, None, state, None, None, *weights, 8, layer.reserve[0])


# ---- CTC loss ----

LABELS, INPUT_LENGTHS = ([1, 2, 2], [3], [1, 4, 1, 2]), (6, 4, 7)


def _ctc_reference(logits: Array) -> tuple[Array, Array]:
    """Costs, and the gradient of their sum, by PyTorch."""
    at = torch.tensor(logits, requires_grad=True)
    lengths = torch.tensor([len(label) for label in LABELS])
    costs = torch.nn.functional.ctc_loss(
        at.log_softmax(2), torch.tensor(sum(LABELS, [])), torch.tensor(INPUT_LENGTHS), lengths, reduction="none"
    )
    costs.sum().backward()
    return costs.detach().numpy(), at.grad.numpy()


def _loss(cudnn: Cudnn, normalization: str) -> Any:
    described = cudnn.descriptor("CTCLoss")
    cudnn.do(
        "cudnnSetCTCLossDescriptor_v9", described, "CUDNN_DATA_FLOAT", f"CUDNN_LOSS_NORMALIZATION_{normalization}",
        "CUDNN_CTC_ZERO_OOB_GRADIENTS", 5,
    )  # fmt: skip
    return described


@pytest.mark.parametrize("normalization", ["SOFTMAX", "NONE"])
@pytest.mark.parametrize("on_device", [False, True])
def test_the_ctc_loss(cudnn: Cudnn, normalization: str, on_device: bool) -> None:
    logits = RANDOM.standard_normal((7, 3, 5)).astype(np.float32)
    costs, gradients = cudnn.room(3), cudnn.room(7, 3, 5)
    shifted = np.exp(logits)
    given = logits if normalization == "SOFTMAX" else shifted / shifted.sum(axis=2, keepdims=True)
    probs, on_probs = cudnn.pair(given)
    described, algorithm, grads = (
        _loss(cudnn, normalization),
        "CUDNN_CTC_LOSS_ALGO_DETERMINISTIC",
        cudnn.tensor(gradients),
    )
    host = tuple(sum(LABELS, [])), tuple(len(label) for label in LABELS), INPUT_LENGTHS
    if on_device:
        size = cudnn.asked(
            "cudnnGetCTCLossWorkspaceSize_v8", "size_t", cudnn.handle, algorithm, described, probs, grads
        )
        labels = [cudnn.put(np.array(numbers, np.int32)) for numbers in host]
        memory, size = cudnn.workspace(size)
        cudnn.do(
            "cudnnCTCLoss_v8", cudnn.handle, algorithm, described, probs, on_probs, *labels, costs, grads, gradients, size,
            memory,
        )  # fmt: skip
    else:
        size = cudnn.asked(
            "cudnnGetCTCLossWorkspaceSize", "size_t", cudnn.handle, probs, grads, *host, algorithm, described
        )
        cudnn.do(
            "cudnnCTCLoss", cudnn.handle, probs, on_probs, *host, costs, grads, gradients, algorithm, described,
            *cudnn.workspace(size),
        )  # fmt: skip
    wanted, wanted_gradients = _ctc_reference(logits.astype(np.float64))
    np.testing.assert_allclose(costs.read(), wanted, rtol=1e-5)
    found = gradients.read()
    for number, length in enumerate(INPUT_LENGTHS):
        inside = found[:length, number]
        np.testing.assert_allclose(inside, wanted_gradients[:length, number], rtol=1e-4, atol=1e-6)
        assert np.isnan(found[length:, number]).all()  # nobody promises anything of these


@pytest.mark.parametrize("mode, gradient", [("ZERO", 0.0), ("SKIP", 5.0)])
def test_a_label_that_cannot_be_had_has_no_gradient_or_the_one_that_was_there(
    cudnn: Cudnn, mode: str, gradient: float
) -> None:
    probs, on_probs = cudnn.pair(np.zeros((2, 1, 3), np.float32))
    labels = [cudnn.put(np.array(numbers, np.int32)) for numbers in ([1, 1], [2], [2])]
    described, costs = cudnn.descriptor("CTCLoss"), cudnn.room(1)
    gradients = cudnn.put(np.full((2, 1, 3), 5.0, np.float32))
    cudnn.do(
        "cudnnSetCTCLossDescriptor_v9", described, "CUDNN_DATA_FLOAT", "CUDNN_LOSS_NORMALIZATION_SOFTMAX",
        f"CUDNN_CTC_{mode}_OOB_GRADIENTS", 2,
    )  # fmt: skip
    memory, size = cudnn.workspace(4096)
    cudnn.do(
        "cudnnCTCLoss_v8", cudnn.handle, 0, described, probs, on_probs, *labels, costs, probs, gradients, size, memory
    )
    assert costs.read() == np.inf
    np.testing.assert_array_equal(gradients.read(), np.full((2, 1, 3), gradient))


def test_labels_of_more_than_255_characters_are_refused(cudnn: Cudnn) -> None:
    described = cudnn.descriptor("CTCLoss")
    arguments = ["CUDNN_DATA_FLOAT", "CUDNN_LOSS_NORMALIZATION_SOFTMAX", "CUDNN_CTC_ZERO_OOB_GRADIENTS"]
    assert cudnn.status("cudnnSetCTCLossDescriptor_v9", described, *arguments, 255) == 0
    assert cudnn.status("cudnnSetCTCLossDescriptor_v9", described, *arguments, 256) != 0
    assert "labels of more than 255 characters" in cudnn.emulator.last_violation()
    cudnn.expect_violation()


def test_a_label_with_more_characters_than_its_input_has_steps_is_refused(cudnn: Cudnn) -> None:
    probs, on_probs = cudnn.pair(np.zeros((3, 1, 5), np.float32))
    labels = [cudnn.put(np.array(numbers, np.int32)) for numbers in ([1, 2, 3], [3], [2])]
    described, costs, (memory, size) = _loss(cudnn, "SOFTMAX"), cudnn.room(1), cudnn.workspace(4096)
    cudnn.do(
        "cudnnCTCLoss_v8", cudnn.handle, 0, described, probs, on_probs, *labels, costs, probs, None, size, memory
    )
    assert cudnn.status("cudaDeviceSynchronize") != 0
    assert "label 0 has 3 characters, and its input 2 steps" in cudnn.emulator.last_violation()
    cudnn.expect_violation()


def test_a_label_that_is_longer_than_said_is_refused(cudnn: Cudnn) -> None:
    probs, on_probs = cudnn.pair(np.zeros((3, 1, 5), np.float32))
    described, costs = _loss(cudnn, "SOFTMAX"), cudnn.room(1)
    labels = [cudnn.put(np.array(numbers, np.int32)) for numbers in ([1] * 6, [6], [3])]
    memory, size = cudnn.workspace(4096)
    before = cudnn.emulator.counts().violations
    cudnn.do(
        "cudnnCTCLoss_v8", cudnn.handle, 0, described, probs, on_probs, *labels, costs, probs, None, size, memory
    )  # what lies on the device is seen when the work runs: the next call that waits has the error
    assert cudnn.status("cudaDeviceSynchronize") != 0
    assert cudnn.emulator.counts().violations == before + 1
    assert "label 0 has 6 characters, and 5 are allowed" in cudnn.emulator.last_violation()
    cudnn.expect_violation()
