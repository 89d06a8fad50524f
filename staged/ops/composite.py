"""Composites: functions made of primitives that stay one op until fusion, so that they keep a better derivative.

    @composite("softmax", vjp=lambda ct, y, x, axis: [...])
    def _softmax(x, *, axis): ...

A call records ONE op `composite`: attrs `name` and the static keyword arguments; its block is the body, with a
parameter per operand. A back end may claim the whole; else the body is inlined before fusion. Eager mode runs the body,
or calls NumPy if the composite has a `reference`.

Three kinds of derivative:

| declared | derivative |
|---|---|
| nothing | The body's, in both modes. |
| `vjp` | Reverse mode of a program takes the rule; forward and eager mode differentiate the body, with right slopes. |
| `slopes`, or `vjp` and `jvp` | The composite is one op to every derivative: the slopes of its body are unused. |

A body whose slopes are wrong or overflow somewhere (the two halves of `softplus` at 0, `1 / (exp(-x) + 1)` far below 0)
needs both rules, so that forward and reverse mode agree everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from staged.ir.declaration import Declaration, Kind
from staged.ir.nodes import Effect, Op
from staged.ir.structure import COMPOSITE
from staged.ops.array import Array
from staged.ops.context import COMPLEX_FORMS, current_context, refuse_complex
from staged.ops.primitive import JvpRule, Sample, ShiftRule, Slope, VjpRule, diagonal, same_attrs
from staged.ops.promote import as_array, check_known
from staged.ops.record import RecordContext

Body = Callable[..., Array | tuple[Array, ...]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Composite(Declaration):
    """A named function of arrays. The rules `vjp` and `jvp` are those of primitives; tuples for several results."""

    kind: Kind = "composite"
    body: Body
    reference: Callable[..., tuple[Any, ...]] | None = None
    """The results by NumPy, for operands that are not f16 or bf16: eager mode then does not run the body."""
    vjp: VjpRule | None = None
    jvp: JvpRule | None = None
    shift: ShiftRule | None = None
    """The rule of `vmap` for all elements at once, if its first operand alone is mapped; None: by its body."""
    has_batches: bool = False
    """True if all operands have the same leading axes, so that `shift` is the rule for any that are mapped."""
    is_diagonal: bool = False
    """True if it is elementwise, with `slopes`."""
    samples: tuple[Sample, ...] = ()
    """Operands for the generated tests, whose floats are f64."""

    @property
    def is_one_op(self) -> bool:
        """Return whether every derivative takes the composite's rules, and none the slopes of its body."""
        return self.vjp is not None and self.jvp is not None

    def __call__(self, *operands: Any, **attrs: Any) -> tuple[Array, ...]:
        """Record one op, or run the body where ops are not recorded; a handle per result."""
        context = current_context()
        arrays = [as_array(operand) for operand in operands]
        if not self.takes_complex and any(array.dtype.is_complex for array in arrays):
            form = COMPLEX_FORMS.get(self)
            return refuse_complex(self.name, arrays) if form is None else (form(*arrays, **attrs),)
        for name, value in attrs.items():
            check_known(self.name, name, value)
        if isinstance(context, RecordContext):
            return self._record(context, arrays, attrs)
        if self.is_one_op or self.reference is not None:
            return context.whole(self, arrays, attrs)
        return self.run(arrays, attrs)

    def run(self, arrays: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]:
        """The results of the body, in the context in force."""
        return _tuple(self.body(*arrays, **attrs))

    def _record(self, context: RecordContext, arrays: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]:
        values = [context.value_of(array) for array in arrays]
        builder = context.builder
        where = context.locate()
        with builder.block([value.type for value in values], [value.hint for value in values]) as opened:
            results = self.run([context.handle(param) for param in opened.params], attrs)
            yielded = [context.value_of(result) for result in results]
            builder.end("yield", yielded)
        body = opened.block
        effects: dict[Effect, None] = {}
        for op in body.ops:
            effects.update(dict.fromkeys(op.effects))
        return context.emit(
            Op(
                COMPOSITE,
                values,
                [value.type for value in yielded],
                attrs={"name": self.name, **attrs},
                blocks=[body],
                effects=tuple(effects),
                device=builder.device,
                where=where,
            )
        )


def _tuple(results: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    return results if isinstance(results, tuple) else (results,)


COMPOSITES: dict[str, Composite] = {}
"""Every composite by name."""


def composite(
    name: str,
    vjp: VjpRule | None = None,
    jvp: JvpRule | None = None,
    slopes: Sequence[Slope | None] | None = None,
    *,
    samples: Iterable[Sample] = (),
    **traits: Any,
) -> Callable[[Body], Composite]:
    """Make a composite of a body `f(*operands, **static)` and enter it into `COMPOSITES`.

    `slopes`, one per operand, are the derivative of one that is elementwise: both of its rules; of a single operand,
    also its shift.
    """
    assert slopes is None or (vjp is None and jvp is None), "slopes are both rules"
    rules = {"vjp": vjp, "jvp": jvp} if slopes is None else {**diagonal(slopes), "is_diagonal": True}
    if slopes is not None and len(slopes) == 1:
        rules["shift"] = same_attrs

    def declare(body: Body) -> Composite:
        assert name not in COMPOSITES, f"composite {name} is declared twice"
        COMPOSITES[name] = Composite(name=name, body=body, samples=tuple(samples), **{**rules, **traits})
        return COMPOSITES[name]

    return declare
