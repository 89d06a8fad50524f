"""Compressed sparse rows: a matrix of few elements times vectors and matrices, with derivatives.

A product gathers the rows of the dense operand that the elements meet, multiplies, and sums up by rows: everything else
(derivatives by both, `vmap` over the dense operand, devices) follows from `take` and `scatter_add`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.errors import UnsupportedError
from staged.ir.sizes import Extent, bounds_of
from staged.ir.types import DType, i64
from staged.library.statistics.counting import searchsorted
from staged.ops.array import Array, StagedArray
from staged.ops.checks import stop_unless
from staged.ops.comparisons import logical_and
from staged.ops.dimension import as_extent
from staged.ops.index import integers, scatter_add, take
from staged.ops.promote import as_array, cast, check_argument, promoted, shape_error
from staged.ops.shape import expand_dims, reshape
from staged.ops.sorting import argsort
from staged.ops.source import arange, zeros
from staged.source import here


def _refused(word: str) -> Callable[..., Any]:
    def refuse(self: Any, *given: Any, **options: Any) -> Any:
        raise UnsupportedError(
            f"a sparse matrix has products with dense arrays, `A @ x` and `A.T @ y`, and no {word}",
            where=here(),
            hint="`A.with_data(f(A.data))` changes its elements; `A.todense()` is an array",
        )

    return refuse


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "floordiv": "//", "mod": "%"}


class _Refusing:
    """Operators that sparse matrices do not have: each is refused with words."""

    __array_ufunc__ = None  # NumPy's arrays leave operators to these
    for _word, _sign in _SIGNS.items():
        locals()[f"__{_word}__"] = locals()[f"__r{_word}__"] = _refused(f"`{_sign}`")
    __getitem__ = _refused("elements by index")
    __neg__ = _refused("`-`")
    __len__ = _refused("`len`")
    __iter__ = _refused("iteration")
    __rmatmul__ = _refused("`x @ A`: write `(A.T @ x.T).T`")


@dataclass(frozen=True, eq=False)
class CsrMatrix(_Refusing):
    """A matrix (rows, columns) as compressed sparse rows; `csr_matrix` makes one.

    Row i has the elements data[indptr[i] : indptr[i + 1]] in the columns indices[indptr[i] : indptr[i + 1]].
    """

    data: Any
    indices: Any
    indptr: Any
    row_of: Any
    """The row of each element."""
    none: Any
    """An array (0, columns): sizes of arrays are known while staging, numbers in arguments are not."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)"""
        return self.indptr.shape[0] - 1, self.none.shape[1]

    @property
    def ndim(self) -> int:
        """2"""
        return 2

    @property
    def nnz(self) -> int:
        """The number of elements that are stored."""
        found: int = self.data.shape[0]
        return found

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return as_array(self.data).dtype

    @property
    def T(self) -> CsrTransposed:
        """The transpose, for products `A.T @ y`."""
        return CsrTransposed(self)

    def with_data(self, data: Any) -> CsrMatrix:
        """The matrix with other elements at the same places."""
        elements = as_array(data)
        if elements.shape != as_array(self.data).shape:
            raise shape_error(f"with_data takes {self.nnz} elements, got {elements.type}", elements)
        return CsrMatrix(elements, self.indices, self.indptr, self.row_of, self.none)

    def todense(self) -> Array:
        """The matrix as an array; elements of one place add up."""
        rows, columns = self.shape
        place = cast(as_array(self.row_of), i64) * columns + cast(as_array(self.indices), i64)
        whole = scatter_add(zeros((rows * columns,), self.dtype), place, self.data)
        return reshape(whole, (rows, columns))

    def toarray(self) -> Array:
        """As `todense`."""
        return self.todense()

    def transpose(self) -> CsrTransposed:
        """As `T`."""
        return self.T

    def dot(self, x: Any) -> Array:
        """As `A @ x`."""
        return self.__matmul__(x)

    def __matmul__(self, x: Any) -> Array:
        """A @ x for x (columns,) or (columns, k)."""
        rows, columns = self.shape
        return _product(self.data, self.indices, self.row_of, x, (rows, columns))


@dataclass(frozen=True, eq=False)
class CsrTransposed(_Refusing):
    """The transpose of a CSR matrix: `A.T @ y`, and `A.T.T`, which is A."""

    of: CsrMatrix

    @property
    def shape(self) -> tuple[int, int]:
        """(columns of A, rows of A)"""
        return self.of.shape[::-1]

    @property
    def T(self) -> CsrMatrix:
        """The matrix itself."""
        return self.of

    def todense(self) -> Array:
        """The transpose as an array."""
        return self.of.todense().T

    def toarray(self) -> Array:
        """As `todense`."""
        return self.todense()

    def transpose(self) -> CsrMatrix:
        """As `T`."""
        return self.T

    def dot(self, y: Any) -> Array:
        """As `A.T @ y`."""
        return self.__matmul__(y)

    def __matmul__(self, y: Any) -> Array:
        """A.T @ y for y (rows,) or (rows, k)."""
        return _product(self.of.data, self.of.row_of, self.of.indices, y, self.shape)


