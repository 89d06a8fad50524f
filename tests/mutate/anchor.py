"""Find the syntax that a mutant replaces, and write its file with the fault.

`before` and `after` of a mutant are Python. They are compared with the source as syntax trees: line breaks, comments,
quotes and parentheses do not matter. The rest of the file keeps its bytes.

    Mutant("x * 1 is 1", "passes.algebra:multiply_by_one", "return x", "return one", tests)

- A block `...` matches any block, and `...` in `after` is that block: `if x: ...` matches the condition of an `if`. Without
  an `else` in `before`, the statement may have one.
- `before` may also be a part of a statement: `case Pattern: ...` or `except Error: ...`.
- If the file of the target has moved, the mutant fits as long as one file of the package has the qualified name.
- If there is no exact match, local names of `before` may stand for renamed ones. The same renaming applies to `after`.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutate.mutant import Mutant, Text
from tests.mutate.patterns import IGNORED, Matching, Place, Renamed, equal, is_any_block, is_open, parsed, places, used
from tests.mutate.sources import BLOCKS, MisfitError, Scope, Source, Sources, blocks, bound

ATOMS = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Dict, ast.ListComp, ast.JoinedStr)
"""Expressions that need no parentheses next to an operator."""


@dataclass
class Edit:
    """Nodes of the source and the nodes that replace them. `siblings`: see `Place`."""

    nodes: list[Any]
    by: list[Any]
    siblings: list[Any] | None = None


class UnspliceableError(Exception):
    """No text alone replaces a node: its parent must be replaced."""


def edits(before: Any, after: Any, node: ast.AST) -> list[Edit]:
    """The smallest replacements that turn a node, which matches `before`, into `after`."""
    if equal(before, after):
        return []
    if type(before) is type(after) and not isinstance(before, ast.JoinedStr):  # 3.11 has no positions inside f-strings
        try:
            return [edit for name in before._fields for edit in field_edits(before, after, node, name)]
        except UnspliceableError:
            pass
    if isinstance(node, (ast.Slice, ast.Starred)) or not isinstance(node, (ast.expr, ast.stmt, ast.pattern)):
        raise UnspliceableError
    if isinstance(node, ast.Tuple) and any(isinstance(each, ast.Slice) for each in (*node.elts, *getattr(after, "elts", ()))):
        raise UnspliceableError
    if isinstance(after, (ast.Slice, ast.Starred)):
        raise UnspliceableError
    return [Edit([node], [filled(before, after, node)], [node] if isinstance(node, ast.stmt) else None)]


def field_edits(before: Any, after: Any, node: Any, name: str) -> list[Edit]:
    ours, theirs, real = (getattr(each, name, None) for each in (before, after, node))
    if name in IGNORED or equal(ours, theirs) or (is_any_block(ours) and is_any_block(theirs)):
        return []
    if isinstance(ours, ast.AST) and isinstance(theirs, ast.AST) and isinstance(real, ast.AST):
        return edits(ours, theirs, real)
    if not (isinstance(ours, list) and isinstance(theirs, list) and isinstance(real, list)):
        raise UnspliceableError
    if is_any_block(ours) or is_any_block(theirs):
        raise UnspliceableError
    if len(ours) == len(theirs) == len(real):
        try:
            return [edit for one, other, each in zip(ours, theirs, real, strict=True) for edit in edits(one, other, each)]
        except UnspliceableError:
            pass
    if name in BLOCKS and ours and theirs:
        return [block_edit(ours, theirs, Place(real, real))]
    raise UnspliceableError


def block_edit(before: list[Any], after: list[Any], place: Place) -> Edit:
    """The replacement of those statements of a block that differ."""
    start, end = 0, 0
    shorter = min(len(before), len(after))
    while start < shorter and equal(before[start], after[start]):
        start += 1
    while end < shorter - start and equal(before[-1 - end], after[-1 - end]):
        end += 1
    if start == len(before) - end:  # an insertion: one of the neighbours is replaced by itself and the new statements
        start, end = (start - 1, end) if start else (start, end - 1)
    stop, last = len(before) - end, len(after) - end
    by = [
        filled(before[k], after[k], place.nodes[k]) if k < stop and type(before[k]) is type(after[k]) else after[k]
        for k in range(start, last)
    ]
    return Edit(place.nodes[start:stop], by, place.siblings)


def filled(before: Any, after: Any, node: ast.AST) -> ast.AST:
    """`after` with the source's blocks in place of `...`, in the order of the pattern's blocks."""
    taken: list[list[Any]] = []

    def collect(pattern: ast.AST, real: ast.AST) -> None:
        for name, block in blocks(pattern):
            if is_any_block(block):
                taken.append(getattr(real, name))
            else:
                for one, other in zip(block, getattr(real, name), strict=True):
                    collect(one, other)

    def fill(pattern: ast.AST) -> None:
        for name, block in blocks(pattern):
            if is_any_block(block):
                if not taken:
                    raise MisfitError("`after` has more blocks `...` than `before`")
                setattr(pattern, name, taken.pop(0))
            else:
                for each in block:
                    fill(each)

    result: ast.AST = copy.deepcopy(after)
    collect(before, node)
    fill(result)
    for name in ("orelse", "finalbody"):
        if hasattr(result, name) and not getattr(result, name) and hasattr(before, name) and is_open(before, name):
            setattr(result, name, getattr(node, name))
    return result


class Substitution(ast.NodeTransformer):
    def __init__(self, node: ast.AST, by: ast.AST) -> None:
        self.node, self.by = node, by

    def visit(self, node: ast.AST) -> ast.AST:
        return self.by if node is self.node else super().visit(node)


def outside_strings(edit: Edit, scopes: list[Scope]) -> Edit:
    """An edit of the whole f-string if the node is inside one, else the edit."""
    if edit.siblings is None:
        for scope in scopes:
            for string in ast.walk(scope.node):
                if isinstance(string, ast.JoinedStr) and any(each is edit.nodes[0] for each in ast.walk(string)):
                    inside = edit.nodes[0]
                    if inside is string:
                        return edit
                    # Copied with the node marked, so that the tree of the source stays as it is.
                    memo = {id(inside): inside}
                    return Edit([string], [Substitution(inside, edit.by[0]).visit(copy.deepcopy(string, memo))])
    return edit


def text_of(edit: Edit) -> str:
    """The source of a replacement: statements have the indentation of the place."""
    first = edit.nodes[0]
    if edit.siblings is None:
        text = ast.unparse(edit.by[0])
        needs = isinstance(first, ast.expr) and not isinstance(edit.by[0], (*ATOMS, ast.Constant))
        # A generator's position includes the parentheses of the call that has it as its only argument.
        return f"({text})" if needs or isinstance(first, ast.GeneratorExp) else text
    by = edit.by or ([ast.Pass()] if len(edit.nodes) == len(edit.siblings) else [])
    depth = first.col_offset // 4
    for _ in range(depth):  # by `unparse`, because it does not indent the lines of a docstring
        by = [ast.If(ast.Constant(True), by, [])] if by else []
    text = ast.unparse(ast.Module(by, [])) if by else ""
    return "\n".join(text.splitlines()[depth:]).strip() if depth else text


def spliced(source: Source, changes: list[Edit]) -> str:
    """The text of a file with edits."""
    data = source.text.encode()
    spans = [(source.span(edit.nodes[0], edit.nodes[-1]), text_of(edit)) for edit in changes]
    for (begin, end), text in sorted(spans, reverse=True):
        data = data[:begin] + text.encode() + data[end:]
    return data.decode()


def planted(sources: Sources, mutant: Mutant) -> tuple[Path, str]:
    """The file of a mutant and its source with the fault. A `MisfitError` says why the mutant does not fit."""
    if isinstance(mutant.before, Text) or (":" not in mutant.target and not mutant.target.endswith(".py")):
        return planted_text(sources, mutant)
    source, scopes = sources.find(mutant.target)
    before, after = parsed(mutant.before, "before"), parsed(mutant.after, "after")
    if not before:
        raise MisfitError("`before` is empty")
    if len(before) == len(after) == 1 and isinstance(before[0], ast.Expr) and isinstance(after[0], ast.Expr):
        before, after = [before[0].value], [after[0].value]
    if equal(before, after):
        raise MisfitError("`after` is `before`")
    found = places(before, scopes, Matching())
    if not found:
        local = frozenset(name for scope in scopes for name in bound(scope.outermost))
        found = places(before, scopes, Matching(local, frozenset(known(source, scopes))))
    if len(found) != 1:
        raise MisfitError(miss(sources, source, mutant, before, len(found)))
    place, renaming = found[0]
    before = [Renamed(renaming).visit(node) for node in before]
    after = [Renamed(renaming).visit(node) for node in after]
    unknown = used(after) - used(before) - {name for node in after for name in bound(node)}
    if unknown and (unknown := unknown - known(source, scopes)):
        raise MisfitError(f"`after` has a name that {mutant.target} does not have: {', '.join(sorted(unknown))}")
    if place.siblings is None or len(before) == len(after) == 1:
        try:
            changes = edits(before[0], after[0], place.nodes[0])
        except UnspliceableError:
            raise MisfitError("`after` replaces a part of a statement; write the whole statement") from None
    else:
        changes = [block_edit(before, after, place)]
    return source.path, spliced(source, [outside_strings(change, scopes) for change in changes])


def known(source: Source, scopes: list[Scope]) -> set[str]:
    """The names that have a meaning in a target."""
    return used([scope.outermost for scope in scopes]) | set(source.names()) | set(dir(builtins))


def miss(sources: Sources, source: Source, mutant: Mutant, before: list[Any], count: int) -> str:
    """The message for a pattern that does not match once."""
    name = mutant.target.partition(":")[2] or "the top level"
    if count:
        return f"`before` matches {count} times in {name} of {source.path}; it must match once"
    others: list[str] = []
    for each in [source, *(each for each in sources.whole_package() if each is not source)]:
        fitting = [other for other, scopes in each.scopes.items() if places(before, scopes, Matching())]
        innermost = [name for name in fitting if not any(other.startswith(f"{name}.") for other in fitting)]
        others += [f"{name} of {each.path}" for name in innermost]
    hint = f"; it matches in {', '.join(others[:3])}" if others else ""
    return f"`before` does not match in {name} of {source.path}" + hint


def strings_of(node: ast.AST) -> Iterator[ast.expr]:
    """The string constants of a node, f-strings too."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node
    else:
        for each in ast.iter_child_nodes(node):
            yield from strings_of(each)


