"""The engine of the AST transformation: scopes, rules per node type, and how generated code is made.

Each construct's file registers a rule (`@statement(ast.If)`, `@expression(ast.BoolOp)`) that turns syntax into a call
of the operator it declares beside it (`@operator`). Generated code keeps the positions of what it replaces, so that the
running frame names the user's expression and tracebacks read naturally.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from staged.errors import StagingError
from staged.ir.op_table import entered
from staged.source import Position

OPERATORS: dict[str, Callable[..., Any]] = {}
"""The functions that generated code calls, by name."""

OPERATOR_SUFFIX = "__staged_op"
"""Generated code reads operator `if_` as the free variable `if___staged_op`.

Plain names, not attributes: for a call of an attribute CPython moves the position to the attribute's last line.
"""

_STATEMENTS: dict[type[ast.stmt], Callable[..., list[ast.stmt]]] = {}
_EXPRESSIONS: dict[type[ast.expr], Callable[..., ast.expr]] = {}

F = TypeVar("F", bound=Callable[..., Any])


def operator(function: F) -> F:
    """Declare what a construct calls; a trailing underscore of its name is for Python's keywords."""
    OPERATORS[function.__name__] = function
    return function


def statement(*types: type[ast.stmt]) -> Callable[[F], F]:
    """Declare the rule `(converter, node) -> statements` for some statements."""
    return entered(_STATEMENTS, *types)


def expression(*types: type[ast.expr]) -> Callable[[F], F]:
    """Declare the rule `(converter, node) -> expression` for some expressions."""
    return entered(_EXPRESSIONS, *types)


@dataclass
class NameScope:
    """Names of one function, lambda, comprehension or class.

    `name` is the generated variable that holds a function's locals; None where names stay plain Python names.
    """

    bound: set[str]
    name: str | None
    function: str
    outer: set[str] = field(default_factory=set)
    """Names declared `global`, or `nonlocal` past every converted function: plain Python names of the closure."""
    nonlocals: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    is_class: bool = False


