"""The facts about an op stand in its declaration: few lists name ops, and each says beside it why it is one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import staged  # noqa: F401  (declares every op)
from staged.ir import structure
from staged.ir.declaration import DECLARED, Declaration
from staged.ops.composite import COMPOSITES

ROOT = Path(__file__).parent.parent.parent / "staged"
MOST = 20
MANY = 4
"""Names from which on a literal is a list of ops."""
OPS = {*DECLARED, *COMPOSITES}
CONSTANTS = {name for name, value in vars(structure).items() if isinstance(value, Declaration)}
OTHER_WORDS = {
    "WORDS": "names that C's headers take",
    "SNIPPETS": "functions that a snippet calls",
    "_WANTED_BY": "support functions",
    "Kind": "kinds of ops, of which some are called like an op",
    "IN_F32": "torch's list of its functions",
    "PASSES": "names of passes, of which words are ops",
    "_OTHER_SPELLINGS": "names of other libraries",
    "_LATE": "names of the package that load at first use",
}


def ops_named(value: ast.expr) -> set[str]:
    """The ops that an expression names: as strings, as words of a string, as `prims.ADD`, as constants of `ir/structure.py`."""
    found: set[str] = set()
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            found |= OPS.intersection(words) if all(word.isidentifier() for word in words) else set()
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "prims":
            found.add(node.attr)
        elif isinstance(node, ast.Name) and node.id in CONSTANTS:
            found.add(node.id)
    return found


def lists_in(text: str) -> Iterator[tuple[str, bool]]:
    """(name, whether a docstring stands behind it) of each list of ops of a module and its classes."""
    tree = ast.parse(text)
    for body in [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]:
        for node, behind in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            made = node.value.func if isinstance(node.value, ast.Call) else None
            declares = isinstance(made, ast.Name) and made.id not in ("frozenset", "set", "dict", "tuple")
            if name in ("__all__", *OTHER_WORDS) or declares or len(ops_named(node.value)) < MANY:
                continue
            yield name, isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)


def test_few_lists_name_ops_and_each_has_its_reason() -> None:
    found = [(path, *each) for path in sorted(ROOT.rglob("*.py")) for each in lists_in(path.read_text())]
    bare = [f"{path.relative_to(ROOT)}: {name}" for path, name, has_reason in found if not has_reason]
    assert not bare, f"say behind {bare} why they are lists; what is true of an op belongs into its declaration"
    assert len(found) <= MOST, "a further list of ops: declare a trait (`ir/declaration.py`), and ask for it"


def test_a_list_of_ops_is_found_however_it_is_written() -> None:
    text = 'A = frozenset("exp log sin cos".split())\nB = {prims.ADD, prims.NEGATIVE, IF, FOR}\n"""A reason."""\nC = ("exp", "log")\n'
    assert list(lists_in(text)) == [("A", False), ("B", True)]