def _product(data: Any, read: Any, written: Any, x: Any, shape: tuple[int, int]) -> Array:
    """Row written[e] of the result is the sum of data[e] x[read[e]]."""
    if isinstance(x, _Refusing):
        raise UnsupportedError(
            "the product of two sparse matrices is not there",
            where=here(),
            hint="make the second one dense: `A @ B.todense()`",
        )
    elements, dense = promoted(data, x)
    if dense.ndim not in (1, 2) or dense.shape[0] != shape[1]:
        raise shape_error(
            f"a sparse matrix {shape} is multiplied by a vector or matrix of {shape[1]} rows, got {dense.type}", dense
        )
    found = take(dense, read, 0)
    parts = found * (elements if dense.ndim == 1 else expand_dims(elements, -1))
    return scatter_add(zeros((shape[0], *dense.shape[1:]), parts.dtype), written, parts)


def csr_matrix(given: Any, shape: tuple[int, int] | None = None) -> CsrMatrix:
    """A CSR matrix of (data, indices, indptr) or (data, (rows, columns)) and a shape, of a sparse matrix of SciPy's, or
    of a dense one of NumPy's.

    Shapes: data (n,), indices (n,) integer, indptr (rows + 1,) integer, from 0 to n; `shape` is (rows, columns). The
    rows and columns of elements are (n,) integer, in any order.
    Columns of a row need no order; equal ones add up. Of a dense matrix the elements that are not 0 are taken, so its
    values are known while staging. Columns and row ends that do not fit are an error, in a program when it runs.
    """
    if isinstance(given, CsrMatrix):
        return given
    if hasattr(given, "tocsr"):
        scipys = given.tocsr()
        return csr_matrix((scipys.data, scipys.indices, scipys.indptr), scipys.shape)
    of_places = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], tuple) and len(given[1]) == 2
    if not of_places and (not isinstance(given, tuple) or len(given) != 3):
        return _of_dense(given)
    sizes = [] if shape is None else list(map(as_extent, shape))
    message = f"csr_matrix: `shape` is (rows, columns), got {shape!r}"
    check_argument(
        len(sizes) == 2 and None not in sizes and not any(bounds_of(size)[1] < 0 for size in sizes if size is not None),
        message,
    )
    rows, columns = sizes
    assert rows is not None and columns is not None
    if of_places:
        given = _by_rows(given[0], given[1][0], given[1][1], rows)
    data = as_array(given[0])
    indices, ends = (integers(one, "csr_matrix") for one in given[1:])
    if data.ndim != 1 or indices.shape != data.shape:
        raise shape_error(f"csr_matrix takes a column for each element, got {indices.type} for {data.type}", data)
    if ends.shape != (rows + 1,):
        raise shape_error(f"csr_matrix takes {rows + 1} row ends for {rows} rows, got {ends.type}", ends)
    count = data.shape[0]
    stop_unless(logical_and(indices >= 0, indices < columns), f"csr_matrix: columns are 0 to {columns - 1}")
    stop_unless(ends[1:] >= ends[:-1], "csr_matrix: row ends do not decrease")
    stop_unless(logical_and(ends[0] == 0, ends[-1] == count), f"csr_matrix: rows begin at 0 and end at {count}")
    row_of = searchsorted(ends, arange(count, dtype=ends.dtype), "right") - 1
    return CsrMatrix(*map(_settled, (data, indices, ends, row_of, zeros((0, columns), data.dtype))))


def _by_rows(data: Any, row_of: Any, columns: Any, rows: Extent) -> tuple[Array, Array, Array]:
    """(data, indices, indptr) of elements at places in any order."""
    elements, places = as_array(data), [integers(one, "csr_matrix") for one in (row_of, columns)]
    if elements.ndim != 1 or any(place.shape != elements.shape for place in places):
        raise shape_error(
            f"csr_matrix takes a row and a column for each element, got {places[0].type} and {places[1].type} for "
            f"{elements.type}",
            elements,
        )
    stop_unless(logical_and(places[0] >= 0, places[0] < rows), f"csr_matrix: rows are 0 to {rows - 1}")
    order = argsort(places[0])
    ends = searchsorted(take(places[0], order, 0), arange(rows + 1, dtype=places[0].dtype))
    return take(elements, order, 0), take(places[1], order, 0), ends


def _settled(x: Array) -> Any:
    """An array outside of programs as NumPy's."""
    return x if isinstance(x, StagedArray) else np.asarray(x)


def _of_dense(given: Any) -> CsrMatrix:
    if isinstance(given, StagedArray):
        raise UnsupportedError(
            "a matrix of the program has a number of elements that is not known while staging",
            where=here(),
            hint="make it sparse outside, or give (data, indices, indptr) and a shape",
        )
    dense = np.asarray(given)
    if dense.ndim != 2:
        raise shape_error(f"csr_matrix takes (data, indices, indptr), or a matrix, got an array of {dense.ndim} axes")
    rows, columns = np.nonzero(dense)
    ends = np.searchsorted(rows, np.arange(len(dense) + 1))
    return csr_matrix((dense[rows, columns], columns, ends), dense.shape)
