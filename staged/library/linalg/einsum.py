"""Einstein sums: `einsum`, contracted pair by pair in the cheapest order, each pair as a matrix product.

A term is the list of labels of an array's axes: a letter, or a number for an axis of the ellipsis, counted from the
last one. Derivatives and mapping are those of the products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from staged.errors import ArgumentError
from staged.ir.sizes import Extent
from staged.library.linalg.diagonals import diagonal
from staged.ops.array import Array
from staged.ops.contraction import matrix_product
from staged.ops.promote import check_argument, promoted, shape_error
from staged.ops.public import public
from staged.ops.reduction import sum_
from staged.ops.shape import permute_dims, reshape, squeeze
from staged.source import here

Label = str | int
Terms = tuple[Label, ...]
Labelled = tuple[Array, Terms]
"""An array and the labels of its axes, each once."""

EXHAUSTIVE = 7
"""The number of operands up to which every order is looked at; beyond, the cheapest pair is taken at each step."""
UNKNOWN = 1024
"""The extent that a symbolic one counts as in the cost of an order."""


@public("einsum")
def einsum(subscripts: str, *operands: Any, optimize: Any = True) -> Array:
    """Sums of products over named axes: `einsum("ij,jk->ik", a, b)` is `a @ b`. NumPy and torch `einsum`.

    A label that stands in several operands pairs their axes, one that stands twice in an operand takes its diagonal,
    one that the result lacks is summed over. `...` stands for any axes, which broadcast. Without `->` the result has
    the ellipsis' axes, then the labels that stand once, in alphabetical order. Products of several operands are taken
    in the cheapest order, whatever NumPy's `optimize` says. Dtypes promote; integers keep theirs. Raises ShapeError
    where extents of a label differ.
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(
            "the first argument of einsum is the text of its subscripts",
            where=here(),
            hint='`st.einsum("ij,jk", a, b)`',
        )
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    arrays = promoted(*given) if given else []
    terms, result = _parsed(subscripts, arrays)
    extents = _extents(subscripts, arrays, terms)
    parts = [_prepared(*pair, extents) for pair in zip(arrays, terms, strict=True)]
    sizes = tuple((label, extent if isinstance(extent, int) else UNKNOWN) for label, extent in extents.items())
    while len(parts) > 1:
        first, second = _next_pair(tuple(labels for _, labels in parts), result, sizes)
        others = [part for place, part in enumerate(parts) if place not in (first, second)]
        kept = {*result, *(label for _, labels in others for label in labels)}
        parts = [
            *others,
            _product(_summed(parts[first], kept, parts[second]), _summed(parts[second], kept, parts[first]), kept),
        ]
    array, labels = _summed(parts[0], set(result))
    return permute_dims(array, tuple(labels.index(label) for label in result))


# ---- reading the subscripts -----------------------------------------------------------------------


