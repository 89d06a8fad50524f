"""Derivatives in eager mode: levels that observe each op while a differentiated function runs.

Every open derivative is a *level*. All open levels observe an op, the outermost first: a `Tape` records it for the
reverse; `Tangents` computes the tangents of its results at once. A level's own computations are ordinary eager code,
observed only by the levels outside of it. So derivatives nest, and perturbations of different levels are never
confused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from staged.autodiff.inactive import is_elementwise, is_source, kept, passes_zeros
from staged.autodiff.rules import closed_over, no_forward
from staged.errors import GradientError
from staged.frontend.constructs.try_ import unheard
from staged.ir.declaration import prims
from staged.ops.array import Array
from staged.ops.context import Whole
from staged.ops.custom import CALLS, no_derivative_of
from staged.ops.primitive import Primitive
from staged.ops.promote import cast
from staged.ops.thread_kernel import LAUNCH, no_derivative
from staged.source import Position

Arrays = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One op that was carried out."""

    primitive: Primitive | Whole
    operands: Arrays
    attrs: dict[str, Any]
    results: Arrays
    where: Position | None


class Level(Protocol):
    """An observer of the ops that run inside one derivative."""

    def depends(self, array: Array) -> bool:
        """Return whether an array depends on the inputs of this level's derivative."""

    def note(self, node: Node, outer: tuple[Level, ...]) -> None:
        """Observe an op; `outer` are the levels around this one."""


open_levels: ContextVar[tuple[Level, ...]] = ContextVar("staged_levels", default=())


def notify(node: Node) -> None:
    """Notify the open levels of an op, the outermost first: an inner level's rule may use an outer one's results."""
    current = open_levels.get()
    for depth, level in enumerate(current):
        level.note(node, current[:depth])


@contextmanager
def only_levels(some: tuple[Level, ...]) -> Iterator[None]:
    """Notify these levels alone of the ops inside the `with`."""
    token = open_levels.set(some)
    try:
        yield
    finally:
        open_levels.reset(token)


def has_elements(array: Array) -> bool:
    """Return whether anything depends on an array: a sum of nothing is the number 0, as in a compiled program, and has
    no derivative.

    Else the derivative of a mean of nothing would be 0 / 0, where the program has none.
    """
    return 0 not in array.shape


# ---- reverse ------------------------------------------------------------------------------------


@dataclass
class Tape:
    """The recorded ops of a function. `active` are the ids of arrays that depend on its primals."""

    nodes: list[Node] = field(default_factory=list)
    active: set[int] = field(default_factory=set)

    def depends(self, array: Array) -> bool:
        return id(array) in self.active

    def note(self, node: Node, outer: tuple[Level, ...]) -> None:
        # Only what depends on the primals. The node keeps its arrays alive, so ids stay unique.
        if node.primitive is prims.STOP_GRADIENT:
            return
        if any(id(operand) in self.active for operand in node.operands):
            self.nodes.append(node)
            self.active.update(
                id(result) for result in node.results if result.dtype.is_inexact and has_elements(result)
            )

    def pull_back(self, outputs: Arrays, cotangents: Sequence[Array | None]) -> dict[int, Array]:
        """The cotangent of every array on the way, by id, from those of the outputs."""
        found: dict[int, Array] = {}
        inactive: dict[int, Array] = {}
        """Cotangents of branches that `where` did not choose, by id; see `autodiff/inactive.py`."""

        def add(array: Array, cotangent: Array) -> None:
            known = found.get(id(array))
            total = cotangent if known is None else known + cotangent
            if id(known) in inactive and id(cotangent) in inactive:
                inactive[id(total)] = total
            found[id(array)] = total

        for output, cotangent in zip(outputs, cotangents, strict=True):
            if cotangent is not None:
                add(output, cotangent)
        for node in reversed(self.nodes):
            given = [found.get(id(result)) for result in node.results]
            if all(cotangent is None for cotangent in given):
                continue
            rule = node.primitive.vjp
            if rule is None:
                raise _no_derivative(node)
            several = len(node.results) > 1
            is_inactive = any(id(c) in inactive for c in given) and passes_zeros(node.primitive)
            with unheard():
                backs = rule(
                    tuple(given) if several else given[0],
                    node.results if several else node.results[0],
                    *node.operands,
                    **node.attrs,
                )
            for operand, back in zip(node.operands, backs, strict=True):
                if back is not None and id(operand) in self.active:
                    assert tuple(back.shape) == operand.shape, (
                        f"the vjp of {node.primitive.name} gave a cotangent {back.shape} for an operand {operand.shape}"
                    )
                    if is_inactive and given[0] is not None and is_elementwise(node.primitive):
                        back = kept(given[0], back)
                    if is_inactive or is_source(node.primitive):
                        inactive[id(back)] = back
                    add(operand, back)
        return found


