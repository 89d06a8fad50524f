"""Arguments of a call of a staged function inside a trace: leaves with slots, and when two calls can be one function.

A slot is what a function of the program knows of a leaf while staging: a type where it is a parameter, or the static
value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any

from staged.frontend.calls.arguments import Placed, call_with, is_static_node, passed_arguments
from staged.frontend.calls.signatures import bound_arguments
from staged.frontend.values import trees
from staged.frontend.values.join import Leaf, MismatchError, Static, is_staged, join_leaf, leaf_type, same
from staged.ir.types import TensorType

Slots = tuple[Leaf, ...]


@dataclass(frozen=True)
class CallArguments:
    """The leaves of the arguments of one call, defaults included."""

    paths: tuple[str, ...]
    leaves: tuple[Any, ...]
    fixed: tuple[bool, ...]
    """For each leaf, whether `static=` names it: such leaves never become parameters."""
    structure: tuple[Any, ...]
    """The names and trees of the arguments; equal where the leaves of two calls correspond."""
    rebuild: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]
    """From one value per leaf to the args and kwargs of the function."""

    @property
    def slots(self) -> Slots:
        """Staged leaves by type, the others by value."""
        return tuple(leaf.type if is_staged(leaf) else Static(leaf) for leaf in self.leaves)


def flatten_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], static: Collection[str]
) -> CallArguments:
    """Sort the arguments of a call inside a trace. Raises TypeError as Python does for arguments that do not fit."""
    bound = bound_arguments(function, args, kwargs, defaults=True)
    paths: list[str] = []
    leaves: list[Any] = []
    fixed: list[bool] = []
    placed: list[Placed] = []
    for passed in passed_arguments(bound, len(args), kwargs):
        is_fixed = passed.name in static
        own, spec = ([passed.value], None) if is_fixed else trees.flatten(passed.value, is_static_node)
        paths += [passed.path] if spec is None else trees.paths(spec, passed.path)
        leaves += own
        fixed += [is_fixed] * len(own)
        placed.append((passed, spec))
    structure = tuple([(passed.path, spec) for passed, spec in placed])
    return CallArguments(tuple(paths), tuple(leaves), tuple(fixed), structure, partial(call_with, placed))


def meet(slots: Slots, call: CallArguments, lift: bool = False) -> Slots | None:
    """The slots of a function that serves both `slots` and `call`; None where there is none.

    A staged value and a number meet as they do in a loop: the number is staged and adopts the dtype. Numbers and arrays
    that differ and are known while staging meet only with `lift`.
    """
    out: list[Leaf] = []
    for slot, leaf, is_fixed in zip(slots, call.leaves, call.fixed, strict=True):
        if isinstance(slot, Static) and not is_staged(leaf):
            if same_static(slot.value, leaf):
                out.append(slot)
                continue
            if not lift or is_fixed or not (_can_lift(slot.value) and _can_lift(leaf)):
                return None
        elif is_fixed:
            return None
        try:
            out.append(join_leaf(slot, leaf))
        except MismatchError:
            return None
    return tuple(out)


def same_slots(a: Slots, b: Slots) -> bool:
    """Return whether two slots of one structure are the same, leaf by leaf."""
    return all(
        same_static(x.value, y.value)
        if isinstance(x, Static) and isinstance(y, Static)
        else type(x) is type(y) and x == y
        for x, y in zip(a, b, strict=True)
    )


def fits_slots(slots: Slots, call: CallArguments) -> bool:
    """Return whether a function with these slots serves `call` as it is."""
    joined = meet(slots, call)
    return joined is not None and same_slots(joined, slots)


def same_static(a: Any, b: Any) -> bool:
    """Return whether two values known while staging are the same for a function that takes them."""
    if hasattr(type(a), "__staged_inline__") and hasattr(type(b), "__staged_inline__"):
        return same_function(
            a.__staged_inline__, b.__staged_inline__
        )  # bound staged methods are made anew at every read
    return same(a, b) or (type(a) is type(b) and bool(_static_key(a) == _static_key(b)))


def _static_key(leaf: Any) -> Any:
    """The value of a static leaf if that identifies it, else its identity."""
    if isinstance(leaf, bool | int | float | complex | str | bytes | type(None)):
        return type(leaf).__name__, repr(leaf)
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type) and type(leaf).__hash__ is not None:
        return leaf
    return "id", id(leaf)


def same_function(a: Any, b: Any) -> bool:
    """Return whether two callables are one: the same function, of the same object where they are methods."""
    if isinstance(a, MethodType) and isinstance(b, MethodType):
        return a.__func__ is b.__func__ and a.__self__ is b.__self__
    return a is b


def program_name(function: Any) -> str:
    """The name of a function in the program; a method has its class's too, since many are called `forward`."""
    name: str = getattr(function, "__name__", type(function).__name__)
    return f"{type(function.__self__).__name__}_{name}" if isinstance(function, MethodType) else name


def changing_statics(before: CallArguments, after: CallArguments) -> list[tuple[str, str]]:
    """The static arguments in which two calls of one function differ: their paths and types."""
    if before.structure != after.structure:
        return []
    return [
        (path, type(new).__name__)
        for path, old, new in zip(after.paths, before.leaves, after.leaves, strict=True)
        if not is_staged(old) and not is_staged(new) and not same_static(old, new)
    ]


def _can_lift(leaf: Any) -> bool:
    return not isinstance(leaf, bool) and isinstance(leaf_type(leaf), TensorType)
