"""The names of values inside a kernel: unnamed values are described by a value that has a name.

    c_next = f * c + i * g          # `c_next_term` twice, unless the products have names
    w - lr * mean / (sqrt(v) + eps) # `new_w_change`, its `new_w_numerator` and `new_w_denominator`

Tested by `tests/kernels/test_words.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.ir.declaration import Declaration, prims
from staged.ir.names import FieldName, as_name, is_users_name, short
from staged.ir.nodes import Block, Op, Value
from staged.ir.nouns import NOUNS_ALONE, noun_of


def _roles() -> dict[Declaration, tuple[str, ...]]:
    """By op: the role of each operand in the result."""
    one = dict.fromkeys((prims.SQRT, prims.RSQRT, prims.CBRT), ("radicand",))
    one |= dict.fromkeys((prims.EXP, prims.EXPM1), ("exponent",))
    one |= dict.fromkeys((prims.MAX, prims.MIN, prims.ARGMAX, prims.ARGMIN), ("candidate",))
    two = dict.fromkeys((prims.ADD, prims.ACCUMULATE), ("term",) * 2)
    two |= dict.fromkeys((prims.MAXIMUM, prims.MINIMUM), ("candidate",) * 2)
    two |= dict.fromkeys((prims.DIVIDE, prims.FLOOR_DIVIDE, prims.REMAINDER), ("numerator", "denominator"))
    return {
        **one,
        **two,
        prims.SUM: ("term",),
        prims.SQUARE: ("base",),
        prims.POW: ("base", "exponent"),
        prims.SUBTRACT: ("start", "change"),
        prims.MULTIPLY: ("factor",) * 2,
        prims.SELECT: ("mask", "choice", "choice"),
    }


_BY_OP = _roles()
ROLES = frozenset(role for roles in _BY_OP.values() for role in roles)


def role_in(op: Op, place: int) -> str:
    """The role of an operand in the result of an op."""
    roles = _BY_OP.get(op.declared, ())
    return roles[place] if place < len(roles) else "argument"


def words_in(block: Block) -> Mapping[Value, str]:
    """A name for each value that a kernel computes: its own, else its role in a value with a name, else what it is."""
    users: dict[Value, list[tuple[Op, int]]] = {}
    for op in block.ops:
        for place, operand in enumerate(op.operands):
            users.setdefault(operand, []).append((op, place))
    words: dict[Value, str] = {}
    wholes: dict[Value, str] = {}
    """By value: the value with a name that it is a part of."""
    for op in reversed(block.ops):
        for result in op.results:
            own = _own(result.hint)
            whole, role = short(own), ""
            uses = users.get(result, [])
            if not whole and len({user for user, _ in uses}) == 1:
                user, place = uses[0]
                whole = wholes.get(user.results[0], "")
                passes = user.declared.is_move or user.declared in (prims.CAST, prims.NEGATIVE)
                role = words.get(user.results[0], "").removeprefix(f"{whole}_") if passes else role_in(user, place)
                role = noun_of(op) if op.declared.kind == "reduction" else "" if role == whole else role
            wholes[result] = whole
            if own:
                words[result] = whole
            elif whole:
                words[result] = f"{whole}_{role}" if role else whole
            else:
                words[result] = of_operand(op, result)
    return _with_layers(words)


def _with_layers(words: Mapping[Value, str]) -> Mapping[Value, str]:
    """The names, behind the layer if values of several layers have the name: `bn3_mean`, `batchnorm2d1_mean`."""
    layers = {value: where.part if (where := value.producer and value.producer.where) else "" for value in words}
    of: dict[str, set[str]] = {}
    for value, word in words.items():
        of.setdefault(word, set()).add(layers[value])
    return {
        value: word
        if len(of[word]) < 2 or is_users_name(value.hint) or not layers[value]
        else f"{as_name(layers[value].rpartition('.')[2])}_{word}"
        for value, word in words.items()
    }


def of_operand(op: Op, result: Value, depth: int = 1) -> str:
    """A noun for a value, with the first operand that has a name."""
    noun = noun_of(op, result.index)
    for operand in op.operands:
        while not operand.hint and operand.producer is not None and operand.producer.declared.is_move:
            if not operand.producer.operands:
                break
            operand = operand.producer.operands[0]
        if own := _own(operand.hint):
            return f"{short(own)}_{noun}"
    made = op.operands[0].producer if op.operands and noun != "count" else None
    return f"{of_operand(made, made.results[0], depth - 1)}_{noun}" if made is not None and depth else noun


def _own(hint: str) -> str:
    """A name, but not a bare noun of a function of this library: `total`."""
    return "" if isinstance(hint, FieldName) and hint in NOUNS_ALONE | ROLES else hint
