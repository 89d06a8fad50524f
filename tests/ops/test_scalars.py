"""Scalars that a function closes over: NumPy's have their own dtype, Python's take that of the array.

`FORMS` has every way to write one. As operands, all but Python's give the result of the same number as an argument. As
options, such as `eps`, they give the result of Python's.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import optree
import pytest

import staged as st
from staged import nn, optim
from staged.ops.array import METHODS
from tests.ops.test_interchange import OFFERS

FORMS = {
    "scalar": lambda dtype, number: np.dtype(dtype).type(number),
    "0-d array": lambda dtype, number: np.array(number, dtype),
    "element": lambda dtype, number: np.full(3, number, dtype)[1],
    "view": lambda dtype, number: np.full(3, number, dtype)[1:2].reshape(()),
    **{offer.__name__: lambda dtype, number, offer=offer: offer(np.array(number, dtype)) for offer in OFFERS},
}
NUMBERS = {"f4": 3.4, "f8": 3.4, "c8": 1.5 + 2.5j, "c16": 1.5 + 2.5j, "i4": 3, "i8": 3, "u1": 3, "?": True}
ARRAYS = {"f4": [1.25, 2.5, 3.75], "f8": [1.25, 2.5, 3.75], "i4": [1, 2, 3], "i8": [1, 2, 3]}


def operations(x: Any, c: Any, kind: str) -> dict[str, Any]:
    """The results of functions that have `c`, of a dtype of this kind, as an operand."""
    results = {
        "add": (x + c, c + x, st.add(c, x)),
        "subtract": (x - c, st.subtract(c, x)),
        "multiply": (x * c, st.multiply(c, x)),
        "divide": x / c,
        "stack": st.stack([x[0], c]),
        "concat": st.concat([x, st.full((1,), c)]),
        "list": x * [c, c, c],
        "mixed list": st.asarray([c, 1, 2]),
        "full": st.full((2,), c),
        "asarray": st.asarray(c),
        "equal": x == c,
        "where": (st.where(x > 1, x, c), st.where(x > 1, c, x * 2)),
        "dot": st.dot(x, [c, c, 1]),
    }
    if kind not in "cb":
        results |= {
            "maximum": (st.maximum(x, c), st.minimum(c, x)),
            "power": (x**c, st.pow(c, x)),
            "clip": st.clip(x, c, c),
            "less": x < c,
            "floor": x // c,
            "lerp": st.lerp(x, x + 1, c),
        }
    return results


def compare(results: dict[str, Any], expected: dict[str, Any]) -> None:
    for form, found in results.items():
        for name, want in expected.items():
            for one, other in zip(*map(optree.tree_leaves, (found[name], want)), strict=True):
                assert one.dtype == other.dtype, (form, name)
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-7, err_msg=f"{form} {name}")


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("scalar", NUMBERS)
def test_scalars_that_are_closed_over_are_those_that_are_passed(array, scalar):
    x, number, kind = np.array(ARRAYS[array], array), NUMBERS[scalar], np.dtype(scalar).kind
    made = {name: form(scalar, number) for name, form in FORMS.items() if kind != "c" or name != "DLPack"}
    with st.eager():
        a = st.asarray(x)
        expected = operations(a, st.asarray(np.full((1,), number, scalar))[0], kind)
        compare({name: operations(a, c, kind) for name, c in made.items()}, expected)
    if (array, scalar) in COMPILED:
        few = {name: made[name] for name in ("scalar", "0-d array", "Protocol")}
        compare(st.function(lambda x: {name: operations(x, c, kind) for name, c in few.items()})(x), expected)


COMPILED = [("f4", "f8"), ("i8", "f8"), ("f4", "c16"), ("f8", "f4"), ("f4", "i8")]


@pytest.mark.parametrize("array", ARRAYS)
def test_numbers_that_are_closed_over_are_weak(array):
    x = np.array(ARRAYS[array], array)
    with st.eager():
        a = st.asarray(x)
        found = operations(a, 3 if array[0] == "i" else 3.4, "i")
        expected = operations(a, st.asarray(x.dtype.type(3 if array[0] == "i" else 3.4)), "i")
    for name in found.keys() - {"full", "asarray", "concat", "mixed list"}:  # which have no array to follow
        for one, other in zip(*map(optree.tree_leaves, (found[name], expected[name])), strict=True):
            assert one.dtype == other.dtype, name
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other), err_msg=name)


def test_a_scalar_is_written_as_a_number():
    c = np.float64(3.4)

    @st.function
    def f(x):
        y = x + 0
        y[1] = c
        y[2:] = np.float32(0.5)
        y[0] += 1.5
        return y

    x, expected = np.zeros(4, np.float32), np.array([1.5, 3.4, 0.5, 0.5], np.float32)
    np.testing.assert_array_equal(f(x), expected)
    with st.eager():
        np.testing.assert_array_equal(f(x), expected)
    with pytest.raises(st.DTypeError, match=r"cannot write the float 3.4 into i64 \(4,\)"):
        f(np.zeros(4, np.int64))


def test_a_carried_number_has_the_dtype_of_the_scalar():
    @st.function
    def sums(x):
        total = np.float64(0)
        for i in st.range(3):
            total = total + x[i]
        return total

    x = np.array([1e8, 1.0, -1e8], np.float32)
    assert sums(x) == 1.0 and sums(x).dtype == np.float64
    with st.eager():
        assert sums(x) == 1.0


def test_variables_and_derivatives_of_scalars_are_f64():
    assert st.Variable(np.float64(0.1)).dtype == st.f64
    assert st.Variable(0.1).dtype == st.f32
    c = np.float64(3.4)
    x = np.ones(3, np.float32)
    for value in (st.grad(lambda v: v * v)(c), st.function(st.grad(lambda v: v * v))(c)):
        assert value.dtype == np.float64 and value == 6.8
    gradient = st.function(st.grad(lambda x: st.sum(x * c)))(x)
    assert gradient.dtype == np.float32
    mapped = st.function(st.vmap(lambda row: row * c))(x)
    assert mapped.dtype == np.float64
    np.testing.assert_array_equal(mapped, [c] * 3)
    _, tangent = st.function(lambda x: st.jvp(lambda x: x * c, (x,), (x,)))(x)
    assert tangent.dtype == np.float64


# ---- options --------------------------------------------------------------------------------------

X = np.array([[1.25, -2.5, 3.75], [0.5, 4.0, -1.0]], np.float32)
P = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], np.float32)
LABELS = np.array([2, 0])
SIGNS = np.array([1.0, -1.0], np.float32)


def _drawn(name: str, **options: Any) -> Any:
    return getattr(st.random, name)(generator=st.random.Generator(3), **options)


OPTIONS = {
    "norm 3": lambda n: st.norm(X, n(3.0)),
    "norm 2": lambda n: st.norm(X, n(2)),
    "norm inf": lambda n: st.linalg.norm(X[0], n(math.inf)),
    "vector_norm": lambda n: st.linalg.vector_norm(X, ord=n(1.5)),
    "matrix_norm": lambda n: st.linalg.matrix_norm(X, ord=n(1.0)),
    "cond": lambda n: st.linalg.cond(X[:, :2], p=n(1.0)),
    "pinv": lambda n: st.linalg.pinv(X, rtol=n(1e-3)),
    "matrix_rank": lambda n: st.linalg.matrix_rank(X, rtol=n(1e-3), atol=n(1e-3)),
    "lstsq": lambda n: st.linalg.lstsq(X.T, X[0], rcond=n(1e-3))[0],
    "normalize": lambda n: st.normalize(X, p=n(3.0), eps=n(1e-3)),
    "var": lambda n: (st.var(X, correction=n(1.0)), st.std(X, 1, ddof=n(1)), st.var_mean(X, correction=n(0.5))),
    "cov": lambda n: st.cov(X, correction=n(0.0)),
    "layer_norm": lambda n: st.layer_norm(X, eps=n(1e-3)),
    "rms_norm": lambda n: st.rms_norm(X, eps=n(1e-3)),
    "batch_norm": lambda n: st.batch_norm(X, X[0], P[0], eps=n(1e-3)),
    "batch_norm_training": lambda n: st.batch_norm_training(X, eps=n(1e-3), correction=n(1.0)),
    "local_response_norm": lambda n: st.local_response_norm(X[None], 2, n(1e-2), n(0.5), n(2.0)),
    "dropout": lambda n: st.dropout(X, n(0.5), n(True), generator=st.random.Generator(3)),
    "dropout1d": lambda n: st.dropout1d(X, n(0.5), n(True), generator=st.random.Generator(3)),
    "alpha_dropout": lambda n: st.alpha_dropout(X, n(0.5), True, generator=st.random.Generator(3)),
    "attention": lambda n: st.scaled_dot_product_attention(X, X, X, scale=n(0.3), dropout_p=n(0.0)),
    "rotary": lambda n: st.rotary(X[:, :2], base=n(100.0)),
    "leaky_relu": lambda n: st.leaky_relu(X, n(0.1)),
    "elu": lambda n: (st.elu(X, n(0.5)), st.celu(X, n(0.5)), st.softplus(X, n(2.0), n(3.0))),
    "hardtanh": lambda n: (st.hardtanh(X, n(-0.5), n(0.5)), st.hardshrink(X, n(2.0)), st.softshrink(X, n(2.0))),
    "threshold": lambda n: st.threshold(X, n(1.0), n(0.1)),
    "cross_entropy": lambda n: st.cross_entropy(X, LABELS, label_smoothing=n(0.1)),
    "huber_loss": lambda n: (st.huber_loss(X, P, delta=n(0.7)), st.smooth_l1_loss(X, P, beta=n(0.7))),
    "margins": lambda n: st.margin_ranking_loss(X[:, 0], X[:, 1], SIGNS, n(0.3)),
    "multi_margin_loss": lambda n: st.multi_margin_loss(X, LABELS, n(2), n(0.3)),
    "triplet": lambda n: st.triplet_margin_loss(X, P, X + 1, n(0.3), n(2.0), n(1e-3)),
    "poisson_nll_loss": lambda n: st.poisson_nll_loss(X, P, eps=n(1e-3), log_input=False),
    "gaussian_nll_loss": lambda n: st.gaussian_nll_loss(X, P, P, eps=n(1e-3)),
    "cosine_similarity": lambda n: st.cosine_similarity(X, P, eps=n(1e-3)),
    "addcmul": lambda n: (st.addcmul(X, X, P, value=n(0.3)), st.addcdiv(X, X, P, value=n(0.3))),
    "addmm": lambda n: st.addmm(X[:, :2], X, P.T, beta=n(0.3), alpha=n(0.7)),
    "index_add": lambda n: st.index_add(X, 0, LABELS // 2, X, alpha=n(0.3)),
    "index_fill": lambda n: st.index_fill(X, 1, LABELS, n(0.3)),
    "masked_select": lambda n: st.masked_select(X, X > 0, size=8, fill_value=n(0.3)),
    "pad": lambda n: st.pad(X, 1, value=n(0.3)),
    "lp_pool1d": lambda n: st.lp_pool1d(P[None], n(3.0), 2),
    "interpolate": lambda n: st.interpolate(X[None], scale_factor=n(2.0)),
    "nan_to_num": lambda n: st.nan_to_num(X, n(0.3), posinf=n(9.3), neginf=n(-9.3)),
    "allclose": lambda n: (st.allclose(X, X + 0.01, rtol=n(0.1)), st.isclose(X, P, atol=n(1.0))),
    "trapezoid": lambda n: st.trapezoid(X, dx=n(0.3)),
    "interp": lambda n: st.interp(X, X[0] * 0 + [0, 1, 2], P[0], period=n(2.3)),
    "quantile": lambda n: (st.quantile(X, n(0.3)), st.percentile(X, n(30.0))),
    "logspace": lambda n: (st.logspace(0, 1, 4, base=n(3.0)), st.geomspace(n(1.0), n(9.0), n(4))),
    "fftfreq": lambda n: st.fft.fftfreq(5, d=n(0.3)),
    "mvlgamma": lambda n: st.mvlgamma(X + 9, n(3)),
    "diagonal": lambda n: (st.tril(X, n(1)), st.diff(X, n(1), axis=n(0)), st.logit(P, eps=n(0.3))),
    "uniform": lambda n: _drawn("uniform", shape=(3,), low=n(1.0), high=n(2.5)),
    "normal": lambda n: _drawn("normal", shape=(3,), mean=n(1.0), std=n(2.5)),
    "gamma": lambda n: st.random.gamma(n(2.5), (3,), scale=n(0.3), generator=st.random.Generator(3)),
    "laplace": lambda n: _drawn("laplace", shape=(3,), loc=n(1.0), scale=n(2.5)),
    "truncated_normal": lambda n: _drawn(
        "truncated_normal", shape=(3,), low=n(-1.5), high=n(2.5), mean=n(0.3), std=n(1.3)
    ),
    "bernoulli": lambda n: _drawn("bernoulli", p=n(0.3), shape=(9,)),
    "poisson": lambda n: st.random.poisson(n(2.5), (5,), generator=st.random.Generator(3)),
    "binomial": lambda n: st.random.binomial(n(5), n(0.3), (5,), generator=st.random.Generator(3)),
    "clip_grad": lambda n: (optim.clip_grad_norm([X], n(0.5)), optim.clip_grad_value([X], n(0.5))),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_numpys_scalars_are_those_that_are_numbers(name):
    call = OPTIONS[name]
    with st.eager():
        made = [call(each) for each in (lambda n: n, scalar_of)]
    for one, other in zip(*map(optree.tree_leaves, made), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def scalar_of(number: Any) -> Any:
    """NumPy's scalar for a number of Python's."""
    return np.asarray(number)[()]


def test_options_are_numbers_in_programs_too():
    names = ["norm 3", "var", "layer_norm", "elu", "addmm", "clip_grad"]
    program = st.function(lambda x: [[OPTIONS[name](each) for name in names] for each in (lambda n: n, scalar_of)])
    numbers, scalars = program(X)
    for one, other in zip(*map(optree.tree_leaves, (numbers, scalars)), strict=True):
        assert one.dtype == other.dtype == np.float32
        np.testing.assert_array_equal(one, other)


def test_every_option_is_a_number_by_its_annotation():
    """A parameter whose default is a number is an option, or an operand that is listed here."""
    operands = {
        "arange": {"step"}, "complex": {"imag"}, "tensordot": {"axes"}, "histogram": {"bins"}, "full": {"fill_value"},
    }  # fmt: skip
    sizes = {"stride", "padding", "dilation", "output_padding"}
    for name, function in METHODS.items():
        for word, parameter in inspect.signature(function).parameters.items():
            if type(parameter.default) in (int, float) and word not in sizes | operands.get(name, set()):
                assert str(parameter.annotation).partition(" | ")[0] in ("int", "float", "Option"), (name, word)


# ---- optimisers and layers ------------------------------------------------------------------------

OPTIMISERS = {
    "SGD": lambda ps, n: optim.SGD(ps, lr=n(0.1), momentum=n(0.9), weight_decay=n(0.01), dampening=n(0.3)),
    "Adam": lambda ps, n: optim.Adam(ps, lr=n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3), weight_decay=n(0.01)),
    "AdamW": lambda ps, n: optim.AdamW(ps, lr=n(0.1), betas=(n(0.8), n(0.9)), weight_decay=n(0.01)),
    "Adagrad": lambda ps, n: optim.Adagrad(ps, lr=n(0.1), lr_decay=n(0.1), eps=n(1e-3)),
    "RMSprop": lambda ps, n: optim.RMSprop(ps, lr=n(0.1), alpha=n(0.8), eps=n(1e-3), momentum=n(0.5)),
    "Adadelta": lambda ps, n: optim.Adadelta(ps, lr=n(0.1), rho=n(0.8), eps=n(1e-3)),
    "Adamax": lambda ps, n: optim.Adamax(ps, lr=n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3)),
    "NAdam": lambda ps, n: optim.NAdam(ps, lr=n(0.1), betas=(n(0.8), n(0.9)), momentum_decay=n(0.01)),
    "RAdam": lambda ps, n: optim.RAdam(ps, lr=n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3)),
    "ASGD": lambda ps, n: optim.ASGD(ps, lr=n(0.1), lambd=n(0.01), alpha=n(0.6), t0=n(1.0)),
    "Rprop": lambda ps, n: optim.Rprop(ps, lr=n(0.1), etas=(n(0.5), n(1.2)), step_sizes=(n(1e-6), n(50.0))),
    "Lion": lambda ps, n: optim.Lion(ps, lr=n(0.1), betas=(n(0.8), n(0.9)), weight_decay=n(0.01)),
    "Adafactor": lambda ps, n: optim.Adafactor(ps, lr=n(0.1), eps=(n(1e-6), n(1e-3)), d=n(1.5), beta2_decay=n(-0.8)),
    "LBFGS": lambda ps, n: optim.LBFGS(ps, lr=n(0.1), max_iter=2, tolerance_grad=n(1e-9)),
    "group": lambda ps, n: optim.SGD([{"params": ps, "lr": n(0.1), "momentum": n(0.9)}], lr=n(0.2)),
    "set": lambda ps, n: set_lr(optim.SGD(ps, lr=0.5), n(0.1)),
    "schedule": lambda ps, n: scheduled(optim.Adam(ps, lr=n(0.1)), n),
}


def set_lr(optimizer: Any, rate: Any) -> Any:
    optimizer.lr = rate
    return optimizer


def scheduled(optimizer: Any, n: Any) -> Any:
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: n(0.5))
    schedule.step()
    return optimizer


@pytest.mark.parametrize("name", OPTIMISERS)
def test_rates_of_another_dtype_leave_parameters_theirs(name):
    ends = []
    for n in (lambda n: n, scalar_of):
        w = st.Variable(X, name="w")
        optimizer = OPTIMISERS[name]([w], n)
        for _ in range(2):
            with st.eager():
                if name == "LBFGS":
                    optimizer.step(lambda: st.sum(w.value**2))  # noqa: B023
                else:
                    optimizer.step([P])
        assert w.dtype == st.f32
        ends.append(w.numpy())
    np.testing.assert_array_equal(*ends)


def test_a_program_with_such_a_rate_computes_in_f32():
    ends = []
    for n in (lambda n: n, scalar_of):
        w = st.Variable(X, name="w")
        optimizer = OPTIMISERS["Adam"]([w], n)
        step = st.function(lambda grad: optimizer.step([grad]))  # noqa: B023
        step(P)
        ends.append(w.numpy())
    np.testing.assert_array_equal(*ends)


def test_layers_and_averages_take_numpys_scalars():
    ends = []
    for n in (lambda n: n, scalar_of):
        norm = nn.BatchNorm1d(3, eps=n(1e-3), momentum=n(0.3))
        means = optim.swa_utils.get_ema_avg_fn(n(0.9))(st.asarray(X), st.asarray(P), 1)
        scaler = optim.GradScaler(init_scale=n(8.0), growth_factor=n(3.0), backoff_factor=n(0.25), growth_interval=1)
        with st.eager():
            y = norm(X)
            scaler.scale(st.sum(y))
            scaler.update()
        ends.append([y, means, norm.running_mean.value, norm.running_var.value, scaler.factor.value])
    for one, other in zip(*ends, strict=True):
        assert one.dtype == other.dtype == st.f32
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