# ---- forward ------------------------------------------------------------------------------------


@dataclass
class Tangents:
    """The tangents of the arrays that depend on the primals, by id; with the arrays, so that ids stay unique."""

    found: dict[int, tuple[Array, Array]] = field(default_factory=dict)

    def depends(self, array: Array) -> bool:
        return id(array) in self.found

    def of(self, array: Array) -> Array | None:
        """The tangent of an array; None for zero."""
        known = self.found.get(id(array)) if has_elements(array) else None
        return None if known is None else known[1]

    def note(self, node: Node, outer: tuple[Level, ...]) -> None:
        tangents = tuple(self.of(operand) for operand in node.operands)
        if all(tangent is None for tangent in tangents) or not any(result.dtype.is_inexact for result in node.results):
            return
        rule = node.primitive.jvp
        if rule is None:
            raise _no_derivative(node)
        several = len(node.results) > 1
        with only_levels(outer), unheard():
            made = rule(tangents, node.results if several else node.results[0], node.operands, **node.attrs)
            for result, tangent in zip(node.results, made if several else [made], strict=True):
                if tangent is None:
                    continue
                assert tuple(tangent.shape) == result.shape, (
                    f"the jvp of {node.primitive.name} gave a tangent {tangent.shape} for a result {result.shape}"
                )
                # Rules mix Python numbers in, which may change a weak type.
                self.found[id(result)] = result, cast(tangent, result.dtype, result.type.weak)


# ---- steps with a derivative of their own -------------------------------------------------------


@dataclass
class Sealed:
    """A level that refuses arrays that depend on other levels: the body of a `custom_vjp` reads only its arguments."""

    name: str
    hidden: tuple[Level, ...]

    def depends(self, array: Array) -> bool:
        return False

    def note(self, node: Node, outer: tuple[Level, ...]) -> None:
        if any(level.depends(operand) for level in self.hidden for operand in node.operands):
            raise closed_over(self.name, node.where)


Step = Callable[..., Sequence[Array]]


def run_custom(
    name: str,
    primal: Callable[[Arrays], Arrays],
    forward: Callable[[Arrays], tuple[Arrays, Any]],
    backward: Callable[[Any, tuple[Array | None, ...]], Sequence[Array | None]],
    arguments: Arrays,
    fresh: Callable[[Array], Array],
    where: Position | None,
) -> Arrays:
    """Run a function with its own reverse under the open levels.

    The innermost level that the arguments depend on records the user's reverse; `forward` runs as ordinary code, which
    the levels around it differentiate. `fresh` returns an array as a new object.
    """
    current = open_levels.get()
    involved = [depth for depth, level in enumerate(current) if any(map(level.depends, arguments))]
    if not involved:
        with only_levels((Sealed(name, current),)):
            return primal(tuple(map(fresh, arguments)))
    depth = involved[-1]
    level = current[depth]
    if isinstance(level, Tangents):
        raise no_forward(name, where)
    with only_levels(current[:depth]):
        copies = tuple(map(fresh, arguments))
    with only_levels((*current[:depth], Sealed(name, current[depth:]))):
        outputs, residuals = forward(copies)
        outputs = tuple(map(fresh, outputs))

    def vjp(cotangents: Any, results: Any, *operands: Array) -> Sequence[Array | None]:
        given = cotangents if len(outputs) > 1 else (cotangents,)
        return backward(residuals, given)

    step = Primitive(
        name=name, kind="structured", infer=lambda *types: types, reference=lambda *arrays: arrays, vjp=vjp
    )
    level.note(Node(step, arguments, {}, outputs, where), current[:depth])
    return outputs


def _no_derivative(node: Node) -> GradientError:
    if node.primitive in CALLS:
        return no_derivative_of(node.attrs["function"].name, node.where)
    if node.primitive is LAUNCH:
        return no_derivative(node.attrs["kernel"].name, node.where)
    why = getattr(node.primitive, "why_not_differentiable", "")
    return GradientError(
        f"`{node.primitive.name}` has no derivative" + (f": {why}" if why else ""),
        where=node.where,
        hint="wrap its argument in `staged.stop_gradient(...)` if no gradient should pass here",
    )
