"""Names of values in generated text: the user's, else derived from the op that makes the value."""

from __future__ import annotations

from functools import lru_cache
from os.path import commonprefix
from typing import Self

from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.nouns import noun_of
from staged.ir.structure import ABSENT, CALL, FRAME_LOAD, FRAME_NULL, SEQUENCE_GET, VARIABLE_READ


class FieldName(str):
    """The field's name for a value inside a function of this library: that of the Python variable there.

    It gives way to all other names.
    """

    __slots__ = ()


class LibraryName(str):
    """A name that comes from this library, such as that of a layer: it gives way to the user's.

    `layer` is the last layer with Variables: names of what follows begin with it. `word` is enough inside of a kernel.
    """

    __slots__ = ("layer", "word")
    layer: str
    word: str

    def __new__(cls, name: str, layer: str = "", word: str = "") -> Self:
        made = super().__new__(cls, name)
        made.layer = layer or name
        made.word = word or name
        return made


class DerivedName(str):
    """A name that comes from the user's name for another value, such as `d_x`."""

    __slots__ = ()


class QualifiedName(str):
    """The user's name for a value, after a layer because other layers have a value of this name; `word` is the name."""

    __slots__ = ("word",)
    word: str

    def __new__(cls, name: str, word: str) -> Self:
        made = super().__new__(cls, name)
        made.word = word
        return made


OWN = 4
"""The rank of the user's own name."""


_RANKS: dict[type, int] = {FieldName: 1, LibraryName: 2, DerivedName: 3}


def rank(hint: str) -> int:
    """The rank of a hint: the user's own name before a derived name, a layer's, the field's name, and none."""
    return _RANKS.get(type(hint), OWN) if hint else 0


def is_users_name(hint: str) -> bool:
    """Return whether a hint is the user's name for a value, or is derived from such a name."""
    return rank(hint) > _RANKS[LibraryName]


def has_name(hint: str) -> bool:
    """Return whether a hint names its value in the whole program: not if it is the field's name in one function."""
    return rank(hint) > _RANKS[FieldName]


def derived(hint: str, before: str = "", after: str = "") -> str:
    """The name of a derived value, such as a gradient: `before`, the hint of the other value, `after`.

    The gradient of a value of this library does not have a name of the user's.
    """
    if not hint:
        return ""
    name = f"{before}{hint}{after}"
    return type(hint)(name) if isinstance(hint, FieldName | LibraryName) else DerivedName(name)


def short(hint: str) -> str:
    """`block0_norm_deviation` -> `deviation`: what is enough of a name inside of a kernel."""
    return hint.word if isinstance(hint, LibraryName | QualifiedName) else str(hint)


@lru_cache(maxsize=1024)
def as_name(words: str) -> str:
    """`model.0.weight` -> `model_0_weight`: words of the user's as a name."""
    return "".join(c if c.isalnum() else "_" for c in words)


def inside(label: str, first: str) -> str:
    """`block0_linear1` after `block0_norm` is `linear1`."""
    words, before = label.split("_"), first.split("_")
    same = 0
    while same < min(len(before), len(words)) - 1 and before[same] == words[same]:
        same += 1
    return "_".join(words[same:])


def name_of(value: Value) -> str:
    """A name for a value; nothing where neither the user nor the op behind it has one."""
    op = value.producer
    if op is not None and op.declared.is_move and not is_users_name(value.hint):
        moved = name_of(op.operands[0]) if op.operands else ""
        return moved if is_users_name(moved) else value.hint or moved or noun_of(op)
    if value.hint or op is None:
        return value.hint
    if op.declared is VARIABLE_READ:
        return str(op.attrs["variable"].name)
    if op.declared is prims.FIT:
        return name_of(op.operands[0]) or "number"
    if op.declared is SEQUENCE_GET:
        return element_name(name_of(op.operands[0]))
    if op.declared.named_after_operand:
        return name_of(op.operands[value.index]) or noun_of(op)
    if op.declared.is_opaque:
        return _name_of_result(op, value)
    if op.declared is prims.INDEX_CHECK:
        return f"{name_of(op.operands[0])}_index".lstrip("_")
    says_nothing = (CALL, ABSENT, FRAME_LOAD, FRAME_NULL, prims.CONSTANT)
    return "" if op.declared.is_control or op.declared in says_nothing else _described(op, value)


def element_name(history: str) -> str:
    """The name of an element: `h` for `h_history` and for nested histories."""
    while history.endswith("_history"):
        history = history.removesuffix("_history")
    return history


def _described(op: Op, value: Value) -> str:
    """A noun for a value, with the operand that has a name: `epoch_plus_1`, `losses_ratio`."""
    of = next((operand.hint for operand in op.operands if has_name(operand.hint)), "") or first_named(op)
    more = op.operands[1].producer if of and op.declared is prims.ADD else None
    number = more.attrs["value"] if more is not None and more.declared is prims.CONSTANT else None
    terms = [_term(operand) for operand in op.operands] if op.declared is prims.ADD and _is_count(value) else [""]
    if all(terms):
        return "_plus_".join(terms)
    noun = f"plus_{number}" if isinstance(number, int) and number > 0 else noun_of(op, value.index)
    return f"{of}_{noun}" if of else noun


def first_named(op: Op) -> str:
    """The name of the first value with a name that an op reads, or that its first operand is computed from."""
    while op.operands:
        named = next((operand.hint for operand in op.operands if has_name(operand.hint)), "")
        if named or op.operands[0].producer is None:
            return short(named)
        op = op.operands[0].producer
    return ""


def _is_count(value: Value) -> bool:
    return not value.tensor.shape and value.tensor.dtype.kind == "i"


def _term(value: Value) -> str:
    """A term of a sum of integers, as a part of its name: `begin_plus_step` and `1` of `begin + step + 1`."""
    op = value.producer
    if op is not None and op.declared is prims.CONSTANT:
        number = op.attrs["value"]
        return str(number) if isinstance(number, int) and number > 0 else ""
    return value.hint if has_name(value.hint) or op is None or op.declared is not prims.ADD else _described(op, value)


def users_name(result: Value, made: Value) -> str:
    """The name in an error of a value, or of the value inside of a kernel that becomes this result."""
    hint = next((each.hint for each in (result, made) if is_users_name(each.hint)), "")
    return hint or (made.producer.name if made.producer else made.hint or "a value")


def _name_of_result(op: Op, value: Value) -> str:
    """The only result of a kernel is called as the kernel is, one of several after the op inside that makes it."""
    if not op.blocks or len(op.results) == 1:
        return str(op.attrs.get("name") or "")
    inner = op.blocks[0].end.operands[value.index]
    params = op.blocks[0].params
    if inner in params:
        return name_of(op.operands[params.index(inner)]) if params.index(inner) < len(op.operands) else inner.hint
    return name_of(inner)


def layer_of(op: Op) -> str:
    """The layer around what a kernel computes, as the beginning of names, which the names inside do not repeat."""
    computed = [each for each in op.blocks[0].ops if each.declared.kind not in ("source", "broadcast", "view")]
    parts = {each.where.part for each in computed if each.where is not None and each.where.part}
    verb, _, written = str(op.attrs.get("name") or "").partition("_")
    if len(parts) < 2 and verb in ("update", "initial"):
        layer = written.rpartition("_")[0]
        return f"{layer}_" if "_" in layer else ""
    rows = [part.split(".") for part in sorted(parts)]
    shared = list(commonprefix(rows)) if len(rows) > 1 else [word for row in rows for word in row[:-1]]
    return as_name(".".join(shared)) + "_" if shared else ""
