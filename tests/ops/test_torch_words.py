"""torch's words on arrays: each against the NumPy expression that it is, in one program and eagerly; and what is refused."""

import inspect

import numpy as np
import pytest

import staged as st
from staged.ops.array import METHOD_NAMES, METHODS
from staged.ops.torch_keywords import DIM_MEANS, KEYWORDS
from staged.ops.torch_words import METHOD_WORDS
from tests.errors.said import refuses

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
M = X[0]
MASK = X > 0.3
IDS = np.array([[3, -1, 2], [0, 5, 7]], np.int64)


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


# What is written on x (2, 3, 4), m (3, 4), mask and ids; and the same in NumPy. Lists of arrays count as tuples.
CASES = {
    "view": (lambda x, m, mask, ids: x.view(-1, 4), lambda: X.reshape(6, 4)),
    "view_tuple": (lambda x, m, mask, ids: x.view((3, 8)), lambda: X.reshape(3, 8)),
    "view_as": (lambda x, m, mask, ids: m.view_as(m.t()), lambda: M.reshape(4, 3)),
    "size": (lambda x, m, mask, ids: x.view(x.size(0), x.size(-2) * x.size(2)) * x.size, lambda: X.reshape(2, 12) * 24),
    "size_shape": (lambda x, m, mask, ids: x.sum() * len(x.size()) + x.dim(), lambda: X.sum() * 3 + 3),
    "numel": (lambda x, m, mask, ids: x.mean() * x.numel(), lambda: X.mean() * 24),
    "masked_fill": (lambda x, m, mask, ids: x.masked_fill(mask, float("-inf")), lambda: np.where(MASK, -np.inf, X)),
    "masked_fill_row": (lambda x, m, mask, ids: x.masked_fill(mask[0], 2), lambda: np.where(MASK[0], 2, X)),
    "masked_fill_ints": (lambda x, m, mask, ids: ids.masked_fill(ids < 0, 9), lambda: np.where(IDS < 0, 9, IDS)),
    "masked_fill_scalar": (lambda x, m, mask, ids: x.masked_fill(mask, m[0, 0]), lambda: np.where(MASK, M[0, 0], X)),
    "split": (lambda x, m, mask, ids: x.split(3, dim=2), lambda: (X[..., :3], X[..., 3:])),
    "split_sizes": (lambda x, m, mask, ids: x.split([1, 0, 2], dim=1), lambda: (X[:, :1], X[:, 1:1], X[:, 1:])),
    "chunk": (lambda x, m, mask, ids: x.chunk(2, dim=-1), lambda: (X[..., :2], X[..., 2:])),
    "chunk_of_nothing": (lambda x, m, mask, ids: x[:, :0].chunk(3, 1), lambda: (X[:, :0],) * 3),
    "chunk_uneven": (lambda x, m, mask, ids: x.chunk(2, 1), lambda: (X[:, :2], X[:, 2:])),
    "unbind": (lambda x, m, mask, ids: x.unbind(1), lambda: tuple(X[:, i] for i in range(3))),
    "float": (lambda x, m, mask, ids: ids.float(), lambda: IDS.astype(np.float32)),
    "double": (lambda x, m, mask, ids: ids.double(), lambda: IDS.astype(np.float64)),
    "long": (lambda x, m, mask, ids: (x * 3).long(), lambda: (X * 3).astype(np.int64)),
    "int": (lambda x, m, mask, ids: (x * 3).int(), lambda: (X * 3).astype(np.int32)),
    "bool": (lambda x, m, mask, ids: ids.bool(), lambda: IDS.astype(bool)),
    "byte": (lambda x, m, mask, ids: mask.byte(), lambda: MASK.astype(np.uint8)),
    "to": (lambda x, m, mask, ids: ids.to(st.f64), lambda: IDS.astype(np.float64)),
    "type_as": (lambda x, m, mask, ids: ids.type_as(x), lambda: IDS.astype(np.float32)),
    "softmax": (lambda x, m, mask, ids: x.softmax(dim=1), lambda: softmax(X, 1)),
    "log_softmax": (lambda x, m, mask, ids: x.log_softmax(-1), lambda: np.log(softmax(X, -1))),
    "contiguous": (lambda x, m, mask, ids: x.contiguous().clone().detach().cpu().copy(), lambda: X),
    "t": (lambda x, m, mask, ids: m.t(), lambda: M.T),
    "mT": (lambda x, m, mask, ids: x.mT, lambda: X.transpose(0, 2, 1)),
    "T": (lambda x, m, mask, ids: x.T + x.T.mT.mT, lambda: 2 * X.T),
    "T of many axes": (lambda x, m, mask, ids: x[None, :, None].T, lambda: X[None, :, None].T),
    "T of a vector": (lambda x, m, mask, ids: x[0, 0].T, lambda: X[0, 0].T),
    "T of a number": (lambda x, m, mask, ids: x[0, 0, 0].T, lambda: X[0, 0, 0]),
    "transpose": (lambda x, m, mask, ids: x.transpose(1, 2), lambda: X.transpose(0, 2, 1)),
    "transpose_negative": (lambda x, m, mask, ids: x.transpose(-2, 0), lambda: X.transpose(1, 0, 2)),
    "transpose_matrix": (lambda x, m, mask, ids: m.transpose(0, 1), lambda: M.T),
    "transpose_dims": (lambda x, m, mask, ids: st.swapaxes(x, dim0=0, dim1=2), lambda: X.transpose(2, 1, 0)),
    "transpose_order": (lambda x, m, mask, ids: x.transpose((1, 2, 0)), lambda: X.transpose(1, 2, 0)),
    "expand": (lambda x, m, mask, ids: m.expand(2, -1, 4), lambda: np.broadcast_to(M, (2, 3, 4))),
    "expand_as": (lambda x, m, mask, ids: m.expand_as(x), lambda: np.broadcast_to(M, (2, 3, 4))),
    "narrow": (lambda x, m, mask, ids: x.narrow(2, 1, 2), lambda: X[:, :, 1:3]),
    "narrow_from": (lambda x, m, mask, ids: x.narrow(2, ids[1, 0] * 0 + 1, 2), lambda: X[:, :, 1:3]),
    "narrow_from_the_end": (lambda x, m, mask, ids: x.narrow(2, ids[1, 0] * 0 - 2, 2), lambda: X[:, :, -2:]),
    "select": (lambda x, m, mask, ids: x.select(1, -1), lambda: X[:, -1]),
    "index_select_one": (lambda x, m, mask, ids: x.index_select(1, ids[1, 0] * 0 + 1), lambda: X[:, [1]]),
    "index_select": (lambda x, m, mask, ids: x.index_select(1, ids[1] // 4), lambda: X[:, [0, 1, 1]]),
    "unflatten": (lambda x, m, mask, ids: x.unflatten(2, (2, -1)), lambda: X.reshape(2, 3, 2, 2)),
    "repeat_interleave": (lambda x, m, mask, ids: m.repeat_interleave(2, dim=0), lambda: M.repeat(2, axis=0)),
    "where": (lambda x, m, mask, ids: x.where(mask, 0.0), lambda: np.where(MASK, X, 0)),
    "arithmetic": (lambda x, m, mask, ids: x.mul(2).add(m).sub(1).div(4).neg().pow(2), lambda: (-(X * 2 + M - 1) / 4) ** 2),
    "compare": (lambda x, m, mask, ids: (x.gt(0), x.le(m), x.ne(x)), lambda: (X > 0, M >= X, X != X)),
    "clamp": (lambda x, m, mask, ids: x.clamp(min=-0.5, max=0.5) + x.clamp_min(0), lambda: X.clip(-0.5, 0.5) + X.clip(0)),
    "products": (lambda x, m, mask, ids: m.mm(m.t()) + x.bmm(x.mT).sum(dim=0), lambda: M @ M.T + (X @ X.mT).sum(0)),
    "sum_dim": (lambda x, m, mask, ids: x.sum(dim=(0, 2), keepdim=True), lambda: X.sum(axis=(0, 2), keepdims=True)),
    "mean_dim": (lambda x, m, mask, ids: st.mean(x, dim=1), lambda: X.mean(axis=1)),
    "max_dim": (lambda x, m, mask, ids: x.max(dim=1), lambda: (X.max(1), X.argmax(1))),
    "min_keep": (lambda x, m, mask, ids: st.min(x, dim=-1, keepdim=True), lambda: (X.min(-1)[..., None], X.argmin(-1)[..., None])),
    "max_axis": (lambda x, m, mask, ids: x.max(1) + x.amax(dim=1), lambda: 2 * X.max(1)),
    "argmax_dim": (lambda x, m, mask, ids: x.argmax(dim=2, keepdim=True), lambda: X.argmax(2)[..., None]),
    "std": (lambda x, m, mask, ids: x.std(dim=0, correction=1) + x.var(dim=0, unbiased=False), lambda: X.std(0, ddof=1) + X.var(0)),
    "concat": (lambda x, m, mask, ids: st.concat([x, x], dim=1), lambda: np.concatenate([X, X], 1)),
    "stack": (lambda x, m, mask, ids: st.stack(tensors=[m, m], dim=2), lambda: np.stack([M, M], 2)),
    "flip": (lambda x, m, mask, ids: x.flip(dims=(0, 2)), lambda: X[::-1, :, ::-1]),
    "roll": (lambda x, m, mask, ids: st.roll(m, shifts=1, dims=1), lambda: np.roll(M, 1, 1)),
    "tril": (lambda x, m, mask, ids: m.tril(diagonal=1), lambda: np.tril(M, 1)),
    "input": (lambda x, m, mask, ids: st.softmax(input=m, dim=0), lambda: softmax(M, 0)),
    "where_input": (lambda x, m, mask, ids: st.where(mask, input=x, other=0.0), lambda: np.where(MASK, X, 0)),
    "to_dtype": (lambda x, m, mask, ids: ids.to(dtype=st.f32) + ids.to(m), lambda: 2 * IDS.astype(np.float32)),
    "arange": (lambda x, m, mask, ids: st.arange(1, end=7, step=2), lambda: np.arange(1, 7, 2)),
    "zeros": (lambda x, m, mask, ids: (st.zeros(2, 3), st.zeros((2,), st.f64)), lambda: (np.zeros((2, 3)), np.zeros(2))),
    "ones": (lambda x, m, mask, ids: st.ones(2, dtype=st.i64), lambda: np.ones(2)),
    "unsqueeze": (lambda x, m, mask, ids: m.unsqueeze(axis=1).squeeze(dim=1), lambda: M),
    "normalize": (lambda x, m, mask, ids: st.normalize(m, dim=0), lambda: M / np.linalg.norm(M, axis=0)),
    "norm": (lambda x, m, mask, ids: m.norm(p=1, dim=1) + m.norm(2, 1), lambda: np.abs(M).sum(1) + np.linalg.norm(M, axis=1)),
    "reciprocal": (lambda x, m, mask, ids: (m + 9).reciprocal(), lambda: 1 / (M + 9)),
}  # fmt: skip


def as_tuple(value):
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def check(name, got):
    expected = as_tuple(CASES[name][1]())
    assert len(as_tuple(got)) == len(expected), name
    for one, right in zip(as_tuple(got), expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), right, rtol=2e-6, atol=1e-6, err_msg=name)
        assert np.shape(one) == np.shape(right), name


@pytest.mark.parametrize("name", CASES)
def test_a_word_does_in_plain_python_what_torchs_does(name):
    check(name, CASES[name][0](*map(st.asarray, (X, M, MASK, IDS))))


@pytest.mark.parametrize("part", range(4))
def test_words_in_a_program_and_eagerly(part):
    names = list(CASES)[part::4]

    @st.function
    def run(x, m, mask, ids):
        return [as_tuple(CASES[name][0](x, m, mask, ids)) for name in names]

    compiled = run(X, M, MASK, IDS)
    with st.eager():
        eager = run(X, M, MASK, IDS)
    for name, one, other in zip(names, compiled, eager, strict=True):
        check(name, one)
        check(name, other)
        for a, b in zip(one, other, strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype, name


def test_a_variable_has_the_words_too():
    v = st.Variable(M, name="v")
    assert v.size() == (3, 4) and v.size == 12 and v.numel() == 12
    np.testing.assert_array_equal(v.view(2, 6), M.reshape(2, 6))
    assert v.detach().clone().view(12).softmax(dim=0).sum().item() == pytest.approx(1.0)


def test_the_gradient_of_torchs_max_goes_to_the_element_that_it_names():
    x = np.array([[1.0, 3.0, 3.0]], np.float32)
    gradient = st.grad(lambda x: st.sum(x.max(dim=1).values))(x)
    np.testing.assert_array_equal(gradient, [[0.0, 1.0, 0.0]])


def test_detach_is_a_constant_to_derivatives():
    np.testing.assert_array_equal(st.grad(lambda x: st.sum(x.detach() * x))(X), X)


REFUSED = {
    "both": (lambda x: x.sum(axis=0, dim=1), st.ArgumentError, "sum: an argument is given twice, by `axis` and `dim`"),
    "position and name": (lambda x: st.softmax(x, 0, dim=1), st.ArgumentError, "given twice"),
    "var": (lambda x: x.var(dim=0), st.ArgumentError, "divides by n - 1 in torch"),
    "std": (lambda x: st.std(x, dim=0, keepdim=True), st.ArgumentError, "`correction=1` is torch's"),
    "split": (lambda x: st.split(x, 2, dim=0), st.ArgumentError, "parts of so many elements in torch"),
    "split sizes": (lambda x: x.split([1, 2], dim=2), st.ShapeError, "do not make up 4"),
    "split 0": (lambda x: x.split(0), st.ShapeError, "at least one element"),
    "chunk": (lambda x: x.chunk(0), st.ShapeError, "at least one part"),
    "size": (lambda x: x.size(3), st.ShapeError, "axis 3 does not exist"),
    "mask of numbers": (lambda x: x.masked_fill(x, 0.0), st.DTypeError, "a mask of bools"),
    "mask that is larger": (lambda x: x[0].masked_fill(x > 0, 0.0), st.ShapeError, "does not fit"),
    "fill of floats": (lambda x: x.long().masked_fill(x > 0, 0.5), st.DTypeError, "cannot put a f"),
    "fill of arrays": (lambda x: x.masked_fill(x > 0, x), st.ShapeError, "one number"),
    "t": (lambda x: x.t(), st.ShapeError, "takes a matrix"),
    "expand": (lambda x: x.expand(-1, 2, 3, 4), st.ShapeError, "a new axis has no extent"),
    "narrow": (lambda x: x.narrow(2, 3, 2), st.ShapeError, "do not lie in axis 2"),
    "view as dtype": (lambda x: x.view(st.i32), st.DTypeError, "cannot be viewed"),
    "to a device": (lambda x: x.to("cuda"), st.ArgumentError, "with_backend"),
    "repeat": (lambda x: x.repeat(2), AttributeError, "`st.tile"),
    "in place": (lambda x: x.masked_fill_(x > 0, 0.0), AttributeError, "arrays are values, write `x = x.masked_fill"),
    "in place, ours": (lambda x: x.exp_(), AttributeError, "arrays are values"),
    "unknown": (lambda x: x.frobnicate(), AttributeError, "arrays have no attribute 'frobnicate'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_means_two_things_or_nothing_is_refused(what):
    call, error, match = REFUSED[what]
    with refuses(error, match):
        call(st.asarray(X))


def test_the_size_of_an_array_with_a_symbolic_dimension_is_counted_by_the_program():
    @st.function
    def run(x, k):
        n = st.dim("N", k, max=6)
        part = x[:n]
        return part.size * 1.0, part.numel(), st.sum(part) / part.size, part.size(1)

    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    for context in (None, st.eager):
        if context is None:
            size, count, mean, columns = run(x, 4)
        else:
            with context():
                size, count, mean, columns = run(x, 4)
        assert (size, count, columns) == (12.0, 12, 3)
        assert mean == x[:4].mean()


def test_every_name_in_the_tables_leads_somewhere():
    parameters = {name for function in METHODS.values() for name in inspect.unwrap(function).__code__.co_varnames}
    for words in KEYWORDS.values():
        assert parameters.issuperset(words)
    assert METHODS.keys() >= set(METHOD_NAMES.values())
    assert not METHOD_WORDS.keys() & METHOD_NAMES.keys()
    assert METHODS.keys() >= DIM_MEANS.keys()
