"""Joins of paths: one type for the values of two branches or iterations, or the reason why there is none.

A static value that is the same on all paths stays static. Python numbers that differ become staged, by promotion of the
numbers alone: a staged value never changes dtype or shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import Any

import numpy as np

from staged.errors import CarriedValueError, article
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.locals import Locals, Unbound
from staged.frontend.values import trees
from staged.ir.nodes import Value
from staged.ir.types import TensorType, bool_, c128, dtype_of, f64, i64
from staged.ops.array import Array, StagedArray
from staged.ops.promote import adopted, check_fits, wider_hint
from staged.source import Position

WEAK_INT = TensorType(i64, (), True)
WEAK_FLOAT = TensorType(f64, (), True)
WEAK_COMPLEX = TensorType(c128, (), True)
WEAK_BOOL = TensorType(bool_, (), True)


_ORDER_OF_KEYS = "the order of the keys differs"


class MismatchError(Exception):
    """Two values that do not join; the words say why."""


def is_staged(value: Any) -> bool:
    """Return whether `value` exists only when the program runs (a staged array, or a Variable while tracing)."""
    return isinstance(value, StagedArray)


def number_type(value: Any) -> TensorType | None:
    """The weak type of a Python number."""
    if isinstance(value, bool):
        return WEAK_BOOL
    if isinstance(value, int):
        return WEAK_INT
    if isinstance(value, float):
        return WEAK_FLOAT
    if isinstance(value, complex):
        return WEAK_COMPLEX
    return None


def leaf_type(leaf: Any) -> TensorType | None:
    """The type that a leaf has, or would have if it were staged; None for what cannot be staged."""
    if isinstance(leaf, TensorType):
        return leaf
    if isinstance(leaf, Array):
        return None if hasattr(leaf, "__staged_read__") else leaf.type
    if isinstance(leaf, np.ndarray | np.generic):
        dtype = dtype_of(leaf.dtype)
        return None if dtype is None else TensorType(dtype, tuple(leaf.shape))
    return number_type(leaf)


def same(a: Any, b: Any) -> bool:
    """Return whether two leaves are one value: the same staged value or object, or equal static ones."""
    if a is b:
        return True
    if isinstance(a, StagedArray) and isinstance(b, StagedArray):
        return a.value is b.value
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)  # tells 0.0 from -0.0, and NaN is itself
    if isinstance(a, int | str | bytes | slice | type(None)):
        return bool(a == b)
    if isinstance(a, MethodType):  # made anew at every read
        return a.__self__ is b.__self__ and a.__func__ is b.__func__
    return False


_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def join_types(a: TensorType, b: TensorType) -> TensorType:
    """The type that holds both. Strong types must be equal; a weak one gives way to a strong one of no lower kind."""
    if a == b:
        return a
    if a.shape != b.shape:
        raise MismatchError("the shape differs")
    if a.weak and b.weak:
        return a if _ORDER[a.dtype.kind] >= _ORDER[b.dtype.kind] else b
    if a.weak and _ORDER[b.dtype.kind] >= _ORDER[a.dtype.kind]:
        return b
    if b.weak and _ORDER[a.dtype.kind] >= _ORDER[b.dtype.kind]:
        return a
    raise MismatchError("the dtype differs")


@dataclass(frozen=True)
class Static:
    """A leaf that is the same on all paths, known while staging."""

    value: Any


Leaf = Static | TensorType


@dataclass(frozen=True)
class Template:
    """A tree whose leaves are static values or the types of staged ones."""

    spec: trees.Spec
    leaves: tuple[Leaf, ...]

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of the staged leaves."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, TensorType))

    def rebuild(self, staged: list[StagedArray]) -> Any:
        """The tree, its staged leaves taken off the front of `staged`."""
        return trees.unflatten(
            self.spec, [leaf.value if isinstance(leaf, Static) else staged.pop(0) for leaf in self.leaves]
        )

    def order_of_dicts(self) -> tuple[int, ...]:
        """The numbers of the staged leaves in the order of Python's dicts; `leaves` have the keys of a dict sorted."""
        numbers = iter(range(len(self.leaves)))
        staged = [next(numbers) if isinstance(leaf, TensorType) else None for leaf in self.leaves]
        return tuple(number for number in trees.in_order(trees.unflatten(self.spec, staged)) if number is not None)

    def hints(self, name: str) -> tuple[str, ...]:
        """A name per staged leaf."""
        paths = trees.paths(self.spec, name)
        return tuple(
            path.replace(".", "_")
            for path, leaf in zip(paths, self.leaves, strict=True)
            if isinstance(leaf, TensorType)
        )


