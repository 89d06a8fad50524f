"""Numbers that there are not, for functions that torch has too: refused where they are written, as torch refuses them."""

import contextlib
import tracemalloc

import numpy as np
import optree
import pytest

import staged as st
from tests.errors.said import refusals, refuses

X = np.ones((2, 3, 4), np.float32)
MEAN, VAR = np.zeros(3, np.float32), np.ones(3, np.float32)
LOGS = np.zeros((4, 1, 3), np.float32)
WINDOW, LABELS = np.ones((1, 3, 2), np.float32), np.array([0, 2, 2])

REFUSED = {
    "batch_norm eps": (lambda: st.batch_norm(X, MEAN, VAR, eps=-1e-5), "eps is at least 0"),
    "batch_norm_training eps": (lambda: st.batch_norm_training(X, eps=0.0), "eps is above 0"),
    "smooth_l1_loss beta": (lambda: st.smooth_l1_loss(X, X, beta=-1.0), "beta is at least 0"),
    "huber_loss delta": (lambda: st.huber_loss(X, X, delta=0.0), "delta is above 0"),
    "integers": (lambda: st.random.integers(5, 5, (3,)), "low is below high, got 5 and 5"),
    "integers of nothing": (lambda: st.random.integers(0), "low is below high, got 0 and 0"),
    "normal": (lambda: st.random.normal((3,), std=-1.0), "std is at least 0"),
    "uniform": (lambda: st.random.uniform((3,), low=2.0, high=1.0), "low is at most high"),
    "ctc_loss blank": (lambda: st.ctc_loss(LOGS, np.array([[1, 2]]), 4, 2, blank=3), "the blank is one of 3 classes, got 3"),
    "ctc_loss blank below": (lambda: st.ctc_loss(LOGS, np.array([[1, 2]]), 4, 2, blank=-1), "the blank is one of 3 classes, got -1"),
    "flatten": (lambda: st.flatten(X, 2, 1), "axis 2 comes after axis 1"),
    "flatten counted from the end": (lambda: st.flatten(X, -1, 0), "comes after"),
    "linspace": (lambda: st.linspace(0, 1, -1), "num is at least 0"),
    "arange": (lambda: st.arange(0, 3, 0), "step"),
    "dropout": (lambda: st.dropout(X, 1.5), "between 0 and 1"),
    "integers too far apart": (lambda: st.random.integers(-(2**63), 2**63, (3,)), "less than 2\\*\\*64 apart"),
    "tile": (lambda: st.tile(X, -1), "tile: .* of at least 0, got -1"),
    "repeat": (lambda: st.repeat(X, -1), "repeat: .* of at least 0, got -1"),
    "repeat by a list": (lambda: st.repeat(X, [1, 2, 3, 4], axis=0), r"repeat .* got \[1, 2, 3, 4\]"),
    "tensordot of vectors": (lambda: st.tensordot(MEAN, MEAN), r"no 2 axes in f32 \(3,\)"),
    "tensordot of a vector": (lambda: st.tensordot(MEAN, np.ones((3, 3), np.float32)), "no 2 axes"),
    "tensordot of a number": (lambda: st.tensordot(X, 2.0, 1), "no 1 axes"),
    "one_hot": (lambda: st.one_hot(np.array([0]), -1), "not negative"),
    "zeros of a float": (lambda: st.zeros(2.5), "needs a shape, .* got 2.5"),
    "full of nothing": (lambda: st.full(None, 1.0), "full needs a shape"),
    "pad by a dict": (lambda: st.pad(X, {0: 1, 1: 2}), "does not fit"),
    "moveaxis": (lambda: st.moveaxis(X, [0, 1], [2, 2]), "named twice"),
    "moveaxis from": (lambda: st.moveaxis(X, [0, -3], [1, 2]), "named twice"),
}
TAKEN = {
    "batch_norm": lambda: st.batch_norm(X, MEAN, VAR, eps=0.0),
    "smooth_l1_loss": lambda: st.smooth_l1_loss(X, X, beta=0.0),
    "normal": lambda: st.random.normal((3,), std=0.0),
    "uniform": lambda: st.random.uniform((3,), low=1.0, high=1.0),
    "integers": lambda: st.random.integers(4, 5, (3,)),
    "flatten": lambda: st.flatten(X, 1, 1),
    "linspace": lambda: st.linspace(0, 1, 0),
    "integers over all": lambda: st.random.integers(-(2**30), 2**30, (3,), dtype=st.i32),
    "integers of a dtype": lambda: st.random.integers(0, 256, (3,), dtype=st.u8),
    "tile": lambda: st.tile(X, 0),
}


test_a_number_that_there_is_not_is_refused_with_the_line = refusals(REFUSED, usual=ValueError)


