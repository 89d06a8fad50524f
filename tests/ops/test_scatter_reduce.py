"""Scatters with all reductions, segment sums and bags of rows: values and derivatives are torch's (JAX's of segments)."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.eager_mode.context import wrap
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals, refuses
from tests.torch_reference import reference

RNG = np.random.default_rng(3)
X, U = RNG.standard_normal((4, 5)), RNG.standard_normal((3, 5))
U[0, 1], U[1, 1], X[2, 0] = 0.0, 0.0, 0.0  # factors that are 0: two in a place, one, and the base
PLACES = np.array([[0, 1, 2, 3, 0], [1, 1, 0, 3, 0], [0, 3, 3, -1, 0]])
U[0, 3] = U[1, 3] = X[3, 3] = 1.5  # ties of updates and base
U[2, 4] = U[0, 4] = 9.0  # ties of updates alone
ROWS = np.array([2, 0, 2])
W = RNG.standard_normal((4, 5))
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def elements(x, u, scatter):
    # torch counts a base that happens to be the largest where it takes no part: there it is none of the ties.
    return [scatter(x if own else x + 0.25, u, reduce, own) for reduce in REDUCTIONS for own in (True, False)]


def ours(x, u):
    return elements(x, u, lambda x, u, reduce, own: st.scatter_reduce(x, 0, PLACES, u, reduce, include_self=own))


def rows(x, u):
    return elements(x, u, lambda x, u, reduce, own: st.index_reduce(x, 0, ROWS, u, reduce, include_self=own))


def torchs(places, of_rows):
    def compute(torch, x, u, w):
        x, u = (torch.tensor(a, requires_grad=True) for a in (x, u))
        place = torch.tensor(places % 4)
        found = []
        for reduce in REDUCTIONS[1:] if of_rows else REDUCTIONS:
            for own in (True, False):
                base = x if own else x + 0.25
                y = (base.index_reduce if of_rows else base.scatter_reduce)(0, place, u, reduce, include_self=own)
                slopes = torch.autograd.grad((y * torch.tensor(w)).sum(), (x, u))
                found.append([part.detach().numpy() for part in (y, *slopes)])
        return found

    return compute


def with_slopes(f):
    """Values, and the derivatives of each one's sum with weights, by both modes."""

    def run(x, u, d_x, d_u):
        values = f(x, u)
        slopes = [st.grad(lambda x, u, n=n: st.sum(f(x, u)[n] * W), argnums=(0, 1))(x, u) for n in range(len(values))]
        return [[y, *slope] for y, slope in zip(values, slopes, strict=True)], st.jvp(f, (x, u), (d_x, d_u))[1]

    return run


@pytest.mark.parametrize("of_rows", [False, True])
def test_values_and_gradients_are_torchs(of_rows):
    places, f = (ROWS, rows) if of_rows else (PLACES, ours)
    expected = reference(torchs(places, of_rows), X, U, W)
    d_x, d_u = RNG.standard_normal(X.shape), RNG.standard_normal(U.shape)
    found, tangents = st.function(with_slopes(f))(X, U, d_x, d_u)
    eager, _ = with_slopes(f)(wrap(X), wrap(U), wrap(d_x), wrap(d_u))
    for mine in (found, eager):
        compare_trees(mine[2:] if of_rows else mine, expected, rtol=1e-12, atol=1e-12)
    for (_, slope_x, slope_u), tangent in zip(found, tangents, strict=True):  # forward mode is the transpose of reverse
        np.testing.assert_allclose(np.sum(tangent * W), np.sum(slope_x * d_x) + np.sum(slope_u * d_u), rtol=1e-10)


def test_second_derivatives_of_a_product_are_right_where_factors_are_0():
    def slopes(x, u):
        return st.grad(lambda x, u: st.sum(st.scatter_reduce(x, 0, PLACES, u, "prod") * W), argnums=(0, 1))(x, u)

    st.check_grads(st.function(slopes), (X, U), rtol=1e-6)


