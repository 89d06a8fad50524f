"""`match` with values, `None`, `True`, `False`, alternatives, captures and guards: `if`s over the subject.

match x:                          if x == 1 or x == 2:
    case 1 | 2: a                     a
    case n if n > 5: b     ->     else:
    case _: c                         n = x
                                      if n > 5: b
                                      else: c
"""

from __future__ import annotations

import ast
from typing import Any

from staged.frontend.constructs.if_ import Named, branch
from staged.frontend.syntax.assign import assign
from staged.frontend.syntax.converter import Converter, arguments_of, operator, place, statement, text
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.signals import Body, Signal
from staged.frontend.values.operands import binary_call
from staged.ir.types import bool_
from staged.ops.array import Array
from staged.ops.comparisons import equal


@statement(ast.Match)
def convert_match(converter: Converter, node: ast.Match) -> list[ast.stmt]:
    subject = ast.Name(converter.fresh("subject"), ast.Load())
    made: list[ast.stmt] = [ast.Assign([ast.Name(subject.id, ast.Store())], converter.expr(node.subject))]
    steps: list[ast.stmt] = []
    rest: ast.expr = text(None)
    for number, case in reversed(list(enumerate(node.cases))):
        if steps:  # of the cases after this one
            definition, rest = converter.raw_function(steps, [], case.pattern)
            made += definition
        asked = {value for before in node.cases[:number] if before.guard is None for value in _bools(before.pattern)}
        test, names = _test(converter, case.pattern, subject, asked), _captured(case.pattern)
        guard = None if case.guard is None else converter.expr(case.guard)
        steps = [each for name in names for each in assign(converter, name, subject, case.pattern)]
        if test is not None and guard is not None:  # one question, so that the rest is there once
            bound = [place(_bound(converter, name, subject), case.pattern) for name in names]
            both = place(ast.Subscript(ast.Tuple([*bound, guard], ast.Load()), text(-1), ast.Load()), guard)
            test, guard = place(_connected(converter, "and_", test, both if bound else guard), case.pattern), None
        if guard is None:
            steps += converter.block(case.body)
        else:
            definition, body = converter.body_function(case.body, guard)
            steps += [*definition, *converter.propagate(_case(converter, node, case, guard, body, rest), guard)]
        if test is not None:
            definition, then = converter.raw_function(steps, [], case.pattern)
            steps = [*definition, *converter.propagate(_case(converter, node, case, test, then, rest), case.pattern)]
    return [*made, *steps]


def _case(
    converter: Converter, node: ast.Match, case: ast.match_case, test: ast.expr, then: ast.expr, orelse: ast.expr
) -> ast.expr:
    lines = text(node.lineno), text(case.pattern.lineno)
    return converter.call("case_", converter.locals(), test, then, orelse, *lines)


def _connected(converter: Converter, name: str, left: ast.expr, right: ast.expr) -> ast.expr:
    return converter.call(name, converter.locals(), left, ast.Lambda(arguments_of([]), right))


def _bound(converter: Converter, name: ast.Name, subject: ast.expr) -> ast.expr:
    """`(name := subject)`: what the guard reads."""
    return converter.expr(ast.NamedExpr(name, subject))


def _bools(pattern: ast.pattern) -> set[bool]:
    """True and False, where the pattern is one of them, or has it among its alternatives."""
    match pattern:
        case ast.MatchAs(pattern=inner) if inner is not None:
            return _bools(inner)
        case ast.MatchSingleton(value=bool(value)):
            return {value}
        case ast.MatchOr(patterns=patterns):
            return {value for each in patterns for value in _bools(each)}
    return set()


def _test(converter: Converter, pattern: ast.pattern, subject: ast.expr, asked: set[bool]) -> ast.expr | None:
    """Return whether the subject fits, which is none of `asked`; None where it always does."""
    match pattern:
        case ast.MatchAs(pattern=inner):
            return None if inner is None else _test(converter, inner, subject, asked)
        case ast.MatchValue(value=value):
            return place(binary_call(converter, "Eq", subject, converter.expr(value)), pattern)
        case ast.MatchSingleton(value=value):
            is_left = isinstance(value, bool) and (not value) in asked
            return place(converter.call("is_constant", subject, text(value), text(is_left)), pattern)
        case ast.MatchOr(patterns=patterns):
            found = [_test(converter, each, subject, asked) for each in patterns]
            test = found[0]
            for other in found[1:]:
                if test is None or other is None:
                    return None
                test = place(_connected(converter, "or_", test, other), pattern)
            return test
    hint = "match values, and take them apart by names"
    raise converter.refuse(pattern, "this pattern of a `match` cannot be staged", hint)


def _captured(pattern: ast.pattern) -> list[ast.Name]:
    """The names that the subject gets."""
    names = {each.name: None for each in ast.walk(pattern) if isinstance(each, ast.MatchAs) and each.name is not None}
    return [place(ast.Name(name, ast.Store()), pattern) for name in names]


@operator
def is_constant(value: Any, constant: bool | None, is_left: bool) -> Any:
    """`case None`, `case True`, `case False`: an array of bools is asked for its value, unless this one is left."""
    if constant is None or not isinstance(value, Array):
        return value is constant
    if value.dtype is not bool_:
        return False
    return True if is_left else equal(value, constant)


@operator
def case_(scope: Locals, test: Any, then: Body, orelse: Body | None, match_line: int, line: int) -> Signal | None:
    """One case: an `if`, which errors call by its own name."""
    fits = f"the `case` at line {line} fits", f"the `case` at line {line} does not fit"
    return branch(scope, test, then, orelse, Named(f"the `match` at line {match_line}", fits))