def template_of(value: Any, lift: bool = False) -> Template:
    """The template of one value: its staged leaves are staged; with `lift`, numbers and arrays too."""
    leaves, spec = trees.flatten(value)
    out: list[Leaf] = []
    for leaf in leaves:
        type_ = leaf_type(leaf) if lift or isinstance(leaf, StagedArray) else None
        out.append(type_ if type_ is not None else Static(leaf))
    return Template(spec, tuple(out))


def join_leaf(a: Any, b: Any) -> Leaf:
    """`a` and `b` are leaves, types (staged on that path) or Statics."""
    a = a.value if isinstance(a, Static) else a
    b = b.value if isinstance(b, Static) else b
    if not isinstance(a, TensorType) and same(a, b):
        return a.type if isinstance(a, StagedArray) else Static(a)
    left, right = leaf_type(a), leaf_type(b)
    if left is None or right is None:
        raise MismatchError("it is not a number or an array on every path")
    return join_types(left, right)


def join(a: Any, b: Any) -> Template:
    """The template that holds both: each is a value or a Template. Raises MismatchError."""
    left_leaves, left_spec = _leaves(a)
    right_leaves, right_spec = _leaves(b)
    if left_spec != right_spec:
        raise MismatchError("the structure differs")
    if not trees.same_structure(left_spec, right_spec):
        raise MismatchError(_ORDER_OF_KEYS)
    return Template(left_spec, tuple(join_leaf(x, y) for x, y in zip(left_leaves, right_leaves, strict=True)))


def _leaves(value: Any) -> tuple[list[Any], trees.Spec]:
    if isinstance(value, Template):
        return list(value.leaves), value.spec
    return trees.flatten(value)


def same_tree(a: Any, b: Any) -> bool:
    """Return whether two trees hold the same values."""
    if a is b:
        return True
    left, left_spec = trees.flatten(a)
    right, right_spec = trees.flatten(b)
    return trees.same_structure(left_spec, right_spec) and all(same(x, y) for x, y in zip(left, right, strict=True))


def is_one(a: Any, b: Any) -> bool:
    """Return whether two trees are one: the same values in the same lists, dicts and dataclasses, so that a change of
    one changes the other.
    """
    if a is b:
        return True
    return same_tree(a, b) and all(x is y for x, y in zip(trees.mutable_nodes(a), trees.mutable_nodes(b), strict=True))


def materialise(trace: TraceContext, leaf: Any, type_: TensorType) -> Value:
    """`leaf` as a staged value of exactly `type_` (numbers become constants, weak values adopt its dtype)."""
    if not isinstance(leaf, Array):
        if isinstance(leaf, np.ndarray | np.generic):
            leaf = trace.constant(np.asarray(leaf), TensorType(dtype_of(leaf.dtype) or type_.dtype, tuple(leaf.shape)))
        else:
            check_fits(leaf, type_.dtype)
            leaf = trace.constant(leaf, type_)
    if leaf.type != type_:
        leaf = adopted(leaf, type_.dtype, type_.weak)
    return trace.value_of(leaf)


def describe(value: Any) -> str:
    """`f32 (3,)`, `the number 0.5`, `a list`: a value in the words of an error."""
    if isinstance(value, Template):
        return describe_leaf(value.leaves[0]) if len(value.leaves) == 1 else "a tree of arrays"
    if isinstance(value, Array) and hasattr(value, "__staged_read__"):
        return f"a Variable of {value.type}"
    if isinstance(value, Array):
        return str(value.type)
    return describe_leaf(Static(value))


def describe_leaf(leaf: Leaf) -> str:
    if isinstance(leaf, TensorType):
        return str(leaf)
    value = leaf.value
    if isinstance(value, bool | int | float | str | None):
        return f"the value {value!r}"
    if isinstance(value, Array) and hasattr(value, "__staged_read__"):
        return f"a Variable of {value.type}"
    if isinstance(value, Array | np.ndarray):
        return str(leaf_type(value))
    return article(type(value).__name__)


