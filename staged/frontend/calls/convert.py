"""Converting a function: its source is found, transformed, compiled under the user's own file name and positions."""

from __future__ import annotations

import ast
import copy
import inspect
import threading
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any

from staged.base.depth import goes_deep
from staged.errors import StagingError
from staged.frontend.calls.definitions import convert_definition
from staged.frontend.syntax.converter import OPERATOR_SUFFIX, OPERATORS, Converter, arguments_of, function_definition
from staged.frontend.syntax.sources import text_of
from staged.source import BODY, Position, position_of_function

_NO_CELLS: dict[str, CellType] = {}
_codes: dict[tuple[str, CodeType], tuple[CodeType, tuple[str, ...]]] = {}
"""Converted code and the global names in it, by file and code: codes of two files can be equal, and have other
positions.
"""
_met: dict[int, tuple[CodeType, CodeType, tuple[str, ...]]] = {}
"""The same by the identity of a code object, which is kept here: the hash of one goes over all that is in it."""
_MOST_MET = 4096
_trees: dict[str, tuple[int, ast.Module]] = {}
_parses = threading.RLock()
"""Held while a tree is made: Python 3.11 counts the depth of trees for all threads together, and raises SystemError
where two are made at one time (the collector runs in between, and may let another thread go on). It may run a
destructor that parses.
"""


def converted(function: FunctionType) -> FunctionType:
    """The converted form of `function`: same signature, globals and closure; behaves alike outside of tracing.

    Raises StagingError where its source is not at hand, or holds a statement that cannot be staged.
    """
    if getattr(function, "__staged_converted__", False):
        return function
    own_code = function.__code__
    met = _met.get(id(own_code))
    if met is None:
        key = (own_code.co_filename, own_code)
        found = _codes.get(key)
        if found is None:
            found = _codes[key] = _convert(function)
        if len(_met) >= _MOST_MET:
            _met.clear()
        met = _met[id(own_code)] = own_code, *found
    _, code, names = met
    operators = _operator_cells()
    closure = function.__closure__ or ()
    own = dict(zip(own_code.co_freevars, closure, strict=True)) if closure else _NO_CELLS
    made = FunctionType(
        code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple([operators[name] if name in operators else own[name] for name in code.co_freevars]),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    made.__doc__ = function.__doc__
    made.__dict__.update(
        function.__dict__, __staged_converted__=True, __staged_names__=names, __staged_original__=function
    )
    return made


@cache
def _operator_cells() -> dict[str, CellType]:
    return {name + OPERATOR_SUFFIX: CellType(operator) for name, operator in OPERATORS.items()}


@goes_deep
def _convert(function: FunctionType) -> tuple[CodeType, tuple[str, ...]]:
    code = function.__code__
    node = syntax_of(function)
    *_, around, _ = ["<locals>", *function.__qualname__.split(".")]
    converter = Converter(code.co_filename, None if around == "<locals>" else around, code.co_freevars)
    if isinstance(node, ast.Lambda):
        body = ast.copy_location(ast.Return(node.body), node.body)
        definition = ast.copy_location(function_definition("lambda_", node.args, [body]), node)
    else:
        definition = node
    definition = _copy(definition)
    # Not by its own name, which is a global or a free variable to its body.
    name = converter.fresh(definition.name)
    # Free variables stay free: parameters of a factory stand for the closure's cells, which replace them.
    made = convert_definition(converter, definition, set(code.co_freevars), name)
    factory = function_definition(
        "factory__staged",
        arguments_of([*code.co_freevars, *_operator_cells()]),
        [made, ast.copy_location(ast.Return(ast.Name(name, ast.Load())), made)],
    )
    ast.copy_location(factory, made)
    module = ast.Module([factory], [])
    ast.fix_missing_locations(module)
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True)
    outer = next(item for item in compiled.co_consts if isinstance(item, CodeType))
    made_code = next(item for item in outer.co_consts if isinstance(item, CodeType) and item.co_name == name)
    finished = _named_as_by_user(made_code, code.co_name, code.co_qualname)
    return finished, tuple(converter.outer_names)


def _named_as_by_user(code: CodeType, name: str, qualname: str) -> CodeType:
    """Return the code of a function with its names, which tracebacks show, also on its branches and loops."""

    def named(item: Any) -> Any:
        if not isinstance(item, CodeType):
            return item
        of_item = item.co_name.split(BODY, 1)[0] or item.co_name
        of_item = "<lambda>" if of_item == "lambda_" else of_item
        if of_item == name and BODY in item.co_name:
            return _named_as_by_user(item, name, qualname)
        within = qualname if _is_body_of_class(code) else f"{qualname}.<locals>"
        return _named_as_by_user(item, of_item, f"{within}.{of_item}")

    return code.replace(co_consts=tuple(map(named, code.co_consts)), co_name=name, co_qualname=qualname)


def _is_body_of_class(code: CodeType) -> bool:
    """Return whether the code is the body of a `class` statement: it has a namespace in place of fast locals."""
    return not code.co_flags & inspect.CO_OPTIMIZED


def _copy(node: ast.FunctionDef) -> ast.FunctionDef:
    """A copy to transform: the tree of the file is kept for its other functions."""
    return copy.deepcopy(node)


def _tree_of(text: str, file: str) -> ast.Module:
    with _parses:
        cached = _trees.get(file)
        if cached is None or cached[0] != hash(text):
            cached = _trees[file] = (hash(text), ast.parse(text, file))
        return cached[1]


def syntax_of(function: FunctionType) -> ast.FunctionDef | ast.Lambda:
    """The syntax of a function, in the tree of its whole file, so that lines and columns are the file's."""
    code = function.__code__
    text = text_of(function)
    if not text:
        raise _no_source(function, "its source is not at hand (made by `exec`, or in a console that keeps none)")
    try:
        tree = _tree_of(text, code.co_filename)
    except SyntaxError:
        raise _no_source(function, "its file has changed since it was imported") from None
    candidates: list[ast.FunctionDef | ast.Lambda] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                candidates.append(node)
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and _covers(node, code):
            candidates.append(node)
    if not candidates:
        if code.co_name != "<lambda>" and any(
            isinstance(node, ast.AsyncFunctionDef) and node.name == code.co_name for node in ast.walk(tree)
        ):
            raise _no_source(function, "it is an `async` function")
        raise _no_source(function, "its file has changed since it was imported")
    # Of nested lambdas the smallest that covers the code.
    return min(candidates, key=lambda node: ((node.end_lineno or 0) - node.lineno, node.end_col_offset or 0))


def _covers(node: ast.Lambda, code: CodeType) -> bool:
    """Return whether all positions of a lambda's code lie in its body."""
    body = node.body
    start, end = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    spots = [
        (line, column)
        for line, _, column, _ in code.co_positions()
        if line is not None and column is not None and (line, column) >= (node.lineno, node.col_offset)
    ]
    real = [spot for spot in spots if spot != (code.co_firstlineno, 0)]
    arguments = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]]
    return (
        all(start <= spot <= end for spot in real)
        and list(code.co_varnames[: code.co_argcount]) == arguments
        and (bool(real) or node.lineno == code.co_firstlineno)
    )


def _no_source(function: FunctionType, reason: str) -> StagingError:
    code = function.__code__
    where = position_of_function(function) or Position(
        code.co_filename, code.co_firstlineno, 0, code.co_firstlineno, 0, ""
    )
    return StagingError(
        f"`{function.__name__}` cannot be staged: {reason}",
        where=where,
        hint="write a plain `def`" if "async" in reason else "put the function into a file that is imported or run",
    )
