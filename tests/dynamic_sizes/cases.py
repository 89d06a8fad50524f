"""Functions whose arguments have sizes that the program finds: one program serves all sizes of a case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from staged import nn
from staged.frontend.calls.dims import extent_of
from staged.frontend.values import trees
from staged.ir.sizes import dims_in, value_of

AROUND_A_VECTOR = (1, 2, 7, 8, 9, 16, 17, 33, 0)


@dataclass(frozen=True)
class Case:
    """A function, the declared axes of its arguments, and sizes for the dimensions."""

    function: Callable[..., Any]
    axes: Mapping[str, tuple[int | str, ...]]
    sizes: tuple[Mapping[str, int], ...]
    integers: Mapping[str, int] | None = None
    """Arguments that are indices, with the number that they stay below."""
    gradient: bool = True
    """Whether the gradient of the sum of the squares of all results exists."""
    exported: bool = False
    """Whether an exported program is compared, too."""

    @property
    def name(self) -> str:
        return self.function.__name__

    def arguments(self, sizes: Mapping[str, int], seed: int = 0) -> tuple[Any, ...]:
        """Random arguments: f64 in (-2, 2), and indices."""
        draw = np.random.default_rng(seed)
        made = []
        for name, axes in self.axes.items():
            extents = [extent_of(axis) for axis in axes]
            shape = [value_of(extent, {dim: sizes[dim.name] for dim in dims_in(extent)}) for extent in extents]
            most = (self.integers or {}).get(name)
            made.append(draw.uniform(-2, 2, shape) if most is None else draw.integers(0, most, shape))
        return tuple(made)


def _loss(function: Any) -> Any:
    def loss(*args: Any) -> Any:
        leaves, _ = trees.flatten(function(*args))
        return sum(st.sum(leaf * leaf) for leaf in leaves)

    loss.__name__ = f"{function.__name__}_loss"
    return loss


def gradient_of(made: Case) -> Any:
    """The gradient of the sum of the squares of all results, with respect to the arguments that are no indices."""
    places = tuple(place for place, name in enumerate(made.axes) if name not in (made.integers or {}))
    loss = _loss(made.function)

    def gradient(*args: Any) -> Any:
        return st.grad(loss, argnums=places)(*args)

    return gradient


CASES: list[Case] = []


def case(
    *sizes: Any, integers: Mapping[str, int] | None = None, gradient: bool = True, exported: bool = False, **axes: Any
) -> Any:
    """Declare a case; sizes are dicts, or numbers for N."""
    found = sizes or AROUND_A_VECTOR

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        as_dicts = tuple(size if isinstance(size, dict) else {"N": size} for size in found)
        made = {name: (each,) if isinstance(each, str | int) else each for name, each in axes.items()}
        CASES.append(Case(function, made, as_dicts, integers, gradient, exported))
        return function

    return register


def grid(**sizes: tuple[int, ...]) -> list[dict[str, int]]:
    """Sizes side by side, the shorter lists from the start again."""
    count = max(map(len, sizes.values()))
    return [{name: each[number % len(each)] for name, each in sizes.items()} for number in range(count)]


TWO = grid(N=(1, 3, 8, 17, 5, 0, 4), M=(1, 5, 16, 2, 9, 3, 0))
BOTH = {"x": ("N <= 40", "M <= 40")}

# ---- elementwise, broadcasting, reductions ---------------------------------------------------------


@case(x="N <= 40")
def elementwise(x):
    return st.where(x > 0, st.tanh(x) * 2.0, x * x - 1.0)


@case(*TWO, **BOTH)
def two_axes(x):
    return st.exp(x) + x / 3.0


@case(x=(3, "N <= 40"))
def inner_axis(x):
    return st.sin(x) * x


@case(x=(2, "N <= 40", 3))
def middle_axis(x):
    return st.maximum(x, 0.5) - x


@case(*TWO, **BOTH, row="M", column=("N", 1), exported=True)
def broadcasts(x, row, column):
    return x * row + column


@case(*TWO, x="N <= 40", y="M <= 40")
def outer_product(x, y):
    return x[:, None] * y[None, :]


@case(*TWO, **BOTH)
def sums(x):
    return st.sum(x), st.sum(x, axis=0), st.sum(x, axis=1), st.sum(x * x, axis=1, keepdims=True)


@case(*(size for size in TWO if 0 not in size.values()), **BOTH)
def means_and_variances(x):
    return st.mean(x, axis=1), st.var(x, axis=0), st.mean(x)


@case(*(size for size in TWO if 0 not in size.values()), **BOTH)
def extremes(x):
    return st.max(x, axis=1), st.min(x, axis=0), st.max(x)


@case(*(size for size in TWO if 0 not in size.values()), **BOTH, gradient=False)
def places_of_extremes(x):
    return st.argmax(x, axis=1), st.argmin(x, axis=0)


@case(*TWO, **BOTH, gradient=False)
def bools(x):
    return st.any(x > 1, axis=1), st.all(x > -1.9, axis=0), st.count_nonzero(x > 0)


@case(*TWO, **BOTH)
def softmaxes(x):
    return st.softmax(x, axis=1), st.log_softmax(x, axis=0)


@case(x=(4, "N <= 40"))
def logsumexp(x):
    return st.logsumexp(st.concat([x, x * 0.5], axis=0), axis=0)


@case(*TWO, **BOTH)
def running(x):
    return st.cumsum(x, axis=0), st.cumsum(x, axis=1)


@case(1, 2, 9, 17, x=("N <= 40", 3))
def products_of_elements(x):
    return st.prod(x, axis=0), st.prod(x, axis=1)


# ---- shapes ----------------------------------------------------------------------------------------


@case(*TWO, **BOTH)
def transposed(x):
    return x.T * 2.0, st.flip(x, axis=1) + x


@case(*grid(N=(1, 3, 8, 0), M=(2, 5, 16, 4)), x=("N <= 9", "M <= 20", 3))
def permuted(x):
    return st.transpose(x, (2, 0, 1)), st.transpose(x, (1, 2, 0)) * 3.0


@case(*(size for size in TWO if size["N"]), x=("N <= 40", "M <= 40", 4))
def flattened(x):
    return st.reshape(x, (-1,)), st.reshape(x, (x.shape[0], -1)), st.reshape(x, (-1, 4))


@case(*TWO, x=("N <= 40", "M <= 40", 4))
def reshaped_and_back(x):
    y = st.reshape(x, (x.shape[0] * x.shape[1], 4)) * 2.0
    return st.reshape(y, (x.shape[0], x.shape[1], 2, 2))


@case(1, 2, 5, 16, x=("2 * N", 3), y="N <= 20", exported=True)
def halves(x, y):
    return st.reshape(x, (2, -1, 3)) + y[:, None], x[: y.shape[0]] - x[y.shape[0] :]


@case(*TWO, **BOTH)
def expanded(x):
    return st.broadcast_to(x[:, None, :], (x.shape[0], 3, x.shape[1])) + 1.0


@case(*TWO, **BOTH, y=("N", 3))
def joined(x, y):
    return st.concat([x, y * 2.0], axis=1), st.concat([x, x], axis=0)


@case(*TWO, **BOTH)
def stacked(x):
    return st.stack([x, x * x], axis=1), st.stack([x, -x])


@case(*TWO, **BOTH)
def repeated(x):
    return st.tile(x, (2, 3)), st.repeat(x, 2, axis=1)


@case(*TWO, **BOTH)
def padded(x):
    return st.pad(x, ((1, 2), (0, 3)))


@case(3, 4, 9, 17, x=("N <= 40", 4))
def sliced(x):
    return x[1:], x[:-2], x[::2], x[1:-1, 1:3] * 2.0, x[-2:]


@case(*TWO, x="N <= 40", y="M <= 40")
def sliced_by_another_size(x, y):
    m, half = y.shape[0], x.shape[0] // 2
    return x[m:], x[m::-1] * 2.0, x[: m + half : 3], x[half:m], x[1 : x.shape[0] : 2], y[half:]


@case(40, 3, 9, x=("N <= 40", 3))
def sliced_beyond_the_end(x):
    return st.sin(st.stack([x, x * 2.0]))[x.shape[0] // 3 :]


@case(*TWO, x="N <= 40", y="M <= 40")
def sliced_and_clipped(x, y):
    n, m = x.shape[0], y.shape[0]
    return x[:m] * 2.0, x[n - 1 :: -1], x[: n - 1], st.zeros(5)[:n], st.tensor_split(st.tensor_split(x, 3)[1], 3)[2]


@case(1, 4, 9, 17, x=("N <= 40", 4))
def elements_by_number(x):
    return x[0] * 2.0, x[-1], x[:, 1]


@case(*TWO, **BOTH)
def reversed_rows(x):
    return x[::-1] * 2.0, x[:, ::-1]


@case(2, 5, 16, x=("N <= 40", 6))
def differences(x):
    return x[1:] - x[:-1], st.diff(x, axis=1)


@case(*TWO, **BOTH)
def triangles(x):
    return st.tril(x), st.triu(x, 1)


@case(x="N <= 40")
def diagonal_matrix(x):
    return st.diag(x) + st.eye(x.shape[0])


@case(x="N <= 40")
def like(x):
    return st.ones_like(x) + st.zeros(x.shape) * x + st.full((x.shape[0],), 2.0)


@case(x="N <= 40")
def positions(x):
    return x * st.arange(x.shape[0]) + x.shape[0], st.arange(2, x.shape[0] + 2) * x


@case(*TWO, **BOTH)
def rolled(x):
    return st.roll(x, 1, axis=1), st.roll(x, 2, axis=0)


# ---- gathers and scatters --------------------------------------------------------------------------


@case(*TWO, table=(5, "M <= 40"), ids="N <= 40", integers={"ids": 5})
def looked_up(table, ids):
    return st.take(table, ids, axis=0) * 2.0


@case(*grid(N=(1, 4, 16, 0), M=(3, 7, 5, 2)), table=("M <= 8", 6), ids="N <= 40", integers={"ids": 2})
def looked_up_in_rows(table, ids):
    return table[ids]


@case(*TWO, x=("N <= 40", 6), ids="N", integers={"ids": 6})
def one_of_each_row(x, ids):
    return st.take_along_axis(x, ids[:, None], axis=1)


@case(*TWO, x=("N <= 40", "M <= 40"), ids="N", integers={"ids": 5})
def scattered(x, ids):
    return st.scatter_add(st.zeros((5, x.shape[1]), dtype=st.f64), ids, x)


@case(x="N <= 40", ids="N", integers={"ids": 4})
def segments(x, ids):
    return st.segment_sum(x, ids, 4)


@case(ids="N <= 40", integers={"ids": 6}, gradient=False)
def one_hot(ids):
    return st.one_hot(ids, 6)


@case(*TWO, **BOTH)
def updated(x):
    y = x * 1.0
    y[:, 0:1] = 3.0
    return y


# ---- products --------------------------------------------------------------------------------------


@case(x=("N <= 40", 6), w=(6, 5))
def rows_of_a_product(x, w):
    return x @ w


@case(x=(6, 5), w=(5, "N <= 40"))
def columns_of_a_product(x, w):
    return x @ w


@case(x=(6, "N <= 40"), w=("N", 5))
def terms_of_a_product(x, w):
    return x @ w


@case(
    *grid(N=(1, 3, 40, 17, 0, 2), M=(1, 30, 7, 16, 3, 0), K=(5, 1, 33, 8, 2, 4)),
    x=("N <= 40", "K <= 40"),
    w=("K", "M <= 40"),
)
def product(x, w):
    return x @ w


@case(x=("N <= 40", 6), w=(5, 6), b=5)
def linear_relu(x, w, b):
    return st.relu(x @ w.T + b)


@case(*grid(N=(1, 3, 6), M=(2, 9, 17)), x=("N <= 8", "M <= 20", 4), y=("N", 4, "M"))
def batched_product(x, y):
    return x @ y


@case(*TWO, x=("N <= 40", "M <= 40", 4), w=(4, 3))
def rows_of_a_batch(x, w):
    return x @ w


@case(*TWO, **BOTH, y="M")
def matrix_vector(x, y):
    return x @ y


@case(x="N <= 40", y="N")
def dot(x, y):
    return st.dot(x, y)


@case(*grid(N=(1, 3, 6), M=(2, 9, 17)), q=("N <= 8", "M <= 20", 4), k=("N", "M", 4))
def einsum(q, k):
    return st.einsum("bid,bjd->bij", q, k)


ROWS = (1, 2, 3, 4, 7, 9, 10, 14, 15, 27, 29, 64, 0)
"""Rows around those of tiles."""
ACROSS = grid(N=(1, 2, 3, 5, 10, 29, 64, 0, 13, 4), M=(1, 7, 8, 9, 17, 25, 40, 64, 33, 0), K=(1, 3, 7, 8, 16, 33, 50, 0))


@case(*ROWS, x=("N <= 64", 33), w=(33, 50), b=50)
def tiles_of_rows(x, w, b):
    return st.tanh(x @ w + b)


@case(*ROWS, x=("N <= 64", 20), w=(41, 20), b=41)
def tiles_of_rows_by_a_transpose(x, w, b):
    return st.relu(x @ w.T + b)


@case(*ROWS, x=(21, "N <= 64"), w=("N", 37))
def tiles_of_terms(x, w):
    return x @ w


@case(*ROWS, x=(15, 21), w=(21, "N <= 64"), b="N")
def tiles_of_columns(x, w, b):
    return x @ w + b


@case(*ACROSS, x=("N <= 64", "K <= 50"), w=("K", "M <= 64"))
def tiles_of_all_sizes(x, w):
    return st.exp(-x @ w * 0.1)


@case(*ACROSS, x=("N <= 64", "K <= 50"), w=("M <= 64", "K"), b=("N", "M"))
def tiles_of_all_sizes_by_a_transpose(x, w, b):
    return x @ w.T + b


@case(*ACROSS, x=("K <= 50", "N <= 64"), w=("M <= 64", "K"))
def two_transposed_operands(x, w):
    return x.T @ w.T


@case(*grid(B=(1, 2, 3, 0), N=(1, 17, 33, 9), M=(5, 16, 7, 3)), x=("B <= 3", "N <= 40", 16), y=("B", 16, "M <= 40"))
def tiles_of_a_batch(x, y):
    return st.relu(x @ y)


@case(1, 9, 2500, 2049, 3, x=(3, "N <= 3000"), w=("N", 20))
def long_sums(x, w):
    return x @ w, st.relu(x @ w)


@case(*grid(B=(1, 4, 2), T=(1, 30, 64)), x=("B <= 4", "T <= 64", 64), w=(64, 256))
def linear_over_time(x, w):
    return st.tanh(x @ w)


@case(x=("N <= 40", 6))
def gram(x):
    return x @ x.T, x.T @ x


# ---- sorting ---------------------------------------------------------------------------------------


@case(*TWO, **BOTH)
def in_order(x):
    return st.sort(x, axis=1), st.sort(x, axis=0)


@case(3, 7, 16, x="N <= 40")
def largest_three(x):
    return st.topk(x, 3)[0]


@case(x="N <= 40", gradient=False)
def order(x):
    return st.argsort(x)


# ---- the library ---------------------------------------------------------------------------------

FULL = grid(N=(3, 8, 17), M=(5, 2, 9))
"""Sizes with at least two elements along each axis."""


@case(*FULL, **BOTH)
def medians_and_quantiles(x):
    return st.median(x), st.quantile(x, [0.2, 0.5], axis=1), st.nanquantile(x, 0.7, axis=0), x.median(dim=1)[0]


@case(*FULL, **BOTH)
def statistics_without_nan(x):
    return st.nanmean(x, axis=1), st.nanstd(x, axis=0), st.nanmax(x), st.ptp(x, axis=0), st.std(x, axis=1)


@case(*FULL, **BOTH)
def covariances(x):
    return st.cov(x), st.corrcoef(x, rowvar=False), st.average(x, axis=1, weights=st.exp(x))


@case(*FULL, **BOTH)
def scans(x):
    return st.cumprod(x, axis=0), st.logcumsumexp(x, axis=1), st.cummax(x, axis=0)[0]


@case(*TWO, **BOTH)
def diagonals(x):
    return st.diagonal(x), st.diag(x, -1), st.trace(x, 1), st.diag_embed(x, 1)


@case(*FULL, **BOTH)
def blocks(x):
    return st.block_diag(x, x.T), st.diagflat(x)


@case(*grid(N=(4, 6, 12), M=(5, 2, 9)), **BOTH)
def parts(x):
    return *st.split(x, 2), *st.tensor_split(x, 3, axis=1), x.narrow(1, 1, 1), st.split(x, [2, 3])[1]


@case(2, 4, 9, 20, x=("2 * N", 6), y="N <= 20")
def parts_of_a_known_number(x, y):
    n = y.shape[0]
    return *x.split(n), *x.chunk(2, dim=1), *x.split(4, dim=1), *st.unstack(x, axis=1), *x.split([n - 1, n + 1])


@case(*FULL, **BOTH)
def padded_with_elements(x):
    edges = st.pad(x, ((2, 1), (0, 3)), mode="edge"), st.pad(x, 2, mode="wrap")
    return *edges, st.pad(x, 3, mode="reflect"), st.pad(x, ((0, 4), (3, 0)), mode="symmetric"), st.pad(x, pad=(-1, 1))


@case(*FULL, **BOTH)
def turned(x):
    return st.rot90(x), st.flip(x), st.roll(x, (1, -2), (0, 1)), st.roll(x, x.shape[1]), st.fft.fftshift(x)


@case(1, 3, 8, x="N <= 20")
def repeated_by_sizes(x):
    return st.repeat(x, x.shape[0]), st.tile(x, x.shape[0]), st.linspace(0.0, 1.0, x.shape[0], dtype=st.f64) * x


@case(*FULL, x=("N <= 40", "M <= 40"), ids="N", integers={"ids": 2})
def writes_at_indices(x, ids):
    y = x * 1.0
    y[ids] = 3.0
    return y, x[st.arange(x.shape[0]), ids], st.index_add(x, 0, ids, x), st.index_fill(x, 1, ids, 2.0)


@case(*FULL, x=("N <= 40", "M <= 40"), ids="N", integers={"ids": 3})
def segments_by_other_words(x, ids):
    by_products = st.segment_prod(x, ids, 3), st.index_reduce(x, 0, ids, x, "prod")
    return *by_products, st.segment_mean(x, ids, x.shape[0]), st.where(st.segment_max(x, ids, 3) > -3, 1.0, 0.0)


@case(*FULL, x=("N <= 40", "M <= 40"), ids="N", integers={"ids": 2})
def scattered_by_other_words(x, ids):
    one, column = ids[:, None], x[:, :1]
    means = st.scatter_reduce(x, 1, one, column, "mean", include_self=False)
    return means, st.scatter_reduce(x, 1, one, column, "amax"), st.scatter_reduce(x, 1, one, column, "prod")


@case(*FULL, table=("M <= 40", 4), ids=("N <= 40", 2), integers={"ids": 2})
def bags(table, ids):
    return st.embedding_bag(ids, table), st.embedding_bag(ids, table, mode="max")


@case(*FULL, **BOTH, gradient=False)
def counts(x):
    values = st.round(x)
    edges = st.sort(x[:, 0])
    return (
        st.searchsorted(edges, x),
        st.histogram(x, edges)[0],
        st.bincount(st.astype(st.flatten(values) + 2, st.i64), length=x.shape[0]),
        *st.unique_all(values, size=4),
        *st.nonzero(x > 0, size=4),
        st.masked_select(x, x > 0, size=3, fill_value=0.0),
        st.mode(values, axis=1)[0],
    )


@case(*FULL, **BOTH)
def interpolated(x):
    return st.interp(x, st.arange(x.shape[0]) * 0.3, x[:, 0]), st.trapezoid(x, axis=1), st.diff(x, n=2, axis=0)


@case(*FULL, **BOTH, y=("N", "M"))
def losses(x, y):
    shares = st.softmax(y)
    by_element = st.mse_loss(x, y), st.huber_loss(x, y), st.binary_cross_entropy_with_logits(x, shares)
    return *by_element, st.kl_div(st.log_softmax(x), shares, reduction="batchmean"), st.cross_entropy(x, shares)


@case(*FULL, **BOTH, y=("N", "M"))
def distances(x, y):
    cosines = st.cosine_similarity(x, y), st.cosine_embedding_loss(x, y, st.sign(x[:, 0]))
    return *cosines, st.pairwise_distance(x, y), st.cdist(x, y), st.triplet_margin_loss(x, y, x * 2.0)


@case(*FULL, x=("N <= 40", "M <= 40"), ids="N", integers={"ids": 2})
def losses_of_labels(x, ids):
    smoothed = st.cross_entropy(x, ids, weight=st.exp(x[0]), label_smoothing=0.1)
    return smoothed, st.nll_loss(st.log_softmax(x), ids), st.multi_margin_loss(x, ids)


@case(*FULL, **BOTH)
def normalised(x):
    rows = st.rms_norm(x), st.normalize(x, axis=0), st.norm(x, axis=1), st.linalg.matrix_norm(x, 1)
    return *rows, st.group_norm(x[None, :, :, None] * st.ones((1, 1, 1, 2), dtype=st.f64), 1)


@case(*FULL, x=("N <= 40", "M <= 40", 4))
def small_matrices(x):
    gram = st.swapaxes(x, 1, 2) @ x + st.eye(4, dtype=st.f64)
    return st.linalg.det(gram), st.linalg.solve(gram, x[:, 0, :, None]), st.rotary(x)


@case(*grid(N=(2, 5, 1), M=(3, 9, 0)), x=("N <= 5", "M <= 9", "M"))
def matrices_of_all_sizes(x):
    unit = st.eye(x.shape[1], dtype=st.f64)
    gram = st.swapaxes(x, 1, 2) @ x + unit
    factors = st.linalg.cholesky(gram), st.linalg.qr(x + 4.0 * unit)[1], st.linalg.lu(x)[2]
    return *factors, st.linalg.solve(gram, x[:, :, :1]), st.linalg.inv(gram), st.linalg.slogdet(gram)[1]


@case(2, 0, x=("N <= 5", 3, 3))
def batches_of_matrices(x):
    gram = st.swapaxes(x, 1, 2) @ x + st.eye(3, dtype=st.f64)
    return st.linalg.eigvalsh(gram), st.linalg.matrix_exp(x)


@case(*grid(N=(2, 0, 1), M=(5, 1, 0)), x=("N <= 5", "M <= 12", "M"), exported=True)
def spectra(x):
    values, vectors = st.linalg.eigh(x)
    return values, vectors * vectors, st.vmap(st.linalg.matrix_exp)(x)


@case(16, 19, x=("N <= 300", "N"))
def spectra_of_large_matrices(x):
    return st.linalg.eigvalsh(x), st.linalg.svdvals(x)


@case(*grid(N=(9, 3), M=(4, 1)), x=("N <= 12", "M <= 8"))
def tall_matrices(x):
    u, values, vh = st.linalg.svd(x)
    found, residuals, rank, _ = st.linalg.lstsq(x, x[:, :1] * x[:, :1])
    return u[:, :1] * u[:, :1], values, vh * vh, found, residuals, rank, st.linalg.matrix_norm(x, "nuc")


@case(*grid(N=(2, 1), M=(5, 2)), x=("N <= 8", "M <= 12"))
def wide_matrices(x):
    u, values, vh = st.linalg.svd(x, full_matrices=False)
    return u * u, values, vh * vh, st.linalg.pinv(x), st.linalg.matrix_rank(x, atol=st.sum(x) * 0.0 + 0.1)


@case(*grid(N=(3, 0, 5), M=(4, 3, 2)), **BOTH)
def elements_at_one_place(x):
    places = st.zeros(x.shape, dtype=st.i64)
    return st.take(x, places[:, 0], axis=0), st.take_along_axis(x, places, axis=0), st.add_item(x, places[:, 0], x)


@case(*grid(N=(3, 1, 5), M=(4, 3, 2)), **BOTH, ids="N", integers={"ids": 3})
def as_many_as_a_size(x, ids):
    found = st.nonzero(x > 0, size=x.shape[1])[1], st.masked_select(x, x > 0, size=x.shape[0] * x.shape[1])
    few = st.topk(x, x.shape[0], axis=0)[0], st.kthvalue(x, x.shape[1])[0], st.unique(ids, size=ids.shape[0])
    return *found, *few, st.geomspace(1.0, 8.0, x.shape[0], dtype=st.f64) * x[:, 0]


@case(*grid(N=(9, 5, 17), M=(3, 5, 1)), x="N <= 40", y="M <= 40")
def convolved_vectors(x, y):
    return st.convolve(x, y), st.convolve(x, y, "same"), st.correlate(x, y)


@case(*grid(N=(3, 1), M=(2, 4)), **BOTH)
def jacobians(x):
    return st.jacfwd(lambda x: x[0] * x)(x), st.jacrev(st.sin)(x[0]), st.hessian(lambda x: st.sum(x**3))(x[0])


@case(*grid(N=(3, 2), M=(2, 5)), x=(2, 3, "2 * N", "2 * M"), y=("N <= 6", "M <= 6"))
def sizes_as_arguments(x, y):
    n, m = y.shape
    images = st.pixel_unshuffle(x, 2), st.fold(st.unfold(x, 2), x.shape[2:], 2), st.interpolate(x, size=(m, n))
    return *images, st.rotary(x), st.rotary(x, interleaved=True), st.layer_norm(x, x.shape[2:]), st.rms_norm(y, (m,), y[0])


@case(*grid(N=(5, 20, 1), M=(3, 6, 1), K=(2, 7, 1)), data="N <= 20", at="N", x=("M <= 6", 2), y="K <= 7", integers={"at": 9})
def sparse_products(data, at, x, y):
    rows = st.arange(data.shape[0]) % y.shape[0]
    sparse = st.sparse.csr_matrix((data, (rows, at % x.shape[0])), (y.shape[0], x.shape[0]))
    return sparse @ x, sparse.T @ y, sparse.todense()


@case(*FULL, x=("N <= 40", "M <= 40", 4))
def transformed(x):
    y = st.fft.fft(x)
    return st.real(y), st.imag(y), st.fft.irfft(st.fft.rfft(x))


@case(*grid(N=(3, 1, 17), M=(5, 2, 9)), x=("N <= 20", "M <= 10"))
def transformed_along_sizes(x):
    across, down = st.fft.rfft(x, norm="ortho"), st.fft.ifft2(x, s=(4, x.shape[1]))
    back = st.fft.irfft(across, n=x.shape[1]), st.fft.irfft(down + 1j)
    return st.real(across), st.imag(down), *back, st.fft.fftfreq(x.shape[0], dtype=st.f64)


@case(*FULL, **BOTH, y=("N", "M"))
def sums_of_products(x, y):
    sums = st.einsum("ij,ij->i", x, y), st.einsum("ij,kj->ik", x, y), st.tensordot(x, y, axes=2)
    return *sums, st.vecdot(x, y), st.outer(x[:, 0], y[0]), st.inner(x, y), st.addmm(x @ y.T, x, y.T)


@case(*FULL, **BOTH, gradient=False)
def draws(x):
    chosen = st.random.choice(x, 2), st.random.choice(x.shape[0], 1, replace=False)
    shuffled = st.random.permutation(x), st.random.permutation(x.shape[1])
    return *chosen, *shuffled, st.random.categorical(x), st.random.gamma(st.exp(x)), st.gumbel_softmax(x, hard=True)


# ---- expressions of dims ---------------------------------------------------------------------------


@case(*grid(N=(2, 4, 7, 20), M=(3, 1, 5, 2)), x="N * M", y=("N <= 20", "M <= 5"))
def joined_axes(x, y):
    return st.reshape(x, y.shape) * y


@case(4, 6, 10, 20, x="N <= 40")
def pairs(x):
    half = x.shape[0] // 2
    return x[:half] * x[half : 2 * half]


@case(1, 3, 8, x="N + 1", y="N <= 20")
def one_more(x, y):
    return x[1:] * y, x[:-1] - y


@case(1, 3, 8, x="2 * N + 1", y="N <= 20", exported=True)
def odd(x, y):
    return x[1::2] * y, x[:-1:2] + y


@case(1, 4, 9, 16, x="N <= 40", y="max(N, 4)")
def at_least_four(x, y):
    return st.sum(y) * x


@case(x="N <= 40")
def size_as_a_number(x):
    n = x.shape[0]
    return st.sum(x) / (n + 1), x * (n % 3) + n // 2, x * float(n)


@case(x=("N <= 40", 3))
def length(x):
    return x * len(x)


# ---- control flow ----------------------------------------------------------------------------------


@case(x="N <= 40")
def loop_over_rows(x):
    total = 0.0
    for i in st.range(x.shape[0]):
        total = total + x[i] * i
    return total


@case(1, 2, 7, 16, x=("N <= 40", 3))
def loop_over_half(x):
    half = x.shape[0] // 2
    total = x[0] * 1.0
    for i in st.range(half):
        total = st.tanh(total) + x[i] * st.sum(x[i : i + half])
    return total


@case(x=("N <= 40", 3))
def for_row_in_array(x):
    total = st.zeros(3, dtype=st.f64)
    for row in x:
        total = total * 0.5 + row
    return total


@case(x="N <= 40")
def branch_on_a_size(x):
    if x.shape[0] > 5:
        y = x * 2.0
    else:
        y = x - 1.0
    return y


@case(x=("N <= 40", 3), exported=True)
def pieces(x):
    n = x.shape[0]
    total, out = 0.0, st.zeros_like(x)
    for i in range(0, n, 8):
        piece = x[i : i + 8]
        total = total + st.sum(st.tanh(piece) @ piece.T) / len(piece)
        out[i : i + 8] = piece - st.mean(piece, axis=0)
    for i in range(2, n, 8):
        end = min(i + 8, n)
        total = total + st.max(x[i:end, 1:]) * (end - i)
    return total, out


@case(x="N <= 40", y="N")
def whole_pieces_with_another_axis(x, y):
    total = st.zeros(4, dtype=st.f64)
    for i in range(0, x.shape[0] // 4 * 4, 4):
        total = total + x[i : i + 4] * st.sum(y[i : i + 3])
    return total


@case(x="N <= 40")
def while_loop(x):
    y = x * 1.0
    while st.sum(y * y) > 1.0:
        y = y * 0.5
    return y


@case(x=("N <= 40", 3))
def carried(x):
    y = x * 1.0
    for _ in st.range(3):
        y = st.tanh(y) + x
    return y


@case(1, 5, 9, x=("N <= 40", 3))
def scanned(x):
    state = st.zeros(3, dtype=st.f64)
    out = st.zeros_like(x)
    for i in st.range(x.shape[0]):
        state = st.tanh(state + x[i])
        out[i] = state
    return out


@st.function
def _squared(x):
    return x * x + 1.0


@case(x="N <= 40")
def calls(x):
    return _squared(x) + _squared(x * 2.0)


@st.function
def _halved(x, n):
    if n == 0:
        return x
    return _halved(x * 0.5 + 1.0, n - 1)


@case(x="N <= 40")
def recursion(x):
    return _halved(x, 4)


@st.function
def _powers(x, n, scale):
    if n <= 1:
        half = x.shape[0] // 2
        return x[:half] * scale[:half]
    rest = _powers(st.tanh(x * scale), n - 1, scale)
    return rest * st.sum(x) + x.shape[0]


@case(x="N <= 40", n=(1,), integers={"n": 6}, exported=True)
def recursion_of_found_depth(x, n):
    return _powers(x, n[0], x * 0.5 + 1.0)


@st.function
def _from(x, i):
    if i >= x.shape[0]:
        return st.zeros((), dtype=st.f64)
    return x[i] + 0.5 * _from(x, i + 1)


@case(x="N <= 40")
def recursion_over_elements(x):
    return _from(x, 0) * x


@case(x="N <= 40")
def asserted(x):
    assert x.shape[0] < 41, f"too many: {x.shape[0]}"
    return x * 2.0


# ---- transforms ------------------------------------------------------------------------------------


@case(x=("N <= 40", 3), gradient=False)
def gradient(x):
    return st.grad(lambda x: st.sum(st.tanh(x) ** 2))(x)


@case(x="N <= 40", gradient=False)
def forward_mode(x):
    return st.jvp(lambda x: st.sin(x) * x, (x,), (x * 2.0,))


@case(x=("N <= 40", 3))
def mapped(x):
    return st.vmap(lambda row: st.softmax(row) * st.sum(row))(x)


@case(*TWO, **BOTH)
def mapped_rows(x):
    return st.vmap(lambda row: row / (1.0 + st.sum(row * row)))(x)


@case(*grid(N=(2, 5, 1), M=(3, 7, 2)), x=("N <= 6", "M <= 20", 4), ids=("N", "M"), integers={"ids": 2})
def mapped_indices(x, ids):
    def one(x, ids):
        return x[ids], st.scatter_add(x, ids, x), x[ids[0]], st.segment_sum(x @ st.ones((4, 2), dtype=st.f64), ids, 3)

    return st.vmap(one)(x, ids)


@case(x=("N <= 40", 3))
def mapped_over_a_part(x):
    return st.vmap(lambda row: row[::-1] * st.sum(row))(x[x.shape[0] // 2 :])


@case(x=("N <= 40", 3))
def checkpointed(x):
    return st.checkpoint(lambda x: st.tanh(x @ st.ones((3, 3), dtype=st.f64)))(x)


@case(*TWO, **BOTH)
def sizes_of_python(x):
    """Integers that Python computes from sizes are sizes."""
    n, m = x.shape
    halves = x[: int(n / 2)], x[math.ceil(n / 4) :], x[:, : int(m * 0.25)], x[:, math.floor(m / 2) :]
    return *halves, x[: n >> 1] * (n << 1), x[:, : abs(n - m)], st.zeros(n**2 + 1, dtype=st.f64) + st.sum(x)


@case(*grid(N=(8, 1, 17), M=(4, 1, 2)), **BOTH)
def sizes_of_parts_as_arguments(x):
    n, m = x.shape
    images = st.interpolate(x[None, None], size=(n // 2 + 1, 2 * m), mode="bilinear")
    pooled = st.adaptive_avg_pool2d(x[None, None], (n // 2 + 1, 2))
    return st.layer_norm(x, x.shape[-1:]), st.rms_norm(x, m), x.expand(3, n, m), images, pooled, st.ones(x.size)


@case(*grid(N=(40, 8), M=(40, 1, 2)), **BOTH, y=("M", "N"))
def first_row_of_joined_rows(x, y):
    rows = st.concat([y, st.ones((x.shape[0] // 2, x.shape[0]), dtype=st.f64)], axis=0)
    return rows - rows[:1]


@case(*TWO[2:6], **BOTH, y="M")
def jacobians_of_slices(x, y):
    rows = st.jacrev(lambda x, y: x[:3] @ st.sin(y), argnums=(0, 1))(x, y)
    return *rows, st.jacfwd(lambda y: y[:2] * st.sum(y))(y), st.hessian(lambda y: st.sum(y) * st.sum(st.sin(y)))(y)


@case(1, 3, 6, x="N <= 8", gradient=False)
def second_derivative(x):
    return st.grad(lambda x: st.sum(st.grad(lambda x: st.sum(x**4))(x) ** 2))(x)


@case(x="N <= 40", gradient=False)
def random_numbers(x):
    return x + st.random.uniform(x.shape, dtype=st.f64), st.random.normal((x.shape[0], 2), dtype=st.f64)


# ---- layers ----------------------------------------------------------------------------------------


def seeded(make: Callable[[], Any]) -> Any:
    st.seed(3)
    return make()


_MLP = seeded(lambda: nn.Sequential(nn.Linear(6, 8, dtype=st.f64), nn.ReLU(), nn.Linear(8, 3, dtype=st.f64)))


@case(x=("N <= 40", 6))
def mlp(x):
    return _MLP(x)


@case(x=("N <= 40", 6), labels="N", integers={"labels": 6})
def cross_entropy(x, labels):
    return st.cross_entropy(x * 2.0, labels) if x.shape else x


_NORM = seeded(lambda: nn.LayerNorm(6, dtype=st.f64))


@case(*grid(N=(1, 3, 17), M=(5, 9, 2)), x=("N <= 40", "M <= 40", 6))
def layer_norm(x):
    return _NORM(x)


@case(2, 5, 17, x=("N <= 40", 6))
def batch_norm(x):
    return st.batch_norm_training(x)[0]


_CONV = seeded(lambda: nn.Conv2d(3, 4, 3, padding=1, dtype=st.f64))


@case(1, 3, 8, x=("N <= 8", 3, 6, 5))
def convolved_batch(x):
    return st.relu(_CONV(x))


@case(*grid(N=(4, 7, 16), M=(5, 9, 4)), x=(2, 3, "N <= 20", "M <= 20"))
def convolved_image(x):
    return _CONV(x)


@case(*grid(N=(4, 7, 16), M=(5, 9, 4)), x=(2, 3, "N <= 20", "M <= 20"), w=(4, 3, 3, 3))
def strided_convolution(x, w):
    return st.conv2d(st.tanh(x), w, stride=2, padding=1)


@case(*grid(N=(4, 7, 16), M=(5, 38, 11, 10)), x=(2, 3, "N <= 20", "M <= 40"))
def pooled(x):
    return st.max_pool2d(x, 2), st.avg_pool2d(x, 2)


@case(1, 3, 8, x=("N <= 8", 3, 6, 6))
def pooled_batch(x):
    return st.max_pool2d(x, 3, stride=2)


_EMBEDDING = seeded(lambda: nn.Embedding(7, 5, dtype=st.f64))


@case(*grid(N=(1, 3, 17), M=(5, 9, 2)), ids=("N <= 40", "M <= 40"), integers={"ids": 7}, gradient=False)
def embedding(ids):
    return _EMBEDDING(ids)


@case(*grid(N=(1, 2, 3), M=(1, 5, 17)), q=("N <= 4", 2, "M <= 20", 4), k=("N", 2, "M", 4), v=("N", 2, "M", 4))
def attention(q, k, v):
    return st.scaled_dot_product_attention(q, k, v)


@case(*grid(N=(1, 2, 3), M=(1, 5, 17)), q=("N <= 4", 2, "M <= 20", 4), k=("N", 2, "M", 4), v=("N", 2, "M", 4))
def causal_attention(q, k, v):
    return st.scaled_dot_product_attention(q, k, v, is_causal=True)


_LSTM = seeded(lambda: nn.LSTM(4, 5, dtype=st.f64))


@case(*grid(N=(1, 5, 9), M=(1, 2, 3)), x=("N <= 12", "M <= 4", 4))
def lstm(x):
    return _LSTM(x)[0]


@case(1, 5, 17, x=("N <= 40", 6))
def dropout(x):
    return st.dropout(x, 0.5)
