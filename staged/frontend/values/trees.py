"""Trees of arrays: lists, tuples, dicts, named tuples and dataclasses, with anything else as a leaf."""

from __future__ import annotations

import dataclasses
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import optree

from staged.frontend.trace.context import current_trace, note_made
from staged.ops.array import StagedArray

_NAMESPACE = "staged"
_registered: set[type] = set()


def _register_dataclass(node: Any) -> bool:
    """As optree's `is_leaf`: registers each dataclass as a node, and named tuples that define `__new__`; never true."""
    cls = type(node)
    if dataclasses.is_dataclass(cls) and cls not in _registered and not hasattr(cls, "__staged_leaf__"):
        names = tuple(field.name for field in dataclasses.fields(cls))

        def flatten(value: Any) -> tuple[list[Any], None, tuple[str, ...]]:
            return [getattr(value, name) for name in names], None, names

        def unflatten(_: None, leaves: Sequence[Any]) -> Any:
            # Past __init__ and __post_init__: these ran when the user made the object.
            made = object.__new__(cls)
            for name, leaf in zip(names, leaves, strict=True):
                object.__setattr__(made, name, leaf)
            note_made(made)
            return made

        register: Any = optree.register_pytree_node
        register(cls, flatten, unflatten, namespace=_NAMESPACE)
        _registered.add(cls)
    elif isinstance(node, list) and cls is not list and cls not in _registered and hasattr(cls, "__staged_node__"):
        # A list with more to it: rebuilt with other leaves it is a list.
        register_list: Any = optree.register_pytree_node
        register_list(cls, lambda items: (list(items), None), lambda _, leaves: list(leaves), namespace=_NAMESPACE)
        _registered.add(cls)
    elif isinstance(node, tuple) and cls is not tuple and cls not in _registered and _has_own_new(cls):
        # Past its __new__, which ran when the user made the object, and may reject staged values.
        register_tuple: Any = optree.register_pytree_node
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # optree warns of a class that is a named tuple
            register_tuple(
                cls,
                lambda value: (tuple(value), None, cls._fields),
                lambda _, leaves: tuple.__new__(cls, leaves),
                namespace=_NAMESPACE,
            )
        _registered.add(cls)
    return False


def _has_own_new(cls: Any) -> bool:
    """Return whether a class derives from a named tuple and defines `__new__`."""
    named = next((base for base in cls.__mro__ if "_fields" in base.__dict__), None)
    return named is not None and cls.__new__ is not named.__new__


Tree = Any
Spec = Any  # optree.PyTreeSpec
_LEAVES = frozenset((StagedArray, bool, int, float, complex, str, type(None), np.ndarray, FunctionType))
_structure: Any = optree.tree_structure
_LEAF: Spec = _structure(0, none_is_leaf=True, namespace=_NAMESPACE)


def flatten(tree: Tree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Spec]:
    """The leaves of `tree` in order, and its structure (comparable with ==); `is_leaf` may stop at further nodes."""

    if type(tree) in _LEAVES:
        return [tree], _LEAF

    def stop(node: Any) -> bool:
        return _register_dataclass(node) or (is_leaf is not None and is_leaf(node))

    leaves, spec = optree.tree_flatten(
        tree, is_leaf=_register_dataclass if is_leaf is None else stop, none_is_leaf=True, namespace=_NAMESPACE
    )
    return leaves, spec


def children(node: Tree) -> Sequence[Any]:
    """The children of a node, after `flatten` of its tree."""
    return optree.tree_flatten_one_level(node, none_is_leaf=True, namespace=_NAMESPACE)[0]


def unflatten(spec: Spec, leaves: Sequence[Any]) -> Tree:
    """The tree of structure `spec` with these leaves."""
    if spec.is_leaf() and len(leaves) == 1:
        return leaves[0]
    made = optree.tree_unflatten(spec, leaves)
    if not spec.is_leaf():
        note_tree(made)
    return made


def note_tree(tree: object) -> None:
    """Note the mutable nodes of a tree that was made while tracing."""
    if current_trace() is not None:
        for node in mutable_nodes(tree):
            note_made(node)


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """`tree` with `function` applied to every leaf."""
    leaves, spec = flatten(tree)
    return unflatten(spec, [function(leaf) for leaf in leaves])


def paths(spec: Spec, root: str) -> list[str]:
    """A readable name per leaf: `model.0.weight`."""
    return [root] if spec.is_leaf() else [".".join([root, *map(str, path)]) for path in spec.paths()]


def prefix(axes: Tree, tree: Tree) -> list[Any] | None:
    """For each leaf of `tree`, the entry of `axes`, which may stop above the leaves; None if they do not fit."""
    flatten(tree)  # makes the dataclasses in it known
    try:
        return optree.broadcast_prefix(axes, tree, none_is_leaf=True, namespace=_NAMESPACE)
    except ValueError:
        return None


_MUTABLE, _SEQUENCES = (list, dict, deque), (list, tuple, deque)


def mutable_nodes(tree: object, with_frozen: bool = False) -> list[object]:
    """The lists, dicts, deques and mutable dataclasses of a tree, in its order, and frozen dataclasses if asked."""
    found: list[object] = []
    if type(tree) not in _LEAVES:
        _add_mutable_nodes(tree, found, with_frozen)
    return found


def _add_mutable_nodes(node: Any, found: list[object], with_frozen: bool) -> None:
    is_fielded = is_dataclass(node)
    if isinstance(node, _MUTABLE) or (is_fielded and (with_frozen or not type(node).__dataclass_params__.frozen)):
        found.append(node)
    parts: Iterable[object] = ()
    if isinstance(node, _SEQUENCES):
        parts = node
    elif isinstance(node, dict):
        parts = [node[key] for key in sorted(node, key=repr)] if len(node) > 1 else node.values()
    elif is_fielded:
        parts = [getattr(node, field.name, None) for field in dataclasses.fields(node)]
    for part in parts:
        if type(part) not in _LEAVES:
            _add_mutable_nodes(part, found, with_frozen)


def same_structure(a: Spec, b: Spec) -> bool:
    """Return whether two structures are equal, and the keys of their dicts in one order, which code can see."""
    if a != b:
        return False
    return (
        a is b
        or a.is_leaf()
        or _in_one_order(*(optree.tree_unflatten(each, [None] * each.num_leaves) for each in (a, b)))
    )


def _in_one_order(a: Any, b: Any) -> bool:
    """Return whether the dicts in two trees of equal structures have their keys in one order."""
    if isinstance(a, dict):
        return list(a) == list(b) and all(_in_one_order(part, b[key]) for key, part in a.items())
    if isinstance(a, _SEQUENCES):
        return all(map(_in_one_order, a, b))
    if is_dataclass(a):
        return all(_in_one_order(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))
    return True


def in_order(tree: Any) -> Iterator[Any]:
    """The leaves of a tree, those of a dict in its order."""
    parts: Iterable[Any]
    if isinstance(tree, dict):
        parts = tree.values()
    elif isinstance(tree, _SEQUENCES):
        parts = tree
    elif is_dataclass(tree):
        parts = [getattr(tree, field.name) for field in dataclasses.fields(tree)]
    else:
        yield tree
        return
    for part in parts:
        yield from in_order(part)


def is_dataclass(node: object) -> bool:
    """Return whether an object is of a dataclass."""
    return hasattr(type(node), "__dataclass_fields__")
