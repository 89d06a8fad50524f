"""A function with many arguments receives them in a struct, so that they have names in each call.

    scale_layer(m, host, m->x, &args->layer1, ..., 32, 1024);
    scale_layer(m, host, &(ScaleLayer){.x = m->x, .layer = &args->layer1, ..., .items = 32, .size = 1024});

Tested by `tests/backends/host/test_argument_structs.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from staged.backends.host.outlining import Outlined
from staged.code.expr import Call, Expr, Field, Items, Member, Prefix, Variable
from staged.code.rebuild import rebuilt
from staged.code.scopes import replaced, with_short_names
from staged.code.tree import Statement
from staged.code.types import Space, pointer, word
from staged.code.uses import expressions_within, with_parts
from staged.code.writer import Names

MOST = 24
"""Parameters of a function without a struct."""
STATE = {"args", "m", "host"}
"""The parameters of all functions of a program, which are not in structs."""


@dataclass(frozen=True, slots=True)
class ArgumentStruct:
    """The struct of a function's arguments: its type, and the names of its fields by parameter; None: no field."""

    type: str
    fields: tuple[str | None, ...]

    def passed(self, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        """The arguments of a call."""
        pairs = [*zip(self.fields, arguments, strict=True)]
        struct = Items(tuple(Field(name, value) for name, value in pairs if name is not None), self.type)
        return (*(value for name, value in pairs if name is None), Prefix("&", struct))


def with_argument_structs(
    functions: Sequence[Outlined], rest: tuple[Statement, ...], fresh: Callable[[str], str], names: Names
) -> tuple[list[Outlined], tuple[Statement, ...]]:
    """The functions and the statements of their caller. Those with many parameters and several calls have structs.

    `fresh` returns a new name of the file, and `names` are those of locals.
    """
    bodies = (rest, *(each.body for each in functions))
    parts = with_parts(expr for body in bodies for expr in expressions_within(body))
    calls = Counter(part.function for part in parts if isinstance(part, Call))
    structs: dict[str, ArgumentStruct] = {}
    made = list[Outlined]()
    for each in functions:
        if len(each.parameters) > MOST and calls[each.name] > 1:
            each, structs[each.name] = _with_struct(each, fresh, names)
        made.append(each)
    return [replace(each, body=_with_calls(each.body, structs)) for each in made], _with_calls(rest, structs)


def _with_struct(function: Outlined, fresh: Callable[[str], str], names: Names) -> tuple[Outlined, ArgumentStruct]:
    type = fresh("".join(map(str.capitalize, function.name.split("_"))))
    short, _ = with_short_names(function.parameters, (), names)
    fields = tuple(None if each.text in STATE else each.text for each in short)
    given = Variable("p", pointer(word(type), Space.GLOBAL, is_const=True))
    found = {old: Member(given, name) for old, name in zip(function.parameters, fields, strict=True) if name}
    by_name = {each.text: place for each, place in found.items()}
    kept = tuple(each for each, name in zip(function.parameters, fields, strict=True) if name is None)
    inside = tuple(new for new, name in zip(short, fields, strict=True) if name is not None)
    body = _with_places(replaced(function.body, found), by_name)
    struct = ArgumentStruct(type, fields)
    return replace(function, parameters=(*kept, given), body=body, struct=type, fields=inside), struct


def _with_places(tree: Any, found: Mapping[str, Expr]) -> Any:
    """Statements with fields in place of names."""
    if isinstance(tree, Variable) and tree.text in found:
        return found[tree.text]
    return tree if isinstance(tree, Variable) else rebuilt(tree, lambda part: _with_places(part, found))


def _with_calls(tree: Any, structs: Mapping[str, ArgumentStruct]) -> Any:
    made = tree if isinstance(tree, Variable) else rebuilt(tree, lambda part: _with_calls(part, structs))
    if isinstance(made, Call) and made.function in structs:
        return Call(made.function, structs[made.function].passed(made.arguments))
    return made
