"""The parameters of a function for its calls: an array that a function reads and writes is one parameter, as are
arrays that it reads. Parameters without a use are left out.

    static void update(const float *d_weight, const float *weight, float *new_weight, ...)
    static void update(const float *d_weight, float *weight, ...)      in all calls both are one array

Tested by `tests/backends/native/test_in_place.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from staged.code.expr import Expr, Infix, Variable
from staged.code.scopes import renamed
from staged.code.tree import Assign, Declare, Function, If, Statement, Unused, with_inner
from staged.code.unused import names_used


def with_one_parameter(function: Function, pairs: Mapping[int, int]) -> Function:
    """A function in which each pair of parameters, (read, written), is one: in the place of the second, with the name
    of the first. If that is only `in`, it is `out`.
    """
    if not pairs:
        return function
    names = [parameter.variable.text for parameter in function.parameters]
    found = {names[written]: names[read] for read, written in pairs.items()}
    if "in" in found.values() and "out" not in names:
        found = {written: "out" if read == "in" else read for written, read in found.items()}
        found = {"in": "out", "in_2": "in"} | found
    kept = [parameter for number, parameter in enumerate(function.parameters) if number not in pairs]
    body = renamed(_without_unused(function.body, {names[read] for read in pairs}), found)
    shorter = _shorter(_with_one_pointer(body))
    parameters = renamed(tuple(kept), found)
    copied = names_used(body) - names_used(shorter)  # sizes of a copy that is gone
    unused = [Unused((each.variable,)) for each in parameters if each.variable.text in copied]
    return replace(function, parameters=parameters, body=(*unused, *shorter))


def with_needed_parameters(function: Function, count: int, same: Mapping[int, int]) -> tuple[Function, frozenset[int]]:
    """A function without those of its first `count` parameters that it does not use, and the numbers of these.

    `same` are pairs of parameters, (other, first), with one value in all calls: the first is used for both.
    """
    given = [parameter.variable for parameter in function.parameters]
    found = {given[a].text: given[b].text for a, b in same.items() if given[a].type == given[b].type}
    body = renamed(_without_unused(function.body, {each.text for each in given}), found)
    used = names_used(body)
    unused = frozenset(number for number, each in enumerate(given[:count]) if each.text not in used)
    kept = tuple(each for number, each in enumerate(function.parameters) if number not in unused)
    return (replace(function, parameters=kept, body=body) if unused else function), unused


def _without_unused(body: tuple[Statement, ...], names: set[str]) -> tuple[Statement, ...]:
    """Statements without those that say that one of these parameters is not used."""
    return tuple(s for s in body if not (isinstance(s, Unused) and names & {name.text for name in s.names}))


def _with_one_pointer(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements that declare a pointer into an array once in a block: for reads and writes."""
    first: dict[str, Variable] = {}
    found: dict[str, str] = {}
    written: dict[str, Variable] = {}
    kept: list[Statement] = []
    for s in body:
        match s:
            case Declare(Variable(text, type) as variable, value, is_const=True, also=()) if value and type.is_pointer:
                other = first.setdefault(str(value), variable)
                if other is not variable:
                    found[text] = other.text
                    if not type.is_const:
                        written[other.text] = replace(variable, text=other.text)
                    continue
        kept.append(with_inner(s, _with_one_pointer))
    kept = [
        replace(s, variable=written.get(s.variable.text, s.variable)) if isinstance(s, Declare) else s for s in kept
    ]
    changed: tuple[Statement, ...] = renamed(tuple(kept), found)
    return changed


def _shorter(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements that do not copy an array to itself, with `x += y` in place of `x = x + y`."""
    kept: list[Statement] = []
    for s in body:
        match s:
            case If(Infix("!=", Variable(text, type), Variable(other))) if text == other and type.is_pointer:
                continue
            case Assign(target, Infix("+" | "-" | "*" | "/" as op, left, right), "") if _place(left) == _place(target):
                s = Assign(target, right, op)
        kept.append(with_inner(s, _shorter))
    return tuple(kept)


def _place(expr: Expr) -> str:
    """The text of an element, the same for reads and writes."""
    return str(expr).replace("const ", "")
