"""Functions: bodies, nested definitions, lambdas, comprehensions, classes, and the call of a body."""

from __future__ import annotations

import ast
from typing import Any

from staged.errors import StagingError
from staged.frontend.calls.call_arguments import changing_statics
from staged.frontend.calls.open_calls import OpenCalls
from staged.frontend.exits.scope import traced_in_scope
from staged.frontend.syntax.assign import assign
from staged.frontend.syntax.converter import (
    Converter,
    NameScope,
    arguments_of,
    class_definition,
    expression,
    function_definition,
    operator,
    place,
    statement,
    text,
)
from staged.frontend.syntax.names import Bindings, always_leaves, binding_tests, bindings_of, parameters_of
from staged.frontend.trace.context import TraceContext, current_trace, note_made
from staged.frontend.trace.locals import LibraryLocals, Locals
from staged.frontend.trace.signals import ENDED, BlockEndedError, Body, SignalKind, Target
from staged.source import here, is_library_file

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def convert_definition(converter: Converter, node: ast.FunctionDef, free: set[str], name: str) -> ast.FunctionDef:
    """The converted definition, named `name`: keeps its locals in a Locals object and runs its body as a function."""
    found = bindings_of(node.body)
    if found.has_yield:
        raise converter.refuse(node, f"`{node.name}` is a generator, which cannot be staged", "return a list instead")
    arguments = converter_arguments(converter, node.args)
    return _finish(converter, node, arguments, node.body, found, free, name)


def _finish(
    converter: Converter,
    node: ast.FunctionDef | ast.Lambda,
    arguments: ast.arguments,
    body: list[ast.stmt],
    found: Bindings,
    free: set[str],
    name: str,
) -> ast.FunctionDef:
    parameters = parameters_of(arguments)
    user_name = node.name if isinstance(node, ast.FunctionDef) else "<lambda>"
    bound = (found.bound | set(parameters)) - found.globals - found.nonlocals
    scope = NameScope(
        bound=bound,
        name=converter.fresh("locals"),
        function=user_name.strip("<>"),
        outer={name for name in found.nonlocals if name in free},
        nonlocals={name for name in found.nonlocals if name not in free},
        globals=found.globals,
    )
    assert scope.name is not None
    converter.scopes.append(scope)
    try:
        is_shared = bool(found.inner_nonlocals & bound)
        facts = user_name, is_shared, is_library_file(converter.file)
        header: list[ast.stmt] = [
            ast.Assign([ast.Name(scope.name, ast.Store())], converter.call("locals_", *map(text, facts)))
        ]
        for parameter in parameters:
            bind = ast.Attribute(ast.Name(scope.name, ast.Load()), "_staged_bind", ast.Load())
            header.append(ast.Expr(ast.Call(bind, [text(parameter), ast.Name(parameter, ast.Load())], [])))
        definition, run = converter.body_function(nest_rest(list(body)), node)
        header += definition
        header.append(ast.Return(converter.call("run", ast.Name(scope.name, ast.Load()), run)))
    finally:
        converter.scopes.pop()
    made = function_definition(name, arguments, header)
    return place(made, node)


def nest_rest(statements: list[ast.stmt]) -> list[ast.stmt]:
    """`if c: return a` followed by `rest`  ->  `if c: return a` with `else: rest`.

    Why: the two returns then meet as values, and no exit has to leave the enclosing function.
    """
    for index, node in enumerate(statements):
        if isinstance(node, ast.If) and always_leaves(node.body) and not always_leaves(node.orelse):
            if binding_tests(node):
                continue  # two `if`s, one in the other
            rest = statements[index + 1 :]
            if rest:
                moved = ast.If(node.test, node.body, nest_rest([*node.orelse, *rest]))
                return [*statements[:index], ast.copy_location(moved, node)]
    return statements


def converter_arguments(converter: Converter, arguments: ast.arguments) -> ast.arguments:
    """The same parameters, without annotations, with converted defaults."""

    def bare(argument: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(argument.arg), argument)

    return ast.arguments(
        posonlyargs=[bare(a) for a in arguments.posonlyargs],
        args=[bare(a) for a in arguments.args],
        vararg=bare(arguments.vararg) if arguments.vararg else None,
        kwonlyargs=[bare(a) for a in arguments.kwonlyargs],
        kw_defaults=[None if d is None else converter.expr(d) for d in arguments.kw_defaults],
        kwarg=bare(arguments.kwarg) if arguments.kwarg else None,
        defaults=[converter.expr(d) for d in arguments.defaults],
    )


@statement(ast.FunctionDef)
def convert_nested(converter: Converter, node: ast.FunctionDef) -> list[ast.stmt]:
    decorators = [converter.expr(decorator) for decorator in node.decorator_list]
    name = converter.fresh(node.name)
    definition = convert_definition(converter, node, converter.free, name)
    made: ast.expr = converter.call("function_", ast.Name(name, ast.Load()), text(node.name))
    for decorator in reversed(decorators):
        made = converter.call("call", decorator, place(made, node))
    target = ast.copy_location(ast.Name(node.name, ast.Store()), node)
    return [definition, *assign(converter, target, place(made, node), node)]


@expression(ast.Lambda)
def convert_lambda(converter: Converter, node: ast.Lambda) -> ast.expr:
    """Stays a lambda: its parameters are plain names, its body reads the locals around it."""
    arguments = converter_arguments(converter, node.args)
    function = converter.function.function
    converter.scopes.append(NameScope(set(parameters_of(node.args)), None, function))
    try:
        body = converter.expr(node.body)
    finally:
        converter.scopes.pop()
    return converter.call("function_", place(ast.Lambda(arguments, body), node), text("<lambda>"))


