"""The syntax of a row: how it is parsed and where it matches."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from tests.mutate.sources import BLOCKS, FUNCTIONS, MisfitError, Scope, bound

IGNORED = frozenset({"ctx", "kind", "type_comment"})


def parsed(code: str, what: str) -> list[ast.AST]:
    """The nodes of `before` or `after`: statements, one expression or one part of a statement."""
    wrapped = {"case ": "match _:\n ", "except ": "try: pass\n", "except:": "try: pass\n"}
    opening = next((before for word, before in wrapped.items() if code.startswith(word)), "")
    try:
        block = ast.parse(opening + code.replace("\n", "\n " if "match" in opening else "\n")).body
    except SyntaxError as error:
        raise MisfitError(f"`{what}` is not Python: {error.msg}") from error
    first = block[0] if block else None
    if opening:
        return list(first.cases if isinstance(first, ast.Match) else first.handlers)  # type: ignore[union-attr]
    return list(block)


def is_any_block(pattern: Any) -> bool:
    """Whether a block is `...`, which matches any block."""
    match pattern:
        case [ast.Expr(value=ast.Constant(value=value))]:
            return value is Ellipsis
    return False


def is_open(pattern: ast.AST, name: str) -> bool:
    """Whether a field of a pattern may have any value: an `else` that a pattern with the block `...` leaves out."""
    return name in ("orelse", "finalbody") and not getattr(pattern, name) and is_any_block(getattr(pattern, "body", None))


class Matching:
    """Compares patterns with nodes. `renamed` maps local names of the pattern to the source's."""

    def __init__(self, renamable: frozenset[str] = frozenset(), kept: frozenset[str] = frozenset()) -> None:
        self.renamable, self.kept = renamable, kept
        self.renamed: dict[str, str] = {}

    def same(self, pattern: Any, node: Any) -> bool:
        if isinstance(pattern, ast.AST):
            if type(pattern) is not type(node):
                return False
            for name in pattern._fields:
                if name in IGNORED or is_open(pattern, name):
                    continue
                ours, theirs = getattr(pattern, name, None), getattr(node, name, None)
                if is_name(pattern, name):
                    if not self.same_name(ours, theirs):
                        return False
                elif not self.same(ours, theirs):
                    return False
            return True
        if isinstance(pattern, list):
            if is_any_block(pattern) and isinstance(node, list) and node and isinstance(node[0], ast.stmt):
                return True
            return isinstance(node, list) and len(pattern) == len(node) and all(map(self.same, pattern, node))
        return type(pattern) is type(node) and repr(pattern) == repr(node)

    def same_name(self, ours: Any, theirs: Any) -> bool:
        if ours in self.renamed:
            return bool(self.renamed[ours] == theirs)
        if theirs in self.renamed.values():
            return False
        if ours != theirs and (ours is None or ours in self.kept or theirs not in self.renamable):
            return False
        if ours is not None:
            self.renamed[ours] = theirs
        return True


def is_name(node: ast.AST, name: str) -> bool:
    """Whether a field of a node is a local name."""
    return (name == "id" and isinstance(node, ast.Name)) or (name == "arg" and isinstance(node, ast.arg)) or (
        name == "name" and isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, *FUNCTIONS))
    )


def used(nodes: list[ast.AST]) -> set[str]:
    """The names that nodes read or bind."""
    walked = [each for node in nodes for each in ast.walk(node)]
    return {each.id for each in walked if isinstance(each, ast.Name)} | {name for node in nodes for name in bound(node)}


class Renamed(ast.NodeTransformer):
    """Applies a renaming of local names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in node._fields:
            if is_name(node, name) and getattr(node, name) in self.names:
                setattr(node, name, self.names[getattr(node, name)])
        return super().generic_visit(node)


@dataclass
class Place:
    """The nodes of a match. `siblings` is the list that has them, None if the match is one expression."""

    nodes: list[Any]
    siblings: list[Any] | None = None


def places(pattern: list[Any], scopes: list[Scope], matching: Matching) -> list[tuple[Place, dict[str, str]]]:
    """The matches of a pattern, with the renaming of each match."""
    found = []

    def attempt(place: Place) -> None:
        matching.renamed = {}
        if matching.same(pattern, place.nodes):
            found.append((place, matching.renamed))

    fields = {ast.match_case: ("cases",), ast.ExceptHandler: ("handlers",)}.get(type(pattern[0]), BLOCKS)
    for scope in scopes:
        if isinstance(pattern[0], ast.expr):
            for node in ast.walk(scope.node):
                if type(node) is type(pattern[0]):
                    attempt(Place([node]))
            continue
        lists = [getattr(node, name, None) for node in ast.walk(scope.node) for name in fields]
        for block in [[scope.node], *lists] if isinstance(pattern[0], ast.stmt) else lists:
            if isinstance(block, list):
                for k in range(len(block) - len(pattern) + 1):
                    attempt(Place(block[k : k + len(pattern)], block))
    return found


def equal(one: Any, other: Any) -> bool:
    """Whether two patterns are the same."""
    return Matching().same(one, other) and Matching().same(other, one)