def planted_text(sources: Sources, mutant: Mutant) -> tuple[Path, str]:
    """As `planted`, for text: in the strings of a target, or in a file that is not Python."""
    words = r"\s+".join(map(re.escape, re.split(r"\s+", mutant.before)))
    if ":" in mutant.target:
        source, scopes = sources.find(mutant.target)
        path, data = source.path, source.text.encode()
        strings = [source.span(string, string) for scope in scopes for string in strings_of(scope.node)]
    else:
        path = Path(mutant.target)
        if not (sources.root / path).is_file():
            raise MisfitError(f"there is no file {path}")
        data = (sources.root / path).read_bytes()
        strings = [(0, len(data))]
    found = {
        (begin + match.start(), begin + match.end())
        for begin, end in strings
        for match in re.finditer(words.encode(), data[begin:end])
    }
    if len(found) != 1:
        raise MisfitError(f"`before` is in the text of {mutant.target} {len(found)} times; it must be there once")
    begin, end = found.pop()
    if not mutant.after:  # a line that becomes empty is deleted
        line, rest = data.rfind(b"\n", 0, begin) + 1, data.find(b"\n", end) + 1 or len(data)
        if not data[line:begin].strip() and not data[end:rest].strip():
            begin, end = line, rest
    return path, (data[:begin] + mutant.after.encode() + data[end:]).decode()