def made_at(value: Any, scope: Locals, name: str) -> str:
    """`   line 12`, where a staged value was made, or `name` bound to a static one."""
    where = position_of(value)
    line = where.line if where else scope._staged_line(name, value)
    return f"   line {line}" if line else ""


def position_of(value: Any) -> Position | None:
    """The position of the op that made a staged value."""
    if isinstance(value, StagedArray) and value.value.producer is not None:
        return value.value.producer.where
    return None


def _only(value: Any) -> Any:
    """The single leaf of a template, as a static value where it is one; anything else as it is."""
    if isinstance(value, Template) and len(value.leaves) == 1:
        value = value.leaves[0]
    return value.value if isinstance(value, Static) else value


def _start_of(before: Any, after: Any) -> str | None:
    """The hint for a number or None that becomes an array in a loop or branch."""
    first, then = _only(before), _only(after)
    type_ = leaf_type(then) if isinstance(then, TensorType | Array | np.ndarray) else None
    if type_ is None or not (first is None or isinstance(first, int | float)):
        return None
    if any(not isinstance(extent, int) for extent in type_.shape):
        return None
    name = "bool_" if type_.dtype is bool_ else type_.dtype.name
    value = (
        f"st.full({type_.shape}, {first}, dtype=st.{name})" if first else f"st.zeros({type_.shape}, dtype=st.{name})"
    )
    return value if type_.shape else ("0.0" if type_.dtype.is_float else "0")


def _wider(name: str, before: Any, after: Any) -> str | None:
    """The hint for an f32 that becomes f64."""
    first, then = _only(before), _only(after)
    if (
        not isinstance(first, TensorType | Array)
        or not isinstance(then, TensorType | Array)
        or first.shape != then.shape
    ):
        return None
    return wider_hint(name, first, then, f"`st.astype({name}, st.{first.dtype})` would round it")


_COLLECTIONS = (dict, list, tuple)


def _counted(value: Any) -> str:
    """`describe`, with the number of elements of a collection."""
    return f"{describe(value)} of {len(value)}" if type(value) in _COLLECTIONS else describe(value)


def mismatch(
    scope: Locals, name: str, a: Any, b: Any, labels: tuple[str, str], why: str, where: Position | None
) -> Unbound:
    """A name of `scope` whose values do not join: an error at the next read."""
    difference = f"`{name}` is {_counted(a)} {labels[0]} and {_counted(b)} {labels[1]}: {why}"
    hint = f"give `{name}` one dtype and shape on all paths (`st.astype(...)`, `st.reshape(...)`), or use another name"
    if why.startswith(("it is not", "the structure")):
        hint = f"give `{name}` the same structure on all paths; only numbers and arrays can differ"
    if why == _ORDER_OF_KEYS:
        hint = f"give `{name}` its keys in one order on all paths"
    alike = describe(a) == describe(b)
    if why.startswith("it is not") and any(isinstance(_only(value), str) for value in (a, b)):
        hint = f"strings cannot differ by path: give `{name}` a number, and print in the branches"
    elif why.startswith("the structure") and alike and describe(a) in ("a list", "a tuple"):
        hint = "collect values in `st.Stack(like, max=...)`, or write to an array: `out[i] = x`"
    elif why.startswith("the structure") and _only(a) is None and type(b) in _COLLECTIONS:
        hint = f"let `{name}` have that structure from the start, with arrays of zeros: `st.zeros_like(x)` for each"
    elif why.startswith("it is not") and alike and not isinstance(_only(a), TensorType | Array | int | float | None):
        hint = (
            f"two objects are not joined: change the attributes of one, or make `{type(_only(b)).__name__}` a dataclass"
        )
    elif (start := _start_of(a, b)) is not None:
        hint = f"let `{name}` be of that type from the start: `{name} = {start}`"
    elif (wider := _wider(name, a, b)) is not None:
        hint = wider
    if "a Variable of" in difference:
        hint = f"bind `{name}` to what the Variable holds (`{name} = v.value`)"
    return Unbound(
        CarriedValueError,
        difference,
        details=(
            f"{labels[0]}: {_counted(a)}{made_at(a, scope, name)}",
            f"{labels[1]}: {_counted(b)}{made_at(b, scope, name)}",
        ),
        hint=hint,
        where=position_of(b) or position_of(a) or where,
    )