@expression(*_COMPREHENSIONS)
def convert_comprehension(converter: Converter, node: ast.expr) -> ast.expr:
    made: ast.expr = converter.comprehension(node)
    if isinstance(node, ast.GeneratorExp):
        return converter.call("new_iterator", made)
    return converter.call("made", made)


@statement(ast.ClassDef)
def convert_class(converter: Converter, node: ast.ClassDef) -> list[ast.stmt]:
    """A class made while staging: its methods are converted, its own names stay plain."""
    found = bindings_of(node.body)
    bases = [converter.expr(base) for base in node.bases]
    keywords = [converter.children(keyword) for keyword in node.keywords]
    decorators = [converter.expr(decorator) for decorator in node.decorator_list]
    converter.scopes.append(NameScope(set(found.bound), None, node.name, is_class=True))
    outer_class, converter.class_name = converter.class_name, node.name
    body: list[ast.stmt] = []
    try:
        for item in node.body:
            if isinstance(item, ast.FunctionDef):
                method_decorators = [converter.expr(decorator) for decorator in item.decorator_list]
                method = convert_definition(converter, item, converter.free, item.name)
                named = converter.call("function_", ast.Name("f", ast.Load()), text(item.name))
                method.decorator_list = [
                    *method_decorators,
                    place(ast.Lambda(arguments_of(["f"]), named), item),
                ]
                body.append(method)
            elif isinstance(item, ast.AnnAssign):
                item.value = converter.expr(item.value) if item.value is not None else None
                item.annotation = ast.copy_location(ast.Constant("annotation"), item)
                body.append(item)
            elif isinstance(item, ast.Assign):
                item.value = converter.expr(item.value)
                body.append(item)
            elif isinstance(item, ast.Pass | ast.Expr):
                body.append(item)
            else:
                raise converter.refuse(item, "this statement in a class inside a staged function cannot be staged")
    finally:
        converter.scopes.pop()
        converter.class_name = outer_class
    made = class_definition(node, bases, keywords)
    made.body, made.decorator_list = body, decorators
    target = ast.copy_location(ast.Name(node.name, ast.Store()), node)
    value = converter.call("made_class", ast.Name(node.name, ast.Load()))
    return [place(made, node), *assign(converter, target, place(value, node), node)]


# ---- what the calls do --------------------------------------------------------------------------


@operator
def locals_(function: str, is_shared: bool, is_library: bool) -> Locals:
    """The locals of one call; shared where nested functions write them."""
    made = LibraryLocals(function) if is_library else Locals(function)
    trace = current_trace()
    if is_shared and trace is not None:
        trace.shared += (made,)
    return made


@operator
def function_(made: Any, name: str) -> Any:
    """Gives a converted function its user's name."""
    made.__name__ = name
    made.__qualname__ = name
    made.__staged_converted__ = True
    note_made(made)
    return made


@operator
def made_class(cls: Any) -> Any:
    """Notes a class that converted code makes, and what it inherits from older ones."""
    note_made(cls)
    trace = current_trace()
    if trace is not None:
        for base in cls.__bases__:
            trace.reads.methods(base)
    return cls


_RETURN: frozenset[SignalKind] = frozenset({"return"})
DEEPEST_RECURSION = 40
"""Calls of one function inside itself, under a staged condition, from which on staging is taken to be endless.

Staged functions that call themselves stop before: they become functions of the program."""


@operator
def run(scope: Locals, body: Body) -> Any:
    """The call of a converted function: its value, once its body has run."""
    trace = current_trace()
    if trace is None:
        signal = body()
        return None if signal is None else signal.value
    if trace.is_staged_control:
        same = sum(other._staged_function == scope._staged_function for other in trace.running_locals)
        if same > DEEPEST_RECURSION:
            raise _endless(trace, scope._staged_function)
    around = trace.running_locals
    trace.running_locals = (*around, scope)
    try:
        return _run_traced(trace, scope, body)
    finally:
        trace.running_locals = around


def _endless(trace: TraceContext, name: str) -> StagingError:
    """The error for a function that calls itself again and again while staging."""
    calls = [each.call for each in trace.of(OpenCalls).activations if getattr(each.function, "__name__", "") == name]
    changing = changing_statics(*calls[-2:]) if len(calls) > 1 else []
    if not changing:
        return StagingError(
            f"`{name}` calls itself under a staged condition: staging it would never end",
            where=here(),
            hint=f"decorate `{name}` with `@st.function`: it becomes a function of the program",
        )
    path, kind = changing[0]
    return StagingError(
        f"`{name}` calls itself with another `{path}` ({kind}) each time, which is known while staging only: "
        "staging it would never end",
        where=here(),
        hint=f"pass the same `{path}` on, or what the program computes: arrays, numbers, and trees of them (an object "
        "of a "
        "class with `@dataclass` is one)",
    )


def _run_traced(trace: TraceContext, scope: Locals, body: Body) -> Any:
    if trace.next_run is not None:
        run_body, trace.next_run = trace.next_run, None
        return run_body(scope, body)
    return run_inline(trace, scope, body)


def run_inline(trace: TraceContext, scope: Locals, body: Body) -> Any:
    """A call inside another: in a scope of its own only where a staged path returns early."""
    what = f"`{scope._staged_function}`"
    with trace.attempt([scope, *trace.shared]) as attempt:
        trace.targets += (Target("function", what, _RETURN, attempt),)
        signal = body()
    if attempt.is_taken_back:
        return traced_in_scope(trace, "return", scope, body, what)
    if signal is ENDED:
        raise BlockEndedError
    return None if signal is None else signal.value