def test_mapped_over_arrays_and_indices():
    def one(x, places, rows_of, u):
        found = [st.scatter_reduce(x, 0, places, u, reduce) for reduce in REDUCTIONS]
        return found + [st.index_reduce(x, 0, rows_of, u, reduce, include_self=False) for reduce in REDUCTIONS]

    given = np.stack([X, X[::-1]]), np.stack([PLACES, PLACES[::-1]]), np.stack([ROWS, ROWS[::-1]]), np.stack([U, -U])
    compare_trees(
        st.function(st.vmap(one))(*given),
        [np.stack(pair) for pair in zip(*(one(*(wrap(a[n]) for a in given)) for n in range(2)), strict=True)],
        rtol=1e-13,
    )
    mapped = st.function(st.vmap(one, in_axes=(0, None, None, None)))(given[0], PLACES, ROWS, U)
    compare_trees([y[1] for y in mapped], one(wrap(X[::-1]), PLACES, ROWS, U), rtol=1e-13)


def on_a_device(f):
    def run(x, u):
        with st.with_backend(st.GPU, x, u):
            return f(x, u)

    return run


WIDE = RNG.standard_normal((3, 64)), RNG.standard_normal((4, 64))


def of_wide_rows(u, x):
    return rows(x, u)


@pytest.mark.parametrize("f,given", [(ours, (X, U)), (rows, (X, U)), (of_wide_rows, WIDE)])
def test_a_device_gives_the_same(f, given, emulated_device):
    expected = st.function(f)(*given)
    compare_trees(st.function(on_a_device(f))(*given), expected, rtol=1e-12, atol=1e-13)


def test_no_thread_of_a_device_takes_all_of_it(emulated_device):
    program = st.function(on_a_device(lambda x, u: st.index_reduce(x, 0, ROWS, u, "amax"))).stage(X, U)
    assert "one thread does it all" not in program.source and "a thread each" in program.source
    wide = st.function(on_a_device(lambda u, x: st.index_reduce(x, 0, ROWS, u, "prod"))).stage(*WIDE)
    assert "its lanes look for the turns" in wide.source