def _parsed(subscripts: str, arrays: Sequence[Array]) -> tuple[list[Terms], Terms]:
    """The labels of each operand, and those of the result."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    texts = left.split(",")
    check_argument(
        len(texts) == len(arrays), f"einsum: `{subscripts}` has {len(texts)} operands, and {len(arrays)} are given"
    )
    terms = []
    for text, array in zip(texts, arrays, strict=True):
        letters = _letters(text, subscripts)
        rest = array.ndim - (len(letters) - (... in letters))
        if rest < 0 or rest and ... not in letters:
            raise shape_error(
                f"einsum: `{text}` does not fit {array.type}", array, hint="a label for each axis, or `...`"
            )
        terms.append(_spread(letters, rest))
    flat = [label for term in terms for label in term]
    ellipsis = sorted({label for label in flat if isinstance(label, int)}, reverse=True)
    if not arrow:
        return terms, (
            *ellipsis,
            *sorted(label for label in set(flat) if isinstance(label, str) and flat.count(label) == 1),
        )
    result = _spread(_letters(right, subscripts), len(ellipsis))
    check_argument(
        len(set(result)) == len(result) and set(result) <= set(flat),
        f"einsum: the result of `{subscripts}` has each label once, and only those of operands",
    )
    return terms, result


def _letters(text: str, subscripts: str) -> list[Any]:
    """The letters of a term, and an Ellipsis for `...`."""
    before, dots, after = text.partition("...")
    check_argument(
        all(letter.isascii() and letter.isalpha() for letter in before + after),
        f"einsum: labels are letters, got `{subscripts}`",
    )
    return [*before, *([...] if dots else []), *after]


def _spread(letters: Sequence[Any], count: int) -> Terms:
    """A term with the numbers of `count` axes for the ellipsis."""
    return tuple(label for one in letters for label in (range(count - 1, -1, -1) if one is ... else (one,)))


def _extents(subscripts: str, arrays: Sequence[Array], terms: Sequence[Terms]) -> dict[Label, Extent]:
    """The extent of each label: an extent of 1 repeats."""
    extents: dict[Label, Extent] = {}
    for array, term in zip(arrays, terms, strict=True):
        for label, extent in zip(term, array.shape, strict=True):
            known = extents.get(label, 1)
            if known != 1 and extent not in (1, known):
                name = f"`{label}`" if isinstance(label, str) else "an axis of the ellipsis"
                raise shape_error(f"einsum: {name} of `{subscripts}` is {known} and {extent}", *arrays)
            extents[label] = known if extent == 1 else extent
    return extents


# ---- operands -------------------------------------------------------------------------------------


def _prepared(array: Array, term: Terms, extents: dict[Label, Extent]) -> Labelled:
    """An operand with each label once: without axes that repeat, and diagonals instead of pairs of axes."""
    repeated = tuple(place for place, label in enumerate(term) if array.shape[place] == 1 and extents[label] != 1)
    labels = [label for place, label in enumerate(term) if place not in repeated]
    array = squeeze(array, repeated) if repeated else array
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            array = diagonal(array, 0, first, second)
            labels = [one for place, one in enumerate(labels) if place not in (first, second)] + [label]
    return array, tuple(labels)


def _summed(part: Labelled, kept: set[Label], other: Labelled | None = None) -> Labelled:
    """The sum over labels that nothing else has."""
    array, labels = part
    beside = kept if other is None else kept | set(other[1])
    axes = tuple(place for place, label in enumerate(labels) if label not in beside)
    if not axes:
        return part
    return sum_(array, axes, dtype=array.dtype), tuple(label for label in labels if label in beside)


def _product(left: Labelled, right: Labelled, kept: set[Label]) -> Labelled:
    """The sum of products over what both have and nothing else does."""
    (a, of_a), (b, of_b) = left, right
    batch = tuple(label for label in of_a if label in of_b and label in kept)
    inner = tuple(label for label in of_a if label in of_b and label not in kept)
    rows = tuple(label for label in of_a if label not in of_b)
    columns = tuple(label for label in of_b if label not in of_a)
    labels = (*batch, *rows, *columns)
    if not inner:
        return _aligned(left, labels) * _aligned(right, labels), labels
    # An operand that has its inner labels on the other side is turned by the product.
    turn_a, turn_b = of_a == (*batch, *inner, *rows), of_b == (*batch, *columns, *inner)
    a = _matrices(left, batch, inner if turn_a else rows, rows if turn_a else inner)
    b = _matrices(right, batch, columns if turn_b else inner, inner if turn_b else columns)
    shapes = dict(zip(of_a, left[0].shape, strict=True)) | dict(zip(of_b, right[0].shape, strict=True))
    return reshape(matrix_product(a, b, turn_a, turn_b), tuple(shapes[label] for label in labels)), labels


def _matrices(part: Labelled, batch: Terms, rows: Terms, columns: Terms) -> Array:
    """The operand as a matrix for each element of the batch."""
    array, labels = part
    turned = permute_dims(array, tuple(labels.index(label) for label in (*batch, *rows, *columns)))
    shape, middle = turned.shape, len(batch) + len(rows)
    sides = math.prod(shape[len(batch) : middle]), math.prod(shape[middle:])
    return reshape(turned, (*shape[: len(batch)], *sides))


def _aligned(part: Labelled, labels: Terms) -> Array:
    """The operand with its axes in the order of `labels`, an extent of 1 where it has none."""
    array, own = part
    turned = permute_dims(array, tuple(own.index(label) for label in labels if label in own))
    extents = iter(turned.shape)
    return reshape(turned, tuple(next(extents) if label in own else 1 for label in labels))


# ---- the order ------------------------------------------------------------------------------------


@cache
def _next_pair(terms: tuple[Terms, ...], result: Terms, extents: tuple[tuple[Label, int], ...]) -> tuple[int, int]:
    """The two operands to multiply first: of the cheapest order, counted in products of numbers."""
    sizes = dict(extents)
    order = [(first, second) for second in range(len(terms)) for first in range(second)]

    def cost(labels: Iterable[Label]) -> int:
        return math.prod(sizes[label] for label in labels)

    def kept(group: frozenset[int]) -> frozenset[Label]:
        """The labels of the product of a group: those that the result or another operand has."""
        outside = {*result, *(label for place, term in enumerate(terms) if place not in group for label in term)}
        return frozenset(label for place in group for label in terms[place] if label in outside)

    if len(terms) > EXHAUSTIVE:
        return min(order, key=lambda pair: cost({*terms[pair[0]], *terms[pair[1]]}))

    @cache
    def best(group: frozenset[int]) -> tuple[int, tuple[int, int]]:
        """The cost of a group's product, and the pair that it begins with."""
        if len(group) == 1:
            return 0, (0, 0)
        found = []
        for part in _parts(group):
            rest = group - part
            (cost_part, pair), (cost_rest, pair_of_rest) = best(part), best(rest)
            first = pair if len(part) > 1 else pair_of_rest if len(rest) > 1 else (min(group), max(group))
            found.append((cost_part + cost_rest + cost(kept(part) | kept(rest)), first))
        return min(found)

    return best(frozenset(range(len(terms))))[1]


def _parts(group: frozenset[int]) -> list[frozenset[int]]:
    """One part of each way to split a group into two: the part that has its first member."""
    first, *others = sorted(group)
    return [
        frozenset((first, *(one for bit, one in enumerate(others) if chosen >> bit & 1)))
        for chosen in range(2 ** len(others) - 1)
    ]