def test_integers_that_a_dtype_lacks_are_not_drawn():
    for low, high in ((0, 257), (-1, 9)):
        with pytest.raises(st.DTypeError, match="does not fit u8"):
            st.random.integers(low, high, (3,), dtype=st.u8)


@pytest.mark.parametrize("what", TAKEN)
def test_a_number_at_the_edge_is_taken(what):
    assert np.isfinite(np.asarray(TAKEN[what]())).all()


DRAWS = {
    "bernoulli": (lambda p: st.random.bernoulli(p, (2,)), (1.0, 1.5), "between 0 and 1"),
    "bernoulli below": (lambda p: st.random.bernoulli(p, (2,)), (0.0, -0.5), "between 0 and 1"),
    "bernoulli of NaN": (lambda p: st.random.bernoulli(p, (2,)), (0.5, np.nan), "between 0 and 1"),
    "dropout": (lambda p: st.dropout(np.ones(2, np.float32), p), (1.0, 1.5), "between 0 and 1"),
    "dropout of NaN": (lambda p: st.dropout(np.ones(2, np.float32), p), (0.5, np.nan), "between 0 and 1"),
    "normal": (lambda p: st.random.normal((2,), std=p), (0.0, -1.0), "std is at least 0"),
    "uniform": (lambda p: st.random.uniform((2,), low=p), (1.0, 1.5), "low is at most high"),
    "exponential": (lambda p: st.random.exponential((2,), scale=p), (0.0, -1.0), "scale is at least 0"),
    "laplace": (lambda p: st.random.laplace((2,), scale=p), (0.0, -1.0), "scale is at least 0"),
    "logistic": (lambda p: st.random.logistic((2,), scale=p), (0.0, -1.0), "scale is at least 0"),
    "gumbel": (lambda p: st.random.gumbel((2,), scale=p), (0.0, -1.0), "scale is at least 0"),
    "cauchy": (lambda p: st.random.cauchy((2,), scale=p), (0.0, -1.0), "scale is at least 0"),
    "truncated_normal": (lambda p: st.random.truncated_normal((2,), high=p), (-1.5, -3.0), "low is below high"),
    "truncated_normal std": (lambda p: st.random.truncated_normal((2,), std=p), (1.0, 0.0), "std is above 0"),
    "gamma": (lambda p: st.random.gamma(p, (2,)), (1.0, 0.0), "above 0"),
    "gamma scale": (lambda p: st.random.gamma(2.0, (2,), scale=p), (0.0, -1.0), "scale is at least 0"),
    "poisson": (lambda p: st.random.poisson(p, (2,)), (0.0, -1.0), "at least 0"),
    "binomial": (lambda p: st.random.binomial(5, p, (2,)), (1.0, 1.5), "between 0 and 1"),
    "integers": (lambda p: st.random.integers(p, 3, (2,)), (2, 3), "low is below high"),
    "integers of a dtype": (lambda p: st.random.integers(0, p, (2,), dtype=st.u8), (256, 257), "fit"),
    "integers below a dtype": (lambda p: st.random.integers(p, 9, (2,), dtype=st.u8), (0, -1), "fit"),
    "wide integers": (lambda p: st.random.integers(-(2**62), p, (2,)), (2**62, -(2**62)), "low is below high"),
}
"""Draws by a parameter, the last number in its range and one beyond."""


@pytest.mark.parametrize("what", DRAWS)
def test_a_parameter_of_a_draw_is_checked_when_the_program_runs_too(what):
    call, (last, beyond), match = DRAWS[what]
    program = st.function(call, target="portable")
    of_arrays = st.function(lambda p: call(p), target="portable")

    def eager(p):
        with st.eager():
            return call(p)

    dtype = np.int64 if isinstance(last, int) else np.float64
    for run in (call, eager, program):
        run(last)
        with refuses((ValueError, TypeError), match) as refused:
            run(beyond)
        assert "test_arguments.py" in str(refused.value)
    if not what.startswith("dropout"):
        of_arrays(np.array([last, last], dtype))
        with refuses(ValueError, match):
            of_arrays(np.array([last, beyond], dtype))


