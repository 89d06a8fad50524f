"""Plain Python: what our functions give there is taken by NumPy's functions, and by the libraries that stand on them."""

import io
import math

import numpy as np
import pytest

import staged as st
from staged import nn

X = np.array([[3.0, 1.5, 2.25], [0.5, -1.0, 4.0]], np.float32)

FUNCTIONS = {
    "histogram": lambda x: np.histogram(x, bins=3),
    "argpartition of rows": lambda x: np.argpartition(x, 1, axis=0),
    "eigenvalues": lambda x: np.linalg.eigvals(x @ x.T),
    "interp": lambda x: np.poly1d(x[0])(X[1]),
    "frexp": np.frexp,
    "accumulate": np.add.accumulate,
    "initial": lambda x: np.sum(x, initial=3.0),
    "pad": lambda x: np.pad(x, 1, mode="mean"),
    "initial of reduce": lambda x: np.add.reduce(x, initial=3.0),
    "initial above all": lambda x: np.maximum.reduce(x, axis=1, initial=50.0),
    "dtype of reduce": lambda x: np.maximum.reduce(x, dtype=np.float64),
    "where of reduce": lambda x: np.add.reduce(x, axis=1, where=X > 0),
    "where of sum": lambda x: np.sum(x, where=X > 0),
    "where of add": lambda x: np.add(x, 1, where=X > 0, out=np.zeros((2, 3), np.float32)),
    "power of integers": lambda x: np.float_power(np.array([10, 7]), x[0, :1].astype(st.i64) * 10),
    "reciprocal of integers": lambda x: np.reciprocal(x.astype(st.i64) * 2 + 1),
    "magnitude of integers": lambda x: np.fabs(x.astype(st.i64) - 2**53),
    "long doubles in a list": lambda x: np.concatenate([x, X.astype(np.longdouble)]),
    "out": lambda x: np.exp(x, out=np.zeros((2, 3), np.float32)),
    "longdouble": lambda x: np.add(x, X.astype(np.longdouble)),
    "lists": lambda x: np.block([[x, x], [x, X]]),
    "argpartition": lambda x: x.argpartition(1),
    "tobytes": lambda x: np.frombuffer(x.tobytes(), np.float32),
    "nbytes": lambda x: x.nbytes + x.itemsize,
}
MADE = {
    "asarray": lambda: st.asarray(X),
    "gradient": lambda: st.grad(lambda x: st.sum(x * x) / 2)(X),
    "layer": lambda: nn.Identity()(st.asarray(X)),
    "Variable": lambda: st.Variable(X, name="w"),
    "transposed": lambda: st.transpose(st.asarray(X.T.copy())),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("made", MADE)
def test_numpys_functions_take_it(name, made):
    got, expected = FUNCTIONS[name](MADE[made]()), FUNCTIONS[name](X)
    assert type(got) is type(expected)
    for one, right in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, expected)), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-5)
        assert np.asarray(one).dtype == np.asarray(right).dtype


@pytest.mark.parametrize("made", MADE)
def test_it_is_compared_saved_iterated_and_added_into(made):
    x = MADE[made]()
    assert np.allclose(x, X) and np.array_equal(x, X) and len(x) == 2
    assert [float(row.sum()) for row in x] == [6.75, 3.5]
    file = io.BytesIO()
    np.savez(file, a=x, b=[x, x])
    file.seek(0)
    loaded = np.load(file)
    np.testing.assert_array_equal(loaded["a"], X)
    np.testing.assert_array_equal(loaded["b"], [X, X])
    total = np.ones_like(X)
    total += x
    np.testing.assert_array_equal(total, X + 1)
    np.testing.assert_array_equal(np.from_dlpack(x), X)


def test_nothing_that_numpy_does_changes_a_value():
    x = st.asarray(X)
    view = np.asfortranarray(x)
    view[:] = 0.0  # the caller's own
    for change in (
        lambda: np.copyto(x, 0.0),
        lambda: np.fill_diagonal(x, 0.0),
        lambda: x.sort(),
        lambda: x.fill(0.0),
        lambda: np.exp(X, out=x),
    ):
        with pytest.raises((ValueError, AttributeError, st.StagingError)):
            change()
    np.testing.assert_array_equal(x, X)
    assert not hasattr(x, "ctypes") and not hasattr(x, "data")  # addresses of a copy that is gone


