"""Jacobians and Hessians: `jvp` or a pullback, mapped over the vectors of a basis; code of one size for any number."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from staged.errors import GradientError
from staged.frontend.calls.call import call
from staged.frontend.transforms.jvp import jvp
from staged.frontend.transforms.leaves import Outputs, Primals, name_of, plain, split_aux
from staged.frontend.transforms.vjp import vjp
from staged.frontend.transforms.vmap import batched
from staged.frontend.values import trees
from staged.ir.sizes import Extent, product
from staged.ops.array import Array
from staged.ops.choice import astype
from staged.ops.shape import reshape
from staged.ops.source import eye, ones
from staged.ops.subscript import get_item
from staged.source import Position, here


def jacfwd(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The Jacobian of f by forward mode: one run per element of the arguments, good for few inputs.

    The result has the tree of f's result (None for leaves that are not floats) with the tree of the arguments in
    `argnums` in place of each array; the shape of each leaf is that of the output followed by that of the input. With
    `has_aux` f returns a pair of result and aux, and the returned function the pair of Jacobian and aux. JAX `jacfwd`.

    Raises: GradientError for arguments that are not floats and where a derivative does not exist; StagingError for
    prints and writes of Variables inside f.
    """

    @functools.wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call_ = _Call(f, argnums, args, kwargs, has_aux, here())
        basis = call_.basis(call_.given.arrays)

        def column(*tangents: Array) -> Any:
            _, d_out, aux = jvp(call_.run, (tuple(call_.given.arrays),), (tangents,), has_aux=True)
            return d_out, aux

        columns, aux = batched(column, call_.name, "a `jacfwd`", tuple(basis), {}, 0, (-1, None), call_.where)
        jacobian = call_.outputs.filled(
            [
                None if part is None else call_.by_input(part, leading=False)
                for part in (trees.flatten(columns)[0][place] for place in call_.outputs.places)
            ],
            [None] * len(call_.outputs.leaves),
        )
        return (jacobian, aux) if has_aux else jacobian

    return plain(jacobian)


def jacrev(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The Jacobian of f by reverse mode: one run per element of the result, good for few outputs. Otherwise as
    `jacfwd`.
    """

    @functools.wraps(f)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call_ = _Call(f, argnums, args, kwargs, has_aux, here())
        _, pullback, aux = vjp(call_.run, tuple(call_.given.arrays), has_aux=True)
        floats = [index for index, array in enumerate(call_.outputs.arrays) if array.dtype.is_float]
        arrays = [call_.outputs.arrays[index] for index in floats]
        places = [call_.outputs.places[index] for index in floats]
        leaves: list[Any] = [None] * len(call_.outputs.leaves)

        def row(*cotangents: Array) -> Any:
            given: list[Any] = [None] * len(leaves)
            for place, cotangent in zip(places, cotangents, strict=True):
                given[place] = cotangent
            return pullback(trees.unflatten(call_.outputs.spec, given))[0]

        if len(arrays) == 1 and not arrays[0].shape:
            # The gradient of a scalar needs no basis.
            one = astype(ones(()), arrays[0].dtype)
            parts = [[call_.tree(row(one))]]
        else:
            rows = batched(row, call_.name, "a `jacrev`", tuple(call_.basis(arrays)), {}, 0, 0, call_.where)
            per_input = [call_.split(found, arrays, leading=True) for found in rows]
            parts = [[call_.tree([found[number] for found in per_input])] for number in range(len(arrays))]
        for place, (part,) in zip(places, parts, strict=True):
            leaves[place] = part
        jacobian = trees.unflatten(call_.outputs.spec, leaves)
        return (jacobian, aux) if has_aux else jacobian

    return plain(jacobian)


def hessian(f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The second derivatives of f: `jacfwd(jacrev(f))`, forward over reverse.

    For f of an array of shape `s` that returns a scalar, an array of shape `(*s, *s)`. Trees, `argnums` and `has_aux`
    as in `jacfwd`. For a product with one vector use `st.jvp(st.grad(f), (x,), (v,))[1]`. JAX `hessian`.
    """
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)


class _Call:
    """One call of a Jacobian: the arguments that it is by, and how to run f with others."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: int | Sequence[int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        has_aux: bool,
        where: Position | None,
    ) -> None:
        self.name, self.where = name_of(f), where
        self.is_single = isinstance(argnums, int)
        numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise GradientError(
                    f"`{self.name}` got {len(args)} positional arguments, the Jacobian is by number {number}",
                    where=where,
                )
        asked = [number % len(args) for number in numbers]
        # An argument that is named twice is differentiated once, and its Jacobian given twice.
        chosen = list(dict.fromkeys(asked))
        self.asked = [chosen.index(number) for number in asked]
        self.given = Primals(self.name, "the Jacobian", [args[number] for number in chosen], where)
        self.outputs: Outputs

        def run(arrays: Sequence[Array]) -> tuple[Any, Any]:
            inside = list(args)
            for number, value in zip(chosen, self.given.rebuild(arrays), strict=True):
                inside[number] = value
            out, aux = split_aux(self.name, call(f, *inside, **kwargs), has_aux, where)
            self.outputs = Outputs(out)
            return out, aux

        self.run = plain(run)

    def basis(self, arrays: Sequence[Array]) -> list[Array]:
        """The unit vectors of the space that the arrays span together: one array per array, with a leading axis."""
        sizes = [product(array.type.shape) for array in arrays]
        total, found = sum(sizes), []
        for number, array in enumerate(arrays):
            rows = eye(total, sizes[number], -sum(sizes[:number]), dtype=array.dtype)
            found.append(reshape(rows, (total, *array.shape)))
        return found

    def split(self, found: Array, arrays: Sequence[Array], leading: bool) -> list[Array]:
        """An array with an axis over the basis of `arrays`, first or last, as one array per array."""
        whole, parts = (slice(None),) * (found.ndim - 1), []
        start: Extent = 0
        rest = found.shape[1:] if leading else found.shape[:-1]
        for array in arrays:
            stop = start + product(array.type.shape)
            here_ = slice(start, stop)
            part = get_item(found, (here_, *whole) if leading else (*whole, here_))
            shape = (*array.shape, *rest) if leading else (*rest, *array.shape)
            parts.append(reshape(part, shape))
            start = stop
        return parts

    def by_input(self, found: Array, leading: bool) -> Any:
        """The tree of the arguments, from an array with an axis over their basis."""
        return self.tree(self.split(found, self.given.arrays, leading))

    def tree(self, parts: Sequence[Any]) -> Any:
        """The tree of the arguments with these leaves."""
        made = self.given.rebuild(parts)
        return made[0] if self.is_single else tuple(made[place] for place in self.asked)