def _sizes(x, size):
    """Functions of sizes, each by `size(2)` or the like."""
    return (
        [st.split(x, size(3), 1), x.split(size(2), 1), x.chunk(size(2), 2), st.tile(x, size(2)), st.repeat(x, size(2), 1)],
        [st.pad(x, size(1)), st.pad(x, (size(1), size(2))), st.pad(x, [(size(1), size(0))] * 3), st.linspace(0, 1, size(3))],
        [st.roll(x, size(2), 1), st.roll(x, (size(1), size(2)), (1, 2)), st.stack(X), st.concat(X, size(1))],
        [st.broadcast_to(x[0, 0, 0], size(3)), x.unflatten(2, (size(2), -1)), x.narrow(1, size(1), size(2)), st.eye(size(2))],
        [st.diag(x[0], size(1)), st.diagonal(x, size(1)), st.diag_embed(x, size(1)), st.trace(x, size(1)), st.eye(3, k=size(1))],
        [st.tril(x, size(1)), st.rot90(x, size(3)), st.diff(x, size(1)), st.topk(x, size(2)), st.kthvalue(x, size(2))],
        [st.conv1d(x, WINDOW, stride=size(2)), st.conv2d(x[:, None], WINDOW[None], padding=(size(1), size(0)))],
        [st.conv3d(x[None, None], WINDOW[None, None], stride=size(2)), st.max_pool3d(x[None], size(2))],
        [st.max_pool2d(x, size(2)), st.avg_pool1d(x, size(2)), st.unfold(x[None], size(2))],
        [st.interpolate(x, size(5)), st.interpolate(x, scale_factor=size(2)), st.pixel_shuffle(st.tile(x, (2, 2, 1)), size(2))],
        [st.group_norm(x, size(3)), st.local_response_norm(x, size(2)), st.alibi(size(2), size(3), size(3))],
        [st.linalg.norm(x, size(1), axis=size(2)), st.norm(x, size(3)), st.linalg.matrix_power(x[:, :2, :2], size(2))],
        [st.histogram(x, size(3)), st.bincount(LABELS, length=size(255)), st.one_hot(LABELS, size(3)), st.fft.rfft(x, size(3))],
        [st.segment_sum(x, LABELS[:2], size(255)), st.nonzero(x, size=size(3)), st.unique(x, size=size(3))],
        [st.random.permutation(size(5), generator=st.random.Generator(3)), st.polygamma(size(1), x), st.mvlgamma(x + 3, size(2))],
    )


def test_numpys_integers_are_sizes_too():
    staged = st.function(lambda x, y: (_sizes(x, np.uint8), _sizes(y, np.int64), _sizes(x, int)))
    with st.eager():
        eager = staged(X, X)
    for by_u8, by_i64, by_int, eager_u8 in zip(*map(optree.tree_leaves, (*staged(X, X), eager[0])), strict=True):
        np.testing.assert_array_equal(by_u8, by_int)
        np.testing.assert_array_equal(by_i64, by_int)
        np.testing.assert_allclose(eager_u8, by_int, rtol=1e-6)


KNOWN_WHILE_STAGING = {
    "layer_norm eps": lambda x, n: st.layer_norm(x, eps=n * 0.5),
    "rms_norm eps": lambda x, n: st.rms_norm(x, eps=n * 0.5),
    "group_norm eps": lambda x, n: st.group_norm(x, 1, eps=n * 0.5),
    "instance_norm eps": lambda x, n: st.instance_norm(x, eps=n * 0.5),
    "batch_norm eps": lambda x, n: st.batch_norm(x, MEAN, VAR, eps=n * 0.5),
    "batch_norm_training eps": lambda x, n: st.batch_norm_training(x, eps=n * 0.5),
    "linspace num": lambda x, n: st.linspace(0, 1, n),
    "pad value": lambda x, n: st.pad(x, 1, value=n),
    "tile repetitions": lambda x, n: st.tile(x, n),
    "repeat repeats": lambda x, n: st.repeat(x, n),
    "split indices_or_sections": lambda x, n: st.split(x, n),
    "rot90 k": lambda x, n: st.rot90(x, n),
    "broadcast_to shape": lambda x, n: st.broadcast_to(x[:1, :1, :1], (2, n, 2)),
    "linalg.norm ord": lambda x, n: st.linalg.norm(x[0], n),
    "sum keepdims": lambda x, n: st.sum(x, 0, keepdims=n > 0),
}


@pytest.mark.parametrize("what", KNOWN_WHILE_STAGING)
def test_what_must_be_known_while_staging_is_named_with_the_argument(what):
    f = st.function(KNOWN_WHILE_STAGING[what])
    for context in (None, st.eager):
        with pytest.raises(st.StagedValueError, match=f"`{what.split()[1]}` .*known while staging") as refused:
            if context is None:
                f.stage(X, 2)
            else:
                with context():
                    f(X, 2)
        assert "test_arguments.py" in str(refused.value)
        assert context is st.eager or 'static=("n",)' in refused.value.hint


def test_a_probability_of_another_precision_leaves_the_array_its_own():
    @st.function
    def dropped(x, p):
        return st.dropout(x, p), st.nn.BatchNorm1d(3, momentum=p)(x)

    for p in (np.float64(0.5), 0.5):
        with st.eager():
            eager = dropped(X, p)
        for result in (*dropped(X, p), *eager):
            assert result.dtype == np.float32
        np.testing.assert_array_equal(np.unique(eager[0]), [0.0, 2.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.bool_])
