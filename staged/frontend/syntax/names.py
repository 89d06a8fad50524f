"""The names that a function binds: Python's scoping rules, as far as the transformation needs them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Bindings:
    """The names that a suite binds in its own scope, and what it declares."""

    bound: set[str] = field(default_factory=set)
    augmented: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    """Names whose elements are assigned: rebound when they hold an array."""
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    inner_nonlocals: set[str] = field(default_factory=set)
    """Names that nested functions declare nonlocal."""
    has_yield: bool = False


def bindings_of(nodes: Iterable[ast.AST]) -> Bindings:
    """The bindings of a suite (nested scopes left out)."""
    found = Bindings()
    for node in nodes:
        _visit(node, found, False)
    return found


def _visit(node: ast.AST, found: Bindings, in_comprehension: bool) -> None:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            if not in_comprehension:
                found.bound.add(name)
        case ast.NamedExpr(target=ast.Name(id=name)):
            found.bound.add(name)  # past comprehensions, to the function
            _visit(node.value, found, in_comprehension)
            return
        case ast.AugAssign(target=ast.Name(id=name)):
            found.bound.add(name)
            found.augmented.add(name)
        case ast.Global(names=names):
            found.globals.update(names)
        case ast.Nonlocal(names=names):
            found.nonlocals.update(names)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            found.bound.add(name)
        case ast.Import() | ast.ImportFrom():
            found.bound.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        case ast.Yield() | ast.YieldFrom() | ast.Await():
            found.has_yield = True
    if isinstance(node, _SCOPES):
        if not isinstance(node, ast.Lambda):
            found.bound.add(node.name)
            inner = bindings_of(node.body)
            found.inner_nonlocals |= inner.nonlocals | inner.inner_nonlocals
            for outside in node.decorator_list:
                _visit(outside, found, in_comprehension)
        if not isinstance(node, ast.ClassDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    _visit(default, found, in_comprehension)
        return
    # Subscript targets rebind arrays: `x[i] = v` is an assignment to `x` for us.
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        root = subscript_root(node)
        if isinstance(root, ast.Name) and not in_comprehension:
            found.stored.add(root.id)
    inside = in_comprehension or isinstance(node, _COMPREHENSIONS)
    for child in ast.iter_child_nodes(node):
        _visit(child, found, inside)


def subscript_root(node: ast.expr) -> ast.expr:
    """`x` of `x[i][j]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def parameters_of(arguments: ast.arguments) -> list[str]:
    """The names of all parameters, in order."""
    plain = [*arguments.posonlyargs, *arguments.args]
    names = [argument.arg for argument in plain]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    names += [argument.arg for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        names.append(arguments.kwarg.arg)
    return names


def breaks_out(statements: Sequence[ast.AST]) -> bool:
    """Return whether the body of a loop has a `break` of that loop: not of one inside,
    but in the `else` of one inside."""
    return any(isinstance(node, ast.Break) or breaks_out(_of_this_loop(node)) for node in statements)


def _of_this_loop(node: ast.AST) -> Sequence[ast.AST]:
    """The parts of a statement in which `break` leaves the loop around it."""
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return node.orelse
    if isinstance(node, _SCOPES):
        return ()
    return [
        child
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)
    ]


def always_leaves(statements: Sequence[ast.stmt]) -> bool:
    """Return whether a suite surely ends in `return` or `raise`, read off the syntax."""
    if not statements:
        return False
    last = statements[-1]
    if isinstance(last, ast.Return | ast.Raise):
        return True
    if isinstance(last, ast.If):
        return always_leaves(last.body) and always_leaves(last.orelse)
    return isinstance(last, ast.With) and always_leaves(last.body)


def binding_tests(node: ast.If) -> list[ast.expr]:
    """The parts of the test of an `if a and b and ...` without `else` of which a later one binds a name (`:=`); none
    for other `if`s.
    """
    match node:
        case ast.If(test=ast.BoolOp(op=ast.And(), values=[_, *later] as tests), orelse=[]):
            if any(isinstance(each, ast.NamedExpr) for test in later for each in ast.walk(test)):
                return tests
    return []
