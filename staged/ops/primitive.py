"""Primitives: one declaration each, with type rule, meaning, derivatives and test material.

    tanh = primitive(
        name="tanh",
        infer=elementwise_unary(FLOATS),        # types of operands -> type(s) of result(s), or ShapeError / DTypeError
        reference=np.tanh,                      # the meaning: every back end is tested against it
        vjp=lambda ct, y, x: [ct * (1.0 - y * y)],
        jvp=lambda dx, y, x: dx * (1.0 - y * y),
        samples=[Sample((2, 3)), Sample((1,)), Sample((0, 4))],
    )

The tests of values, gradients and errors, the support table and the reference page follow from the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from staged.ir.declaration import Declaration, declare
from staged.ir.nodes import PURE, Attrs, Effect
from staged.ir.sizes import Extent
from staged.ir.types import DType, TensorType, Type, f32, f64
from staged.ops.array import functions

InferRule = Callable[..., TensorType | tuple[Type, ...]]
"""`infer(*operand_types, **attrs)`: the type of the result, or a tuple of types for several results."""

VjpRule = Callable[..., Sequence[Any]]
"""`vjp(ct, result, *operands, **attrs)`: one cotangent per operand, None where it has none.

`ct`, `result` and the operands are `Array` handles, so that the rule works alike for staged and eager values; for an op
with several results `ct` and `result` are tuples (a `ct` may be None where that result was not used).
"""

JvpRule = Callable[..., Any]
"""`jvp(*tangents, result, *operands, **attrs)` is `jvp(tangents, result, operands, **attrs)`: tangents may be None
(zero).
"""

Slope = Callable[..., Any]
"""`slope(t, result, *operands, **attrs)`: the part of an elementwise derivative that `t`, of one operand, brings;
linear in t.
"""


ShiftRule = Callable[[dict[str, Any], Extent], dict[str, Any]]
"""`shift(attrs, size)`: the attributes of an op whose operands and results all have a leading axis of `size` more."""


def same_attrs(attrs: dict[str, Any], size: Extent) -> dict[str, Any]:
    """The shift of an op whose attributes name no axis."""
    return attrs


def next_axis(attrs: dict[str, Any], size: Extent) -> dict[str, Any]:
    """The shift of an op with an `axis`."""
    return {**attrs, "axis": attrs["axis"] + 1}


def next_axes(attrs: dict[str, Any], size: Extent) -> dict[str, Any]:
    """The shift of an op with some `axes`."""
    return {**attrs, "axes": tuple(axis + 1 for axis in attrs["axes"])}


def diagonal(slopes: Sequence[Slope | None]) -> dict[str, Any]:
    """The vjp and the jvp of an elementwise op, from one slope per operand (None: none, or zero almost everywhere).

    Of complex operands the slope is a complex factor, and the vjp multiplies by its conjugate.
    """

    def vjp(ct: Any, y: Any, *operands: Any, **attrs: Any) -> list[Any]:
        if ct.dtype.is_complex:
            conj, turned = functions.conj, functions.conj(ct)
            return [None if slope is None else conj(slope(turned, y, *operands, **attrs)) for slope in slopes]
        return [None if slope is None else slope(ct, y, *operands, **attrs) for slope in slopes]

    def jvp(tangents: Sequence[Any], y: Any, operands: Sequence[Any], **attrs: Any) -> Any:
        total = None
        for slope, t in zip(slopes, tangents, strict=True):
            if slope is not None and t is not None:
                part = slope(t, y, *operands, **attrs)
                total = part if total is None else total + part
        return total

    return {"vjp": vjp, "jvp": jvp}


@dataclass(frozen=True)
class Sample:
    """Operands for the generated tests: shapes (random data, seeded) or ready arrays, dtypes to try, and attrs.

    `low`/`high` bound the random values (to stay inside a domain or away from kinks).
    """

    operands: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0
    dtypes: tuple[DType, ...] = (f32, f64)
    differentiate: tuple[int, ...] | None = None
    """The operands whose gradient is checked; None: every float operand."""


@dataclass(frozen=True)
class BadSample:
    """Operand types that must be refused while staging, with the error and a part of its words."""

    operands: tuple[TensorType, ...]
    error: type[Exception]
    match: str
    attrs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Primitive(Declaration):
    """One op on arrays: its traits (see `Declaration`), type rule, meaning, derivatives and samples."""

    infer: InferRule
    reference: Callable[..., Any]
    vjp: VjpRule | None = None
    jvp: JvpRule | None = None
    effects: tuple[Effect, ...] | Callable[[Sequence[Type], Attrs], tuple[Effect, ...]] = PURE
    """Its effects; a function of operand types and attributes if they matter."""
    shift: ShiftRule | None = None
    """The rule of `vmap` for all elements at once; None: by a rule in `batching/`, or a loop over the elements."""
    samples: tuple[Sample, ...] = ()
    bad: tuple[BadSample, ...] = ()
    doc: str = ""
    why_not_differentiable: str = ""

    def result_types(self, operand_types: Iterable[Type], attrs: dict[str, Any]) -> tuple[Type, ...]:
        """The types of the results; raises ShapeError or DTypeError for operands that do not fit."""
        types = self.infer(*operand_types, **attrs)
        return types if isinstance(types, tuple) else (types,)

    def effects_on(self, operand_types: Sequence[Type], attrs: Attrs) -> tuple[Effect, ...]:
        """The effects of this op on operands of these types."""
        return self.effects(operand_types, attrs) if callable(self.effects) else self.effects


PRIMITIVES: dict[str, Primitive] = {}
"""Every primitive by name, in order of declaration."""


def primitive(**fields: Any) -> Primitive:
    """Declare a primitive: makes it and enters it into `PRIMITIVES`."""
    for key in ("samples", "bad"):
        fields[key] = tuple(fields.get(key, ()))
    if fields["kind"] == "elementwise":
        fields.setdefault("shift", same_attrs)
    declared = PRIMITIVES[fields["name"]] = declare(Primitive(**fields))
    return declared