def test_atomics_of_a_device_add_alone(emulated_device):
    def run(x, u):
        with st.with_backend(st.GPU, x, u, deterministic=False):
            return rows(x, u)

    compare_trees(st.function(run)(X, U), st.function(rows)(X, U), rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_an_opencl_device_gives_the_same(monkeypatch):
    opencl_device.require()
    expected = [st.function(f)(X, U) for f in (ours, rows)]
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    for f, right in zip((ours, rows), expected, strict=True):
        compare_trees(st.function(on_a_device(f))(X, U), right, rtol=1e-12, atol=1e-13)


def test_integers_of_a_mean_are_rounded_down():
    x, u = np.array([1, -5, 7]), np.array([2, -2, 0, 9])
    found = st.function(lambda x, u: st.scatter_reduce(x, 0, np.array([0, 1, 1, 0]), u, "mean"))(x, u)
    np.testing.assert_array_equal(found, [4, -3, 7])  # torch's, of 12 / 3, -7 / 3


def test_a_base_of_infinity_leaves_its_gradient_to_the_updates():
    x, u = np.full(2, -np.inf), np.full(3, -np.inf)
    d_x, d_u = st.function(
        lambda x, u: st.grad(lambda x, u: st.sum(st.scatter_reduce(x, 0, [0, 0, 0], u, "amax")), argnums=(0, 1))(x, u)
    )(x, u)
    np.testing.assert_array_equal(d_x, [0.0, 1.0])
    np.testing.assert_allclose(d_u, [1 / 3] * 3)


def test_fewer_indices_than_elements_along_other_axes_change_only_their_part():
    x, u = np.arange(12.0).reshape(3, 4), np.full((5, 6), 100.0)
    places = np.array([[0, 2], [1, 2]])
    expected = x.copy()
    expected[[0, 1], 0] += 100
    expected[2, 1] += 200
    np.testing.assert_array_equal(st.function(lambda x, u: st.scatter_reduce(x, 0, places, u, "sum"))(x, u), expected)


def test_an_index_out_of_range_stops_with_the_line():
    @st.function
    def f(x, places, u):
        return st.scatter_reduce(x, 0, places, u, "prod")

    with pytest.raises(st.ProgramError, match="index 4 is out of range for an axis of 4") as stopped:
        f(X, PLACES * 0 + 4, U)
    assert 'st.scatter_reduce(x, 0, places, u, "prod")' in str(stopped.value)


# ---- segments -------------------------------------------------------------------------------------

IDS = np.array([3, 0, -1, 7, 0, 2, 3, 3])
DATA = RNG.standard_normal((8, 3))


def segments(data, ids):
    return {name: getattr(st, f"segment_{name}")(data, ids, 5) for name in ("sum", "prod", "max", "min", "mean")}


def in_numpy(data, ids):
    parts = [data[ids == n] for n in range(5)]
    of = {"sum": np.sum, "prod": np.prod, "max": lambda x, a: np.max(x, a, initial=-np.inf)}
    of |= {"min": lambda x, a: np.min(x, a, initial=np.inf), "mean": lambda x, a: np.sum(x, a) / max(len(x), 1)}
    return {name: np.stack([function(part, 0) for part in parts]) for name, function in of.items()}


def test_rows_of_segments_and_of_none(emulated_device):
    expected = in_numpy(DATA, IDS)
    for f in (segments, st.function(segments), st.function(on_a_device(segments))):
        compare_trees(f(wrap(DATA) if f is segments else DATA, IDS), expected, rtol=1e-13)
    narrow = st.function(segments)(DATA, IDS.astype(np.int8))
    compare_trees(narrow, expected, rtol=1e-13)


def test_segments_are_jaxs():
    jax = pytest.importorskip("jax", reason="needs JAX")
    data = DATA.astype(np.float32)
    found = st.function(segments)(data, IDS)
    for name in ("sum", "prod", "max", "min"):
        theirs = getattr(jax.ops, f"segment_{name}")(data, IDS, 5)
        np.testing.assert_allclose(found[name], theirs, rtol=1e-6, err_msg=name)
    whole = st.function(lambda x: (st.segment_max(x, IDS, 5), st.segment_min(x, IDS, 5)))(np.arange(8, dtype=np.int32))
    theirs = (jax.ops.segment_max(np.arange(8, dtype=np.int32), IDS, 5), jax.ops.segment_min(np.arange(8, dtype=np.int32), IDS, 5))
    compare_trees(whole, tuple(np.asarray(x) for x in theirs))


def test_derivatives_of_segments_agree_with_differences():
    st.check_grads(st.function(lambda data: [x[np.array([0, 2, 3])] for x in segments(data, IDS).values()]), (DATA,))


# ---- bags -----------------------------------------------------------------------------------------

TABLE = RNG.standard_normal((6, 4))
BAGS = {
    "rows": (np.array([[0, 1, 2], [1, 1, 1], [4, 4, 5]]), None, False),
    "offsets": (np.array([0, 1, 2, 2, 5]), np.array([0, 0, 3, 5]), False),
    "last_offset": (np.array([0, 1, 2, 2, 5]), np.array([0, 0, 3, 5]), True),
}


@pytest.mark.parametrize("padding", [None, 1, -5])
@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weighted"])
@pytest.mark.parametrize("bags", BAGS)
def test_bags_are_torchs(bags, mode, padding):
    indices, offsets, last = BAGS[bags]
    options = {"mode": "sum" if mode == "weighted" else mode, "include_last_offset": last, "padding_idx": padding}
    shares = np.linspace(0.5, 2.0, indices.size).reshape(indices.shape) if mode == "weighted" else None

    def in_torch(torch, table):
        weight = torch.tensor(table, requires_grad=True)
        share = None if shares is None else torch.tensor(shares, requires_grad=True)
        place = None if offsets is None else torch.tensor(offsets)
        functional = torch.nn.functional.embedding_bag
        y = functional(torch.tensor(indices), weight, place, per_sample_weights=share, **options)
        given = (weight,) if share is None else (weight, share)
        return [part.detach().numpy() for part in (y, *torch.autograd.grad((y**2).sum(), given))]

    layer = nn.EmbeddingBag(6, 4, dtype=st.f64, **options)
    layer.load_state_dict({"weight": TABLE})

    @st.function
    def run(indices, *shares):
        def loss(*shares):
            return st.sum(layer(indices, offsets, *shares) ** 2)

        found = [layer(indices, offsets, *shares), st.grad(loss, wrt=layer)(*shares)["weight"]]
        return [*found, *(st.grad(loss)(*shares) for _ in shares)]

    compare_trees(run(indices, *([] if shares is None else [shares])), reference(in_torch, TABLE), rtol=1e-11, atol=1e-12)


def test_the_row_of_padding_of_a_bag_starts_as_zeros():
    table = nn.EmbeddingBag(5, 3, padding_idx=-1).weight.numpy()
    assert not table[4].any() and table[:4].all()
    assert repr(nn.EmbeddingBag(5, 3, mode="max", padding_idx=1)) == "EmbeddingBag(5, 3, mode='max', padding_idx=1)"


@pytest.mark.parametrize("offsets,words", [([1, 2], "the first offset is 0"), ([0, 3, 2], "offsets do not decrease")])
def test_offsets_that_are_none_stop_the_program(offsets, words):
    @st.function
    def f(offsets):
        return st.embedding_bag(np.arange(4), TABLE, offsets)

    with refuses(st.ProgramError, words) as stopped:
        f(np.array(offsets))
    assert "return st.embedding_bag(np.arange(4), TABLE, offsets)" in str(stopped.value)


REFUSED = {
    "reduction": (lambda: st.scatter_reduce(X, 0, PLACES, U, "max"), st.ArgumentError, "reduce is 'sum'"),
    "axes": (lambda: st.scatter_reduce(X, 0, ROWS, U, "sum"), st.ShapeError, "as many axes"),
    "too_many": (lambda: st.scatter_reduce(X, 0, PLACES, U[:2], "sum"), st.ShapeError, "more indices than elements"),
    "dtypes": (lambda: st.scatter_reduce(X, 0, PLACES, wrap(U.astype(np.float32)), "sum"), st.DTypeError, "cannot add"),
    "floats": (lambda: st.scatter_reduce(X, 0, X[:3], U, "prod"), st.DTypeError, "integer indices"),
    "matrix": (lambda: st.index_reduce(X, 0, PLACES, U, "prod"), st.ShapeError, "a vector of indices"),
    "rows": (lambda: st.index_reduce(X, 0, ROWS, U[:2], "prod"), st.ShapeError, "a row for each index"),
    "ids": (lambda: st.segment_sum(DATA, IDS[:3], 4), st.ShapeError, "a segment for each row"),
    "mode": (lambda: st.embedding_bag([[0]], TABLE, mode="min"), st.ArgumentError, "mode is"),
    "layers_mode": (lambda: nn.EmbeddingBag(3, 2, mode="min"), st.ArgumentError, "mode is"),
    "shares": (
        lambda: st.embedding_bag([[0]], TABLE, mode="max", per_sample_weights=[[1.0]]), st.ArgumentError, "go with mode",
    ),
    "one_share": (
        lambda: st.embedding_bag([[0]], TABLE, mode="sum", per_sample_weights=[1.0]), st.ShapeError, "a weight for each",
    ),
    "no_offsets": (lambda: st.embedding_bag([0], TABLE), st.ShapeError, "needs offsets"),
    "two_kinds": (lambda: st.embedding_bag([[0]], TABLE, [0]), st.ShapeError, "not with a matrix"),
    "offsets": (lambda: st.embedding_bag([0], TABLE, [[0]]), st.ShapeError, "a vector of offsets"),
    "table": (lambda: st.embedding_bag([[0]], TABLE[0]), st.ShapeError, "a table of rows"),
    "padding": (lambda: st.embedding_bag([[0]], TABLE, padding_idx=6), st.ArgumentError, "one of 6 rows"),
}  # fmt: skip

test_refused_with_words = refusals(REFUSED)


@pytest.mark.parametrize("axes", [11, 12, 32])
def test_arrays_of_many_axes(axes: int) -> None:
    """The loops over axes have names beyond the letters."""
    shape = (2, *[1] * (axes - 2), 3)
    x = np.arange(6, dtype=np.float32).reshape(shape)

    def f(x, places, n):
        y = x * 2.0
        y[n] = y[0]
        return st.scatter_reduce(y, 0, places, x, "sum"), st.scatter_add(y, n, x[0])

    places = np.ones(shape, np.int64)
    found = [np.asarray(each) for each in st.function(f, target="portable")(x, places, 1)]
    doubled = np.stack([2 * x[0]] * 2)
    np.testing.assert_array_equal(found[0], doubled + np.stack([0 * x[0], x[0] + x[1]]))
    np.testing.assert_array_equal(found[1], doubled + np.stack([0 * x[0], x[0]]))


SEGMENTS = np.array([0, 2, 0, 1, 2, 1])
PER_SEGMENT = {
    **{name: lambda x, name=name: getattr(st, name)(x, SEGMENTS, 3) for name in
       ("segment_sum", "segment_prod", "segment_max", "segment_min", "segment_mean")},
    **{f"scatter_{reduce}": lambda x, reduce=reduce: st.scatter_reduce(np.ones(3), 0, SEGMENTS, x, reduce) for reduce in REDUCTIONS},
    **{f"index_{reduce}": lambda x, reduce=reduce: st.index_reduce(np.ones((3, 1)), 0, SEGMENTS, x[:, None], reduce)[:, 0]
       for reduce in REDUCTIONS},
}  # fmt: skip


@pytest.mark.parametrize("name", PER_SEGMENT)
def test_an_infinite_element_stays_in_its_segment(name) -> None:
    """Derivatives of the other segments, of first and second order, are those without it."""
    f = PER_SEGMENT[name]
    x = np.array([2.0, 3.0, 5.0, 7.0, 0.5, -1.0])
    others = SEGMENTS != 1

    def derivatives(x):
        def loss(x):
            y = f(x)
            return y[0] * 2.0 + y[2] * 3.0

        slope = st.grad(loss)
        return f(x), slope(x), st.jvp(loss, (x,), (np.where(others, x, 0.0),))[1], st.jacfwd(slope)(x)

    program = st.function(derivatives, target="portable")
    wanted = [np.asarray(each) for each in program(x)]
    runs = [(program, poison) for poison in (np.inf, np.nan, 1e300)] + [(derivatives, np.inf)] * (name == "segment_prod")
    for run, poison in runs:
        found = [np.asarray(each) for each in run(np.where(SEGMENTS == 1, poison, x))]
        np.testing.assert_array_equal(found[0][[0, 2]], wanted[0][[0, 2]])
        np.testing.assert_array_equal(found[1][others], wanted[1][others])
        np.testing.assert_array_equal(found[2], wanted[2])
        np.testing.assert_array_equal(found[3][others][:, others], wanted[3][others][:, others])


@pytest.mark.parametrize("dtype", [st.u8, st.i8, st.i32, st.u64, st.f16, st.bf16, st.f32])
def test_means_of_narrow_dtypes_do_not_wrap_around(dtype) -> None:
    large = 200 if dtype is not st.i8 else 100
    many = st.astype(np.full(300, large), dtype)
    index = np.zeros(300, np.int64)

    def means(x):
        return (
            st.segment_mean(x, index, 2),
            st.scatter_reduce(x[:2], 0, index, x, "mean"),
            st.index_reduce(x[:2], 0, index, x, "mean", include_self=False),
            st.segment_mean(x[:256], index[:256], 1),
        )

    for run in (st.function(means, target="portable"), means):
        for found, wanted in zip(run(many), ([large, 0], [large, large], [large, large], [large]), strict=True):
            assert str(np.asarray(found).dtype) == str(np.asarray(many).dtype)
            np.testing.assert_array_equal(np.asarray(st.astype(found, st.f64)), wanted)


@pytest.mark.parametrize("segment", [st.segment_prod, st.segment_max, st.segment_min])
def test_complex_numbers_are_refused(segment):
    with pytest.raises(st.DTypeError, match="not defined for complex numbers"):
        segment(np.array([1 + 2j, 3j]), np.array([0, 0]), 1)
