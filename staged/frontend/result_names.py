"""The names of a program's results: the user's keys, or the names that `return` lists."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from staged.errors import StagingError
from staged.frontend.calls.convert import syntax_of
from staged.frontend.syntax.sources import has_source
from staged.frontend.syntax.user_code import is_user_code

_names: dict[CodeType, list[str]] = {}


def result_names(function: Any, paths: Sequence[str], taken: Collection[str]) -> list[str]:
    """A name for each leaf of a result, from its path: `loss` of `result.loss` and, for `return loss, w`, of
    `result.0`.

    A name that is `taken` (by an input, a Variable) keeps the whole path, with the name in it: `result.w`.
    """
    listed = _listed(function)
    found = []
    for path in paths:
        root, *steps = path.split(".")
        if steps and steps[0].isdigit() and int(steps[0]) < len(listed) and listed[int(steps[0])]:
            steps[0] = listed[int(steps[0])]
        is_named = bool(steps) and steps[0].isidentifier()
        name = ".".join(steps) if is_named else path
        found.append(".".join([root, *steps]) if name in taken else name)
    # Two returned values may be one name, or look like one: then all keep their positions.
    return found if len(set(found)) == len(found) else list(paths)


def _listed(function: Any) -> list[str]:
    """The names that every `return` of a function lists, by position; "" where they differ or are no names."""
    if not isinstance(function, FunctionType) or not is_user_code(function) or not has_source(function):
        return []
    known = _names.get(function.__code__)
    if known is None:
        try:
            known = _of_returns(syntax_of(function))
        except StagingError:
            known = []
        _names[function.__code__] = known
    return known


def _of_returns(node: ast.FunctionDef | ast.Lambda) -> list[str]:
    listed: list[list[str]] = []
    for value in [node.body] if isinstance(node, ast.Lambda) else _returned(node.body):
        if not isinstance(value, ast.Tuple):
            return []
        listed.append([part.id if isinstance(part, ast.Name) else "" for part in value.elts])
    if not listed or len({len(names) for names in listed}) != 1:
        return []
    return [names[0] if len(set(names)) == 1 else "" for names in zip(*listed, strict=True)]


def _returned(body: Sequence[ast.AST]) -> Iterator[ast.expr | None]:
    """The values of the `return` statements of a body, without those of nested functions."""
    for node in body:
        if isinstance(node, ast.Return):
            yield node.value
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _returned(list(ast.iter_child_nodes(node)))
