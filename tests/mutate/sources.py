"""The files that mutants change, and the functions, classes and variables in them."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = ("body", "orelse", "finalbody")


class MisfitError(Exception):
    """A mutant does not fit the sources. The message says what to change."""


@dataclass
class Scope:
    """A function, class or variable of a file."""

    node: ast.AST
    outermost: ast.AST
    """The outermost function around the node, whose local names it may use, or the node."""


@dataclass
class Source:
    """A file with its syntax tree. `scopes` has the nodes of each qualified name."""

    path: Path
    text: str
    tree: ast.Module = field(init=False)
    scopes: dict[str, list[Scope]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)
        self.lines = [0, *accumulate(len(line) for line in self.text.encode().splitlines(keepends=True))]
        self._collect(self.tree.body, "", None)

    def _collect(self, block: list[ast.stmt], prefix: str, outermost: ast.AST | None) -> None:
        for node in block:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                self.scopes.setdefault(prefix + node.name, []).append(Scope(node, outermost or node))
                inside = outermost or (node if isinstance(node, FUNCTIONS) else None)
                self._collect(node.body, f"{prefix}{node.name}.", inside)
                continue
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and outermost is None:
                for name in bound(node):
                    self.scopes.setdefault(prefix + name, []).append(Scope(node, node))
            for _, inner in blocks(node):
                self._collect(inner, prefix, outermost)

    def outside(self) -> list[Scope]:
        """The statements outside of all functions and classes."""
        runs = groupby(self.tree.body, lambda node: isinstance(node, (*FUNCTIONS, ast.ClassDef)))
        modules = [ast.Module(list(run), []) for is_inside, run in runs if not is_inside]
        return [Scope(module, module) for module in modules]

    def names(self) -> Iterator[str]:
        """The names that the module binds at its top level."""
        for node in self.tree.body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                yield node.name
            else:
                yield from bound(node)

    def span(self, first: Any, last: Any) -> tuple[int, int]:
        """The begin of one node and the end of another one in the bytes of the file."""
        decorators = getattr(first, "decorator_list", None)
        line = decorators[0].lineno if decorators else first.lineno
        return self.lines[line - 1] + first.col_offset, self.lines[last.end_lineno - 1] + last.end_col_offset


class Sources:
    """The files of a project. Each is read and parsed at most once."""

    def __init__(self, root: Path, package: str = "staged") -> None:
        self.root, self.package = root, package
        self._parsed: dict[Path, Source] = {}

    def source(self, path: Path) -> Source:
        if path not in self._parsed:
            self._parsed[path] = Source(path, (self.root / path).read_text(encoding="utf-8"))
        return self._parsed[path]

    def whole_package(self) -> Iterator[Source]:
        for path in sorted((self.root / self.package).rglob("*.py")):
            yield self.source(path.relative_to(self.root))

    def file(self, module: str) -> Path | None:
        """The file of a target's module, if there is such a file."""
        if "/" in module:
            paths = [Path(module)]
        else:
            base = Path(self.package, *module.split("."))
            paths = [base.with_name(f"{base.name}.py"), base / "__init__.py"]
        return next((path for path in paths if (self.root / path).is_file()), None)

    def find(self, target: str) -> tuple[Source, list[Scope]]:
        """The source of a target and its nodes: usually one, several if the file defines the name more than once."""
        module, _, name = target.partition(":")
        path = self.file(module)
        if path is not None and not name:
            return self.source(path), self.source(path).outside()
        if path is not None and name in self.source(path).scopes:
            return self.source(path), self.source(path).scopes[name]
        if not name:
            raise MisfitError(f"there is no module {module}")
        elsewhere = [source for source in self.whole_package() if name in source.scopes]
        if len(elsewhere) == 1:
            return elsewhere[0], elsewhere[0].scopes[name]
        where = f"{path} does not define {name}" if path else f"there is no module {module}"
        if elsewhere:
            raise MisfitError(f"{where}, and {len(elsewhere)} files do: {', '.join(str(each.path) for each in elsewhere)}")
        close = self.closest(name, path)
        raise MisfitError(f"{where}, nor does another file" + (f"; the closest name is {close}" if close else ""))

    def closest(self, name: str, path: Path | None) -> str:
        """The target whose qualified name is most like a name: of the file if possible, else of the package."""
        places = [self.source(path)] if path else []
        for sources in (places, self.whole_package()):
            names = {each: source for source in sources for each in source.scopes}
            if found := difflib.get_close_matches(name, names, 1, 0.7):
                return f"{found[0]} of {names[found[0]].path}"
        return ""


def blocks(node: ast.AST) -> Iterator[tuple[str, list[Any]]]:
    """The lists of statements, handlers and cases directly inside a node, with the name of their field."""
    for name in (*BLOCKS, "handlers", "cases"):
        inner = getattr(node, name, None)
        if isinstance(inner, list) and inner:
            yield name, inner


def bound(node: ast.AST) -> Iterator[str]:
    """The names that a node binds, blocks inside it included."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            if not isinstance(each.ctx, ast.Load):
                yield each.id
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.alias):
            yield (each.asname or each.name).partition(".")[0]
        elif isinstance(each, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, *FUNCTIONS, ast.ClassDef)) and each.name:
            yield each.name
        elif isinstance(each, ast.MatchMapping) and each.rest:
            yield each.rest