class Converter:
    """Transforms one function of a file."""

    def __init__(self, file: str, class_name: str | None, free: Iterable[str]) -> None:
        self.file = file
        self.class_name = class_name
        """The class around the function, for `__private` names."""
        self.free = set(free)
        self.scopes: list[NameScope] = []
        self.counter = 0
        self.outer_names: dict[str, None] = {}
        """The global and builtin names that the function and those inside it mention, in order."""

    # ---- walking ----

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The converted statements of a suite."""
        out: list[ast.stmt] = []
        for node in statements:
            rule = _STATEMENTS.get(type(node))
            if rule is None:
                raise self.refuse(node, f"the statement `{_word(node)}` cannot be staged", _HINTS.get(type(node)))
            made = rule(self, node)
            for new in made:
                place(new, node)
            out += made
        return out

    def expr(self, node: ast.expr) -> ast.expr:
        """The converted expression (loads only; targets belong to `assign`)."""
        rule = _EXPRESSIONS.get(type(node))
        if rule is not None:
            return place(rule(self, node), node)
        unchanged: ast.expr = self.children(node)
        return unchanged

    def children(self, node: Any) -> Any:
        """`node` with every expression below it converted."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self.expr(value))
            elif isinstance(value, list):
                setattr(
                    node, name, [self.expr(item) if isinstance(item, ast.expr) else self._other(item) for item in value]
                )
            elif isinstance(value, ast.AST):
                setattr(node, name, self._other(value))
        return node

    def _other(self, item: Any) -> Any:
        return self.children(item) if isinstance(item, ast.keyword | ast.comprehension) else item

    # ---- names ----

    @property
    def function(self) -> NameScope:
        """The innermost function that keeps its names in a Locals object."""
        return next(scope for scope in reversed(self.scopes) if scope.name is not None)

    def locals(self) -> ast.expr:
        """The Locals object of the innermost function."""
        name = self.function.name
        assert name is not None
        return ast.Name(name, ast.Load())

    def resolve(self, name: str) -> str | None:
        """The Locals object that holds `name`; None where it is a plain Python name."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if scope.is_class and depth > 0:
                continue
            if name in scope.outer or name in scope.globals:
                return None
            if name in scope.nonlocals:
                continue
            if name in scope.bound:
                return scope.name
        return None

    def is_global(self, name: str) -> bool:
        """Return whether `name`, which no Locals object holds, is a global or a builtin."""
        if name in self.free:
            return False
        for depth, scope in enumerate(reversed(self.scopes)):
            if name in scope.globals:
                return True
            if name in scope.bound and not (scope.is_class and depth > 0):
                return False
        return True

    def load(self, name: str) -> ast.expr:
        """Reads a name."""
        home = self.resolve(name)
        if home is None:
            if self.is_global(name):
                self.outer_names[name] = None
            return ast.Name(name, ast.Load())
        return ast.Attribute(ast.Name(home, ast.Load()), name, ast.Load())

    def fresh(self, word: str) -> str:
        """A name that no user writes."""
        self.counter += 1
        return f"{word}__staged_{self.counter}"

    def mangle(self, attribute: str) -> str:
        """The name that the compiler makes of `__private` inside a class."""
        if self.class_name and attribute.startswith("__") and not attribute.endswith("__"):
            return f"_{self.class_name.lstrip('_')}{attribute}"
        return attribute

    # ---- making code ----

    def call(self, operator_name: str, *arguments: ast.expr) -> ast.Call:
        """A call of one of `OPERATORS`."""
        assert operator_name in OPERATORS, operator_name
        return ast.Call(ast.Name(operator_name + OPERATOR_SUFFIX, ast.Load()), list(arguments), [])

    def body_function(self, statements: Sequence[ast.stmt], where: ast.AST) -> tuple[list[ast.stmt], ast.expr]:
        """A suite as a function of no arguments (its definition, its name); None for an empty suite."""
        if not statements:
            return [], ast.Constant(None)
        return self.raw_function(self.block(statements), [], where)

    def raw_function(
        self, body: list[ast.stmt], parameters: Sequence[str], where: ast.AST
    ) -> tuple[list[ast.stmt], ast.expr]:
        """Ready statements as a function (its definition, its name)."""
        name = self.fresh(self.function.function)
        scope = self.function
        header: list[ast.stmt] = []
        if scope.outer - scope.globals:
            header.append(ast.Nonlocal(sorted(scope.outer - scope.globals)))
        if scope.globals:
            header.append(ast.Global(sorted(scope.globals)))
        definition = function_definition(name, arguments_of(parameters), [*header, *body] or [ast.Pass()])
        place(definition, where)
        return [definition], ast.Name(name, ast.Load())

    def lambda_(self, node: ast.expr) -> ast.expr:
        """An expression to be evaluated later, or not at all."""
        return place(ast.Lambda(arguments_of([]), self.expr(node)), node)

    def comprehension(self, node: Any) -> Any:
        """A comprehension: its targets stay plain names, everything else is converted."""
        bound: set[str] = set()
        for generator in node.generators:
            bound |= {name.id for name in ast.walk(generator.target) if isinstance(name, ast.Name)}
        first = self.call("iterated", self.expr(node.generators[0].iter))  # evaluated outside
        self.scopes.append(NameScope(bound, None, self.function.function))
        try:
            for index, generator in enumerate(node.generators):
                around = generator.iter
                generator.iter = place(
                    first if index == 0 else self.call("iterated", self.expr(generator.iter)), around
                )
                generator.ifs = [self.expr(test) for test in generator.ifs]
            for field_name in ("elt", "key", "value"):
                if hasattr(node, field_name):
                    setattr(node, field_name, self.expr(getattr(node, field_name)))
        finally:
            self.scopes.pop()
        return node

    def propagate(self, call: ast.expr, where: ast.AST) -> list[ast.stmt]:
        """`s = call; if s is not None: return s`: run a construct, and end with a signal that is not its own."""
        name = self.fresh("signal")
        assign = ast.Assign([ast.Name(name, ast.Store())], place(call, where))
        test = ast.Compare(ast.Name(name, ast.Load()), [ast.IsNot()], [ast.Constant(None)])
        leave = ast.If(test, [ast.Return(ast.Name(name, ast.Load()))], [])
        return [place(assign, where), place(leave, where)]

    def position(self, node: ast.AST) -> Position:
        """The position of `node`, for an error."""
        function = self.scopes[-1].function if self.scopes else "module"
        line = getattr(node, "lineno", 1)
        return Position(
            self.file,
            line,
            getattr(node, "col_offset", 0),
            getattr(node, "end_lineno", line) or line,
            getattr(node, "end_col_offset", 0) or 0,
            function,
        )

    def refuse(self, node: ast.AST, message: str, hint: str | None = None) -> StagingError:
        return StagingError(message, where=self.position(node), hint=hint)


N = TypeVar("N", bound=ast.AST)


def place(new: N, old: ast.AST) -> N:
    """`new` at the position of `old`, with the parts of it that have none (those that have one are finished)."""
    if not hasattr(new, "lineno") and "lineno" in new._attributes:
        ast.copy_location(new, old)
    for child in ast.iter_child_nodes(new):
        if not hasattr(child, "lineno"):
            place(child, new if hasattr(new, "lineno") else old)
    return new


def arguments_of(names: Sequence[str]) -> ast.arguments:
    """Plain positional parameters."""
    return ast.arguments(
        posonlyargs=[],
        args=[ast.arg(name) for name in names],
        vararg=None,
        kwonlyargs=[],
        kw_defaults=[],
        kwarg=None,
        defaults=[],
    )


def function_definition(name: str, arguments: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    """A function without decorators and annotations."""
    fields: dict[str, Any] = {"name": name, "args": arguments, "body": body, "decorator_list": [], "returns": None}
    return ast.FunctionDef(**fields, **_type_params(ast.FunctionDef))


def class_definition(node: ast.ClassDef, bases: list[ast.expr], keywords: list[ast.keyword]) -> ast.ClassDef:
    """A class of the same name, without a body yet."""
    fields: dict[str, Any] = {
        "name": node.name, "bases": bases, "keywords": keywords, "body": [], "decorator_list": []
    }  # fmt: skip
    return ast.ClassDef(**fields, **_type_params(ast.ClassDef))


def _type_params(node: type[ast.AST]) -> dict[str, Any]:
    # A field from Python 3.12 on.
    return {"type_params": []} if "type_params" in node._fields else {}


def text(value: Any) -> ast.Constant:
    """A literal."""
    return ast.Constant(value)


@expression(ast.Name)
def convert_name(converter: Converter, node: ast.Name) -> ast.expr:
    """A read of a name."""
    return converter.load(node.id)


_WORDS = {
    ast.AsyncFunctionDef: "async def",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.TryStar: "except*",
}

_PLAIN = "stage a plain function, and call it from the coroutine"
_HINTS: dict[type[ast.stmt], str] = {
    ast.AsyncFunctionDef: _PLAIN,
    ast.AsyncFor: _PLAIN,
    ast.AsyncWith: _PLAIN,
    ast.TryStar: "use `except`",
}


def _word(node: ast.stmt) -> str:
    return _WORDS.get(type(node), type(node).__name__.lower())
