"""Recurrent layers against torch's with the same weights: values, states, gradients, keys; sequences of different lengths; the
cells; the program's text."""

import sys

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.frontend.values import trees
from staged.nn.utils import rnn
from tests.errors.said import refusals
from tests.torch_reference import reference

RNG = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def _same_numbers_in_every_order(monkeypatch):
    """A test draws the same numbers, whatever ran before in this process."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(4))


T, N, IN, HID = 5, 3, 4, 6
X = RNG.standard_normal((T, N, IN))
LENGTHS = np.array([2, T, 3])
DEEP = {"num_layers": 2, "bidirectional": True}

# kind, options, whether states are given, and for sequences of different lengths how these are said
LAYERS = {
    "rnn": ("RNN", {}, True, ""),
    "rnn_relu": ("RNN", {"nonlinearity": "relu"}, False, ""),
    "rnn_deep": ("RNN", {**DEEP, "bias": False}, True, ""),
    "rnn_of_lengths": ("RNN", {"nonlinearity": "relu"}, False, "lengths"),
    "lstm": ("LSTM", {}, True, ""),
    "lstm_without_bias": ("LSTM", {"bias": False}, False, ""),
    "lstm_deep": ("LSTM", {**DEEP, "batch_first": True}, True, ""),
    "lstm_of_lengths": ("LSTM", {**DEEP, "batch_first": True}, True, "lengths"),
    "gru": ("GRU", {}, True, ""),
    "gru_without_bias": ("GRU", {"bias": False}, False, ""),
    "gru_deep": ("GRU", DEEP, True, ""),
    "gru_packed": ("GRU", DEEP, True, "packed"),
}


def total(sin, y, ends):
    """A number in which every result counts, each differently."""
    return sum(sin(part * (number + 1.0)).sum() for number, part in enumerate([y, *ends]))


def ends_of(state):
    return list(state) if isinstance(state, tuple) else [state]


def drawn(module):
    """Random weights for a module, by name."""
    return {name: 0.4 * RNG.standard_normal(value.shape) for name, value in module.state_dict().items()}


def with_weights(torch, module, weights):
    """PyTorch's module with these weights; their names and shapes must be the module's own."""
    module.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    assert list(module.state_dict()) == list(weights)
    return module


def packed(rnn, layer, x, lengths, state, batch_first):
    """(y, the last states) of a layer for sequences that are packed before and padded after."""
    y, state = layer(rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False), state)
    return rnn.pad_packed_sequence(y, batch_first, total_length=T)[0], state


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_agrees_with_torch(name):
    kind, options, with_states, said = LAYERS[name]
    ours = getattr(nn, kind)(IN, HID, **options, dtype=st.f64)
    weights = drawn(ours)
    ours.load_state_dict(weights)
    batch_first = options.get("batch_first", False)
    x = np.where((np.arange(T)[:, None] < LENGTHS)[..., None], X, np.nan) if said else X  # nothing depends on the padding
    x = np.swapaxes(x, 0, 1) if batch_first else x
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    states = [RNG.standard_normal((count, N, HID)) for _ in range(2 if kind == "LSTM" else 1)] if with_states else []

    def pack(states):
        return None if not states else tuple(states) if kind == "LSTM" else states[0]

    def called(x, states, lengths):
        if said == "packed":
            return packed(rnn, ours, x, lengths, pack(states), batch_first)
        return ours(x, pack(states), **({"lengths": lengths} if said else {}))

    @st.function
    def run(x, states, lengths):
        def loss(x, states):
            y, state = called(x, states, lengths)
            return total(st.sin, y, ends_of(state)), (y, state)

        (_, results), back = st.value_and_grad(loss, argnums=(0, 1), has_aux=True)(x, states)
        weights = st.grad(lambda: loss(x, states)[0], wrt=ours)()
        return results, back, weights

    def theirs(torch, weights, *inputs):
        layer = with_weights(torch, getattr(torch.nn, kind)(IN, HID, **options, dtype=torch.float64), weights)
        inputs = [torch.tensor(one, requires_grad=True) for one in inputs]
        if said:
            y, state = packed(
                torch.nn.utils.rnn, layer, inputs[0], torch.tensor(LENGTHS), pack(inputs[1:]), batch_first
            )
        else:
            y, state = layer(inputs[0], pack(inputs[1:]))
        total(torch.sin, y, ends_of(state)).backward()
        return [y, *ends_of(state)], [one.grad for one in inputs], {n: p.grad for n, p in layer.named_parameters()}

    expected, expected_back, expected_weights = reference(theirs, weights, x, *states)
    assert list(weights) == list(expected_weights)
    (our_y, our_state), (d_x, d_states), d_weights = run(x, states, LENGTHS)
    for mine, other in zip([our_y, *ends_of(our_state)], expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)
    for mine, other in zip([d_x, *d_states], expected_back, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10)
    for parameter, other in expected_weights.items():
        np.testing.assert_allclose(d_weights[parameter], other, rtol=1e-8, atol=1e-10, err_msg=parameter)
    assert len(run.programs) == 1, run.why_traced()
    eager_y, eager_state = called(x, [np.asarray(one) for one in states], LENGTHS)
    for mine, other in zip([eager_y, *ends_of(eager_state)], expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_cells_agree_with_torch_and_inputs_may_lack_a_batch(kind):
    cell = getattr(nn, f"{kind}Cell")(IN, HID, dtype=st.f64)
    layer = getattr(nn, kind)(IN, HID, num_layers=2, dtype=st.f64)
    weights = drawn(cell), drawn(layer)
    cell.load_state_dict(weights[0])
    layer.load_state_dict(weights[1])
    h, c = RNG.standard_normal((2, N, HID))
    state = (h, c) if kind == "LSTM" else h

    def theirs(torch, cell_weights, layer_weights, x, h, c):
        double = {"dtype": torch.float64}
        cell = with_weights(torch, getattr(torch.nn, f"{kind}Cell")(IN, HID, **double), cell_weights)
        layer = with_weights(torch, getattr(torch.nn, kind)(IN, HID, num_layers=2, **double), layer_weights)
        x, h, c = map(torch.tensor, (x, h, c))
        y, last = layer(x[:, 0])
        return ends_of(cell(x[0], (h, c) if kind == "LSTM" else h)), ends_of(cell(x[0, 0])), [y, *ends_of(last)]

    after, alone, over_layers = reference(theirs, *weights, X, h, c)
    y, last = layer(X[:, 0])
    ours = [*ends_of(cell(X[0], state)), *ends_of(cell(X[0, 0])), y, *ends_of(last)]
    for mine, other in zip(ours, [*after, *alone, *over_layers], strict=True):
        np.testing.assert_allclose(np.asarray(mine), other, rtol=1e-12, atol=1e-14)


def test_sequences_are_padded_and_packed_as_torchs():
    arrays = [RNG.standard_normal((length, 2)) for length in LENGTHS]

    def of(rnn, arrays):
        packed = rnn.pack_sequence(arrays, enforce_sorted=False)
        padded = [rnn.pad_packed_sequence(packed, True, -1.0, total_length) for total_length in (None, T + 2)]
        return padded, [rnn.pad_sequence(arrays, True, 2.0, side) for side in ("left", "right")], rnn.pad_sequence(arrays)

    expected = reference(lambda torch, *arrays: of(torch.nn.utils.rnn, [torch.tensor(one) for one in arrays]), *arrays)
    for found in (of(rnn, arrays), st.function(lambda arrays: of(rnn, arrays))(arrays)):
        for mine, other in zip(trees.flatten(found)[0], trees.flatten(expected)[0], strict=True):
            np.testing.assert_array_equal(np.asarray(mine), other)


def test_an_array_is_cut_to_a_total_length():
    packed = rnn.pack_padded_sequence(X, [3, 2, 2])
    assert rnn.pad_packed_sequence(packed, total_length=3)[0].shape == (3, N, IN)
    with pytest.raises(ValueError, match="longer than total_length=2"):
        rnn.pad_packed_sequence(packed, total_length=2)


def test_what_packed_sequences_lack_is_said():
    packed = rnn.pack_padded_sequence(X, [3, 2, 2])
    with pytest.raises(AttributeError, match=r"no attribute 'data': its data stays padded: use `.padded`"):
        _ = packed.data
    with pytest.raises(AttributeError, match="no attribute 'unpad_sequence': the program alone knows the lengths"):
        _ = rnn.unpad_sequence


FUNCTIONS = {"lstm": (4, 2), "gru": (3, 1), "rnn": (1, 1)}


def operands_of(kind):
    gates, states = FUNCTIONS[kind]
    wide = gates * HID
    shapes = [(T, N, IN), *[(N, HID)] * states, (wide, IN), (wide, HID), (wide,), (wide,)]
    return [0.5 * RNG.standard_normal(shape) for shape in shapes]


def energy(kind, reverse=False, lengths=None):
    states = FUNCTIONS[kind][1]

    def f(x, *rest):
        state = rest[:states] if kind == "lstm" else rest[0]
        ys, ends = getattr(st, kind)(x, state, *rest[states:], reverse=reverse, lengths=lengths)
        return total(st.sin, ys, ends_of(ends))

    return f


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [*(pytest.param(kind, None, id=kind) for kind in FUNCTIONS), pytest.param("rnn", LENGTHS, id="rnn_of_lengths")],
)
def test_derivatives_of_both_orders_and_modes_agree_with_differences(kind, lengths):
    operands = operands_of(kind)
    f = energy(kind, reverse=True, lengths=lengths)
    directions = [RNG.standard_normal(one.shape) for one in operands]
    numbers = tuple(range(len(operands)))

    @st.function
    def run(operands, directions):
        def slope(*xs):
            grads = st.grad(f, argnums=numbers)(*xs)
            return sum(st.sum(g * d) for g, d in zip(grads, directions, strict=True))

        _, pushed = st.jvp(f, tuple(operands), tuple(directions))
        second = st.grad(slope, argnums=numbers)(*operands)
        return slope(*operands), pushed, sum(st.sum(g * d) for g, d in zip(second, directions, strict=True))

    slope, pushed, curvature = run(operands, directions)

    def at(step):
        return float(f(*(o + step * d for o, d in zip(operands, directions, strict=True))))

    np.testing.assert_allclose(slope, (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(pushed, slope, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(curvature, (at(1e-4) - 2 * at(0.0) + at(-1e-4)) / 1e-8, rtol=1e-4, atol=1e-4)


def test_batches_of_batches_have_lengths_of_their_own():
    x, *rest = operands_of("gru")
    xs, lengths = np.stack([x, 2.0 * x]), np.stack([LENGTHS, LENGTHS[::-1]])

    def last(x, lengths):
        return st.gru(x, *rest, reverse=True, lengths=lengths)

    for found in (st.vmap(last)(xs, lengths), st.function(st.vmap(last))(xs, lengths)):
        for number in range(2):
            for mine, other in zip(found, last(xs[number], lengths[number]), strict=True):
                np.testing.assert_allclose(mine[number], other, rtol=1e-12)


def test_the_program_has_one_loop_whatever_the_number_of_steps():
    layer = nn.LSTM(IN, HID)

    @st.function
    def run(x):
        return layer(x)[0]

    def lines(steps):
        return len(run.stage(np.zeros((steps, N, IN), np.float32)).source.splitlines())

    assert abs(lines(500) - lines(50)) <= 2
    assert "gates" not in run.stage(np.zeros((50, N, IN), np.float32)).source, "what only the way back reads is not kept"


def test_dropout_falls_between_layers_in_training_alone():
    layer = nn.GRU(IN, HID, num_layers=2, dropout=0.5, dtype=st.f64)
    first, second = (np.asarray(layer(X)[0]) for _ in range(2))
    assert not np.allclose(first, second)
    layer.eval()
    np.testing.assert_array_equal(np.asarray(layer(X)[0]), np.asarray(layer(X)[0]))


test_bad_calls_are_refused_with_the_line = refusals(
    (lambda x: nn.LSTM(3, 2, dtype=st.f64)(x), r"LSTM takes \(T, N, 3\)"),
    (lambda x: nn.GRU(IN, 2, dtype=st.f64)(x, st.zeros((2, N, 2), dtype=st.f64)), r"takes states \(1, 3, 2\)"),
    (lambda x: nn.RNNCell(IN, 2, dtype=st.f64)(x[:1, :1]), rf"RNNCell takes \(N, {IN}\) or"),
    (lambda x: nn.LSTMCell(3, 2, dtype=st.f64)(x[0]), r"LSTMCell takes \(N, 3\) or"),
    (lambda x: st.rnn(x, None, np.zeros((2, IN)), np.zeros((2, 3))), "w_ih is"),
    (lambda x: st.rnn(x, None, np.zeros((2, IN)), np.zeros((2, 2)), np.zeros(2)), "both biases or none"),
    (lambda x: st.lstm(x[0], None, np.zeros((8, IN)), np.zeros((8, 2))), r"input of \(T, N, I\)"),
    (lambda x: st.lstm(x[:0], None, np.zeros((8, IN)), np.zeros((8, 2))), "at least one step"),
    (lambda x: st.gru(x, None, np.zeros((6, IN), np.int64), np.zeros((6, 2))), "needs floats"),
    (lambda x: nn.GRU(IN, 2, dtype=st.f64)(x, lengths=[5, 3]), r"`lengths` must be \(3,\)"),
    (lambda x: nn.GRU(IN, 2, dtype=st.f64)(x, lengths=[5.0, 3.0, 2.0]), "`lengths` must be integers"),
    (lambda x: nn.GRU(IN, 2, dtype=st.f64)(x, lengths=[5, 6, 2]), "gru: `lengths` are from 1 to 5"),
    (lambda x: nn.GRU(IN, 2, dtype=st.f64)(x, lengths=[5, -1, 2]), "gru: `lengths` are from 1 to 5"),
    (lambda x: nn.GRU(IN, 2, dtype=st.f64)(rnn.pack_padded_sequence(x, [3, 2, 1]), lengths=[3, 2, 1]), "its own lengths"),
    (lambda x: rnn.pack_padded_sequence(x, [2, 3, 1]), "larger than the one before it: `enforce_sorted=False`"),
    (lambda x: rnn.pack_padded_sequence(x[0, 0], [2]), r"needs an array \(T, N, \.\.\.\)"),
    (lambda x: rnn.pad_sequence([x, x[:, :2]]), "differ in their length alone"),
    (lambda x: rnn.pad_sequence([]), "at least one sequence"),
    (lambda x: rnn.pad_packed_sequence(x), "takes a PackedSequence"),
    given=(X,),
)
