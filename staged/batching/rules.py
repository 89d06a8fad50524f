"""How primitives take a leading axis: a rule per kind, and one for each op that is not like its kind.

A rule receives handles of the operands, and which of them have the axis; it returns results that all have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.batching.indexing import check, gather, gather_along, read_window, scatter, write_window
from staged.batching.lanes import each_lane
from staged.batching.values import emit, repeat
from staged.ir.nodes import Op
from staged.ir.types import Extent
from staged.ops.array import Array
from staged.ops.primitive import PRIMITIVES

Rule = Callable[[Op, Sequence[Array], Sequence[bool], Extent], Sequence[Array]]


def _same(attrs: dict[str, Any]) -> dict[str, Any]:
    return attrs


def _axis(attrs: dict[str, Any]) -> dict[str, Any]:
    return {**attrs, "axis": attrs["axis"] + 1}


def _axes(attrs: dict[str, Any]) -> dict[str, Any]:
    return {**attrs, "axes": tuple(axis + 1 for axis in attrs["axes"])}


SHIFTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "relu": _same,
    "sigmoid": _same,
    "softplus": _same,
    "silu": _same,
    "gelu": _same,
    "softmax": _axis,
    "log_softmax": _axis,
    "logsumexp": _axes,
    "layer_norm": _axes,
    "rms_norm": _axes,
}
"""Of composites whose derivative is better than their body's: how their attributes count axes behind a leading one."""


# ---- by kind ------------------------------------------------------------------------------------


def _all_full(operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> list[Array]:
    return [x if flag else repeat(x, size) for x, flag in zip(operands, flags, strict=True)]


def elementwise(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """Operands of one shape: those without the axis are repeated along it."""
    attrs = {key: value for key, value in op.attrs.items() if key != "weak"}
    return emit(op.name, _all_full(operands, flags, size), attrs)


def broadcast(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    axes = (0, *(axis + 1 for axis in op.attrs["axes"]))
    return emit(op.name, operands, {"shape": (size, *op.attrs["shape"]), "axes": axes})


def reduction(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """Sums and the like have `axes`, positions have an `axis`."""
    return emit(op.name, operands, _axes(dict(op.attrs)) if "axes" in op.attrs else _axis(dict(op.attrs)))


# ---- views --------------------------------------------------------------------------------------


def _reshape(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    return emit(op.name, operands, {"shape": (size, *op.attrs["shape"])})


def _permute(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    return emit(op.name, operands, {"axes": (0, *(axis + 1 for axis in op.attrs["axes"]))})


def _slice(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    start, stop, step = (tuple(op.attrs[key]) for key in ("start", "stop", "step"))
    return emit(op.name, operands, {"start": (0, *start), "stop": (size, *stop), "step": (1, *step)})


def _pad(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    attrs = {**op.attrs, "low": (0, *op.attrs["low"]), "high": (0, *op.attrs["high"])}
    return emit(op.name, operands, attrs)


def _concat(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    return emit(op.name, _all_full(operands, flags, size), _axis(dict(op.attrs)))


# ---- contractions and pooling -------------------------------------------------------------------


def _matmul(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
    """One product of batches; of matrices and one matrix that is not mapped, a single large one."""
    a, b = operands
    plain = op.results[0].tensor.ndim == 2
    if plain and flags == [True, False] and not op.attrs["transpose_a"]:
        m, k = a.shape[1:]
        if isinstance(size, int) and isinstance(m, int):
            (flat,) = emit("reshape", [a], {"shape": (size * m, k)})
            (product,) = emit(op.name, [flat, b], dict(op.attrs))
            return emit("reshape", [product], {"shape": (size, m, product.shape[1])})
    return emit(op.name, _all_full(operands, flags, size), dict(op.attrs))


def _merged(*shapes: str) -> Rule:
    """Ops on (N, C, H, W): the axis joins N, if only the first operands have one; `shapes` name attributes with an N."""

    def rule(op: Op, operands: Sequence[Array], flags: Sequence[bool], size: Extent) -> Sequence[Array]:
        count = len(operands) if op.declared.kind == "pooling" else 1
        n = operands[0].shape[1] if flags[0] else None
        if not all(flags[:count]) or any(flags[count:]) or not isinstance(size, int) or not isinstance(n, int):
            return each_lane(op, operands, flags, size)
        flat = [emit("reshape", [x], {"shape": (size * n, *x.shape[2:])})[0] for x in operands[:count]]
        attrs = dict(op.attrs)
        for key in shapes:
            attrs[key] = (size * n, *attrs[key][1:])
        made = emit(op.name, [*flat, *operands[count:]], attrs)
        return [emit("reshape", [y], {"shape": (size, n, *y.shape[1:])})[0] for y in made]

    return rule


_BY_KIND: dict[str, Rule] = {"elementwise": elementwise, "broadcast": broadcast, "reduction": reduction}

_SPECIAL: dict[str, Rule] = {
    "index_check": check,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "dynamic_slice": read_window,
    "dynamic_update": write_window,
    "take": gather,
    "take_along": gather_along,
    "scatter": scatter,
    "scatter_add": scatter,
    "scatter_add_along": gather_along,
    "matmul": _matmul,
    "conv2d": _merged(),
    "conv2d_backward_input": _merged("input_shape"),
    "max_pool2d": _merged(),
    "avg_pool2d": _merged(),
    "max_pool2d_backward": _merged("input_shape"),
    "avg_pool2d_backward": _merged("input_shape"),
}


def rule_of(op: Op) -> Rule:
    """How a primitive takes a leading axis: by its name, by its kind, or one element after another."""
    return _SPECIAL.get(op.name) or _BY_KIND.get(PRIMITIVES[op.name].kind, each_lane)