def test_asarray_keeps_the_dtype_of_a_numpy_scalar(dtype):
    """`np.float64` is a Python float, too: a third was rounded to f32."""
    number = dtype(1) / dtype(3) if issubclass(dtype, np.floating) else dtype(1)
    for found in (st.asarray(number), st.function(lambda: st.asarray(number))()):
        assert np.asarray(found).dtype == dtype
        assert np.asarray(found) == number


@pytest.mark.parametrize("eager", [True, False])
def test_ends_of_spaced_numbers_may_be_staged(eager):
    def ranges(low, n):
        return st.linspace(low, n, 5, dtype=st.f64), st.logspace(low, n + 1, 3, dtype=st.f64), st.linspace(low, n, 1)

    run = st.function(ranges)
    with st.eager() if eager else contextlib.nullcontext():
        found = run(np.float64(-1.5), 4)
        slope = st.grad(st.function(lambda end: st.sum(st.linspace(0.0, end, 5, dtype=st.f64))))(np.float64(3))
    wanted = np.linspace(-1.5, 4, 5), np.logspace(-1.5, 5, 3), np.float32([-1.5])
    for mine, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-15)
    assert slope == 2.5
    with pytest.raises(st.ShapeError, match="from a real number to another"):
        st.linspace(st.asarray([1.0, 2.0]), 3.0, 4)


def test_spaced_numbers_are_computed_in_f64_whatever_bounds_are():
    """A bound that is an array of integers beside a Python number made their difference f32."""
    for stop in (np.array(4), st.asarray(4), 4):
        np.testing.assert_allclose(st.linspace(4.3, stop, 4, dtype=st.f64), np.linspace(4.3, 4, 4), rtol=1e-15)
        np.testing.assert_allclose(st.logspace(4.3, stop, 4, dtype=st.f64), np.logspace(4.3, 4, 4), rtol=1e-14)


TOO_LARGE = {
    "tile": lambda: st.tile(X, (2**62,)),
    "pad": lambda: st.pad(X, 2**62),
    "one_hot": lambda: st.one_hot(np.array([0, 1]), 2**62),
    "zeros": lambda: st.zeros((2**62,)),
    "zeros of no elements": lambda: st.zeros((2**40, 2**40, 0)),
    "full": lambda: st.full((2**40, 2**40), 1.0),
    "arange": lambda: st.arange(2**62),
    "linspace": lambda: st.linspace(0, 1, 2**62),
    "repeat": lambda: st.repeat(X, 2**62),
    "broadcast_to": lambda: st.broadcast_to(X, (2**62, 2, 3, 4)),
    "normal": lambda: st.random.normal((2**62,)),
    "eye": lambda: st.eye(2**31),
    "tril": lambda: st.tril(st.ones((2**31, 2**31))),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_a_result_that_no_memory_can_hold_is_refused_with_the_line(what):
    tracemalloc.start()
    for run in (TOO_LARGE[what], st.function(TOO_LARGE[what])):
        with refuses(ValueError, r"an array needs less than 2\*\*63 bytes, got ") as refused:
            run()
        assert "test_arguments.py" in str(refused.value)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_a_result_that_the_memory_does_not_hold_is_refused():
    for run in (lambda: st.kron(np.ones(2**21), np.ones(2**21)), st.function(lambda: st.zeros((2**42,)))):
        with pytest.raises(MemoryError) as refused:
            run()
        assert isinstance(refused.value, st.StagedError)


OUT = {
    "exp": lambda out: st.exp(X, out=out),
    "matmul": lambda out: st.matmul(X[0], X[0], out=out),
    "sum": lambda out: st.sum(X, 0, out=out),
    "linalg.inv": lambda out: st.linalg.inv(X[0], out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_out_is_an_error_with_the_alternative(name):
    call = OUT[name]
    for out in (np.zeros(2), np.zeros(1), [1.0], 0, st.asarray(X)):
        for run in (call, st.function(call), lambda out: st.function(lambda: call(out))()):
            with refuses(TypeError, f"{name} does not have an argument `out`.*\n.*`y = st.{name}"):
                run(out)
    assert np.shape(st.exp(X, out=None)) == X.shape


def test_options_of_torch_are_compared_with_their_harmless_values():
    with refuses(TypeError, "zeros does not have an argument `requires_grad`.*\n.*st.grad"):
        st.zeros(2, requires_grad=True)
    with refuses(st.ArgumentError, "zeros: arrays are made where the code around runs"):
        st.zeros(2, device=np.zeros(2))
    assert st.zeros(2, requires_grad=False, device="cpu", layout=None).shape == (2,)
