"""`nn.init`: bounds, means and spreads by their formulas, in plain Python and in a staged function."""

import math

import numpy as np
import pytest

import staged as st
from staged import nn
from tests.errors.said import refuses

SHAPE = (40, 30, 3)
FAN_IN, FAN_OUT = 30 * 3, 40 * 3

UNIFORM = {
    "uniform_": (lambda w: nn.init.uniform_(w, -2.0, 2.0), 2.0),
    "xavier_uniform_": (lambda w: nn.init.xavier_uniform_(w, gain=2.0), 2.0 * math.sqrt(6.0 / (FAN_IN + FAN_OUT))),
    "kaiming_uniform_": (nn.init.kaiming_uniform_, math.sqrt(3.0) * math.sqrt(2.0 / FAN_IN)),
    "kaiming_uniform_ by slope": (lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5)), 1.0 / math.sqrt(FAN_IN)),
    "kaiming_uniform_ fan out": (
        lambda w: nn.init.kaiming_uniform_(w, mode="fan_out", nonlinearity="tanh"),
        math.sqrt(3.0) * (5.0 / 3.0) / math.sqrt(FAN_OUT),
    ),
}
NORMAL = {
    "normal_": (lambda w: nn.init.normal_(w, 1.0, 0.02), 1.0, 0.02),
    "xavier_normal_": (nn.init.xavier_normal_, 0.0, math.sqrt(2.0 / (FAN_IN + FAN_OUT))),
    "kaiming_normal_": (
        lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"),
        0.0,
        math.sqrt(2.0 / FAN_IN),
    ),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_ones_fill_their_bounds(name):
    fill, bound = UNIFORM[name]
    w = nn.Parameter(st.zeros(SHAPE))
    assert fill(w) is w
    drawn = w.numpy()
    assert 0.98 * bound < np.abs(drawn).max() <= bound
    np.testing.assert_allclose(drawn.std(), bound / math.sqrt(3.0), rtol=0.05)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_ones_have_their_mean_and_spread(name):
    fill, mean, std = NORMAL[name]
    w = nn.Parameter(st.zeros(SHAPE))
    assert fill(w) is w
    np.testing.assert_allclose(w.numpy().mean(), mean, atol=0.1 * std)
    np.testing.assert_allclose(w.numpy().std(), std, rtol=0.05)


def test_a_truncated_normal_lies_within_its_bounds_and_is_normal_there():
    w = nn.Parameter(st.zeros((200, 50)))
    nn.init.trunc_normal_(w, mean=0.5, std=2.0, a=-1.0, b=3.0)
    drawn = w.numpy()
    assert drawn.min() >= -1.0 and drawn.max() <= 3.0 and drawn.max() > 2.9

    def below(x):
        return 0.5 * (1.0 + math.erf((x - 0.5) / (2.0 * math.sqrt(2.0))))

    for edge in (-0.5, 0.5, 1.5, 2.5):
        expected = (below(edge) - below(-1.0)) / (below(3.0) - below(-1.0))
        np.testing.assert_allclose((drawn <= edge).mean(), expected, atol=0.02)


DRAWS = ("kaiming_normal_", "kaiming_uniform_", "xavier_normal_", "xavier_uniform_", "uniform_", "normal_", "trunc_normal_")


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0), (0, 4, 3)])
def test_what_has_no_elements_is_left_as_it_is(name, shape):
    assert getattr(nn.init, name)(nn.Parameter(np.zeros(shape))).shape == shape


def test_fills_write_the_variable_in_a_staged_function_too():
    @st.function
    def run():
        w = nn.Parameter(st.full((2, 3), 9.0), name="w")
        values = [nn.init.zeros_(w).value, nn.init.ones_(w).value, nn.init.constant_(w, 2.5).value, nn.init.eye_(w).value]
        return values, nn.init.uniform_(w).value, st.min(nn.init.trunc_normal_(w).value)

    for values, drawn, least in (run(),):
        expected = [np.zeros((2, 3)), np.ones((2, 3)), np.full((2, 3), 2.5), np.eye(2, 3)]
        for value, right in zip(values, expected, strict=True):
            np.testing.assert_array_equal(value, right)
        assert len(np.unique(drawn)) == 6 and least >= -2.0
    st.seed(0)
    with st.eager():
        again = run()
    np.testing.assert_array_equal(again[1], drawn)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda w: nn.init.zeros_(w.value), "writes Variables"),
        (lambda w: nn.init.kaiming_normal_(w, mode="both"), "fan_in"),
        (lambda w: nn.init.kaiming_normal_(w, nonlinearity="mish"), "nonlinearity"),
        (lambda w: nn.init.xavier_normal_(nn.Parameter(st.zeros(3))), "at least 2 axes"),
        (lambda w: nn.init.eye_(nn.Parameter(st.zeros(3))), "a matrix"),
        (lambda w: nn.init.trunc_normal_(w, std=0.0), "std is above 0"),
        (lambda w: nn.init.trunc_normal_(w, a=2.0, b=1.0), "low is below high"),
    ],
)
def test_what_cannot_be_filled_is_refused(call, match):
    with refuses(st.StagedError, match):
        call(nn.Parameter(st.zeros((2, 2))))


FILLS = [
    name
    for name in dir(nn.init)
    if name.endswith("_") and not name.startswith("_") and callable(getattr(nn.init, name))
]


@pytest.mark.parametrize("dtype", [st.f16, st.bf16], ids=str)
@pytest.mark.parametrize("name", FILLS)
def test_weights_of_half_precision_are_those_of_f32_rounded(name, dtype):
    """`orthogonal_` raised an internal DTypeError."""
    options = {"constant_": {"val": 0.5}, "sparse_": {"sparsity": 0.5}}.get(name, {})
    shape = (4, 4, 3) if name == "dirac_" else (6, 4)
    found = []
    for each in (dtype, st.f32):
        st.seed(1)
        w = nn.Parameter(st.zeros(shape, dtype=each))
        assert getattr(nn.init, name)(w, **options) is w and w.dtype == each
        found.append(w.numpy().astype(np.float64))
    np.testing.assert_allclose(*found, atol=2.0**-7)
