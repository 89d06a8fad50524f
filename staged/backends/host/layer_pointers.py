"""A loop over layers with a pointer to each struct of a layer that it often uses.

    const train_h_layer *const h = &args->h[layer];
    linear(x, h->up_weight, h->up_bias, kept->up);

Tested by `tests/backends/host/test_layer_pointers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staged.code.expr import Index, Member, Name, Prefix, Variable
from staged.code.printer import print_body
from staged.code.rebuild import rebuilt
from staged.code.tree import Comment, Declare, For, ForAny, If, Statement, with_inner
from staged.code.types import CType

LEAST = 4
"""Uses of a layer's struct in a loop that has a pointer to it."""


def with_layer_pointers(
    body: Sequence[Statement], types: Mapping[str, CType], fresh: Callable[[str], str]
) -> tuple[Statement, ...]:
    """The statements of a function, in which loops have pointers to structs of layers.

    `types` are the types of arrays of structs, `fresh` returns the name of a new local.
    """

    def changed(statement: Statement) -> Statement:
        if isinstance(statement, For | ForAny):
            index = statement.index
            statement = with_inner(statement, lambda inner: _with_pointers(inner, index, types, fresh))
        return with_inner(statement, lambda inner: map(changed, inner))

    return tuple(map(changed, body))


def _with_pointers(
    body: tuple[Statement, ...], index: Variable, types: Mapping[str, CType], fresh: Callable[[str], str]
) -> Sequence[Statement]:
    """The body of a loop with this index, with pointers if it is shorter then."""
    uses: dict[str, list[Index]] = {}
    pointers: dict[str, Variable] = {}

    def changed(tree: Any) -> Any:
        match tree:
            case Member(Index(base, Name(text)) as place, field, False) if text == index.text:
                array = str(base)
                uses.setdefault(array, []).append(place)
                return Member(pointers[array], field) if array in pointers else tree
        return tree if isinstance(tree, Variable | CType) else rebuilt(tree, changed)

    changed(body)
    pointers |= {
        array: Variable(fresh(array.rpartition("->")[2]), types[array])
        for array, places in uses.items()
        if len(places) >= LEAST and array in types
    }
    made = [*map(changed, body)]
    first = next((n for n, new in enumerate(made) if new is not body[n] or not _is_of_head(new)), len(made))
    while first and isinstance(made[first - 1], Comment):
        first -= 1
    heads = [Declare(pointer, Prefix("&", uses[array][0])) for array, pointer in pointers.items()]
    made[first:first] = heads
    return made if heads and len(print_body(made)) < len(print_body(body)) else body


def _is_of_head(statement: Statement) -> bool:
    """Return whether a statement can precede the pointers: a declaration, or the check for Ctrl-C."""
    return isinstance(statement, Comment | Declare | If)
