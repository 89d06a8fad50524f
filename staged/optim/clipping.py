"""Gradient clipping: functions from gradients to gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import staged as st
from staged import nn
from staged.call.api import plain_number
from staged.errors import article
from staged.optim.pieces import computed_in


def _refuse_parameters(name: str, grads: Any) -> None:
    """Check that `grads` are gradients: torch's function of that name takes parameters instead.

    Raises: ArgumentError for parameters, or if `grads` is not a tree; DTypeError if an array is not of floats.
    """
    if isinstance(grads, nn.Module) or not (_is_node(grads) or isinstance(grads, st.Array | Iterable)):
        raise st.ArgumentError(
            f"{name} takes a dict or list of gradients, got {article(type(grads).__name__)}", where=st.here()
        )
    if hasattr(grads, "names") or any(isinstance(leaf, nn.Parameter) for leaf in _leaves(grads)):
        raise st.ArgumentError(
            f"{name} takes gradients, got parameters",
            where=st.here(),
            hint=f"`loss, grads = st.value_and_grad(f, wrt=model)()`, then `optim.{name}(grads, ...)`",
        )
    for leaf in map(st.asarray, _leaves(grads)):
        if not leaf.dtype.is_float:
            raise st.DTypeError(f"{name} needs floats, got {leaf.dtype} {leaf.shape}", where=st.here())


def _is_node(tree: Any) -> bool:
    return isinstance(tree, Mapping | list | tuple) or (dataclasses.is_dataclass(tree) and not isinstance(tree, type))


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    _mapped(found.append, tree)
    return found


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `function` applied to every array."""
    if isinstance(tree, Mapping):
        return {key: _mapped(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_mapped(function, value) for value in tree))
    if isinstance(tree, list | tuple):
        made = [_mapped(function, value) for value in tree]
        return tuple(made) if isinstance(tree, tuple) else made
    if _is_node(tree):
        fields = [field.name for field in dataclasses.fields(tree)]
        return dataclasses.replace(tree, **{name: _mapped(function, getattr(tree, name)) for name in fields})
    return function(tree)


def clip_grad_norm(grads: Any, max_norm: Any, norm_type: float = 2.0) -> tuple[Any, Any]:
    """Scale all gradients so that their joint norm is at most `max_norm`; returns (gradients, norm before).

    The norm is of order `norm_type`, a number or infinity, over all elements.

    `grads` is an array or a tree of arrays, as `st.grad` returns it. The scale is min(1, max_norm / (norm + 1e-6)), as
    in torch.

    Raises: ArgumentError if `max_norm` is a negative number.
    """
    grads = _tree(grads)
    _refuse_parameters("clip_grad_norm", grads)
    max_norm = _limit("clip_grad_norm", "max_norm", max_norm)
    wide_leaves = [_wide(leaf) for leaf in map(st.asarray, _leaves(grads))]
    norm = _joint_norm(wide_leaves, plain_number(norm_type)) if wide_leaves else st.zeros(())
    scale = st.minimum(max_norm / (norm + 1e-6), 1.0)

    def scaled(leaf: Any) -> Any:
        array = st.asarray(leaf)
        wide = _wide(array)
        return st.astype(wide * st.astype(scale, wide.dtype), array.dtype)

    dtypes = {leaf.dtype for leaf in map(st.asarray, _leaves(grads))}
    return _mapped(scaled, grads), st.astype(norm, *dtypes) if len(dtypes) == 1 else norm


def _joint_norm(leaves: list[Any], order: float) -> Any:
    """The norm of all elements of arrays. Raises: ArgumentError if the order is not above 0."""
    if not order > 0:
        raise st.ArgumentError(
            f"clip_grad_norm: norm_type must be above 0, got {order}", where=st.here(), hint="write `norm_type=2.0`"
        )
    if order == 2:
        squares = st.zeros((), dtype=leaves[0].dtype)
        for leaf in leaves:  # one after the other: equal layers are then a loop that carries the sum
            squares = squares + st.sum(st.square(leaf))
        return st.sqrt(squares)
    norms = [st.linalg.vector_norm(leaf, ord=order) for leaf in leaves]
    return st.linalg.vector_norm(st.stack(norms), ord=order)


def clip_grad_value(grads: Any, clip_value: Any) -> Any:
    """Clip every element of every gradient to [-clip_value, clip_value]; `grads` as in `clip_grad_norm`.

    Raises: ArgumentError if `clip_value` is a negative number.
    """
    grads = _tree(grads)
    _refuse_parameters("clip_grad_value", grads)
    clip_value = _limit("clip_grad_value", "clip_value", clip_value)

    def clipped(leaf: Any) -> Any:
        array = st.asarray(leaf)
        bound = clip_value if isinstance(clip_value, int | float) else st.astype(clip_value, array.dtype)
        return st.clip(array, -bound, bound)

    return _mapped(clipped, grads)


def _limit(name: str, argument: str, limit: Any) -> Any:
    """Return a limit; of a NumPy scalar without its dtype.

    Raises: ArgumentError for a negative number, which would turn the gradients around, or a NaN.
    """
    limit = plain_number(limit)
    if isinstance(limit, int | float) and not limit >= 0:
        raise st.ArgumentError(
            f"{name}: {argument} must be at least 0, got {limit}", where=st.here(), hint=f"write `{argument}=1.0`"
        )
    return limit


def _wide(array: Any) -> Any:
    """Return the array in f32 if it is f16 or bf16: squares and small gradients do not fit them."""
    return st.astype(array, computed_in(array))


def _tree(grads: Any) -> Any:
    """A generator of gradients as a list."""
    is_tree = _is_node(grads) or isinstance(grads, st.Array | nn.Module) or not isinstance(grads, Iterable)
    return grads if is_tree or hasattr(grads, "dtype") else list(grads)