def test_what_reads_addresses_is_told_to_take_numpys_array(library):
    """safetensors reads memory by its address: `state_dict` gives it NumPy's arrays, and what is no such is told the way."""
    safetensors = library("safetensors.numpy")
    x = st.exp(X)
    with pytest.raises(AttributeError, match=r"no attribute 'ctypes': .*NumPy's array"):
        safetensors.save({"w": x})
    np.testing.assert_array_equal(safetensors.load(safetensors.save({"w": x.numpy()}))["w"], np.exp(X))


LEAVES = {
    "np.array of a list": lambda y: st.sum(np.array([y[0] * 2, y[1]]) ** 2),
    "np.asarray": lambda y: st.sum(np.asarray(y) ** 2),
    "np.full": lambda y: st.sum(np.full(3, y[1])),
    "np.sum of a list": lambda y: np.sum([y[0], y[1]]),
    "numpy": lambda y: st.sum(y) * y.numpy()[0],
    "tolist": lambda y: st.sum(y) * y.tolist()[0],
    "float": lambda y: st.sum(y) * float(y[0]),
    "round to digits": lambda y: st.sum(y) * round(y[0], 1),
    "math": lambda y: math.sqrt(y[0]) * y[1],
    "np.float64": lambda y: np.float64(y[0]) * y[1],
}


@pytest.mark.parametrize("way", LEAVES)
def test_what_is_differentiated_does_not_leave_for_numpy_or_python(way):
    """The number would be a constant to the derivative: torch and JAX refuse most of these, too."""
    for transform in (st.grad, lambda f: lambda x: st.jvp(f, (x,), (np.ones(4),))[1]):
        with pytest.raises(st.GradientError, match="being differentiated cannot become") as refused:
            transform(LEAVES[way])(np.arange(1.0, 5.0))
        assert "test_numpy.py" in str(refused.value)


def test_what_is_not_followed_leaves_inside_of_a_derivative():
    kept = []

    def f(y, z):
        kept.append(float(st.sum(z)) + float(st.stop_gradient(y[0])) + int(y[1]) + round(y[2]) + np.asarray(z)[0])
        if y[0] > 0.5 and bool(y[1] > 1.0):
            return y[0].item() * y[1] + kept[0]
        return st.sum(y)

    np.testing.assert_array_equal(st.grad(f)(np.arange(1.0, 5.0), np.ones(2)), [2.0, 1.0, 0.0, 0.0])
    assert kept == [2.0 + 1.0 + 2 + 3 + 1.0]
    assert float(st.sum(np.ones(2))) == 2.0 and round(st.asarray(2.5)) == 2 and round(st.asarray(2.25), 1) == 2.2


def test_torch_takes_it(library):
    torch = library("torch")
    for made in (*(make() for make in MADE.values()), st.asarray(X)[0, 0], st.asarray(X) > 0, st.zeros((0, 3))):
        tensor = torch.as_tensor(made)
        np.testing.assert_array_equal(tensor.numpy(), np.asarray(made))
        assert str(tensor.dtype) in ("torch.float32", "torch.bool")


def test_matplotlib_draws_it(library):
    library("matplotlib").use("Agg")
    from matplotlib.figure import Figure

    x = st.asarray(X)
    axes = Figure().subplots()
    axes.plot(x[0], x[1])
    axes.errorbar(x[0], x[1], yerr=x[0])
    axes.hist(st.flatten(x))
    axes.imshow(x)
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), X[1])


def test_staged_values_are_not_handed_over():
    @st.function
    def run(x):
        return x.argpartition(1)

    with pytest.raises(AttributeError, match="attribute 'argpartition'"):
        run(X)
    with st.eager(), pytest.raises(AttributeError, match="attribute 'argpartition'"):
        run(X)
    with st.eager():
        assert np.median(st.asarray(X)) == np.median(X)  # the `with` itself is plain Python


@pytest.mark.parametrize("made", MADE)
def test_a_mask_reads_what_numpys_would(made):
    x = MADE[made]()
    for mask in (X > 1.0, X > 99.0):
        np.testing.assert_array_equal(x[mask], X[mask])
        np.testing.assert_array_equal(x[st.asarray(mask)], X[mask])
    np.testing.assert_array_equal(x[x > 1.0], X[X > 1.0])
    np.testing.assert_array_equal(x[:, X[0] > 2.0], X[:, X[0] > 2.0])
    np.testing.assert_array_equal(x[X[:, 0] > 2.0, 1:], X[X[:, 0] > 2.0, 1:])
    with pytest.raises(st.ShapeError, match="a mask of"):
        x[np.array([True])]
    with st.eager(), pytest.raises(st.ShapeError, match="reading by a mask"):
        st.function(lambda x: x[x > 1.0])(X)
